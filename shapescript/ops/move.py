"""Moving values about: broadcast, relabel, rearrange, slice, pad, concat, roll. (`flip` goes along an axis.)

Each keeps what is known of the elements. The gradients are the converse moves. An axis that an attribute names takes
over the operand's descent from a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shapescript.ops.registry import (
    MAP,
    NEW,
    WHOLE,
    Op,
    Role,
    Roles,
    RuleError,
    over_axes,
    position_of,
    register,
    roles_by_name,
)
from shapescript.ops.rules import (
    Attributes,
    Operands,
    attribute,
    axes_attribute,
    count,
    find,
    joined,
    need_size,
    one_axis,
    replaced,
    size_attribute,
    with_batch,
)
from shapescript.types.axes import Axis, same, show_axes
from shapescript.types.element import Element
from shapescript.types.kinds import Tensor
from shapescript.types.size import Size

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node

LINEAR = (frozenset({0}),)


def _whole(node: Node) -> Roles:
    return roles_by_name(node, [(axis, WHOLE) for axis in over_axes(node.attributes)])


def _by_place(node: Node) -> Roles:
    """Operand and result have their axes at the same places, the one that is worked along whole."""
    at = _place(node)
    return tuple(
        Role(axis, WHOLE if place == at else MAP, (place,) * len(node.operands), place)
        for place, axis in enumerate(node.axes)
    )


def _place(node: Node) -> int:
    position = node.attributes.get("position")
    return position if isinstance(position, int) else find(node.operands[0].axes, one_axis(node.attributes))


# --- axes ----------------------------------------------------------------------------------------------------------


def _broadcast_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("broadcast", operands, 1)
    wanted, left = axes_attribute(attributes), list(axes_attribute(attributes))
    batch = []
    for axis in operands[0].axes:
        at = position_of(left, axis)
        if at is None:
            message = f"`broadcast` keeps every axis, and `{axis}` isn't in `{show_axes(wanted)}`"
            raise RuleError("E0305", message, 0)
        if axis.batch:
            batch.append(left[at])
        del left[at]
    return Tensor(tuple(with_batch(axis, axis in batch) for axis in wanted), operands[0].element)


def _broadcast_roles(node: Node) -> Roles:
    lacking = [axis for axis in node.axes if position_of(node.operands[0].axes, axis) is None]
    return roles_by_name(node, [(axis, NEW) for axis in lacking])


register(
    Op(
        "broadcast",
        "broadcast(x: [n], [b n]) -> [b n]",
        _broadcast_rule,
        "x repeated along the axes that it lacks.",
        "broadcast(ones[n], [n n])",
        _broadcast_roles,
        LINEAR,
        lambda b, node, dy: (dy,),
    )
)


def _relabel_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("relabel", operands, 1)
    old, new = operands[0].axes, axes_attribute(attributes)
    if len(old) != len(new):
        raise RuleError("E0306", f"`{show_axes(old)}` can't be called `{show_axes(new)}`: they differ in number", 0)
    for before, after in zip(old, new, strict=True):
        need_size(after.size, before.size, f"`{before}` can't be called `{after}`")
    named = tuple(with_batch(after, before.batch) for before, after in zip(old, new, strict=True))
    return Tensor(named, operands[0].element)


def _relabel_roles(node: Node) -> Roles:
    return tuple(Role(axis, MAP, (place,), place) for place, axis in enumerate(node.axes))


register(
    Op(
        "relabel",
        "rename(x: [n], n=m) -> [m]",
        _relabel_rule,
        "x under other names for its axes.",
        "rename(ones[n], n=p)",
        _relabel_roles,
        LINEAR,
        lambda b, node, dy: (b.relabel(dy, node.operands[0].axes),),
    )
)


def leaves(axes: Sequence[Axis]) -> list[Axis]:
    """The parts of axes that have no parts, without those of size 1."""
    found: list[Axis] = []
    for axis in axes:
        if axis.parts:
            found.extend(leaves(axis.parts))
        elif axis.name is not None or axis.size.constant != 1:
            found.append(axis)
    return found


def _rearrange_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("rearrange", operands, 1)
    old, new = operands[0].axes, axes_attribute(attributes)
    left = leaves(old)
    batch: list[Axis] = []
    for leaf in leaves(new):
        at = position_of(left, leaf)
        if at is None:
            raise RuleError("E0403", f"`{leaf}` isn't a part of `{show_axes(old)}`", 0)
        if left[at].batch:
            batch.append(leaf)
        del left[at]
    if left:
        raise RuleError("E0406", f"`rearrange` never drops an axis, and `{left[0]}` isn't in `{show_axes(new)}`", 0)
    return Tensor(tuple(with_batch(a, any(leaf in batch for leaf in leaves([a]))) for a in new), operands[0].element)


def _rearrange_roles(node: Node) -> Roles:
    """Each leaf part maps; where it stands is the place of the axis that holds it."""

    def holder(axes: Sequence[Axis], leaf: Axis) -> int | None:
        return next((at for at, axis in enumerate(axes) if any(same(leaf, own) for own in leaves([axis]))), None)

    x = node.operands[0].axes
    return tuple(Role(leaf, MAP, (holder(x, leaf),), holder(node.axes, leaf)) for leaf in leaves(x))


register(
    Op(
        "rearrange",
        "rearrange(x: b (H n) -> b H n)",
        _rearrange_rule,
        "x with the parts of its axes in another order and grouping.",
        "rearrange(ones[n m]: n m -> m n)",
        _rearrange_roles,
        LINEAR,
        lambda b, node, dy: (b.rearrange(dy, node.operands[0].axes),),
    )
)


# --- ranges --------------------------------------------------------------------------------------------------------


def _slice_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("slice", operands, 1)
    x, over, result = operands[0], one_axis(attributes), attribute(attributes, "result", Axis)
    at = find(x.axes, over)
    start, stop = size_attribute(attributes, "start"), size_attribute(attributes, "stop")
    need_size(result.size, stop - start, f"the part {start}..{stop} of `{over}`")
    end = (over.size - stop).constant
    if (start.constant or 0) < 0 or (end is not None and end < 0):
        raise RuleError("E0311", f"`{over}` is {over.size} long, so {start}..{stop} isn't a part of it", 0)
    return Tensor(replaced(x.axes, at, with_batch(result, x.axes[at].batch)), x.element)


def _slice_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, at = node.operands[0], _place(node)
    start, stop = size_attribute(node.attributes, "start"), size_attribute(node.attributes, "stop")
    own = x.axes[at]
    return (b.pad(dy, node.axes[at], start, own.size - stop, 0, own),)


register(
    Op(
        "slice",
        "x[n=1..]: [n] -> [n - 1]",
        _slice_rule,
        "The places from `start` up to `stop` of an axis.",
        "ones[n][n=1..]",
        _by_place,
        LINEAR,
        _slice_gradient,
    )
)


def _padded(element: Element, value: object) -> Element:
    if not isinstance(value, (int, float)):
        return element.base
    if element.refinement == "Index":
        bound = element.bound.constant if element.bound is not None else None
        fits = value == 0 or (bound is not None and 0 <= value < bound)
        return element if fits else element.base
    if element.is_prob and value > 1:
        return element.refined("NonNeg")
    return element if value >= 0 else element.base


def _pad_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("pad", operands, 1)
    x, over, result = operands[0], one_axis(attributes), attribute(attributes, "result", Axis)
    at = find(x.axes, over)
    before, after = size_attribute(attributes, "before"), size_attribute(attributes, "after")
    need_size(result.size, before + x.axes[at].size + after, f"`{over}` with {before} before and {after} after it")
    element = _padded(x.element, attributes["value"])
    return Tensor(replaced(x.axes, at, with_batch(result, x.axes[at].batch)), element)


def _pad_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, at, before = node.operands[0], _place(node), size_attribute(node.attributes, "before")
    own = x.axes[at]
    return (b.slice(dy, node.axes[at], before, before + own.size, own),)


register(
    Op(
        "pad",
        "pad(x: [n], n=(1, 0)) -> [n + 1]",
        _pad_rule,
        "x with a value before and after it along an axis.",
        "pad(ones[n], n=(1, 0), value=0)",
        _by_place,
        LINEAR,
        _pad_gradient,
    )
)


def _concat_rule(operands: Operands, attributes: Attributes) -> Tensor:
    at, over = attribute(attributes, "position", int), one_axis(attributes)
    at += len(operands[0].axes) if at < 0 else 0  # from the end, where the checker doesn't know how many are before
    if not operands or not 0 <= at < len(operands[0].axes):
        raise RuleError("E0306", "`concat` joins values along an axis that each has")
    first = operands[0].axes
    total = Size.of(0)
    for number, operand in enumerate(operands):
        others = [*first[:at], *first[at + 1 :]]
        own = [*operand.axes[:at], *operand.axes[at + 1 :]]
        if len(own) != len(others) or not all(map(same, own, others)):
            message = f"`concat` of `{show_axes(first)}` and `{show_axes(operand.axes)}`: other axes differ too"
            raise RuleError("E0306", message, number)
        total = total + operand.axes[at].size
    need_size(over.size, total, "the axis that `concat` makes")
    batch = any(operand.axes[at].batch for operand in operands)
    return Tensor(replaced(first, at, with_batch(over, batch)), joined(operands))


def _concat_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    at = _place(node)
    parts: list[Node | None] = []
    start = Size.of(0)
    for operand in node.operands:
        own = operand.axes[at]
        parts.append(b.slice(dy, dy.axes[at], start, start + own.size, own))
        start = start + own.size
    return parts


register(
    Op(
        "concat",
        "concat(x: [n], y: [m]) -> [n + m]",
        _concat_rule,
        "Values end to end along an axis.",
        "concat(ones[n], ones[m])",
        _by_place,
        (),
        _concat_gradient,
    )
)


# --- order ---------------------------------------------------------------------------------------------------------


def _along_rule(name: str) -> Callable[[Operands, Attributes], Tensor]:
    def rule(operands: Operands, attributes: Attributes) -> Tensor:
        count(name, operands, 1)
        find(operands[0].axes, one_axis(attributes))
        return operands[0]

    return rule


register(
    Op(
        "roll",
        "roll(x: [n], n=1) -> [n]",
        _along_rule("roll"),
        "x moved along an axis; what leaves at one end comes back at the other.",
        "roll(ones[n], n=1)",
        _whole,
        LINEAR,
        lambda b, node, dy: (b.roll(dy, one_axis(node.attributes), -size_attribute(node.attributes, "shift")),),
    )
)
