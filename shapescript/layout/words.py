"""How a value lies: a word for each axis of the mesh.

Gives the words and `Layout`, a tuple of them, and the axes that a value has on one device (`local_axes`). A word
speaks of a *leaf*: an axis without parts, or a part of a merged one, named by its place, so that two axes of one name
aren't taken for each other.

The sizes on one device are atoms of their own, known when a graph is run: of a split atom `b`, `b.here` is the width
of the device's part, `b.first` where it begins and `b.own` how many of its rows are real; where a graph is padded,
`b.room` is the width of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from shapescript.ops.move import leaves
from shapescript.types.axes import Axis
from shapescript.types.size import Size


@dataclass(frozen=True)
class Whole:
    """The same on each device, bit for bit."""

    def __str__(self) -> str:
        return "whole"


@dataclass(frozen=True)
class Split:
    """Each device has a part along one leaf: leaf number `leaf` of axis number `dim`, whose size is `atom`."""

    atom: str
    dim: int
    leaf: int = 0

    def __str__(self) -> str:
        return f"{self.atom} split"


@dataclass(frozen=True)
class Partial:
    """Each device has a value of full shape; combined by `kind` (sum, max, min) they are the value."""

    kind: str = "sum"

    def __str__(self) -> str:
        return f"partial {self.kind}"


@dataclass(frozen=True)
class Sharded:
    """Each device has a part of the value laid flat; only of parameters, their state and their gradients."""

    def __str__(self) -> str:
        return "sharded"


Word = Whole | Split | Partial | Sharded
Layout = tuple[Word, ...]

WHOLE_WORD, SHARDED, SUMMED = Whole(), Sharded(), Partial("sum")


def show_layout(layout: Layout) -> str:
    """`b split`, or the words of several mesh axes with commas."""
    return ", ".join(map(str, layout))


def all_whole(layout: Layout) -> bool:
    """Whether a value lies whole on every device."""
    return all(isinstance(word, Whole) for word in layout)


@cache
def leaves_of(axis: Axis) -> tuple[Axis, ...]:
    """The leaves of one axis, in order."""
    return tuple(leaves([axis]))


def here(atom: str) -> str:
    """The atom for the width of a device's part."""
    return f"{atom}.here"


def first(atom: str) -> str:
    """The atom for where a device's part begins."""
    return f"{atom}.first"


def own(atom: str) -> str:
    """The atom for how many places of a device's part are real."""
    return f"{atom}.own"


def room(atom: str) -> str:
    """The atom for the width of a whole batch axis where the graph is padded."""
    return f"{atom}.room"


def with_leaf(axis: Axis, leaf: int, size: Size) -> Axis:
    """The axis with its leaf number `leaf` of another size."""
    if not axis.parts:
        return replace(axis, size=size)
    done, parts = 0, []
    for part in axis.parts:
        held = len(leaves_of(part))
        parts.append(with_leaf(part, leaf - done, size) if 0 <= leaf - done < held else part)
        done += held
    total = Size.of(1)
    for part in parts:
        total = total * part.size
    return replace(axis, size=total, parts=tuple(parts))


def flat_atom(mesh_axis: int, size: Size) -> str:
    """The atom that stands for a value's count of elements, laid flat over a mesh axis."""
    return f"flat{mesh_axis}({str(size).replace(' ', '')})"


def local_axes(axes: Sequence[Axis], layout: Layout, rooms: Mapping[str, Size] | None = None) -> tuple[Axis, ...]:
    """The axes that a value with these logical ones has on one device.

    `rooms`: the sizes that whole batch axes get where the graph is padded, by atom.
    """
    found = list(axes)
    for word in layout:
        if isinstance(word, Split):
            found[word.dim] = with_leaf(found[word.dim], word.leaf, Size.atom(here(word.atom)))
    if rooms:
        found = [_with_room(axis, rooms) for axis in found]
    for mesh_axis, word in enumerate(layout):
        if isinstance(word, Sharded):
            total = Size.of(1)
            for axis in found:
                total = total * axis.size
            found = [Axis(None, Size.atom(here(flat_atom(mesh_axis, total))))]
    return tuple(found)


def _with_room(axis: Axis, rooms: Mapping[str, Size]) -> Axis:
    for number, leaf in enumerate(leaves_of(axis)):
        if not leaf.size.atoms.isdisjoint(rooms):
            axis = with_leaf(axis, number, leaf.size.substitute(rooms))
    return axis


def leaf_at(axes: Sequence[Axis], word: Split) -> Axis:
    """The leaf that a word splits."""
    return leaves_of(axes[word.dim])[word.leaf]
