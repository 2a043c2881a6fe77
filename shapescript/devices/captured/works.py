"""What each instruction of a lowered graph does on a GPU: kernels of our own, and torch's products.

Takes instructions (devices/native/lower.py) with their sizes as numbers, and the buffers' memory; gives functions that
put the work on the stream. What changes from run to run is read from the control block, in the device's memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shapescript.devices.captured.machine import Machine, Work
from shapescript.devices.dtypes import DTYPES
from shapescript.devices.native.plan import ELEMENTS, Instruction
from shapescript.ir.graph import Node

SEED, CALL, FIRST_ROW, POSITION, ROWS, STRIDE, COUNTS = range(7)
"""The places of the control block, as `Control` in csrc/cuda/kernels.hpp has them; counts follow."""
MOST_IN_ORDER = 1 << 24
"""Up to so many comparisons a scatter adds in order; beyond it adds atomically, in any order."""

NAMES = {number: name for name, number in ELEMENTS.items()}


@dataclass
class Buffers:
    """The memory of buffers, by number: flat tensors."""

    tensors: dict[int, torch.Tensor]

    def address(self, buffer: int) -> int:
        """Where a buffer begins."""
        return self.tensors[buffer].data_ptr()

    def width(self, buffer: int) -> int:
        """Bytes of one value."""
        return self.tensors[buffer].element_size()

    def at(self, buffer: int, offset: int) -> int:
        """The address of a value."""
        return self.address(buffer) + offset * self.width(buffer)

    def view(self, buffer: int, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
        """A buffer seen through strides, none of which is negative."""
        flat = self.tensors[buffer]
        return flat.as_strided(list(sizes), list(strides), flat.storage_offset() + offset)


class Works:
    """Makes the work of instructions."""

    def __init__(
        self,
        machine: Machine,
        buffers: Buffers,
        sized: Callable[[int], int],
        control: torch.Tensor,
        record: torch.Tensor,
        first_rows: dict[int, int],
    ) -> None:
        self.machine, self.buffers, self.sized = machine, buffers, sized
        self.control, self.record, self.first_rows = control, record, first_rows
        self.kernels = machine.kernels

    def of(self, instruction: Instruction) -> Work:
        """The work of one instruction that isn't of tiles."""
        make: Callable[..., Work] = getattr(self, f"_{instruction.method}")
        return make(instruction.node, *instruction.arguments)

    def _sizes(self, refs: Sequence[int]) -> list[int]:
        return [self.sized(ref) for ref in refs]

    def _launch(self, kernel: str, *arguments: Any) -> Work:
        call, machine = getattr(self.kernels, kernel), self.machine
        return lambda: call(*arguments, machine.grid())

    def _walk(self, sizes: list[int], *strides: list[int]) -> Any:
        """Dims of one place left out, and those that lie side by side made one."""
        merged: list[tuple[int, list[int]]] = []
        for size, own in zip(sizes, zip(*strides, strict=True), strict=True):
            if size == 1:
                continue
            if merged and all(p == q * size for p, q in zip(merged[-1][1], own, strict=True)):
                merged[-1] = (merged[-1][0] * size, list(own))
            else:
                merged.append((size, list(own)))
        return self.kernels.Walk(
            [size for size, _ in merged], [[own[number] for _, own in merged] for number in range(len(strides))]
        )

    # --- products

    def _product(
        self, node: Node, element: int, batch: list[int], m: int, n: int, k: int, a: Any, b: Any, result: int
    ) -> Work:
        batches = self._sizes(batch)
        rows, columns, summed = self.sized(m), self.sized(n), self.sized(k)
        left = self._matrix(a, batches, rows, summed)
        right = self._matrix(b, batches, summed, columns)
        out = self.buffers.tensors[result]
        if not batches:
            into = out.view(rows, columns)
            return lambda: torch.mm(left, right, out=into)  # type: ignore[return-value]
        count = math.prod(batches)
        into = out.view(count, rows, columns)
        if len(batches) == 1:
            return lambda: torch.bmm(left, right, out=into)  # type: ignore[return-value]

        def work() -> None:
            torch.bmm(left.reshape(count, rows, summed), right.reshape(count, summed, columns), out=into)

        return work

    def _matrix(self, access: Any, batches: list[int], rows: int, columns: int) -> torch.Tensor:
        buffer, offset, strides = access
        return self.buffers.view(buffer, [*batches, rows, columns], self._sizes(strides), self.sized(offset))

    # --- moves

    def _move(self, node: Node, dims: list[int], source: Any, into: Any) -> Work:
        sizes = self._sizes(dims)
        walk = self._walk(sizes, self._sizes(source[2]), self._sizes(into[2]))
        out, x = (self.buffers.at(each[0], self.sized(each[1])) for each in (into, source))
        return self._launch("move", walk, out, x, self.buffers.width(into[0]))

    def _fill(self, node: Node, buffer: int, size: int, bits: int) -> Work:
        tensor = self.buffers.tensors[buffer]
        if size >= 0:
            value: float | int = self.sized(size)
        else:
            width = tensor.element_size()
            raw = torch.tensor([bits], dtype=torch.int64).view(torch.uint8)[:width]
            value = raw.view(tensor.dtype).item()
        return lambda: tensor.fill_(value)  # type: ignore[return-value]

    def _iota(self, node: Node, buffer: int) -> Work:
        tensor = self.buffers.tensors[buffer]
        return lambda: torch.arange(len(tensor), dtype=tensor.dtype, device=tensor.device, out=tensor)  # type: ignore[return-value]

    # --- lookups

    def _gather(self, node: Node, dims: list[int], x: Any, index: Any, step: int, count: int, result: int) -> Work:
        walk = self._walk(self._sizes(dims), self._sizes(x[2]), self._sizes(index[2]))
        return self._launch(
            "gather",
            walk,
            self.buffers.address(result),
            self.buffers.at(x[0], self.sized(x[1])),
            self.buffers.at(index[0], self.sized(index[1])),
            self.sized(step),
            self.sized(count),
            self.buffers.width(result),
            self.record.data_ptr(),
            node.number,
        )

    def _scatter(self, node: Node, dims: list[int], x: Any, index: Any, result: Any, step: int, count: int) -> Work:
        sizes, bound = self._sizes(dims), self.sized(count)
        x_strides, index_strides, result_strides = (self._sizes(each[2]) for each in (x, index, result))
        kept = [i for i, stride in enumerate(result_strides) if stride != 0 or sizes[i] == 1]
        summed = [i for i in range(len(sizes)) if i not in kept]
        order = [*kept, *summed]
        walk = self.kernels.Walk(
            [sizes[i] for i in order],
            [[own[i] for i in order] for own in (x_strides, index_strides, result_strides)],
        )
        out = self.buffers.tensors[result[0]]
        whole = NAMES_OF[out.dtype]
        in_order = bound * math.prod(sizes) <= MOST_IN_ORDER
        launch = self._launch(
            "scatter",
            walk,
            len(kept),
            whole,
            self.buffers.at(result[0], self.sized(result[1])),
            self.buffers.at(x[0], self.sized(x[1])),
            self.buffers.at(index[0], self.sized(index[1])),
            self.sized(step),
            bound,
            in_order,
            self.record.data_ptr(),
            node.number,
        )

        def work() -> None:
            out.zero_()
            launch()

        return work

    # --- draws and checks

    def _random(
        self, node: Node, draw: int, buffer: int, call: int, place: int, rows: int, others: int, bound: int, begin: int
    ) -> Work:
        place_of_first = self.first_rows.get(node.number, FIRST_ROW)
        # a draw that lies whole on each device begins at its first row
        from_first = rows >= 0 and (node.number in self.first_rows or begin < 0)
        first = self.control.data_ptr() + 8 * place_of_first if from_first else 0
        return self._launch(
            "random",
            draw,
            NAMES_OF[self.buffers.tensors[buffer].dtype],
            self.buffers.address(buffer),
            self.control.data_ptr() + 8 * SEED,
            self.buffers.address(call),
            first,
            place,
            self.sized(rows) if rows >= 0 else 1,
            self.sized(others),
            self.sized(bound) if bound >= 0 else 1,
        )

    def _check(self, node: Node, kind: int, dims: list[int], source: Any, count: int) -> Work:
        buffer, offset, strides = source
        finite = 2 if self.buffers.width(buffer) == 8 else 1
        return self._launch(
            "check",
            self._walk(self._sizes(dims), self._sizes(strides)),
            self.buffers.at(buffer, self.sized(offset)),
            finite if kind == 1 else 0,
            self.sized(count),
            self.record.data_ptr(),
            node.number,
        )


NAMES_OF = {dtype: name for name, dtype in DTYPES.items()}
