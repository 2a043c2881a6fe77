"""The collectives by torch.distributed's gloo: where there is no shared memory of the project's own.

Gives `gloo_transport`, one device's end. gloo only moves the values; they are combined here, in the order of the
devices, so that the results are those of shared memory, bit for bit. A device that has gone is `Lost`: what made it go
is another's to say.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from shapescript.devices.combine import combined
from shapescript.devices.dtypes import as_bytes
from shapescript.devices.flat_transport import FlatTransport
from shapescript.devices.transport import Sent
from shapescript.layout.mesh import Mesh, parts

T = TypeVar("T")
LOOPBACK = {"linux": "lo", "darwin": "lo0"}


class Lost(Exception):
    """A device of the group doesn't answer any more."""


def gloo_transport(device: int, mesh: Mesh, store: str, seconds: float = 1e6) -> FlatTransport:
    """The end of a device of a mesh; `store` is a file by which the devices, all of one machine, find each other."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK.get(sys.platform, "lo"))
    timeout = timedelta(seconds=seconds)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=device, world_size=mesh.count, timeout=timeout)
    sent, ends = Sent(), list[FlatTransport]()
    own = mesh.coordinates(device)
    for axis, size in enumerate(mesh.sizes):
        # every device takes part in making every group
        for line in lines_along(mesh, axis):
            group = dist.new_group(line, timeout=timeout)
            if device in line:
                GlooTransport(own[axis], size, sent, ends, group)
    return ends[0]


def lines_along(mesh: Mesh, axis: int) -> list[list[int]]:
    """The devices in lines along an axis of the mesh, each line in order."""
    lines: dict[tuple[int, ...], list[int]] = {}
    for device in range(mesh.count):
        at = mesh.coordinates(device)
        lines.setdefault((*at[:axis], *at[axis + 1 :]), []).append(device)
    return list(lines.values())


class GlooTransport(FlatTransport):
    """The end along one axis, which is a process group."""

    def __init__(self, rank: int, count: int, sent: Sent, ends: list[FlatTransport], group: object) -> None:
        super().__init__(rank, count, sent, ends)
        self._group = group

    def reduce_flat(self, tensors: Sequence[torch.Tensor], kind: str, weight: float | None) -> list[torch.Tensor]:
        """By a part for each device, which it combines, and a gathering of the results."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        if weight is not None:
            flat = weighted(flat, weight)
        lengths = parts(len(flat), self.count)
        received = self.exchange_flat(flat, [lengths] * self.count)
        own = combined(received.reshape(self.count, -1).unbind(0), kind)
        whole = self.gather_flat(own, lengths)
        pieces = torch.split(whole, [tensor.numel() for tensor in tensors])
        return [piece.clone().reshape(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]

    def gather_flat(self, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """All parts are sent as long as the longest, because gloo asks for that."""
        longest = max(lengths)
        padded = torch.zeros(longest, dtype=tensor.dtype)
        padded[: len(tensor)] = tensor
        received = [torch.empty_like(padded) for _ in lengths]
        heard(lambda: dist.all_gather([as_bytes(each) for each in received], as_bytes(padded), group=self._group))
        return torch.cat([each[:length] for each, length in zip(received, lengths, strict=True)])

    def scatter_flat(self, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Each device is sent its part by all, and adds."""
        received = self.exchange_flat(tensor, [list(lengths)] * self.count)
        return combined(received.reshape(self.count, -1).unbind(0))

    def exchange_flat(self, tensor: torch.Tensor, table: Sequence[Sequence[int]]) -> torch.Tensor:
        """One all-to-all of bytes."""
        size = tensor.element_size()
        gives = [length * size for length in table[self.rank]]
        takes = [row[self.rank] * size for row in table]
        received = torch.empty(sum(takes), dtype=torch.uint8)
        sent = as_bytes(tensor)
        heard(lambda: dist.all_to_all_single(received, sent, takes, gives, group=self._group))
        return received.view(tensor.dtype)


def weighted(tensor: torch.Tensor, weight: float) -> torch.Tensor:
    """A tensor times a number, which is of the tensor's element, or of f32 where that is narrower."""
    if not tensor.is_floating_point():
        raise ValueError("whole numbers can't be weighted")
    if tensor.dtype in (torch.bfloat16, torch.float16):
        return (tensor.float() * weight).to(tensor.dtype)
    return tensor * weight


def heard(call: Callable[[], T]) -> T:
    """What a call of gloo gives.

    Raises:
        Lost: another device has gone.
    """
    try:
        return call()
    except RuntimeError as error:
        raise Lost(str(error)) from error
