"""The collectives by NCCL, on the stream that is recorded: for several GPUs, a process each.

Takes the transport by which the devices' processes meet on the CPU, and gives `NcclTransport`, one device's end; the
communicators are the project's own, one along each axis of the mesh. Sums of f16 and bf16 are made in f32, rounded
once. The library is found by `csrc/cuda/nccl.cpp`: `SHAPESCRIPT_NCCL` names its file, else it is the one that torch
has loaded, or the system's. A communicator is destroyed after all recordings that hold it; where something failed it
isn't, and the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shapescript.devices.flat_transport import FlatTransport
from shapescript.devices.transport import Sent, Transport

VARIABLE = "SHAPESCRIPT_NCCL"
ELEMENTS = {
    torch.int8: 0,
    torch.uint8: 1,
    torch.bool: 1,
    torch.int32: 2,
    torch.int64: 4,
    torch.float32: 7,
    torch.float64: 8,
}
"""NCCL's numbers of elements that are sent as they are."""
BYTE = 1
KINDS = {"sum": 0, "max": 2, "min": 3}
NARROW = (torch.float16, torch.bfloat16)


def load_nccl(module: Any) -> int:
    """Finds NCCL; gives its version, as it says it itself.

    Raises:
        RuntimeError: there is none, or the file that the environment names isn't one.
    """
    version: int = module.nccl_load(os.environ.get(VARIABLE, ""))
    return version


def nccl_transport(
    meeting: Transport, axes: int, module: Any, stream: Callable[[], int], device: torch.device
) -> NcclTransport:
    """This device's end; `meeting` is its end of a transport on the CPU, over a mesh of so many axes."""
    load_nccl(module)
    ends: list[FlatTransport] = []
    sent = Sent()
    made = [
        NcclTransport(
            _communicator(meeting.along(axis), module), meeting.along(axis), sent, ends, module, stream, device
        )
        for axis in range(axes)
    ]
    return made[0]


def _communicator(end: Transport, module: Any) -> Any:
    """The communicator of a line of devices: its first one makes the unique id, and tells the others."""
    mine = module.nccl_unique_id() if end.rank == 0 else bytes(128)
    said = end.all_reduce([torch.tensor(list(mine), dtype=torch.int64)])[0]
    return module.Communicator(bytes(said.tolist()), end.count, end.rank)


class NcclTransport(FlatTransport):
    """The end along one axis."""

    def __init__(
        self,
        communicator: Any,
        line: Transport,
        sent: Sent,
        ends: list[FlatTransport],
        module: Any,
        stream: Callable[[], int],
        device: torch.device,
    ) -> None:
        super().__init__(line.rank, line.count, sent, ends)
        self.communicator, self.module, self.stream, self.device = communicator, module, stream, device

    def reduce_flat(self, tensors: Sequence[torch.Tensor], kind: str, weight: float | None) -> list[torch.Tensor]:
        """One bucket, which is summed in place; a weight multiplies it before."""
        dtype = tensors[0].dtype
        flat = torch.cat([each.reshape(-1) for each in tensors])
        bucket = flat.float() if dtype in NARROW else flat.int() if dtype == torch.int16 else flat
        if weight is not None:
            if not dtype.is_floating_point:
                raise ValueError("whole numbers can't be weighted")
            bucket.mul_(weight)
        self.reduce_in_place(bucket, kind)
        pieces = torch.split(bucket.to(dtype), [each.numel() for each in tensors])
        return [piece.reshape(each.shape) for piece, each in zip(pieces, tensors, strict=True)]

    def reduce_in_place(self, bucket: torch.Tensor, kind: str) -> None:
        """The sum, greatest or least over the devices, in the bucket's own memory."""
        self.communicator.all_reduce(
            bucket.data_ptr(), bucket.numel(), ELEMENTS[bucket.dtype], KINDS[kind], self.stream()
        )

    def gather_flat(self, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Each device's part sent to all, as one group."""
        whole = tensor.new_empty(sum(lengths))
        size, stream, begin = tensor.element_size(), self.stream(), 0
        self.module.nccl_group_start()
        for rank, length in enumerate(lengths):
            into = whole.data_ptr() + begin * size
            source = tensor.data_ptr() if rank == self.rank else into
            if length:
                self.communicator.broadcast(source, into, length * size, BYTE, rank, stream)
            begin += length
        self.module.nccl_group_end()
        return whole

    def scatter_flat(self, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Each part summed on the device that keeps it, as one group."""
        given = tensor.float() if tensor.dtype in NARROW else tensor
        own = given.new_empty(lengths[self.rank])
        size, stream, begin = given.element_size(), self.stream(), 0
        self.module.nccl_group_start()
        for rank, length in enumerate(lengths):
            source = given.data_ptr() + begin * size
            into = own.data_ptr() if rank == self.rank else 0
            if length:
                self.communicator.reduce(source, into, length, ELEMENTS[given.dtype], KINDS["sum"], rank, stream)
            begin += length
        self.module.nccl_group_end()
        return own.to(tensor.dtype)

    def exchange_flat(self, tensor: torch.Tensor, table: Sequence[Sequence[int]]) -> torch.Tensor:
        """Parts sent and received as one group."""
        takes = [row[self.rank] for row in table]
        received = tensor.new_empty(sum(takes))
        size, stream = tensor.element_size(), self.stream()
        sent_from, into = tensor.data_ptr(), received.data_ptr()
        self.module.nccl_group_start()
        for peer in range(self.count):
            gives = table[self.rank][peer] * size
            if gives:
                self.communicator.send(sent_from, gives, BYTE, peer, stream)
            if takes[peer]:
                self.communicator.receive(into, takes[peer] * size, BYTE, peer, stream)
            sent_from, into = sent_from + gives, into + takes[peer] * size
        self.module.nccl_group_end()
        return received

    def check(self) -> None:
        """Raises what NCCL has met since."""
        self.communicator.check_async()

    def close(self) -> None:
        """Ends all communicators; no recording may hold one any more."""
        for end in self._ends:
            assert isinstance(end, NcclTransport)
            end.communicator.destroy()
