"""All-reduces of one launch on a GPU: packed into a bucket, summed there, and unpacked where the results lie.

Takes operands and results that keep their places; gives the work. All memory is there before anything is recorded. f16
and bf16 are summed in f32 and rounded once; other elements as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch

from shapescript.devices.captured.machine import Machine, Work
from shapescript.devices.transport import Sent, Transport

SEGMENT_ELEMENTS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}
"""As `Narrow` in csrc/cuda/kernels.hpp numbers them."""

WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.int16: torch.int32}
"""What elements are summed in that NCCL has none of, or only a narrow one."""


@runtime_checkable
class InPlace(Protocol):
    """An end that combines values where they are, on the stream that is recorded."""

    sent: Sent

    def reduce_in_place(self, bucket: torch.Tensor, kind: str) -> None:
        """The sum, greatest or least over the devices, in the bucket's own memory."""


class Bucket:
    """The operands of one element, side by side."""

    def __init__(
        self, machine: Machine, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor], kind: str
    ) -> None:
        self.machine, self.given, self.results, self.kind = machine, list(given), list(results), kind
        dtype = given[0].dtype
        self.packed = dtype in SEGMENT_ELEMENTS
        wide = WIDER.get(dtype, dtype)
        self.memory = torch.empty(sum(each.numel() for each in given), dtype=wide, device=machine.device)
        # what isn't one piece is copied to one beside it
        self.pieces = [each if each.is_contiguous() else torch.empty_like(each).contiguous() for each in given]
        self.into = [each if each.is_contiguous() else torch.empty_like(each).contiguous() for each in results]
        self.longest = max((each.numel() for each in given), default=0)
        self.segments = [self._table(self.pieces), self._table(self.into)] if self.packed else []

    def _table(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        rows, begin = [], 0
        for each in tensors:
            rows.append([each.data_ptr(), begin, each.numel(), SEGMENT_ELEMENTS[each.dtype]])
            begin += each.numel()
        return torch.tensor(rows, dtype=torch.int64).to(self.machine.device)

    def _parts(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        split = torch.split(self.memory, [each.numel() for each in tensors])
        return [part.view(each.shape) for part, each in zip(split, tensors, strict=True)]

    def reduce(self, end: InPlace) -> None:
        """Puts it all on the stream."""
        if not self.memory.numel():
            return
        for piece, each in zip(self.pieces, self.given, strict=True):
            if piece is not each:
                piece.copy_(each)
        address, count, wide = self.memory.data_ptr(), len(self.pieces), self.memory.dtype == torch.float64
        kernels, grid = self.machine.kernels, self.machine.grid()
        if self.packed:
            kernels.pack(address, wide, self.segments[0].data_ptr(), count, self.longest, 0, grid)
        else:
            for piece, part in zip(self.pieces, self._parts(self.pieces), strict=True):
                part.copy_(piece)
        end.reduce_in_place(self.memory, self.kind)
        if self.packed:
            kernels.unpack(address, wide, self.segments[1].data_ptr(), count, self.longest, grid)
        else:
            for into, part in zip(self.into, self._parts(self.into), strict=True):
                into.copy_(part)
        for into, each in zip(self.into, self.results, strict=True):
            if into is not each:
                each.copy_(into)


def together(
    machine: Machine,
    given: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    kind: str,
    end: Callable[[], Transport],
) -> Work:
    """The work of one launch; `end` gives this device's end when it is done."""
    places: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(given):
        places.setdefault(tensor.dtype, []).append(place)
    buckets = [
        Bucket(machine, [given[place] for place in own], [results[place] for place in own], kind)
        for own in places.values()
    ]
    carried = Sent(1, sum(each.numel() for each in given), sum(each.numel() * each.element_size() for each in given))

    def work() -> None:
        transport = end()
        if isinstance(transport, InPlace):
            for bucket in buckets:
                bucket.reduce(transport)
            transport.sent.include(carried)
            return
        made = transport.all_reduce([each.contiguous() for each in given], kind)
        for result, tensor in zip(results, made, strict=True):
            result.copy_(tensor)

    return work
