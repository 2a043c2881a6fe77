"""Fixes: how they are made, and what becomes of a text to which some are applied.

`replaced`, `put_in` and `suggested` make one; `apply` takes a text and fixes, and gives the next text. Which fix
belongs to which mistake is said where the mistake is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shapescript.diagnostics.diagnostic import Diagnostic, Edit, Fix
from shapescript.source import Source, Span

SUGGESTION = re.compile(r"did you mean `([A-Za-z_][\w.]*)`\?")
NAME_IN_WORDS = re.compile(r"`([A-Za-z_]\w*)`")


def replaced(span: Span, text: str, *, safe: bool = False, title: str | None = None) -> Fix:
    """Writes something else in the place of a span."""
    if title is None:
        title = f"write `{text.strip()}`" if text.strip() else f"leave `{span.text.strip()}` out"
    return Fix(title, (Edit(span, text),), safe)


def put_in(source: Source, offset: int, text: str, *, safe: bool = False) -> Fix:
    """Writes something at an offset."""
    return Fix(f"add `{text.strip()}`", (Edit(source.span(offset, offset), text),), safe)


def suggested(span: Span, message: str, helps: Sequence[str]) -> tuple[Fix, ...]:
    """The fix of a name spelled almost right, whose help says `did you mean`; the span holds the name."""
    found = SUGGESTION.fullmatch(helps[0]) if helps else None
    if found is None:
        return ()
    meant = found[1].rpartition(".")[2]
    for wrong in NAME_IN_WORDS.findall(message):
        places = [place.start() for place in re.finditer(rf"\b{wrong}\b", span.text)]
        if places and wrong != meant:
            start = span.start + places[-1 if "." in span.text else 0]
            return (replaced(span.source.span(start, start + len(wrong)), meant),)
    return ()


def apply(source: Source, diagnostics: Iterable[Diagnostic], unsafe: bool = False) -> tuple[str, list[Fix]]:
    """The text with the first fix of each diagnostic applied, where it is safe or `unsafe`; of fixes that overlap the
    first is taken. And the fixes that were applied."""
    taken: list[Fix] = []
    spans: list[tuple[int, int]] = []
    for diagnostic in diagnostics:
        for fix in diagnostic.fixes[:1]:
            ours = [(edit.span.start, edit.span.end) for edit in fix.edits]
            if not (fix.safe or unsafe) or any(edit.span.source != source for edit in fix.edits):
                continue
            if any(start <= b and a <= end for a, b in spans for start, end in ours):
                continue
            spans += ours
            taken.append(fix)
    text = source.text
    for edit in sorted((edit for fix in taken for edit in fix.edits), key=lambda edit: -edit.span.start):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text, taken
