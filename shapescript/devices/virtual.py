"""Devices by threads in one process: the collectives as sums and copies, for tests and for counting.

Gives `VirtualDevices`, whose `run` runs one graph on each device of a mesh at once. A collective waits until every
device of its group is there; where one fails, the others fail too, so that nothing hangs. The sums are taken in the
order of the ranks.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from shapescript.devices.transport import Sent
from shapescript.layout.mesh import Mesh

Result = TypeVar("Result")
COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}
LONGEST_WAIT = 60.0


class Group:
    """The devices that stand along one line of a mesh: what each has brought to the collective that is going on."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.barrier = threading.Barrier(count)
        self.brought: list[object] = [None] * count

    def exchange(self, rank: int, given: object) -> list[object]:
        """What every device has brought, in the order of the ranks."""
        self.brought[rank] = given
        self.barrier.wait(LONGEST_WAIT)
        found = list(self.brought)
        self.barrier.wait(LONGEST_WAIT)
        return found


class VirtualTransport:
    """One device's end along one mesh axis."""

    def __init__(self, group: Group, rank: int, sent: Sent, ends: list[VirtualTransport]) -> None:
        self.group, self.rank, self.count, self.sent, self.ends = group, rank, group.count, sent, ends

    def along(self, mesh_axis: int) -> VirtualTransport:
        """The end along another mesh axis."""
        return self.ends[mesh_axis]

    def _others(self, what: str, given: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        found = self.group.exchange(self.rank, (what, [tensor.clone() for tensor in given]))
        tensors = []
        for one in found:
            assert isinstance(one, tuple)
            if one[0] != what:
                raise RuntimeError(f"the devices call different collectives: {what} and {one[0]}")
            tensors.append(one[1])
        return tensors

    def _count(self, values: int, tensor: torch.Tensor, launch: bool = True) -> None:
        self.sent.launches += launch
        self.sent.values += values
        self.sent.bytes += values * tensor.element_size()

    def all_reduce(self, tensors: Sequence[torch.Tensor], kind: str = "sum") -> list[torch.Tensor]:
        """Each tensor combined over the devices."""
        combine = COMBINE[kind]
        brought = self._others(f"all_reduce {kind} of {len(tensors)}", tensors)
        result = []
        for number, own in enumerate(tensors):
            total = brought[0][number].clone()
            for each in brought[1:]:
                total = combine(total, each[number])
            result.append(total)
            self._count(own.numel(), own, number == 0)
        return result

    def all_gather(self, tensor: torch.Tensor, dim: int, widths: Sequence[int]) -> torch.Tensor:
        """The parts joined."""
        assert tensor.shape[dim] == widths[self.rank], (tuple(tensor.shape), dim, widths)
        joined = torch.cat([each[0] for each in self._others("all_gather", [tensor])], dim)
        self._count(joined.numel(), joined)
        return joined

    def reduce_scatter(self, tensor: torch.Tensor, dim: int, widths: Sequence[int]) -> torch.Tensor:
        """The part of the sum."""
        assert tensor.shape[dim] == sum(widths), (tuple(tensor.shape), dim, widths)
        brought = self._others("reduce_scatter", [tensor])
        begin = sum(widths[: self.rank])
        parts = [each[0].narrow(dim, begin, widths[self.rank]) for each in brought]
        total = parts[0].clone()
        for part in parts[1:]:
            total = total + part
        self._count(tensor.numel(), tensor)
        return total

    def all_to_all(
        self, tensor: torch.Tensor, joined: int, joined_widths: Sequence[int], cut: int, cut_widths: Sequence[int]
    ) -> torch.Tensor:
        """Joined along one dim, cut along the other."""
        brought = [each[0] for each in self._others("all_to_all", [tensor])]
        whole = torch.cat(brought, joined)
        self._count(whole.numel(), whole)
        return whole.narrow(cut, sum(cut_widths[: self.rank]), cut_widths[self.rank]).contiguous()


class VirtualDevices:
    """A mesh of devices in this process; `sent` counts what each took part in."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.sent = [Sent() for _ in range(mesh.count)]
        groups: dict[tuple[int, tuple[int, ...]], Group] = {}
        self.transports: list[VirtualTransport] = []
        for device, place in enumerate(itertools.product(*map(range, mesh.sizes))):
            ends: list[VirtualTransport] = []
            for mesh_axis, n in enumerate(mesh.sizes):
                line = mesh_axis, (*place[:mesh_axis], *place[mesh_axis + 1 :])
                group = groups.setdefault(line, Group(n))
                ends.append(VirtualTransport(group, place[mesh_axis], self.sent[device], ends))
            self.transports.append(ends[0])
        self.groups = list(groups.values())

    def run(self, work: Callable[[int, VirtualTransport], Result]) -> list[Result]:
        """What `work` gives for each device, all at once.

        Raises:
            Exception: the first that a device raised, by number.
        """
        for group in self.groups:
            group.barrier.reset()

        def one(device: int) -> Result:
            try:
                return work(device, self.transports[device])
            except BaseException:
                for group in self.groups:
                    group.barrier.abort()
                raise

        with ThreadPoolExecutor(self.mesh.count) as pool:
            futures = [pool.submit(one, device) for device in range(self.mesh.count)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
        return [future.result() for future in futures]
