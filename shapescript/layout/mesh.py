"""Meshes of devices, and how a count is shared out over them.

Gives `Mesh` and `parts`. Knows nothing of graphs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Mesh:
    """Devices in a grid, numbered with the last axis running fastest; a `devices` list is one axis."""

    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many devices there are."""
        return math.prod(self.sizes)

    def coordinates(self, device: int) -> tuple[int, ...]:
        """Where a device stands along each axis."""
        found = []
        for size in reversed(self.sizes):
            device, place = divmod(device, size)
            found.append(place)
        return tuple(reversed(found))

    def device(self, coordinates: tuple[int, ...]) -> int:
        """The number of the device that stands there."""
        number = 0
        for size, place in zip(self.sizes, coordinates, strict=True):
            number = number * size + place
        return number


def parts(count: int, n: int) -> list[int]:
    """`count` shared out over n, the first parts one larger where it doesn't divide: 64 over 3 is 22, 21, 21."""
    least, more = divmod(count, n)
    return [least + (place < more) for place in range(n)]


def first_of(count: int, n: int, place: int) -> int:
    """Where the part number `place` begins."""
    least, more = divmod(count, n)
    return least * place + min(place, more)
