"""Attention: queries look at keys, and take the mean of their values by the softmax of the products.

`attention(q, k, v)` or `attention(q, k, v, mask)`: `feature` is the axis that q and k are contracted over, whose size's
root divides the products, and `keys` the keys' axis, over which the softmax goes. The other axes of q are in both k and
v, or in neither; `axes` are the result's. Where the mask is false nothing is looked at, and with `causal` no key behind
the query's own place; a query that looks at nothing gets 0.

A plan holds it as one op, so that a fused kernel runs it; its gradient is made of products and a softmax again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapescript.ops.registry import MAP, WHOLE, Op, Role, Roles, RuleError, position_of, register
from shapescript.ops.rules import Attributes, Operands, attribute, axes_attribute, find, need_bool, need_float, one_name
from shapescript.types.axes import Axis, contains
from shapescript.types.element import I64
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node


def query_axes(q: Sequence[Axis], k: Sequence[Axis], feature: Axis) -> tuple[Axis, ...]:
    """The axes of the queries that the keys lack."""
    return tuple(axis for axis in q if not contains(k, axis) and axis != feature)


def _rule(operands: Operands, attributes: Attributes) -> Tensor:
    q, k, v, *masks = operands
    over, feature = attribute(attributes, "keys", Axis), attribute(attributes, "feature", Axis)
    base = one_name((q, k, v))
    need_float(q, "attention")
    for mask in masks:
        need_bool(mask, "attention", 3)
    find(q.axes, feature)
    find(k.axes, feature, 1)
    find(k.axes, over, 1)
    find(v.axes, over, 2)
    for axis in k.axes:
        if axis not in (over, feature) and not (contains(q.axes, axis) and contains(v.axes, axis)):
            raise RuleError("E0404", f"`{axis}` of the keys is in neither the queries nor the values", 1)
    axes = axes_attribute(attributes)
    wanted = [axis for axis in q.axes if axis != feature]
    wanted += [axis for axis in v.axes if axis != over and not contains(wanted, axis)]
    if len(axes) != len(wanted) or any(not contains(axes, axis) for axis in wanted):
        raise RuleError("E0404", "the result of an attention has the axes of its queries and of its values")
    return Tensor(axes, base)


def _roles(node: Node) -> Roles:
    whole = (attribute(node.attributes, "keys", Axis), attribute(node.attributes, "feature", Axis))
    found: list[Axis] = []
    for axes in (node.axes, *(operand.axes for operand in node.operands)):
        found.extend(axis for axis in axes if position_of(found, axis) is None)
    causal = query_axes(node.operands[0].axes, node.operands[1].axes, whole[1]) if node.attributes.get("causal") else ()
    return tuple(
        Role(
            axis,
            WHOLE if axis in (*whole, *causal) else MAP,
            tuple(position_of(operand.axes, axis) for operand in node.operands),
            position_of(node.axes, axis),
        )
        for axis in found
    )


def weights_of(b: Builder, node: Node) -> tuple[Node, Node]:
    """What the softmax gives at each query and key, and one over the root of the features."""
    q, k, _, *masks = node.operands
    over, feature = attribute(node.attributes, "keys", Axis), attribute(node.attributes, "feature", Axis)
    scored = (*(axis for axis in q.axes if axis != feature), over)
    scale = b.rsqrt(b.size(feature, q.element.base))
    scores = b.multiply(b.contract(q, k, scored), scale)
    if node.attributes.get("causal"):
        (query,) = query_axes(q.axes, k.axes, feature)
        pair = (query, over)
        masks = [b.less_equal(b.broadcast(b.iota(over, I64), pair), b.broadcast(b.iota(query, I64), pair))]
    for mask in masks:
        scores = b.where(b.broadcast(mask, scored), scores, b.constant(float("-inf"), scores.element.base))
    return b.softmax(scores, over), scale


def _gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    q, k, v, *masks = node.operands
    over = attribute(node.attributes, "keys", Axis)
    weights, scale = weights_of(b, node)
    weights = b.refine(weights, weights.element.base)
    to_weights = b.contract(dy, v, weights.axes)
    mean = b.sum(b.multiply(weights, to_weights), over=over)
    to_scores = b.multiply(b.multiply(weights, b.subtract(to_weights, b.broadcast(mean, weights.axes))), scale)
    return (
        b.contract(to_scores, k, q.axes),
        b.contract(to_scores, q, k.axes),
        b.contract(weights, dy, v.axes),
        *(None for _ in masks),
    )


register(
    Op(
        "attention",
        "attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh, mask=)",
        _rule,
        "The values' mean at each query, weighed by the softmax of its products with the keys.",
        "attention(ones[n k C], ones[n m C], ones[n m C]: n k C, n m C, n m C -> n k C)",
        _roles,
        (frozenset({2}),),
        _gradient,
    )
)
