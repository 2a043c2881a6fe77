"""Selections before what reduces or looks up along a batch's axis, so that rows that aren't real change nothing.

Takes a logical graph that will run padded to fixed widths; gives one with `mask` nodes: 0 before a sum, -inf before
the greatest, and so on; on both operands of a product (0 times nan is nan), on every index, on the divisors of whole
numbers and on what is checked as it runs. Each operation has its own masks at its operands, and the layouter makes
the selection after any conversion. A padded axis stays padded where it is whole. Graphs with sizes that follow from a
batch's (`b - 1`) or with Python in them have no padded form: `Unpadded`, and each count runs at its exact widths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shapescript.ir.graph import Graph, Node, Rewriter
from shapescript.layout.policy import atom_of
from shapescript.layout.words import leaves_of
from shapescript.ops.registry import MAX, MIN, REGISTRY, SUM, WHOLE
from shapescript.types.axes import Axis, places
from shapescript.types.size import Size

INFINITY = float("inf")
IDENTITIES = {SUM: 0.0, MAX: -INFINITY, MIN: INFINITY}
"""What changes nothing, by the word of a role."""

WHOLE_IDENTITIES = {
    "softmax": -INFINITY,
    "log_softmax": -INFINITY,
    "logsumexp": -INFINITY,
    "argmax": -INFINITY,
    "argmin": INFINITY,
    "prod": 1.0,
    "any": 0.0,
    "all": 1.0,
    "cumsum": 0.0,
    "cumprod": 1.0,
    "sort": INFINITY,
    "argsort": INFINITY,
    "topk_values": -INFINITY,
    "topk_indices": -INFINITY,
}
"""The same, for ops that need an axis whole; `whole` itself hands rows on."""


class Unpadded(Exception):
    """A graph that has no padded form; the text says why."""


def with_masks(graph: Graph, batches: Sequence[str]) -> Graph:
    """The graph with its masks.

    Raises:
        Unpadded: it has no padded form.
    """
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        for axis in node.axes:
            for leaf in leaves_of(axis):
                if atom_of(leaf) not in batches and not leaf.size.atoms.isdisjoint(batches):
                    raise Unpadded(f"`{node.name}` gives an axis of {leaf.size}, which follows from a batch's count")
        wanted = list(_wanted(node, batches))
        copy = rewriter.keep(node)
        if wanted:
            rewriter.graph.nodes.pop()
            operands = list(copy.operands)
            for place, dim, leaf_number, value in wanted:
                operands[place] = rewriter.graph.append(_mask(operands[place], dim, leaf_number, value))
            copy.operands = tuple(operands)
            rewriter.graph.append(copy)
    return rewriter.finish()


def _mask(x: Node, dim: int, leaf: int, value: float) -> Node:
    before, inner = around(x.axes[dim], leaf)
    count = leaves_of(x.axes[dim])[leaf].size
    attributes = {"dim": dim, "leaf": leaf, "before": before, "inner": inner, "count": count, "value": value}
    return Node(REGISTRY["mask"], (x,), attributes, x.axes, x.element, x.span)


def around(axis: Axis, leaf: int) -> tuple[Size, Size]:
    """How many places of an axis stand before a leaf's, and within each of its places."""
    before, inner = Size.of(1), Size.of(1)
    for number, other in enumerate(leaves_of(axis)):
        if number < leaf:
            before = before * other.size
        elif number > leaf:
            inner = inner * other.size
    return before, inner


def padded_leaves(axes: Sequence[Axis], batches: Sequence[str]) -> list[tuple[int, int]]:
    """The places of the leaves that are padded."""
    return [
        (dim, number)
        for dim, axis in enumerate(axes)
        for number, leaf in enumerate(leaves_of(axis))
        if atom_of(leaf) in batches
    ]


def _wanted(node: Node, batches: Sequence[str]) -> Iterator[tuple[int, int, int, float]]:
    """The masks that a node needs: operand, axis, leaf, value."""
    if node.op is None or node.op.roles is None:
        return
    padded = [padded_leaves(operand.axes, batches) for operand in node.operands]
    if not any(padded):
        return
    if node.name in ("extern", "extern_gradient"):
        raise Unpadded("Python is called with a batch")
    whole_operand = whole_masked(node)
    for place, value in whole_operand.items():
        for dim, leaf in padded[place]:
            yield place, dim, leaf, value
    for role in node.op.roles(node):
        if role.word == WHOLE and node.name == "whole":
            continue
        table = {role.word: WHOLE_IDENTITIES.get(node.name)} if role.word == WHOLE else IDENTITIES
        if role.word not in table:
            continue
        identity = table[role.word]
        for place, dim_of in enumerate(role.operands):
            if dim_of is None or place in whole_operand:
                continue
            for at, leaf in padded[place]:
                if at != dim_of:
                    continue
                axes = node.operands[place].axes
                if identity is None or len(places(axes[dim_of], axes)) > 1:
                    raise Unpadded(f"`{node.name}` goes along a batch's axis")
                yield place, at, leaf, identity


def whole_masked(node: Node) -> dict[int, float]:
    """The operands of which every padded place is selected, and by what: indices, divisors, what is checked."""
    if node.name == "gather":
        return {1: 0.0}
    if node.name == "scatter_add":
        return {1: 0.0}
    if node.name in ("floor_divide", "remainder", "divide") and not node.element.is_float:
        return {1: 1.0}
    if node.name == "power" and not node.element.is_float:
        return {1: 1.0}
    if node.name in ("refine", "cast") and node.element.refinement == "Index":
        return {0: 0.0}
    if node.name == "require_finite":
        return {0: 0.0}
    return {}
