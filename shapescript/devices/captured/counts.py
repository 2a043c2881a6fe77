"""Counts as data: a graph in which what changes from run to run is an input, so that one capture serves every batch.

Takes a graph, padded where it has a batch; gives `CountedGraph`. A `mask` becomes a selection by a comparison with a
count, a `size` of a batch's axis becomes a count; each count is a scalar input, after the graph's own. What else asks
for a count that changes is named in `open`: it can't be captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node, Rewriter
from shapescript.layout.words import first, own
from shapescript.ops.registry import over_axes
from shapescript.types.axes import Axis
from shapescript.types.element import BOOL, F64, I64
from shapescript.types.size import Size

DRAWS = ("random_uniform", "random_normal", "random_integers")


@dataclass
class CountedGraph:
    """The graph, its own inputs' number, the counts that are inputs after them, and the nodes that need others."""

    graph: Graph
    inputs: int
    counts: list[Size] = field(default_factory=list)
    first_rows: dict[int, Size] = field(default_factory=dict)  # by the number of a draw
    open: set[int] = field(default_factory=set)


def with_counts(graph: Graph, batches: Iterable[str]) -> CountedGraph:
    """The graph with its counts as inputs; `batches` are the atoms of batches."""
    return _Counting(graph, batches).done()


class _Counting:
    def __init__(self, graph: Graph, batches: Iterable[str]) -> None:
        self.old = graph
        self.changing = {atom for batch in batches for atom in (batch, own(batch), first(batch))}
        self.rewriter = Rewriter(graph)
        self.builder = Builder(self.rewriter.graph)
        self.found = CountedGraph(self.rewriter.graph, len(graph.inputs))
        self.known: dict[Size, Node] = {}

    def done(self) -> CountedGraph:
        """The graph."""
        for node in self.old.nodes:
            if node.op is None:
                self.rewriter.keep(node)
        for node in self.old.nodes:
            for size in self._scalars(node):
                self._count(size)
        for node in self.old.nodes:
            if node.op is not None:
                with self.builder.at(node.span):
                    self._node(node)
        self.rewriter.finish()
        return self.found

    def _scalars(self, node: Node) -> list[Size]:
        """The counts that a node reads as numbers."""
        if node.name == "mask" and isinstance(count := node.attributes["count"], Size) and self._changes(count):
            return [count]
        if node.name == "size" and self._changes(size := over_axes(node.attributes)[0].size):
            return [size]
        return []

    def _count(self, size: Size) -> Node:
        if size not in self.known:
            self.found.counts.append(size)
            self.known[size] = self.rewriter.graph.input(str(size), (), I64)
        return self.known[size]

    def _changes(self, size: Size) -> bool:
        return not size.atoms.isdisjoint(self.changing)

    def _node(self, node: Node) -> None:
        scalars = self._scalars(node)
        if not scalars:
            copy = self.rewriter.keep(node)
            self._look_at(copy)
            return
        count = self.known[scalars[0]]
        if node.name == "size":
            made = count if node.element.name == "i64" else self.builder.cast(count, node.element.base)
            made = self.builder.refine(made, node.element) if made.element != node.element else made
        else:
            made = self._selected(node, self.rewriter.operands(node)[0], count)
        self.rewriter.now[node.number] = made

    def _look_at(self, node: Node) -> None:
        """Marks what asks for a count otherwise; where a draw's part of the batch begins is read as it runs."""
        sizes = [size for name, value in node.attributes.items() if name != "value" for size in _sizes(value)]
        if node.name in DRAWS and "whole" in node.attributes:
            begin = _batch_begin(node)
            if begin is not None:
                self.found.first_rows[node.number] = begin
        elif any(self._changes(size) for size in sizes):
            self.found.open.add(node.number)

    def _selected(self, node: Node, x: Node, count: Node) -> Node:
        """A mask as a selection along its axis."""
        b = self.builder
        dim, value = node.attributes["dim"], node.attributes["value"]
        before, inner = node.attributes["before"], node.attributes["inner"]
        assert isinstance(dim, int) and isinstance(value, (int, float))
        assert isinstance(before, Size) and isinstance(inner, Size)
        axis = x.axes[dim]
        places = b.iota(axis, F64)
        if inner.constant != 1:
            places = b.floor_divide(places, _number(b, inner, self.old.sizes))
        if before.constant != 1:
            width = axis.size / (before * inner)
            places = b.remainder(places, _number(b, width, self.old.sizes))
        unreal = b.not_(b.less(places, b.cast(count, F64)))
        assert unreal.element == BOOL
        fill = b.constant(_held(value, node), x.element)
        return b.refine(b.where(b.broadcast(unreal, x.axes), b.broadcast(fill, x.axes), x), node.element)


def _number(b: Builder, size: Size, sizes: Mapping[str, int]) -> Node:
    """A size that doesn't change as a number; one that follows from a width is the length of an axis."""
    if size.atoms <= sizes.keys():
        return b.constant(float(size.evaluate(sizes)), F64)
    return b.size(Axis(None, size), F64)


def _held(value: float | int, node: Node) -> float | int | bool:
    """A number as an element holds it; an infinite one is the greatest or the least of whole numbers."""
    if node.element.is_float:
        return value
    if node.element.name == "bool":
        return value > 0
    if value in (float("inf"), -float("inf")):
        return 2**63 - 1 if value > 0 else -(2**63)
    return int(value)


def _sizes(value: object) -> list[Size]:
    if isinstance(value, Size):
        return [value]
    if isinstance(value, Axis):
        return [value.size]
    if isinstance(value, tuple):
        return [size for each in value for size in _sizes(each)]
    return []


def _batch_begin(node: Node) -> Size | None:
    """Where a draw's rows begin in the whole batch, if it is cut along its batch axis alone."""
    whole = node.attributes["whole"]
    assert isinstance(whole, tuple)
    at = next((i for i, axis in enumerate(whole) if isinstance(axis, Axis) and axis.batch), None)
    firsts = node.attributes["firsts"]
    if node.attributes["dims"] != (at,) or node.attributes["leaves"] != (0,) or at is None or whole[at].parts:
        return None
    assert isinstance(firsts, tuple)
    return firsts[0] if isinstance(firsts[0], Size) else None
