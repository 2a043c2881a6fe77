"""Operations along an axis that keep it: softmax, normalisations, running sums, sorting.

Each needs the axis whole: a place of the result depends on every place of the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shapescript.ops import registry
from shapescript.ops.registry import Op, RuleError, over_axes, register, roles_by_name
from shapescript.ops.rules import (
    Attributes,
    Operands,
    attribute,
    find,
    need_float,
    number_attribute,
    one_axis,
    replaced,
    wider,
)
from shapescript.ops.statistics import mean_of, variance_of
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.kinds import Tensor
from shapescript.types.size import Size

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node

FIRST = frozenset({0})
Gradient = Callable[["Builder", "Node", "Node"], Sequence["Node | None"]]


def _roles(node: Node) -> registry.Roles:
    return roles_by_name(node, [(axis, registry.WHOLE) for axis in over_axes(node.attributes)])


def along(
    name: str,
    doc: str,
    element: Callable[[Tensor], Element],
    gradient: Gradient | None,
    *,
    whole: bool = False,
    linear: bool = False,
    signature: str | None = None,
) -> None:
    """Registers an operation along named axes; `whole`: also of whole numbers."""

    def rule(operands: Operands, attributes: Attributes) -> Tensor:
        (operand,) = operands
        if not whole or operand.element.is_bool:
            need_float(operand, name)
        for axis in over_axes(attributes):
            find(operand.axes, axis)
        found = element(operand)
        if name == "argsort":
            place = operand.axes[find(operand.axes, one_axis(attributes))]
            found = Element.index(place.size)
        return Tensor(operand.axes, found)

    register(
        Op(
            name,
            signature or f"{name}(x, over=n)",
            rule,
            doc,
            f"{name}(ones[n], over=n)",
            _roles,
            (FIRST,) if linear else (),
            gradient,
        )
    )


def _d_softmax(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    total = b.sum(b.multiply(dy, node), over=over_axes(node.attributes))
    return (b.multiply(node, b.subtract(dy, b.broadcast(total, node.axes))),)


def _d_log_softmax(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    total = b.sum(dy, over=over_axes(node.attributes))
    return (b.subtract(dy, b.multiply(b.exp(node), b.broadcast(total, node.axes))),)


def _d_normalised(centred: bool) -> Gradient:
    """dx = r (dy - y mean(dy y)), r the inverse deviation; a centred one takes the mean of dy away (Ba 2016)."""

    def gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
        (x,), over = node.operands, over_axes(node.attributes)
        eps = number_attribute(node.attributes, "eps", 1e-5 if centred else 1e-6)
        # Half floats are computed with in f32: their squares soon pass the greatest f16.
        wide = wider(x.element).base
        value, y, up = (b.refine(b.cast(part, Element(wide.name)), wide) for part in (x, node, dy))
        power = variance_of(b, value, over, 0) if centred else mean_of(b, b.square(value), over)
        inner = b.subtract(up, b.multiply(y, b.broadcast(mean_of(b, b.multiply(up, y), over), y.axes)))
        if centred:
            inner = b.subtract(inner, b.broadcast(mean_of(b, up, over), y.axes))
        found = b.multiply(inner, b.broadcast(b.rsqrt(b.add(power, eps)), y.axes))
        return (b.cast(found, x.element.base),)

    return gradient


def _from_behind(b: Builder, x: Node, axis: Axis) -> Node:
    return b.flip(b.cumsum(b.flip(x, over=axis), over=axis), over=axis)


def _d_cumsum(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (_from_behind(b, dy, one_axis(node.attributes)),)


def _d_cumprod(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    """Behind the first 0 nothing changes; at it, the products with a 1 in its place count."""
    (x,) = node.operands
    axis = one_axis(node.attributes)
    zero = b.equal(x, 0)
    so_far = b.cumsum(b.cast(zero, x.element.base), over=axis)
    first = b.and_(zero, b.equal(so_far, 1))
    one = b.full_like(x, 1)
    without_first = b.cumprod(b.where(first, one, x), over=axis)
    at_first = _from_behind(b, b.multiply(dy, without_first), axis)
    elsewhere = b.divide(_from_behind(b, b.multiply(dy, node), axis), b.where(zero, one, x))
    return (b.where(first, at_first, elsewhere),)


def _d_sort(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    axis = one_axis(node.attributes)
    return (b.scatter_add(dy, b.argsort(x, over=axis), over=axis, axes=x.axes),)


def _d_flip(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (b.flip(dy, over=one_axis(node.attributes)),)


def _plain(operand: Tensor) -> Element:
    return operand.element.base


def _kept(operand: Tensor) -> Element:
    return operand.element


def _sums(operand: Tensor) -> Element:
    return operand.element.base.refined("NonNeg" if operand.element.is_nonneg else None)


along("softmax", "exp(x), made to sum to 1; rows of nothing but -inf give 0.",
      lambda x: x.element.refined("Prob"), _d_softmax)  # fmt: skip
along("log_softmax", "The logarithm of softmax, finite for any finite x.", _plain, _d_log_softmax)
along("layer_norm", "x with mean 0 and variance 1 over the axes; eps is 1e-5.", _plain, _d_normalised(True),
      signature="layer_norm(x, over=n, eps=1e-5)")  # fmt: skip
along("rms_norm", "x over the root of its mean square; eps is 1e-6.", _plain, _d_normalised(False),
      signature="rms_norm(x, over=n, eps=1e-6)")  # fmt: skip
along("cumsum", "Running sums.", _sums, _d_cumsum, whole=True, linear=True)
along("cumprod", "Running products.", lambda x: x.element if x.element.is_float else x.element.base, _d_cumprod,
      whole=True)  # fmt: skip
along("sort", "The values in rising order.", _kept, _d_sort, whole=True)
along("argsort", "Where the values in rising order stand.", _plain, None, whole=True)


def _flip_rule(operands: Operands, attributes: Attributes) -> Tensor:
    find(operands[0].axes, one_axis(attributes))
    return operands[0]


register(
    Op("flip", "flip(x, over=n)", _flip_rule, "x backwards.", "flip(arange[n], over=n)", _roles, (FIRST,), _d_flip)
)


def _topk(name: str, doc: str, example: str, gradient: Gradient | None) -> None:
    def rule(operands: Operands, attributes: Attributes) -> Tensor:
        (operand,) = operands
        if operand.element.is_bool:
            raise RuleError("E0509", "`topk` takes numbers, and this is `bool`", 0)
        place = find(operand.axes, one_axis(attributes))
        axes = replaced(operand.axes, place, attribute(attributes, "result", Axis))
        element = operand.element if name == "topk_values" else Element.index(operand.axes[place].size)
        return Tensor(axes, element)

    register(Op(name, "topk(x, k, over=n)", rule, doc, example, _roles, (), gradient))


def _d_topk(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    axis, result = one_axis(node.attributes), attribute(node.attributes, "result", Axis)
    places = b.topk_indices(x, over=axis, k=attribute(node.attributes, "k", Size), result=result)
    return (b.scatter_add(dy, places, over=axis, axes=x.axes),)


_topk("topk_values", "The k greatest, in falling order.", "topk(ones[n], 1, over=n)", _d_topk)
_topk("topk_indices", "Where the k greatest stand, in falling order.", "topk(ones[n], 1, over=n)", None)
