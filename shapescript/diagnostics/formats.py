"""Diagnostics for tools and for narrow places.

`concise` gives a line for each, `file:line:column: error[E0301]: message`; `as_json` gives one JSON array, in which
lines and columns count from 1, columns in code points, and an end is the place just after the last character.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.diagnostics.render import one_line, render_all

FORMATS = ("text", "concise", "json")


def show(diagnostics: Sequence[Diagnostic], format: str = "text", colour: bool = False) -> str:
    """The diagnostics in one of `FORMATS`; empty for none, but for json, where none is `[]`."""
    if format == "json":
        return as_json(diagnostics)
    return concise(diagnostics) if format == "concise" else render_all(diagnostics, colour)


def concise(diagnostics: Sequence[Diagnostic]) -> str:
    """A line for each diagnostic."""
    return "".join(f"{d.primary.span.place}: {d.severity}[{d.code}]: {one_line(d.message)}\n" for d in diagnostics)


def as_json(diagnostics: Sequence[Diagnostic]) -> str:
    """All diagnostics as one JSON array."""
    return json.dumps([as_object(diagnostic) for diagnostic in diagnostics], indent=2, ensure_ascii=False) + "\n"


def as_object(diagnostic: Diagnostic) -> dict[str, object]:
    """One diagnostic as JSON's objects, arrays and strings."""
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        **place(diagnostic.primary),
        "secondary": [place(label) for label in diagnostic.secondary],
        "notes": list(diagnostic.notes),
        "helps": list(diagnostic.helps),
    }


def place(label: Label) -> dict[str, object]:
    """Where a label points, and its words."""
    span = label.span
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {
        "file": span.source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "label": label.words,
    }
