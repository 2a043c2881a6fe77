"""Looking up and its converse: gather and scatter_add.

They are each other's gradients; equal rows of an index add up. The axes that the index shares with x, the looked-up
one apart, line up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapescript.ops.registry import (
    INDEX,
    MAP,
    OWN,
    SUM,
    Op,
    Role,
    Roles,
    RuleError,
    position_of,
    register,
)
from shapescript.ops.rules import (
    Attributes,
    Operands,
    added,
    axes_attribute,
    count,
    find,
    need_index,
    numbers,
    one_axis,
    with_batch,
)
from shapescript.types.axes import Axis, same, show_axes
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node


def _shared(axes: Sequence[Axis], over: Axis, index: Sequence[Axis]) -> dict[int, int]:
    """The places of the index's axes that `axes` has too, `over` apart, and where."""
    at = position_of(axes, over)
    found: dict[int, int] = {}
    for i, axis in enumerate(index):
        place = position_of(axes, axis)
        if place is not None and place != at and not same(axis, over):
            found[i] = place
    return found


def _gather_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("gather", operands, 2)
    x, index, over = operands[0], operands[1], one_axis(attributes)
    at = find(x.axes, over)
    need_index(index, x.axes[at], 1)
    shared = _shared(x.axes, over, index.axes)
    others = [axis for i, axis in enumerate(index.axes) if i not in shared]
    kept = [with_batch(a, any(index.axes[i].batch for i, p in shared.items() if p == q)) for q, a in enumerate(x.axes)]
    return Tensor((*kept[:at], *others, *kept[at + 1 :]), x.element)


def _gather_roles(node: Node) -> Roles:
    x, index = node.operands
    at = find(x.axes, one_axis(node.attributes))
    shared = _shared(x.axes, x.axes[at], index.axes)
    others = [i for i in range(len(index.axes)) if i not in shared]

    def result(place: int) -> int:
        return place if place < at else place - 1 + len(others)

    # The looked-up axis may stand in the index too, where it is another: it maps.
    roles = [Role(x.axes[at], INDEX, (at, None), None)]
    roles += [Role(index.axes[i], MAP, (None, i), at + number) for number, i in enumerate(others)]
    for place, axis in enumerate(x.axes):
        if place != at:
            roles.append(
                Role(axis, MAP, (place, next((i for i, p in shared.items() if p == place), None)), result(place))
            )
    return tuple(roles)


def _gather_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, index = node.operands
    at = find(x.axes, one_axis(node.attributes))
    return b.scatter_add(dy, index, x.axes[at], x.axes), None


register(
    Op(
        "gather",
        "x[n=i]: [n ..] and [m] Index[n] -> [m ..]",
        _gather_rule,
        "x looked up along an axis, which leaves it; the index's other axes stand in its place.",
        "ones[n m][n=arange[n]]",
        _gather_roles,
        (frozenset({0}),),
        _gather_gradient,
    )
)


def _scatter_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("scatter_add", operands, 2)
    x, index, over, wanted = operands[0], operands[1], one_axis(attributes), axes_attribute(attributes)
    numbers([x], "scatter_add")
    need_index(index, over, 1)
    if position_of(wanted, over) is None:
        raise RuleError("E0305", f"the result of `scatter_add` has no axis `{over}`: it is `{show_axes(wanted)}`")
    for axis in index.axes:
        if position_of(x.axes, axis) is None:
            raise RuleError("E0305", f"the index has an axis `{axis}`, which `{show_axes(x.axes)}` lacks", 0)
    kept = _shared(wanted, over, index.axes)
    gone = [position_of(x.axes, axis) for axis in index.axes]
    expected = [x.axes[p] for i, p in enumerate(gone) if i in kept and p is not None]
    expected += [axis for p, axis in enumerate(x.axes) if p not in gone]
    for axis in wanted:
        if not same(axis, over) and position_of(expected, axis) is None:
            raise RuleError("E0305", f"the result of `scatter_add` has `{axis}`, which no operand has", 0)
    if len(expected) + 1 != len(wanted):
        raise RuleError("E0306", f"`scatter_add` can't make `{show_axes(wanted)}` of `{show_axes(x.axes)}`", 0)
    batch = [axis for axis in expected if axis.batch]
    axes = tuple(with_batch(axis, not same(axis, over) and position_of(batch, axis) is not None) for axis in wanted)
    return Tensor(axes, added(x.element) if x.element.is_float else x.element.base)


def _scatter_roles(node: Node) -> Roles:
    x, index = node.operands
    at = find(node.axes, one_axis(node.attributes))
    kept = _shared(node.axes, node.axes[at], index.axes)
    in_x = [find(x.axes, axis) for axis in index.axes]
    roles = [Role(node.axes[at], OWN, (None, None), at)]
    for i, axis in enumerate(index.axes):
        roles.append(Role(axis, MAP if i in kept else SUM, (in_x[i], i), kept.get(i)))
    left = [place for place in range(len(node.axes)) if place != at and place not in kept.values()]
    for place, axis in enumerate(x.axes):
        if place not in in_x:
            found = next(p for p in left if same(node.axes[p], axis))
            left.remove(found)
            roles.append(Role(axis, MAP, (place, None), found))
    return tuple(roles)


def _scatter_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return b.gather(dy, node.operands[1], one_axis(node.attributes)), None


register(
    Op(
        "scatter_add",
        "scatter_add(x: [m ..], i: [m] Index[n], over=n) -> [n ..]",
        _scatter_rule,
        "x added into the places of an axis that the index says; equal places add up.",
        "scatter_add(ones[n], arange[n], over=n)",
        _scatter_roles,
        (frozenset({0}),),
        _scatter_gradient,
    )
)
