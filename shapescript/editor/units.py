"""A file's text in units that are parsed by themselves, so that an edit costs the units that it touches.

A unit begins at the left margin with a line that declares something, whatever stands before it: there the parser
begins anew too. Where brackets are still open at the end of a unit, the next one belongs to it, as the error about
them shows both. Gives each unit's declarations with their offsets in the whole text, which move as text before them
changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from shapescript.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from shapescript.source import Source, Span
from shapescript.syntax import tree
from shapescript.syntax.parse import parse
from shapescript.syntax.tokens import RESERVED

BEGINS = re.compile(r"^(?:devices|dim|model|data|extern|import|fn)[ \t]+([A-Za-z_]\w*)", re.M | re.A)
BRACKETS = re.compile(r'"(?:[^"\\\n\r]|\\[^\n\r])*"?|\'[^\'\n\r]*\'|#[^\n]*|([()\[\]])')
CLOSES = {")": "(", "]": "["}


@dataclass(slots=True)
class Unit:
    """A part of the text: what it declares and what is wrong with it, in offsets of the whole text.

    `nodes` are all nodes of its trees, to move them.
    """

    text: str
    start: int
    items: list[tree.Declaration] = field(default_factory=list)
    nodes: list[tree.Node] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.text)

    def move(self, by: int) -> None:
        """Moves all offsets."""
        self.start += by
        move_nodes(self.nodes, by)
        self.diagnostics = [moved(each, lambda offset: offset + by) for each in self.diagnostics]


def split(text: str) -> list[str]:
    """The texts of the units, which together are the whole."""
    starts = [0]
    for match in BEGINS.finditer(text):
        if match.start() and (match[1] not in RESERVED or match[1] == "fn"):
            starts.append(match.start())
    parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    units: list[str] = []
    open_before = False
    for part in parts:
        if open_before:
            units[-1] += part
        else:
            units.append(part)
        open_before = leaves_open(part)
    return units


@lru_cache(maxsize=4096)
def leaves_open(text: str) -> bool:
    """Is a bracket open at the end of a text?"""
    stack: list[str] = []
    for match in BRACKETS.finditer(text):
        sign = match[1]
        if sign in ("(", "["):
            stack.append(sign)
        elif sign and CLOSES[sign] in stack:
            while stack.pop() != CLOSES[sign]:
                pass
    return bool(stack)


def parsed_unit(source: Source, text: str, start: int) -> Unit:
    """A unit of a source."""
    own = Source(source.name, text)
    parsed = parse(own)
    unit = Unit(text, start, parsed.items, [node for item in parsed.items for node in item.walk()])
    move_nodes(unit.nodes, start)
    unit.diagnostics = [moved(each, lambda offset: offset + start, source) for each in parsed.diagnostics]
    return unit


def move_nodes(nodes: Iterable[tree.Node], by: int) -> None:
    """Moves the offsets of nodes."""
    if not by:
        return
    for node in nodes:
        node.start += by
        node.end += by
        if isinstance(node, NAMED):
            node.name_start += by


NAMED = (
    tree.Attribute,
    tree.DeviceOption,
    tree.Dim,
    tree.Constant,
    tree.Field,
    tree.Model,
    tree.Data,
    tree.Parameter,
    tree.Function,
    tree.Extern,
    tree.Import,
)


def moved(diagnostic: Diagnostic, offset: Callable[[int], int], source: Source | None = None) -> Diagnostic:
    """A diagnostic with its spans' offsets mapped, and given to another source; those of other files stay."""
    home = diagnostic.primary.span.source

    def span(of: Span) -> Span:
        if of.source is not home and source is None:
            return of
        return Span(source or of.source, offset(of.start), offset(of.end))

    def label(of: Label) -> Label:
        return Label(span(of.span), of.words)

    def fix(of: Fix) -> Fix:
        return replace(of, edits=tuple(Edit(span(edit.span), edit.text) for edit in of.edits))

    return replace(
        diagnostic,
        primary=label(diagnostic.primary),
        secondary=tuple(map(label, diagnostic.secondary)),
        fixes=tuple(map(fix, diagnostic.fixes)),
    )


def spans_of(diagnostic: Diagnostic) -> Iterator[Span]:
    """Every span of a diagnostic."""
    yield diagnostic.primary.span
    for label in diagnostic.secondary:
        yield label.span
    for fix in diagnostic.fixes:
        for edit in fix.edits:
            yield edit.span
