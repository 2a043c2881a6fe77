"""Tile programs as the kernel reads them: one block of memory for all programs of a launch.

Takes `tiles` instructions with their sizes as numbers and the addresses of buffers; gives the bytes, in the layout of
`TileProgram` in csrc/cuda/tiles.hpp, and how many blocks the launch has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shapescript.devices.captured.tile_codes import Lowering, TileCodes, TooLarge

Sized = Callable[[int], int]
"""The number that a reference of the plan's table stands for."""

LARGEST_TURN = 32
"""From so many places of a row on, neighbouring threads have neighbouring places."""


@dataclass(frozen=True)
class Access:
    """A buffer as a program reads it: its first place, and strides by dims."""

    buffer: int
    offset: int
    strides: tuple[int, ...]


@dataclass
class Prepared:
    """A program with numbers for sizes."""

    codes: TileCodes
    outer: list[int]
    inner: list[int]
    inputs: list[Access]
    outputs: list[int]  # buffers
    lanes: int
    across: bool

    @property
    def rows(self) -> int:
        """How many rows."""
        return _product(self.outer)

    @property
    def places(self) -> int:
        """Places of a row."""
        return _product(self.inner)


def prepare(
    arguments: Sequence[Any], sized: Sized, ops: Any, names: Sequence[str], limits: Any, threads: int
) -> Prepared:
    """A program made ready.

    Raises:
        TooLarge: it has no room in the kernel.
    """
    outer_refs, inner_refs, _, registers, inputs, outputs, numbers, tile_ops = arguments
    outer, inner = [sized(ref) for ref in outer_refs], [sized(ref) for ref in inner_refs]
    accesses = [
        Access(buffer, sized(offset), tuple(sized(stride) for stride in strides))
        for _, (buffer, offset, strides) in inputs
    ]
    wide = _product(inner)
    lanes, across = _lanes(outer, inner, accesses, threads)
    lowering = Lowering(ops, names, wide, wide <= lanes, limits["slots"])
    codes = lowering.lower(registers, [reg for reg, _ in inputs], [reg for reg, _, _ in outputs], numbers, tile_ops)
    if not codes.by_row:
        outer, inner, lanes, across = [*outer, *inner], [], 1, True
    outer, inner, strides = _merged(outer, inner, [each.strides for each in accesses])
    if len(outer) + len(inner) > limits["dims"]:
        raise TooLarge(f"a chain goes along {len(outer) + len(inner)} axes at once")
    accesses = [Access(each.buffer, each.offset, tuple(one)) for each, one in zip(accesses, strides, strict=True)]
    return Prepared(codes, outer, inner, accesses, [buffer for _, buffer, _ in outputs], lanes, across)


def _lanes(outer: list[int], inner: list[int], accesses: Sequence[Access], threads: int) -> tuple[int, bool]:
    """How many threads go along a row, and whether neighbouring threads have neighbouring rows instead."""
    wide = _product(inner)
    at = next((i for i in range(len(outer) + len(inner) - 1, len(outer) - 1, -1) if inner[i - len(outer)] != 1), -1)
    beside = [abs(each.strides[at]) for each in accesses if at >= 0 and each.strides[at] != 0]
    across = bool(beside) and min(beside) != 1 and _product(outer) >= LARGEST_TURN
    wanted = max(1, wide // 8) if across else wide
    lanes = 1
    while lanes < min(wanted, threads // (8 if across else 1)):
        lanes *= 2
    return min(lanes, threads), across


def _merged(
    outer: list[int], inner: list[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[int], list[list[int]]]:
    """Dims that lie side by side for every operand made one, and those of one place left out."""
    sizes = [*outer, *inner]
    kept: list[tuple[int, bool, list[int]]] = []  # size, whether it is an outer one, the strides
    for dim, size in enumerate(sizes):
        is_outer, own = dim < len(outer), [each[dim] for each in strides]
        if size == 1:
            continue
        if kept and kept[-1][1] == is_outer and all(p == q * size for p, q in zip(kept[-1][2], own, strict=True)):
            kept[-1] = (kept[-1][0] * size, is_outer, own)
        else:
            kept.append((size, is_outer, own))
    found = [[each[2][operand] for each in kept] for operand in range(len(strides))]
    return [each[0] for each in kept if each[1]], [each[0] for each in kept if not each[1]], found


def pack(
    programs: Sequence[Prepared],
    address: Callable[[int], int],
    width: Callable[[int], int],
    base: int,
    limits: Any,
    threads: int,
    most_blocks: int,
) -> tuple[bytes, int]:
    """The memory of a launch that begins at address `base`, and its blocks."""
    dims = limits["dims"]
    data = bytearray(len(programs) * limits["program_bytes"])

    def put(values: bytes) -> int:
        data.extend(b"\0" * (-len(data) % 16))
        data.extend(values)
        return base + len(data) - len(values)

    first = 0
    share = max(1, most_blocks // len(programs))
    for number, program in enumerate(programs):
        inputs = b"".join(
            struct.pack(
                f"<Qq{dims}q",
                address(each.buffer) + each.offset * width(each.buffer),
                width(each.buffer),
                *each.strides,
                *[0] * (dims - len(each.strides)),
            )
            for each in program.inputs
        )
        outputs = b"".join(struct.pack("<Qq", address(buffer), width(buffer)) for buffer in program.outputs)
        codes = b"".join(struct.pack("<5i", *code) for code in program.codes.codes)
        numbers = struct.pack(f"<{len(program.codes.numbers)}Q", *program.codes.numbers)
        at_once = threads // program.lanes
        blocks = max(1, min(-(-program.rows // at_once), share))
        sizes = [*program.outer, *program.inner]
        header = struct.pack(
            f"<qqii{dims}qiiiiQQQQq",
            program.rows,
            program.places,
            len(program.outer),
            len(program.inner),
            *sizes,
            *[0] * (dims - len(sizes)),
            program.lanes,
            program.across,
            first,
            blocks,
            put(inputs),
            put(outputs),
            put(numbers),
            put(codes),
            len(program.codes.codes),
        )
        size = limits["program_bytes"]
        assert len(header) == size
        data[number * size : (number + 1) * size] = header
        first += blocks
    return bytes(data), first


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
