"""Looking up by tensors: gather, and its converse scatter_add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapescript.ops import registry
from shapescript.ops.registry import Op, RuleError, position_of, register, roles_by_name
from shapescript.ops.rules import Attributes, Operands, axes_attribute, find, need_whole, one_axis, replaced
from shapescript.types.axes import same
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node


def _gather_rule(operands: Operands, attributes: Attributes) -> Tensor:
    x, index = operands
    over = one_axis(attributes)
    place = find(x.axes, over)
    need_whole(index, "an index", 1)
    rest = replaced(x.axes, place)
    new = [axis for axis in index.axes if same(axis, over) or position_of(rest, axis) is None]
    return Tensor(replaced(x.axes, place, *new), x.element)


def _gather_roles(node: Node) -> registry.Roles:
    return roles_by_name(node, [(one_axis(node.attributes), registry.INDEX)])


def _d_gather(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, index = node.operands
    return b.scatter_add(dy, index, over=one_axis(node.attributes), axes=x.axes), None


register(
    Op(
        "gather",
        "x[n=i]",
        _gather_rule,
        "x looked up along an axis; an index outside the axis is an error.",
        "ones[n][n=arange[n]]",
        _gather_roles,
        (frozenset({0}),),
        _d_gather,
    )
)


def _scatter_rule(operands: Operands, attributes: Attributes) -> Tensor:
    x, index = operands
    axes = axes_attribute(attributes)
    find(axes, one_axis(attributes))
    need_whole(index, "an index", 1)
    for axis in index.axes:
        if position_of(x.axes, axis) is None:
            raise RuleError("E0301", f"`scatter_add`: the index has an axis `{axis}` that the value lacks", 1)
    return Tensor(axes, x.element.base.refined("NonNeg") if x.element.is_nonneg else x.element.base)


def _scatter_roles(node: Node) -> registry.Roles:
    over = one_axis(node.attributes)
    summed = [(axis, registry.SUM) for axis in node.operands[1].axes if position_of(node.axes, axis) is None]
    return roles_by_name(node, [(over, registry.OWN), *summed])


def _d_scatter(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, index = node.operands
    return b.broadcast(b.gather(dy, index, over=one_axis(node.attributes)), x.axes), None


register(
    Op(
        "scatter_add",
        "scatter_add(x, i, over=N)",
        _scatter_rule,
        "x added into the places of an axis that an index names.",
        "scatter_add(ones[n], arange[n], over=n)",
        _scatter_roles,
        (frozenset({0}),),
        _d_scatter,
    )
)
