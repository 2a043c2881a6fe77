"""Means, variances and norms, made of sums.

A mean divides by `size` nodes, so that a batch's is over its true count. A variance takes two passes, from the mean;
`var` and `std` divide by `n - correction`, which is 1 as in PyTorch where it isn't given. Of equal values the deviation
is 0 and so is its gradient, and likewise the norm of zeros. Half floats are added up in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shapescript.ops.registry import Op, over_axes, register
from shapescript.ops.rules import Attributes, count, is_half, need_float, number_attribute, wider, without
from shapescript.types.axes import Axis
from shapescript.types.element import PROB, Element
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node


def places_in(b: Builder, over: Sequence[Axis], element: Element) -> Node:
    """How many places some axes have together, a batch's axis by its true count."""
    total = b.constant(1, element.refined("NonNeg")) if not over else b.size(over[0], element.base)
    for axis in over[1:]:
        total = b.multiply(total, b.size(axis, element.base))
    return total


def mean_of(b: Builder, x: Node, over: Sequence[Axis]) -> Node:
    """The mean over some axes; of bools it is a `Prob`."""
    if x.element.is_bool:
        x = b.cast(x, PROB)
    over, element, wide = tuple(over), x.element, wider(x.element)
    if not over:
        return x
    mean = b.divide(b.sum(b.cast(x, wide), over=over), places_in(b, over, wide))
    return b.cast(b.refine(mean, wide), element)


def variance_of(b: Builder, x: Node, over: Sequence[Axis], correction: float) -> Node:
    """The mean square distance from the mean, divided by `n - correction`; x isn't a half float."""
    over = tuple(over)
    centred = b.subtract(x, b.broadcast(mean_of(b, b.refine(x, x.element.base), over), x.axes))
    places = places_in(b, over, x.element)
    if correction:
        places = b.subtract(places, correction)
    variance = b.divide(b.sum(b.square(centred), over=over), places)
    return b.refine(variance, x.element.refined("NonNeg"))


def _in_wide(
    compute: Callable[[Builder, Node, tuple[Axis, ...], Attributes], Node],
) -> Callable[[Builder, Sequence[Node], Attributes], Node]:
    """An expansion that computes half floats in f32."""

    def expand(b: Builder, operands: Sequence[Node], attributes: Attributes) -> Node:
        x = operands[0]
        y = compute(b, b.cast(x, wider(x.element)), over_axes(attributes), attributes)
        return b.cast(y, x.element.refined("NonNeg")) if is_half(x.element) else y

    return expand


def _variance(b: Builder, x: Node, over: tuple[Axis, ...], attributes: Attributes) -> Node:
    return variance_of(b, x, over, number_attribute(attributes, "correction", 1))


def _deviation(b: Builder, x: Node, over: tuple[Axis, ...], attributes: Attributes) -> Node:
    return b.sqrt(_variance(b, x, over, attributes))


def _norm(b: Builder, x: Node, over: tuple[Axis, ...], attributes: Attributes) -> Node:
    return b.sqrt(b.sum(b.square(x), over=over))


def _mean_element(name: str, x: Tensor) -> Element:
    if x.element.is_bool:
        return PROB
    return need_float(x, name)


def _never_negative(name: str, x: Tensor) -> Element:
    return need_float(x, name).refined("NonNeg")


def _composite(
    name: str,
    doc: str,
    element: Callable[[str, Tensor], Element],
    expand: Callable[[Builder, Sequence[Node], Attributes], Node],
) -> None:
    def rule(operands: Sequence[Tensor], attributes: Attributes) -> Tensor:
        count(name, operands, 1)
        return Tensor(without(operands[0].axes, attributes), element(name, operands[0]))

    signature = f"{name}(x: [.. n ..], over=n) -> [.. ..]"
    register(Op(name, signature, rule, doc, f"{name}(ones[n], over=n)", expand=expand))


_composite(
    "mean",
    "The mean over some axes; of bools, the share that holds.",
    _mean_element,
    lambda b, operands, attributes: mean_of(b, operands[0], over_axes(attributes)),
)
_composite("var", "The variance over some axes, divided by n - 1.", _never_negative, _in_wide(_variance))
_composite("std", "The standard deviation; of equal values 0, with gradient 0.", _never_negative, _in_wide(_deviation))
_composite("norm", "The root of the sum of squares; at 0 its gradient is 0.", _never_negative, _in_wide(_norm))
