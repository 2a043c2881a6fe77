"""Operations that move values and change none: broadcast, relabel, rearrange, slice, pad, concat, roll."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapescript.ops import registry
from shapescript.ops.registry import Op, RuleError, position_of, register, roles_by_name
from shapescript.ops.rules import (
    Attributes,
    Operands,
    attribute,
    axes_attribute,
    find,
    joined,
    need_size,
    one_axis,
    replaced,
)
from shapescript.types.axes import Axis, same, show_axes
from shapescript.types.kinds import Tensor
from shapescript.types.size import Size

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node

FIRST = (frozenset({0}),)


def _broadcast_rule(operands: Operands, attributes: Attributes) -> Tensor:
    (operand,) = operands
    axes = axes_attribute(attributes)
    for axis in operand.axes:
        if position_of(axes, axis) is None:
            message = f"`broadcast` keeps every axis, and `{show_axes(axes)}` has no `{axis}`"
            raise RuleError("E0301", message, 0)
    return Tensor(axes, operand.element)


def _broadcast_roles(node: Node) -> registry.Roles:
    added = [axis for axis in node.axes if position_of(node.operands[0].axes, axis) is None]
    return roles_by_name(node, [(axis, registry.NEW) for axis in added])


def _d_broadcast(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (b.sum_to(dy, node.operands[0].axes),)


register(
    Op(
        "broadcast",
        "broadcast(x, [n m])",
        _broadcast_rule,
        "x, repeated along the axes that it lacks.",
        "broadcast(ones[n], [n m])",
        _broadcast_roles,
        FIRST,
        _d_broadcast,
    )
)


def _relabel_rule(operands: Operands, attributes: Attributes) -> Tensor:
    (operand,) = operands
    axes = axes_attribute(attributes)
    if len(axes) != len(operand.axes):
        raise RuleError("E0306", f"`{show_axes(operand.axes)}` has another number of axes than `{show_axes(axes)}`", 0)
    for old, new in zip(operand.axes, axes, strict=True):
        need_size(old.size, new.size, f"`{old}` can't be named `{new}`")
    return Tensor(axes, operand.element)


def _moved_roles(node: Node) -> registry.Roles:
    """Axes that stand in operand and result pass through; those that the op makes or undoes must be whole."""
    (x,) = node.operands
    made = [axis for axis in node.axes if position_of(x.axes, axis) is None]
    gone = [axis for axis in x.axes if position_of(node.axes, axis) is None]
    words = [(axis, registry.NEW) for axis in made] + [(axis, registry.WHOLE) for axis in gone]
    return roles_by_name(node, words)


def _d_relabel(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (b.relabel(dy, node.operands[0].axes),)


register(
    Op(
        "relabel",
        "rename(x, n=m)",
        _relabel_rule,
        "x under other names for its axes.",
        "rename(ones[n], n=m)",
        _moved_roles,
        FIRST,
        _d_relabel,
    )
)


def leaves(axes: Sequence[Axis]) -> list[Axis]:
    """The innermost parts of axes, those of size 1 left out."""
    found: list[Axis] = []
    for axis in axes:
        if axis.parts:
            found.extend(leaves(axis.parts))
        elif axis.size.constant != 1:
            found.append(axis)
    return found


def _rearrange_rule(operands: Operands, attributes: Attributes) -> Tensor:
    (operand,) = operands
    axes = axes_attribute(attributes)
    left = leaves(operand.axes)
    for axis in leaves(axes):
        place = position_of(left, axis)
        if place is None:
            raise RuleError("E0403", f"`{show_axes(operand.axes)}` has no part `{axis}`", 0)
        del left[place]
    if left:
        raise RuleError("E0406", f"`{show_axes(axes)}` loses the part `{left[0]}`", 0)
    return Tensor(axes, operand.element)


def _d_rearrange(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (b.rearrange(dy, node.operands[0].axes),)


register(
    Op(
        "rearrange",
        "rearrange(x: n m -> (m n))",
        _rearrange_rule,
        "x with the parts of its axes in another order and grouping.",
        "rearrange(ones[n m]: n m -> (m n))",
        _moved_roles,
        FIRST,
        _d_rearrange,
    )
)


def _slice_rule(operands: Operands, attributes: Attributes) -> Tensor:
    (operand,) = operands
    result = attribute(attributes, "result", Axis)
    length = attribute(attributes, "stop", Size) - attribute(attributes, "start", Size)
    need_size(result.size, length, f"a range of {length} places of `{one_axis(attributes)}`")
    return Tensor(replaced(operand.axes, find(operand.axes, one_axis(attributes)), result), operand.element)


def _d_slice(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    axis = x.axes[find(x.axes, one_axis(node.attributes))]
    after = axis.size - attribute(node.attributes, "stop", Size)
    result = attribute(node.attributes, "result", Axis)
    return (
        b.pad(dy, over=result, before=attribute(node.attributes, "start", Size), after=after, value=0, result=axis),
    )


register(
    Op(
        "slice",
        "x[n=1..]",
        _slice_rule,
        "The places of an axis from one up to another.",
        "ones[n][n=1..]",
        _moved_roles,
        FIRST,
        _d_slice,
    )
)


def _pad_rule(operands: Operands, attributes: Attributes) -> Tensor:
    (operand,) = operands
    place = find(operand.axes, one_axis(attributes))
    result = attribute(attributes, "result", Axis)
    before, after = attribute(attributes, "before", Size), attribute(attributes, "after", Size)
    need_size(result.size, operand.axes[place].size + before + after, f"the padded `{one_axis(attributes)}`")
    value = attributes["value"]
    kept = operand.element.refinement != "Index"
    if isinstance(value, (int, float)) and operand.element.is_float:
        kept = 0 <= value <= 1 if operand.element.is_prob else value >= 0
    return Tensor(replaced(operand.axes, place, result), operand.element if kept else operand.element.base)


def _d_pad(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    axis = x.axes[find(x.axes, one_axis(node.attributes))]
    before = attribute(node.attributes, "before", Size)
    result = attribute(node.attributes, "result", Axis)
    return (b.slice(dy, over=result, start=before, stop=before + axis.size, result=axis),)


register(
    Op(
        "pad",
        "pad(x, n=(1, 0), value=0)",
        _pad_rule,
        "x with a value before and after it along an axis.",
        "pad(ones[n], n=(1, 0), value=0)",
        _moved_roles,
        (),
        _d_pad,
    )
)


def _concat_rule(operands: Operands, attributes: Attributes) -> Tensor:
    over, position = one_axis(attributes), attribute(attributes, "position", int)
    total = Size.of(0)
    for number, operand in enumerate(operands):
        if len(operand.axes) != len(operands[0].axes) or position >= len(operand.axes):
            raise RuleError("E0306", "`concat` joins values with as many axes as each other", number)
        for place, (mine, first) in enumerate(zip(operand.axes, operands[0].axes, strict=True)):
            if place != position and not same(mine, first):
                message = f"`{show_axes(operand.axes)}` and `{show_axes(operands[0].axes)}` differ in a second axis"
                raise RuleError("E0306", message, number)
        total = total + operand.axes[position].size
    need_size(over.size, total, "the joined axis")
    return Tensor(replaced(operands[0].axes, position, over), joined(operands))


def _d_concat(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    position = attribute(node.attributes, "position", int)
    over, start, parts = one_axis(node.attributes), Size.of(0), []
    for operand in node.operands:
        axis = operand.axes[position]
        parts.append(b.slice(dy, over=over, start=start, stop=start + axis.size, result=axis))
        start = start + axis.size
    return parts


def _concat_roles(node: Node) -> registry.Roles:
    position = attribute(node.attributes, "position", int)
    joined_axes = [node.axes[position], *(operand.axes[position] for operand in node.operands)]
    return roles_by_name(node, [(axis, registry.WHOLE) for axis in joined_axes])


register(
    Op(
        "concat",
        "concat(x, y, over=n)",
        _concat_rule,
        "Values end to end along an axis, whose sizes add up.",
        "concat(ones[n], zeros[n], over=n)",
        _concat_roles,
        (),
        _d_concat,
    )
)


def _roll_rule(operands: Operands, attributes: Attributes) -> Tensor:
    find(operands[0].axes, one_axis(attributes))
    attribute(attributes, "shift", Size)
    return operands[0]


def _roll_roles(node: Node) -> registry.Roles:
    return roles_by_name(node, [(one_axis(node.attributes), registry.WHOLE)])


def _d_roll(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (b.roll(dy, over=one_axis(node.attributes), shift=-attribute(node.attributes, "shift", Size)),)


register(
    Op(
        "roll",
        "roll(x, n=1)",
        _roll_rule,
        "x moved along an axis, what leaves at one end coming back at the other.",
        "roll(ones[n], n=1)",
        _roll_roles,
        FIRST,
        _d_roll,
    )
)
