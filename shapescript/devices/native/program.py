"""A tile's program under construction: registers, what is read into them, and operations."""

from __future__ import annotations

from dataclasses import dataclass, field

from shapescript.devices.native.plan import ELEMENTS, Extent, bits_of
from shapescript.types.size import Size


@dataclass
class Outside:
    """A value from outside, as a cluster reads it: a stride for each dim of the space."""

    element: str
    buffer: int
    offset: Size
    strides: tuple[Size, ...]


@dataclass(frozen=True)
class Op:
    """A kernel on registers."""

    kernel: str
    results: tuple[int, ...]
    operands: tuple[int, ...]


@dataclass
class Program:
    """Registers and operations under construction."""

    registers: list[tuple[int, int]] = field(default_factory=list)
    inputs: list[tuple[int, Outside]] = field(default_factory=list)
    numbers: list[tuple[int, int]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    known: dict[object, int] = field(default_factory=dict)

    def register(self, element: str, extent: Extent) -> int:
        """A new register."""
        self.registers.append((ELEMENTS[element], int(extent)))
        return len(self.registers) - 1

    def number(self, value: float | int | bool, element: str) -> int:
        """A register that holds a number."""
        bits = bits_of(value, element)
        key = ("number", element, bits)
        if key not in self.known:
            self.known[key] = self.register(element, Extent.ONE)
            self.numbers.append((self.known[key], bits))
        return self.known[key]
