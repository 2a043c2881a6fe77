"""The collectives in shared memory: `csrc/cpu/transport_group.hpp` on tensors.

Takes the memory that all devices share; gives one device's end. Checks what C++ trusts: tensors are contiguous, on the
CPU, and of an element that it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from shapescript.devices.flat_transport import FlatTransport
from shapescript.devices.gloo import lines_along
from shapescript.devices.transport import Sent
from shapescript.devices.workers.native import native
from shapescript.layout.mesh import Mesh

if TYPE_CHECKING:
    from shapescript._transport import Group, Link, Mapping

ELEMENTS = {
    torch.float32: 0,
    torch.float64: 1,
    torch.int64: 2,
    torch.int32: 3,
    torch.bfloat16: 4,
    torch.float16: 5,
    torch.int16: 6,
    torch.int8: 7,
    torch.uint8: 8,
    torch.bool: 8,
}
"""As csrc/cpu/collectives.h numbers them."""
KINDS = {"sum": 0, "max": 1, "min": 2}


def exchange_bytes(mesh: Mesh) -> int:
    """How much memory the devices of a mesh share for the collectives; what isn't used costs nothing."""
    assert native is not None
    return sum(native.Group.bytes(size) * len(lines_along(mesh, axis)) for axis, size in enumerate(mesh.sizes))


def shared_transport(device: int, mesh: Mesh, link: Link, memory: Mapping, spin: bool) -> SharedTransport:
    """The end of a device of a mesh; `spin`: each device has a core of its own."""
    assert native is not None
    sent, ends = Sent(), list[FlatTransport]()
    own = mesh.coordinates(device)
    at = 0
    for axis, size in enumerate(mesh.sizes):
        for line in lines_along(mesh, axis):
            if device in line:
                group = native.Group(link, memory, at, own[axis], size, spin)
                SharedTransport(own[axis], size, sent, ends, group)
            at += native.Group.bytes(size)
    first = ends[0]
    assert isinstance(first, SharedTransport)
    return first


class SharedTransport(FlatTransport):
    """The end along one axis; `group` is what C++ has of it."""

    def __init__(self, rank: int, count: int, sent: Sent, ends: list[FlatTransport], group: Group) -> None:
        super().__init__(rank, count, sent, ends)
        self.group = group

    def capsule(self) -> object:
        """The table of csrc/cpu/collectives.h, for code in C++; it is good while this object is there."""
        return self.group.capsule()

    def explain(self) -> None:
        """Raises what made a function of the table fail."""
        self.group.explain()

    def reduce_flat(self, tensors: Sequence[torch.Tensor], kind: str, weight: float | None) -> list[torch.Tensor]:
        """Each device combines a slice of all."""
        if kind not in KINDS:
            raise ValueError(f"values are combined by {', '.join(KINDS)}, not by `{kind}`")
        outs = [torch.empty_like(tensor) for tensor in tensors]
        lengths = [tensor.numel() for tensor in tensors]
        element = ELEMENTS[tensors[0].dtype]
        self.group.all_reduce(
            [address(each) for each in tensors],
            [address(each) for each in outs],
            lengths,
            element,
            KINDS[kind],
            1.0 if weight is None else weight,
        )
        return outs

    def gather_flat(self, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Each device reads the parts of all."""
        expect(tensor, lengths[self.rank])
        out = torch.empty(sum(lengths), dtype=tensor.dtype)
        size = tensor.element_size()
        self.group.all_gather(address(tensor), address(out), [length * size for length in lengths])
        return out

    def scatter_flat(self, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Each device reads its part of all."""
        expect(tensor, sum(lengths))
        out = torch.empty(lengths[self.rank], dtype=tensor.dtype)
        self.group.reduce_scatter(address(tensor), address(out), lengths, ELEMENTS[tensor.dtype], KINDS["sum"])
        return out

    def exchange_flat(self, tensor: torch.Tensor, table: Sequence[Sequence[int]]) -> torch.Tensor:
        """Each device reads what is for it."""
        size = tensor.element_size()
        gives = [length * size for length in table[self.rank]]
        takes = [row[self.rank] * size for row in table]
        expect(tensor, sum(table[self.rank]))
        out = torch.empty(sum(takes) // size, dtype=tensor.dtype)
        longest = max(max(row) for row in table) * size
        self.group.all_to_all(address(tensor), gives, address(out), takes, longest)
        return out


def address(tensor: torch.Tensor) -> int:
    """Where a tensor's values lie."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu" or tensor.dtype not in ELEMENTS:
        raise ValueError(f"a collective in shared memory takes contiguous tensors of the CPU, not {tensor.dtype}")
    return tensor.data_ptr()


def expect(tensor: torch.Tensor, length: int) -> None:
    """Refuses a tensor that isn't as long as the other devices take it to be."""
    if tensor.numel() != length:
        raise ValueError(f"a tensor of {length} values is expected, and one of {tensor.numel()} is given")
