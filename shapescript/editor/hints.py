"""Inlay hints: the types that a line doesn't write, and where each function runs.

A hint stands after a name that gets a value, after a step of a pipe that stands on a line of its own, and after the
head of a function.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shapescript.editor.analysis import Analysis
from shapescript.editor.hover import runs_where
from shapescript.editor.lines import layout_of
from shapescript.syntax import tree
from shapescript.types.kinds import Batch, Tensor, TupleOf, Type


@dataclass(frozen=True)
class Hint:
    """Text after an offset; `tip` says more."""

    offset: int
    text: str
    tip: str = ""


def hints(analysis: Analysis, start: int, end: int) -> list[Hint]:
    """The hints between two offsets."""
    found: list[Hint] = []
    for item in analysis.items:
        if item.end >= start and item.start <= end and isinstance(item, tree.Function):
            found += of_function(analysis, item)
    return sorted((hint for hint in found if start <= hint.offset <= end), key=lambda hint: hint.offset)


def of_function(analysis: Analysis, item: tree.Function) -> Iterator[Hint]:
    """The hints of a function."""
    types = analysis.typed.types
    placement = analysis.placed.kinds.get(item) if analysis.placed is not None else None
    if placement is not None:
        head_end = analysis.text.find("\n", head_end_of(item))
        head_end = len(analysis.text) if head_end < 0 else head_end
        line = analysis.text[:head_end].rstrip("\r")
        yield Hint(len(line), f"  {placement.kind.value}", runs_where(placement))
    yield from of_lines(analysis, item)
    for node in item.walk():
        match node:
            case tree.Assign():
                yield from of_target(analysis, node.target)
            case tree.For():
                for name in node.names:
                    yield from of_target(analysis, name)
            case tree.Pipe() if "\n" in analysis.text[node.value.end : node.target.start]:
                for step in (node.value, node):
                    of = types.get(step)
                    if shown(of) and (step is node or not isinstance(step, tree.Pipe)):
                        yield Hint(step.end, f"  {of}")


def of_lines(analysis: Analysis, item: tree.Function) -> Iterator[Hint]:
    """What the lines of a function send between the devices."""
    first = analysis.source.position(item.start)[0]
    last = analysis.source.position(item.end)[0]
    for line, found in analysis.facts.items():
        if first <= line <= last and found.bytes:
            end = analysis.source.line_starts[line - 1] + len(analysis.source.line(line))
            yield Hint(end, f"  {found.bytes:,} B per step", "\n".join(found.sends))


def head_end_of(item: tree.Function) -> int:
    """The last offset of a function's head that the tree knows."""
    ends = [parameter.end for parameter in item.parameters]
    return item.result.end if item.result is not None else max(ends, default=item.name_start)


def of_target(analysis: Analysis, target: tree.Expr) -> Iterator[Hint]:
    """The hints of what gets a value."""
    if isinstance(target, tree.Name):
        of = analysis.typed.types.get(target)
        if shown(of):
            lies = layout_of(analysis, analysis.source.position(target.start)[0], of)
            yield Hint(target.end, f": {of}" + (f" · {lies}" if lies else ""))
    elif isinstance(target, (tree.Tuple, tree.Group)):
        for inner in target.children():
            if isinstance(inner, tree.Expr):
                yield from of_target(analysis, inner)


def shown(of: Type | None) -> bool:
    """Is it a type that a reader wants to see?"""
    if isinstance(of, TupleOf):
        return any(map(shown, of.items))
    return isinstance(of, (Tensor, Batch))
