"""The outline of a file: its symbols, what can be folded, what a selection grows to, and the colours of its names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from shapescript.editor.analysis import Analysis
from shapescript.editor.find_names import item_at, occurrences
from shapescript.editor.hover import head_of
from shapescript.editor.symbols import KINDS, NamedItem, Occurrence
from shapescript.syntax import tree

TOKEN_KINDS = (
    "namespace",
    "class",
    "struct",
    "type",
    "function",
    "parameter",
    "variable",
    "property",
    "enumMember",
    "typeParameter",
)
MODIFIERS = ("declaration", "defaultLibrary", "modification")
KIND_OF = {
    "import": "namespace",
    "model": "class",
    "data": "struct",
    "type": "type",
    "function": "function",
    "extern": "function",
    "builtin": "function",
    "member": "function",
    "local": "variable",
    "field": "property",
    "dim": "enumMember",
    "constant": "variable",
    "axis": "typeParameter",
}
BLOCK_COMMENT = re.compile(r"(?:^[ \t]*#[^\n]*\n?){2,}", re.M)


@dataclass(frozen=True)
class Outline:
    """A declaration or a field: `detail` says more about it."""

    name: str
    kind: str
    detail: str
    start: int
    end: int
    name_start: int
    inner: list[Outline] = field(default_factory=list)


def outline(analysis: Analysis) -> list[Outline]:
    """The declarations of a file with their fields."""
    found: list[Outline] = []
    for item in analysis.items:
        if not isinstance(item, NamedItem):
            continue
        inner: list[Outline] = []
        if isinstance(item, (tree.Model, tree.Data)):
            for member in item.members:
                kind = analysis.text[member.type.start : member.type.end]
                inner.append(Outline(member.name, "field", kind, member.start, member.end, member.name_start))
        detail = ""
        if isinstance(item, (tree.Function, tree.Extern)):
            detail = head_of(analysis.source, item).partition(item.name)[2]
        elif isinstance(item, (tree.Dim, tree.Constant)) and item.value is not None:
            detail = analysis.text[item.value.start : item.value.end]
        end = max(item.start, len(analysis.text[: item.end].rstrip()))
        found.append(Outline(item.name, KINDS[type(item)], detail, item.start, end, item.name_start, inner))
    return found


def folds(analysis: Analysis) -> list[tuple[int, int, bool]]:
    """What can be folded: from an offset to another, and whether it is a comment."""
    text = analysis.text
    found: list[tuple[int, int, bool]] = []
    for item in analysis.items:
        for node in item.walk():
            if isinstance(node, (tree.Function, tree.Model, tree.Data, tree.Devices, tree.For, tree.While)):
                found.append((node.start, node.end, False))
            elif isinstance(node, tree.If):
                found.append((node.start, node.body[-1].end, False))
                if node.otherwise and not isinstance(node.otherwise[0], tree.If):
                    found.append((node.body[-1].end + 1, node.otherwise[-1].end, False))
            elif isinstance(node, (tree.Call, tree.Pipe)):
                found.append((node.start, node.end, False))
    found += ((match.start(), match.end(), True) for match in BLOCK_COMMENT.finditer(text))
    several = []
    for start, end, comment in found:
        end = len(text[:end].rstrip())
        if text.count("\n", start, end):
            several.append((start, end, comment))
    return sorted(set(several))


def around(analysis: Analysis, offset: int) -> list[tuple[int, int]]:
    """What a selection at an offset grows to: the parts of the text around it, the innermost first."""
    item = item_at(analysis, offset)
    spans = [(0, len(analysis.text))]
    nodes = list(item.walk()) if item is not None else []
    inside = [(node.start, node.end) for node in nodes if node.start <= offset <= node.end]
    for span in sorted(set(inside), key=lambda span: (span[0] - span[1], span[0])):
        if spans[-1][0] <= span[0] and span[1] <= spans[-1][1] and span != spans[-1]:
            spans.append(span)
    return spans[::-1]


@dataclass(frozen=True)
class Colour:
    """A name's kind, one of `TOKEN_KINDS`, and its modifiers."""

    start: int
    length: int
    kind: str
    modifiers: tuple[str, ...] = ()


def colours(analysis: Analysis, start: int, end: int) -> Iterator[Colour]:
    """The kinds of the names between two offsets."""
    for item in analysis.items:
        if item.end < start or item.start > end:
            continue
        parameters = {parameter.name for parameter in getattr(item, "parameters", ())}
        last = -1
        for each in occurrences(analysis, item):
            if each.start >= last and start <= each.start <= end:
                last = each.end
                yield colour(each, parameters)


def colour(each: Occurrence, parameters: set[str]) -> Colour:
    """The colour of a name."""
    symbol = each.symbol
    kind = "parameter" if symbol.kind == "local" and symbol.name in parameters else KIND_OF[symbol.kind]
    modifiers = []
    if each.binds and not isinstance(each.node, tree.Expr):
        modifiers.append("declaration")
    if symbol.kind in ("builtin", "type"):
        modifiers.append("defaultLibrary")
    if each.binds and isinstance(each.node, tree.Expr):
        modifiers.append("modification")
    return Colour(each.start, each.end - each.start, kind, tuple(modifiers))
