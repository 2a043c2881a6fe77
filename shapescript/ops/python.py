"""`extern fn`: Python code on each example by itself, as an operation.

Its first axis is the batch's, along which a split passes; the code needs all else whole. Nothing is known of its slope:
no gradient flows through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapescript.ops import registry
from shapescript.ops.registry import Op, register, roles_by_name
from shapescript.ops.rules import Attributes, Operands, attribute, axes_attribute
from shapescript.types.element import Element
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.graph import Node


def _rule(operands: Operands, attributes: Attributes) -> Tensor:
    attribute(attributes, "target", str)
    attribute(attributes, "place", int)
    return Tensor(axes_attribute(attributes), attribute(attributes, "element", Element))


def _roles(node: Node) -> registry.Roles:
    return roles_by_name(node, [(axis, registry.MAP) for axis in node.axes[:1]], otherwise=registry.WHOLE)


register(
    Op(
        "extern",
        'extern fn f(x: [b D]) -> [b D] = "module.attr"',
        _rule,
        "What a function of Python makes of each example; it is called once a run, never while compiling.",
        "ones[n]",
        _roles,
    )
)
