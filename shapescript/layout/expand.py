"""What needs an axis whole, made of what doesn't, where a dim of the policy is that axis.

Takes a logical graph and a policy; gives one in which a softmax over a split vocabulary is a greatest, a sum and
elementwise operations, each of which leaves a small partial value. Elsewhere the single operation stays. What has no
such form here (sort, cumsum, topk) is gathered. The results are the same up to the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable

from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node, Rewriter
from shapescript.layout.policy import Policy
from shapescript.layout.words import leaves_of
from shapescript.ops.registry import over_axes, position_of
from shapescript.ops.rules import number_attribute, wider
from shapescript.ops.statistics import mean_of, variance_of
from shapescript.types.element import I64, Element

Expansion = Callable[[Builder, Node, Node], Node]
"""Takes the builder, the old node, and what stands for its operand."""


def with_expansions(graph: Graph, policy: Policy) -> Graph:
    """The graph, with what goes along a split dim taken apart."""
    dims = policy.dims(graph.sizes)
    if not dims:
        return graph
    rewriter = Rewriter(graph)
    builder = Builder(rewriter.graph)
    for node in graph.nodes:
        expansion = EXPANSIONS.get(node.name)
        if expansion is None or not _goes_along(node, policy, dims):
            rewriter.keep(node)
            continue
        with builder.at(node.span):
            made = expansion(builder, node, rewriter.operands(node)[0])
            made = builder.cast(made, node.element) if made.element.name != node.element.name else made
            rewriter.now[node.number] = builder.relabel(builder.refine(made, node.element), node.axes)
    return rewriter.finish()


def _goes_along(node: Node, policy: Policy, dims: set[str]) -> bool:
    axes = node.operands[0].axes
    for axis in over_axes(node.attributes):
        at = position_of(axes, axis)
        if at is not None and any(policy.atom_of(leaf) in dims for leaf in leaves_of(axes[at])):
            return True
    return False


def _wide(b: Builder, x: Node) -> Node:
    return b.cast(x, Element(wider(x.element).name))


def _shifted(b: Builder, node: Node, x: Node) -> tuple[Node, Node, Node]:
    """exp(x - greatest), their sum, and the greatest, 0 where all is -inf; with an infinite one all is nan."""
    over = over_axes(node.attributes)
    greatest = b.max(x, over=over)
    greatest = b.where(b.equal(greatest, float("-inf")), 0.0, greatest)
    powers = b.exp(b.subtract(x, b.broadcast(greatest, x.axes)))
    return powers, b.sum(powers, over=over), greatest


def _softmax(b: Builder, node: Node, x: Node) -> Node:
    powers, total, _ = _shifted(b, node, _wide(b, x))
    return b.divide(powers, b.broadcast(b.where(b.equal(total, 0), 1.0, total), x.axes))


def _log_softmax(b: Builder, node: Node, x: Node) -> Node:
    x = _wide(b, x)
    _, total, greatest = _shifted(b, node, x)
    dead = b.equal(total, 0)
    found = b.subtract(x, b.broadcast(b.add(greatest, b.log(b.where(dead, 1.0, total))), x.axes))
    return b.where(b.broadcast(dead, x.axes), float("-inf"), found)


def _logsumexp(b: Builder, node: Node, x: Node) -> Node:
    x, over = _wide(b, x), over_axes(node.attributes)
    greatest = b.max(x, over=over)
    greatest = b.where(b.equal(b.abs(greatest), float("inf")), 0.0, greatest)
    total = b.sum(b.exp(b.subtract(x, b.broadcast(greatest, x.axes))), over=over)
    return b.add(b.log(total), greatest)


def _layer_norm(b: Builder, node: Node, x: Node) -> Node:
    x, over = _wide(b, x), over_axes(node.attributes)
    eps = number_attribute(node.attributes, "eps", 1e-5)
    centred = b.subtract(x, b.broadcast(mean_of(b, x, over), x.axes))
    return b.multiply(centred, b.broadcast(b.rsqrt(b.add(variance_of(b, x, over, 0), eps)), x.axes))


def _rms_norm(b: Builder, node: Node, x: Node) -> Node:
    x, over = _wide(b, x), over_axes(node.attributes)
    eps = number_attribute(node.attributes, "eps", 1e-6)
    return b.multiply(x, b.broadcast(b.rsqrt(b.add(mean_of(b, b.square(x), over), eps)), x.axes))


def _first_best(b: Builder, node: Node, x: Node) -> Node:
    """The least place that has the best value; nan counts as the best, as in torch."""
    (over,) = over_axes(node.attributes)
    at = position_of(x.axes, over)
    assert at is not None
    best = b.max(x, over=over) if node.name == "argmax" else b.min(x, over=over)
    hit = b.equal(x, b.broadcast(best, x.axes))
    if x.element.is_float:
        hit = b.or_(hit, b.is_nan(x))
    places = b.broadcast(b.iota(x.axes[at], I64), x.axes)
    return b.min(b.where(hit, places, b.full_like(places, 2**62)), over=over)


def _any(b: Builder, node: Node, x: Node) -> Node:
    return b.greater(b.sum(x, over=over_axes(node.attributes)), 0)


def _all(b: Builder, node: Node, x: Node) -> Node:
    return b.equal(b.sum(b.not_(x), over=over_axes(node.attributes)), 0)


EXPANSIONS: dict[str, Expansion] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "argmax": _first_best,
    "argmin": _first_best,
    "any": _any,
    "all": _all,
}
