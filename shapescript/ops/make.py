"""Values made from nothing: constants, places along an axis, sizes, random draws; and `gradient`.

A draw is a function of the random key, its place in the program and the element's place in the whole value. What `eye`,
`causal`, `zeros`, `full` and `one_hot` mean is made of these by the checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapescript.ops.registry import NEW, Op, Roles, RuleError, register, roles_by_name
from shapescript.ops.rules import Attributes, Operands, attribute, axes_attribute, count, one_axis, size_attribute
from shapescript.types.element import I64, Element
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.graph import Node


def _new(node: Node) -> Roles:
    return roles_by_name(node, (), NEW)


def _constant_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("constant", operands, 0)
    element, value = attribute(attributes, "element", Element), attributes["value"]
    if not isinstance(value, (int, float)):
        raise RuleError("E0503", f"a constant is a number, not {value!r}")
    if not element.is_float and value != int(value):
        raise RuleError("E0503", f"{value} meets whole numbers, `{element}`", helps=["make them floats: `x as f32`"])
    return Tensor((), element)


register(Op("constant", "2.5: []", _constant_rule, "A number.", "full[n](2.5)", _new))


def _iota_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("iota", operands, 0)
    return Tensor((one_axis(attributes),), attribute(attributes, "element", Element))


register(Op("iota", "arange[n]: [n] Index[n]", _iota_rule, "0, 1, 2 ... along an axis.", "arange[n]", _new))


def _size_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("size", operands, 0)
    one_axis(attributes)
    element = attribute(attributes, "element", Element)
    return Tensor((), element.refined("NonNeg"))


register(
    Op(
        "size",
        "n: []",
        _size_rule,
        "How long an axis is; of a batch's, its true count.",
        "ones[n] / n",
        lambda node: (),
    )
)


def _key_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("random_key", operands, 0)
    return Tensor((), I64)


register(
    Op(
        "random_key",
        "the random key: [] i64",
        _key_rule,
        "The number of the controller's call, on which each draw depends.",
        "normal[n]",
        lambda node: (),
    )
)


def _draw(name: str, signature: str, doc: str, example: str, refinement: str | None) -> None:
    def rule(operands: Operands, attributes: Attributes) -> Tensor:
        count(name, operands, 1)
        if operands[0].axes or operands[0].element != I64:
            raise RuleError("E0509", f"the key of a draw is a scalar of `i64`, not `{operands[0]}`", 0)
        attribute(attributes, "place", int)
        axes = axes_attribute(attributes)
        if name == "random_integers":
            return Tensor(axes, Element.index(size_attribute(attributes, "bound")))
        element = attribute(attributes, "element", Element)
        if not element.is_float:
            raise RuleError("E0509", f"a draw gives floats, not `{element}`")
        return Tensor(axes, element.refined(refinement))

    register(Op(name, signature, rule, doc, example, _new))


_draw("random_uniform", "uniform[n]: [n] Prob", "Numbers from 0 up to 1.", "uniform[n]", "Prob")
_draw("random_normal", "normal[n]: [n]", "Standard normal numbers.", "normal[n]", None)
_draw("random_integers", "randint[n](V): [n] Index[V]", "Whole numbers from 0 up to the bound.", "randint[n](m)", None)


def _gradient_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("gradient", operands, 2)
    loss, w = operands
    if loss.axes or not loss.element.is_float:
        raise RuleError("E0306", f"what is differentiated is a scalar, and this is `{loss}`", 0)
    return Tensor(w.axes, w.element.base)


register(
    Op(
        "gradient",
        "gradient(loss: [], w: [..]) -> [..]",
        _gradient_rule,
        "How a scalar changes with w; the differentiate pass puts the computation in its place.",
        "ones[n]",
        lambda node: (),
    )
)
