"""What the rules of ops have in common: joining elements, lining axes up, and the errors of both.

Takes types of operands; gives types or raises `RuleError`. The checker has mostly said it in better words before,
with the places of the program; what stands here is what holds of every graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from shapescript.ops.registry import RuleError, over_axes, position_of
from shapescript.types.axes import Axis, places, same, same_axes, show_axes
from shapescript.types.element import Element
from shapescript.types.kinds import Tensor
from shapescript.types.size import Size

Attributes = Mapping[str, object]
Operands = Sequence[Tensor]
Kind = TypeVar("Kind")


def attribute(attributes: Attributes, name: str, kind: type[Kind]) -> Kind:
    """An attribute of a known class; anything else is a mistake of the compiler."""
    value = attributes[name]
    if not isinstance(value, kind):
        raise TypeError(f"the attribute `{name}` is {value!r}, and not a {kind.__name__}")
    return value


def axes_attribute(attributes: Attributes, name: str = "axes") -> tuple[Axis, ...]:
    """An attribute that is a tuple of axes."""
    axes = attribute(attributes, name, tuple)
    if not all(isinstance(axis, Axis) for axis in axes):
        raise TypeError(f"the attribute `{name}` holds something that isn't an axis: {axes!r}")
    return cast("tuple[Axis, ...]", axes)


def one_axis(attributes: Attributes) -> Axis:
    """The attribute `over` of an op that goes along a single axis."""
    return attribute(attributes, "over", Axis)


def find(axes: Sequence[Axis], axis: Axis, operand: int = 0) -> int:
    """Where an axis stands, or the error that lists the axes."""
    place = position_of(axes, axis)
    if place is None:
        shown = f"its axes are `{show_axes(axes)}`" if axes else "it is a scalar"
        raise RuleError("E0305", f"the value has no axis `{axis}`", operand, notes=[shown])
    return place


def without(axes: Sequence[Axis], attributes: Attributes) -> tuple[Axis, ...]:
    """The axes that a reduction leaves."""
    gone = places_over(Tensor(tuple(axes)), attributes)
    return tuple(axis for place, axis in enumerate(axes) if place not in gone)


def replaced(axes: Sequence[Axis], place: int, *new: Axis) -> tuple[Axis, ...]:
    """Axes with the one at `place` replaced."""
    return (*axes[:place], *new, *axes[place + 1 :])


def lined_up(operands: Operands) -> tuple[Axis, ...]:
    """The axes of the largest operand, in which those of each other stand in the same order."""
    largest = max(operands, key=lambda operand: len(operand.axes)).axes
    for number, operand in enumerate(operands):
        at = -1
        for axis in operand.axes:
            place = next((p for p in range(at + 1, len(largest)) if same(largest[p], axis)), None)
            if place is None:
                message = f"`{show_axes(operand.axes)}` doesn't line up with `{show_axes(largest)}`"
                raise RuleError("E0301", message, number)
            at = place
    return largest


def one_name(operands: Operands) -> Element:
    """The element that all operands have, without refinements."""
    first = operands[0].element
    for number, operand in enumerate(operands[1:], 1):
        if operand.element.name != first.name:
            message = f"`{first}` meets `{operand.element}`"
            raise RuleError("E0501", message, number, helps=[f"write `as {first.base}` after one of them"])
    return first.base


def joined(operands: Operands) -> Element:
    """The element of a value that may be any of the operands: what is known of all of them."""
    base = one_name(operands)
    elements = [operand.element for operand in operands]
    if all(element == elements[0] for element in elements):
        return elements[0]
    if all(element.is_prob for element in elements):
        return base.refined("Prob")
    return base.refined("NonNeg") if all(element.is_nonneg for element in elements) else base


def need_float(operand: Tensor, name: str, number: int = 0) -> Element:
    """The element of an operand that must be a float."""
    if not operand.element.is_float:
        message = f"`{name}` takes floats, and this is `{operand.element}`"
        raise RuleError("E0509", message, number, helps=["write `as f32` after it"])
    return operand.element


def need_bool(operand: Tensor, name: str, number: int = 0) -> None:
    """An operand must be of bools."""
    if not operand.element.is_bool:
        raise RuleError("E0508", f"`{name}` takes bools, and this is `{operand.element}`", number)


def need_whole(operand: Tensor, name: str, number: int) -> None:
    """An operand must be of whole numbers."""
    if not operand.element.is_whole:
        raise RuleError("E0313", f"`{name}` takes whole numbers here, and this is `{operand.element}`", number)


def need_same_axes(operands: Operands, name: str) -> None:
    """Two operands must have the same axes."""
    if not same_axes(operands[0].axes, operands[1].axes):
        a, b = show_axes(operands[0].axes), show_axes(operands[1].axes)
        raise RuleError("E0301", f"`{name}` compares values with the same axes: `{a}` and `{b}`", 1)


def need_size(got: Size, wanted: Size, what: str) -> None:
    """Two sizes must be equal in normal form."""
    if got != wanted:
        raise RuleError("E0306", f"{what}: {got} isn't {wanted}")


def count(name: str, operands: Operands, wanted: int) -> None:
    """Refuses another number of operands than the op has: a mistake of the compiler, never of the program."""
    if len(operands) != wanted:
        raise TypeError(f"`{name}` takes {wanted} operand{'s' if wanted != 1 else ''}, not {len(operands)}")


def places_over(operand: Tensor, attributes: Attributes) -> list[int]:
    """Where the axes of `over` stand in the operand, one that stands there twice at its next place."""
    found: list[int] = []
    for axis in over_axes(attributes):
        there = places(axis, operand.axes)
        free = [place for place in there if place not in found]
        if there and not free:
            raise RuleError("E0303", f"`{axis}` is named twice", 0)
        found.append(free[0] if free else find(operand.axes, axis))
    return found


def with_batch(axis: Axis, batch: bool) -> Axis:
    """The axis, which descends from a batch's where `batch` says so."""
    return replace(axis, batch=True) if batch and not axis.batch else axis


def number_attribute(attributes: Attributes, name: str, default: float) -> float:
    """An attribute that holds a number, or may be left out."""
    value = attributes.get(name, default)
    if not isinstance(value, (int, float)):
        raise TypeError(f"the attribute `{name}` is {value!r}, and not a number")
    return float(value)


def size_attribute(attributes: Attributes, name: str) -> Size:
    """An attribute that holds a size or a whole number."""
    value = attributes[name]
    return Size.of(value) if isinstance(value, int) else attribute(attributes, name, Size)


def numbers(operands: Operands, name: str) -> Element:
    """The element of operands that must be numbers of one element, without refinements."""
    for number, operand in enumerate(operands):
        if operand.element.is_bool:
            raise RuleError("E0508", f"`{name}` takes numbers, and this is `{operand}`", number)
    return one_name(operands)


def need_index(operand: Tensor, axis: Axis, number: int) -> None:
    """An operand must be whole numbers, and if it is an `Index`, then one of this axis."""
    need_whole(operand, "indexing", number)
    bound = operand.element.bound
    if bound is not None and bound != axis.size:
        message = f"`{axis}` is looked up with an `Index[{axis.size}]`, and this is `{operand.element}`"
        raise RuleError("E0506", message, number)


def added(element: Element) -> Element:
    """The element of a sum: whole numbers and bools are counted in i64."""
    if not element.is_float:
        return Element("i64")
    return element.refined("NonNeg" if element.is_nonneg else None)


def is_half(element: Element) -> bool:
    """Whether sums over it need a wider element."""
    return element.name in ("f16", "bf16")


def wider(element: Element) -> Element:
    """The element in which a float is computed with."""
    return Element("f32", element.refinement) if is_half(element) else element
