"""Views: how the axes of a value lie in a buffer.

Gives `View`, with a stride for each axis, and what becomes of it where a value is only looked at otherwise: broadcast,
permuted, cut, its axes split and merged. A view that strides can't say is None, and the caller copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shapescript.devices.reference.lowering_shapes import leaves
from shapescript.types.axes import Axis, same
from shapescript.types.size import Size

ZERO, ONE = Size.of(0), Size.of(1)


@dataclass(frozen=True)
class View:
    """Where each place of a value lies in a buffer: sizes and strides by axis, in values."""

    buffer: int
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = ZERO

    @property
    def contiguous(self) -> bool:
        """Whether it is the whole buffer, its last axis the closest."""
        return self.offset == ZERO and _matches(self.sizes, self.strides)

    def permuted(self, order: Sequence[int | None], sizes: Sequence[Size]) -> View:
        """Axis i is this view's axis `order[i]`, or a repetition where that is None."""
        strides = tuple(ZERO if at is None else self.strides[at] for at in order)
        return View(self.buffer, tuple(sizes), strides, self.offset)

    def cut(self, at: int, start: Size, length: Size) -> View:
        """A range of an axis."""
        sizes = (*self.sizes[:at], length, *self.sizes[at + 1 :])
        return View(self.buffer, sizes, self.strides, self.offset + start * self.strides[at])


def row_major(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of a value whose last axis is the closest."""
    strides = []
    stride = ONE
    for size in reversed(sizes):
        strides.append(stride)
        stride = stride * size
    return tuple(reversed(strides))


def length_of(sizes: Sequence[Size]) -> Size:
    """How many places."""
    length = ONE
    for size in sizes:
        length = length * size
    return length


def plain(buffer: int, sizes: Sequence[Size]) -> View:
    """A whole buffer."""
    return View(buffer, tuple(sizes), row_major(sizes))


def _matches(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    return all(
        size == ONE or stride == wanted for size, stride, wanted in zip(sizes, strides, row_major(sizes), strict=True)
    )


@dataclass(frozen=True)
class Rearrangement:
    """A rearrange of axes by their leaf parts: `leaves` of the operand, `order` of them in the result."""

    before: tuple[tuple[Size, ...], ...]  # the leaves' sizes, by axis of the operand
    order: tuple[int, ...]
    after: tuple[int, ...]  # how many leaves each axis of the result has

    @property
    def whole_axes(self) -> bool:
        """Whether axes only change places."""
        return all(len(parts) == 1 for parts in self.before) and all(count == 1 for count in self.after)


def rearrangement(before: Sequence[Axis], after: Sequence[Axis]) -> Rearrangement:
    """How leaves move from axes to axes, as the reference executor finds it."""
    old = [leaf for axis in before for leaf in leaves(axis)]
    new = [leaf for axis in after for leaf in leaves(axis)]
    order: list[int] = []
    for leaf in new:
        free = [i for i, other in enumerate(old) if i not in order and same(other, leaf)]
        named = [i for i in free if old[i].name == leaf.name]
        order.append((named or free)[0])
    parts = tuple(tuple(leaf.size for leaf in leaves(axis)) for axis in before)
    return Rearrangement(parts, tuple(order), tuple(len(leaves(axis)) for axis in after))


def split_and_permuted(view: View, how: Rearrangement) -> View:
    """The view by leaves, in the result's order."""
    sizes: list[Size] = []
    strides: list[Size] = []
    for parts, stride in zip(how.before, view.strides, strict=True):
        sizes.extend(parts)
        strides.extend(inner * stride for inner in row_major(parts))
    return View(view.buffer, tuple(sizes[i] for i in how.order), tuple(strides[i] for i in how.order), view.offset)


def merged(view: View, counts: Sequence[int], sizes: Sequence[Size]) -> View | None:
    """Leaves put together to axes; None where their strides don't allow it."""
    strides = []
    at = 0
    for count in counts:
        parts = [
            (size, stride)
            for size, stride in zip(view.sizes[at : at + count], view.strides[at : at + count], strict=True)
            if size != ONE
        ]
        for (_, outer), (size, inner) in zip(parts, parts[1:], strict=False):
            if outer != inner * size:
                return None
        strides.append(parts[-1][1] if parts else ONE)
        at += count
    return View(view.buffer, tuple(sizes), tuple(strides), view.offset)
