"""Axes: a name and a size, and when two are the same.

Takes `Size`; gives `Axis`, used by the checker over a function's own names and by the IR over global ones.
Doesn't know where an axis was declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shapescript.types.size import Size


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor.

    `name` is None for a size without a name of its own (`784`, `3*D`, `(H Dh)`). `parts` are the axes that a merged
    axis is made of, in order. `batch` says that the axis descends from a batch's; it takes no part in `same`.
    """

    name: str | None
    size: Size
    parts: tuple[Axis, ...] = ()
    batch: bool = False

    @staticmethod
    def named(name: str, *, batch: bool = False) -> Axis:
        """The axis whose size is the atom of its own name."""
        return Axis(name, Size.atom(name), (), batch)

    @staticmethod
    def of(size: Size | int) -> Axis:
        """The axis without a name that has this size."""
        return Axis(None, size if isinstance(size, Size) else Size.of(size))

    @staticmethod
    def merged(parts: Sequence[Axis]) -> Axis:
        """The axis made of these, the first the outermost."""
        size = Size.of(1)
        for part in parts:
            size = size * part.size
        return Axis(None, size, tuple(parts), any(part.batch for part in parts))

    def renamed(self, name: str) -> Axis:
        """This axis under a pattern's new name."""
        return Axis(name, self.size, (), self.batch)

    def substitute(self, names: Mapping[str, Axis]) -> Axis:
        """This axis with the axis variables of `names` bound.

        A variable is replaced whole; the atoms of a size are replaced by the bound axes' sizes.

        Raises:
            SizeError: a division is no longer a size.
        """
        if self.name is not None and self.name in names:
            bound = names[self.name]
            return replace(bound, batch=True) if self.batch and not bound.batch else bound
        sizes = {atom: names[atom].size for atom in self.size.atoms if atom in names}
        parts = tuple(part.substitute(names) for part in self.parts)
        if not sizes and parts == self.parts:
            return self
        return Axis(self.name, self.size.substitute(sizes), parts, self.batch or any(part.batch for part in parts))

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        if self.parts:
            return "(" + " ".join(map(str, self.parts)) + ")"
        text = str(self.size)
        return f"({text})" if " " in text else text


def same(a: Axis, b: Axis) -> bool:
    """Whether two axes are the same: two named ones by name, else by size, and by parts where both have them."""
    if a.name is not None and b.name is not None:
        return a.name == b.name
    if a.size != b.size:
        return False
    if a.parts and b.parts:
        return len(a.parts) == len(b.parts) and all(map(same, a.parts, b.parts))
    return True


def same_axes(a: Sequence[Axis], b: Sequence[Axis]) -> bool:
    """Whether two lists of axes are the same, place by place."""
    return len(a) == len(b) and all(map(same, a, b))


def places(axis: Axis, axes: Iterable[Axis]) -> list[int]:
    """The places at which `axes` has this axis, by name where one of that name is there."""
    axes = list(axes)
    if axis.name is not None:
        by_name = [place for place, other in enumerate(axes) if other.name == axis.name]
        if by_name:
            return by_name
    return [place for place, other in enumerate(axes) if same(axis, other)]


def contains(axes: Iterable[Axis], axis: Axis) -> bool:
    """Whether one of `axes` is this one."""
    return any(same(axis, other) for other in axes)


def show_axes(axes: Iterable[Axis]) -> str:
    """`[b n D]`, as a user writes it."""
    return "[" + " ".join(map(str, axes)) + "]"


ANY_AXES = Axis("..", Size.atom(".."))
"""`..` within a signature and its function's body: stands for any number of axes, which a call binds all at once."""


def substitute_axes(axes: Sequence[Axis], names: Mapping[str, Axis], spread: Sequence[Axis] | None) -> tuple[Axis, ...]:
    """Axes with variables bound, and `..` replaced by the axes that it stands for (None leaves it)."""
    result: list[Axis] = []
    for axis in axes:
        if axis.name == ANY_AXES.name and spread is not None:
            result.extend(spread)
        else:
            result.append(axis.substitute(names))
    return tuple(result)
