"""Values made from nothing: numbers, places along an axis, sizes, and random draws; and the mark of a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapescript.ops import registry
from shapescript.ops.registry import Op, RuleError, register, roles_by_name
from shapescript.ops.rules import Attributes, Operands, attribute, axes_attribute, one_axis
from shapescript.types.element import I64, Element
from shapescript.types.kinds import Tensor
from shapescript.types.size import Size

if TYPE_CHECKING:
    from shapescript.ir.graph import Node


def _new_roles(node: Node) -> registry.Roles:
    return roles_by_name(node, otherwise=registry.NEW)


def _scalar_rule(operands: Operands, attributes: Attributes) -> Tensor:
    return Tensor((), attribute(attributes, "element", Element))


def _iota_rule(operands: Operands, attributes: Attributes) -> Tensor:
    return Tensor((one_axis(attributes),), attribute(attributes, "element", Element))


def _size_rule(operands: Operands, attributes: Attributes) -> Tensor:
    one_axis(attributes)
    element = attribute(attributes, "element", Element)
    return Tensor((), element.refined("NonNeg") if element.is_float else element)


def _key_rule(operands: Operands, attributes: Attributes) -> Tensor:
    return Tensor((), I64)


def _drawn_rule(operands: Operands, attributes: Attributes) -> Tensor:
    attribute(attributes, "place", int)
    return Tensor(axes_attribute(attributes), attribute(attributes, "element", Element))


def _uniform_rule(operands: Operands, attributes: Attributes) -> Tensor:
    drawn = _drawn_rule(operands, attributes)
    return Tensor(drawn.axes, drawn.element.refined("Prob"))


def _integers_rule(operands: Operands, attributes: Attributes) -> Tensor:
    attribute(attributes, "place", int)
    return Tensor(axes_attribute(attributes), Element.index(attribute(attributes, "bound", Size)))


register(Op("constant", "0.5", _scalar_rule, "A number.", "0.5 * ones[n]", _new_roles))
register(Op("iota", "arange[n]", _iota_rule, "0, 1, 2 and so on along an axis.", "arange[n]", _new_roles))
register(Op("size", "n", _size_rule, "How long an axis is; of a batch's, its true count.", "n * ones[n]", _new_roles))
register(Op("random_key", "", _key_rule, "The number of the controller's call.", "uniform[n](0, 1)", _new_roles))
register(
    Op("random_uniform", "uniform[n](0, 1)", _uniform_rule, "Numbers in 0..1, new at each call.",
       "uniform[n](0, 1)", _new_roles)
)  # fmt: skip
register(
    Op("random_normal", "normal[n](std=1)", _drawn_rule, "Standard normal numbers, new at each call.",
       "normal[n](std=1)", _new_roles)
)  # fmt: skip
register(
    Op("random_integers", "randint[n](4)", _integers_rule, "Whole numbers below a bound, new at each call.",
       "randint[n](4)", _new_roles)
)  # fmt: skip


def _gradient_rule(operands: Operands, attributes: Attributes) -> Tensor:
    loss, w = operands
    if loss.axes or not loss.element.is_float:
        raise RuleError("E0607", f"what is differentiated is a scalar float, and this is `{loss}`", 0)
    return Tensor(w.axes, w.element.base)


register(
    Op("gradient", "grad(f, m)", _gradient_rule, "How a scalar changes with a value.", "value_and_grad(f, m)",
       roles_by_name)
)  # fmt: skip
