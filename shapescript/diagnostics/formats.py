"""Diagnostics for tools and for narrow places.

`concise` gives a line for each, `file:line:column: error[E0301]: message`; `as_json` gives one JSON array, in which
lines and columns count from 1, columns in code points, and an end is the place just after the last character.
`sarif` is the format of GitHub's code scanning and its like, `github` the lines by which a workflow marks a change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

from shapescript import __version__
from shapescript.diagnostics.codes import codes
from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.diagnostics.render import one_line, render_all

FORMATS = ("text", "concise", "json", "sarif", "github")
SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def show(diagnostics: Sequence[Diagnostic], format: str = "text", colour: bool = False) -> str:
    """The diagnostics in one of `FORMATS`; empty for none, but for json and sarif, where a list is."""
    if format == "json":
        return as_json(diagnostics)
    if format == "sarif":
        return as_sarif(diagnostics)
    if format == "github":
        return as_commands(diagnostics)
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
        "fixes": [
            {
                "title": fix.title,
                "safe": fix.safe,
                "edits": [{**place(Label(edit.span)), "text": edit.text} for edit in fix.edits],
            }
            for fix in diagnostic.fixes
        ],
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


# --- SARIF and workflow commands -------------------------------------------------------------------------------------


def as_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """All diagnostics as one run of SARIF 2.1.0."""
    titles = codes()
    used = sorted({diagnostic.code for diagnostic in diagnostics})
    driver = {
        "name": "shapescript",
        "version": __version__,
        "rules": [{"id": code, "shortDescription": {"text": titles.get(code, code)}} for code in used],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [sarif_result(each, used) for each in diagnostics],
    }
    return json.dumps({"$schema": SARIF, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def sarif_result(diagnostic: Diagnostic, used: Sequence[str]) -> dict[str, object]:
    """One diagnostic as a result of SARIF."""
    words = [diagnostic.message, *(f"note: {note}" for note in diagnostic.notes)]
    words += [f"help: {help}" for help in diagnostic.helps]
    related = [{**sarif_place(label), "message": {"text": label.words}} for label in diagnostic.secondary]
    return {
        "ruleId": diagnostic.code,
        "ruleIndex": used.index(diagnostic.code),
        "level": diagnostic.severity,
        "message": {"text": "\n".join(words)},
        "locations": [sarif_place(diagnostic.primary)],
        "relatedLocations": related,
    }


def sarif_place(label: Label) -> dict[str, object]:
    """Where a label points, as SARIF has it."""
    at = place(label)
    keys = (("line", "startLine"), ("column", "startColumn"), ("end_line", "endLine"), ("end_column", "endColumn"))
    region = {name: at[key] for key, name in keys}
    uri = quote(str(at["file"]).replace("\\", "/"))
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}


def as_commands(diagnostics: Sequence[Diagnostic]) -> str:
    """A line for each diagnostic by which a GitHub workflow shows it at its place."""
    lines = []
    for diagnostic in diagnostics:
        at = place(diagnostic.primary)
        where = f"file={property_text(str(at['file']))},line={at['line']},col={at['column']}"
        if at["end_line"] == at["line"]:
            where += f",endColumn={at['end_column']}"
        words = "\n".join([diagnostic.message, *(f"help: {help}" for help in diagnostic.helps)])
        title = f"shapescript {diagnostic.code}"
        lines.append(f"::{diagnostic.severity} {where},title={property_text(title)}::{command_text(words)}\n")
    return "".join(lines)


def command_text(text: str) -> str:
    """Text as a workflow command carries it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_text(text: str) -> str:
    """Text as the value of a workflow command's property."""
    return command_text(text).replace(":", "%3A").replace(",", "%2C")
