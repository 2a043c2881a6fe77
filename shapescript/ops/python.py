"""`extern fn`: Python code on each example by itself, as an operation.

Its first axis is the batch's, along which a split passes; the code needs all else whole. Its gradient is torch's: the
code is called once more for it, with the same random draws, and torch's autograd goes back through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapescript.ops import registry
from shapescript.ops.registry import Op, position_of, register, roles_by_name
from shapescript.ops.rules import Attributes, Operands, attribute, axes_attribute
from shapescript.types.element import Element
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node


def _rule(operands: Operands, attributes: Attributes) -> Tensor:
    attribute(attributes, "target", str)
    attribute(attributes, "place", int)
    return Tensor(axes_attribute(attributes), attribute(attributes, "element", Element))


def _roles(node: Node) -> registry.Roles:
    return roles_by_name(node, [(axis, registry.MAP) for axis in node.axes[:1]], otherwise=registry.WHOLE)


def _gradient_roles(node: Node) -> registry.Roles:
    batch = node.operands[-1].axes[:1]
    word = registry.MAP if position_of(node.axes, batch[0]) is not None else registry.SUM
    return roles_by_name(node, [(batch[0], word)], otherwise=registry.WHOLE)


def _gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    target, place = node.attributes["target"], node.attributes["place"]

    def by(at: int, operand: Node) -> Node:
        axes, element = operand.axes, operand.element.base
        return b.emit(
            "extern_gradient", *node.operands, dy, of=at, axes=axes, element=element, target=target, place=place
        )

    return [by(at, operand) if operand.element.is_float else None for at, operand in enumerate(node.operands)]


def _gradient_rule(operands: Operands, attributes: Attributes) -> Tensor:
    attribute(attributes, "of", int)
    return _rule(operands, attributes)


register(
    Op(
        "extern",
        'extern fn f(x: [b D]) -> [b D] = "module.attr"',
        _rule,
        "What a function of Python makes of each example; it is called once a run, never while compiling.",
        "ones[n]",
        _roles,
        gradient=_gradient,
    )
)

register(
    Op(
        "extern_gradient",
        "extern_gradient(x, ..., dy, of=0) -> the gradient by operand `of`",
        _gradient_rule,
        "What torch's autograd sends back through a function of Python; a program can't write it.",
        "ones[n]",
        _gradient_roles,
    )
)
