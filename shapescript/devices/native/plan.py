"""What a graph is lowered to, before C++ has it.

`Draft` collects buffers and instructions, each with what it reads and writes; `Lowered` is what the executor keeps.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from shapescript import _executor
from shapescript.devices.native.sizes import SizeTable
from shapescript.devices.native.views import View, length_of, plain
from shapescript.ir.graph import Node
from shapescript.types.element import Element
from shapescript.types.size import Size

ELEMENTS = {name: number for number, name in enumerate("f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool".split())}


class Place(IntEnum):
    """Where a buffer's memory is, as csrc/cpu/plan.hpp has it."""

    INPUT = 0
    OUTPUT = 1
    RUN = 2
    FIXED = 3


class Extent(IntEnum):
    """What a register of a tile's program holds."""

    FULL = 0
    ROW = 1
    COLUMN = 2
    ONE = 3


@dataclass
class Buffer:
    """Memory for a value: its element, how many places, and where it lies."""

    element: str
    length: Size
    place: Place


@dataclass
class Instruction:
    """One instruction: the method of `_executor.Plan` that takes it, its arguments, and what it touches.

    `kind` is for people. `linear` are the inputs of tiles that are read place by place with the outputs, with the last
    operation that reads each; `made` are the outputs, with the operation that makes each.
    """

    node: Node
    kind: str
    method: str
    arguments: tuple[Any, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    fixed: bool
    nodes: tuple[Node, ...] = ()
    linear: dict[int, int] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Called:
    """An operation without a kernel: its nodes (several all-reduces of one launch), and the views of their values."""

    nodes: tuple[Node, ...]
    operands: tuple[tuple[View, ...], ...]
    results: tuple[View, ...]


@dataclass
class Draft:
    """A plan under construction."""

    table: SizeTable
    buffers: list[Buffer] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    calls: dict[int, Called] = field(default_factory=dict)

    def buffer(self, element: Element | str, sizes: Sequence[Size], fixed: bool, place: Place | None = None) -> View:
        """A new buffer for a value of these sizes, as a view of it."""
        name = element if isinstance(element, str) else element.name
        where = place if place is not None else Place.FIXED if fixed else Place.RUN
        self.buffers.append(Buffer(name, length_of(sizes), where))
        return plain(len(self.buffers) - 1, sizes)

    def put(
        self,
        node: Node,
        kind: str,
        method: str,
        arguments: tuple[Any, ...],
        reads: Sequence[int],
        writes: Sequence[int],
        fixed: bool,
    ) -> Instruction:
        """A new instruction at the end."""
        made = Instruction(node, kind, method, arguments, tuple(reads), tuple(writes), fixed, (node,))
        self.instructions.append(made)
        return made

    def access(self, view: View, order: Sequence[Size] | None = None) -> tuple[int, int, list[int]]:
        """A view as C++ takes it; `order` are other strides than its own."""
        strides = view.strides if order is None else order
        return view.buffer, self.table.ref(view.offset), [self.table.ref(stride) for stride in strides]

    def refs(self, sizes: Sequence[Size], node: Node | None = None) -> list[int]:
        """The numbers of sizes."""
        return [self.table.ref(size, node) for size in sizes]

    def copy(self, node: Node, view: View, into: View, fixed: bool) -> None:
        """Moves a value."""
        arguments = (self.refs(view.sizes, node), self.access(view), self.access(into))
        self.put(node, "move", "move", arguments, [view.buffer], [into.buffer], fixed)

    def finish(self, inputs: Sequence[int], outputs: Sequence[int], call: int) -> _executor.Plan:
        """The plan in C++."""
        plan = _executor.Plan()
        for buffer in self.buffers:
            plan.buffer(ELEMENTS[buffer.element], int(buffer.place), self.table.ref(buffer.length))
        for instruction in self.instructions:
            getattr(plan, instruction.method)(instruction.node.number, instruction.fixed, *instruction.arguments)
        plan.set_ends(list(inputs), list(outputs), call)
        return plan


def bits_of(value: float | int | bool, element: str) -> int:
    """A number as it lies in memory, as a whole number of 64 bits."""
    if element == "f64":
        return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
    if element == "f32":
        # the nearest f32, as torch rounds it: one that is too large is infinite
        try:
            packed = struct.pack("<f", float(value))
        except OverflowError:
            packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
        return int(struct.unpack("<i", packed)[0])
    return int(value)
