"""The product of two tensors, summed over what the result lacks: what `@` and `einsum` become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapescript.ops import registry
from shapescript.ops.registry import Op, RuleError, position_of, register, roles_by_name
from shapescript.ops.rules import Attributes, Operands, axes_attribute, one_name
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node


def _rule(operands: Operands, attributes: Attributes) -> Tensor:
    a, b = operands
    axes = axes_attribute(attributes)
    base = one_name(operands)
    if base.is_bool:
        raise RuleError("E0509", "a product takes numbers, and these are bools", 0)
    for axis in axes:
        if position_of(a.axes, axis) is None and position_of(b.axes, axis) is None:
            raise RuleError("E0403", f"the result's axis `{axis}` is in neither operand")
    nonneg = a.element.is_nonneg and b.element.is_nonneg
    return Tensor(axes, base.refined("NonNeg") if nonneg else base)


def _roles(node: Node) -> registry.Roles:
    axes = [axis for operand in node.operands for axis in operand.axes]
    return roles_by_name(node, [(axis, registry.SUM) for axis in axes if position_of(node.axes, axis) is None])


def _gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    left, right = node.operands
    return _toward(b, dy, right, left), _toward(b, dy, left, right)


def _toward(b: Builder, dy: Node, other: Node, operand: Node) -> Node:
    """The gradient of one operand; along an axis that was summed in it alone, the same at each place."""
    known = (*dy.axes, *other.axes)
    found = b.contract(dy, other, [axis for axis in operand.axes if position_of(known, axis) is not None])
    return b.broadcast(found, operand.axes)


register(
    Op(
        "contract",
        "einsum(a, b: n k, k m -> n m)",
        _rule,
        "The product of two tensors, summed over the axes that the result lacks.",
        "einsum(ones[n k], ones[k m]: n k, k m -> n m)",
        _roles,
        (frozenset({0}), frozenset({1})),
        _gradient,
    )
)
