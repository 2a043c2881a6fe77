"""What devices say to each other: the collectives, behind one small interface.

Gives `Transport`, one device's end of it, along one axis of a mesh. Every device of the axis calls the same
collectives in the same order. What has been sent is counted here, in values and bytes, as `plan` prints it: the
payload of a collective, which is the size of the whole value, whatever a particular transport moves for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch


@dataclass
class Sent:
    """What a device has taken part in sending: calls of a collective, values and bytes of their payload."""

    launches: int = 0
    values: int = 0
    bytes: int = 0

    def add(self, values: int, size: int) -> None:
        """One launch more, of `values` of `size` bytes each."""
        self.launches += 1
        self.values += values
        self.bytes += values * size

    def include(self, more: Sent) -> None:
        """What was sent besides."""
        self.launches += more.launches
        self.values += more.values
        self.bytes += more.bytes


class Transport(Protocol):
    """One device's end. `widths` are how long each device's part of a dim is, in the order of the devices."""

    rank: int
    count: int
    sent: Sent

    def all_reduce(self, tensors: Sequence[torch.Tensor], kind: str = "sum") -> list[torch.Tensor]:
        """Each tensor combined over the devices by `sum`, `max` or `min`, in the order of the ranks; one launch."""

    def all_gather(self, tensor: torch.Tensor, dim: int, widths: Sequence[int]) -> torch.Tensor:
        """The parts of all devices, joined along a dim."""

    def reduce_scatter(self, tensor: torch.Tensor, dim: int, widths: Sequence[int]) -> torch.Tensor:
        """The sum over the devices, of which each keeps its part along a dim."""

    def all_to_all(
        self, tensor: torch.Tensor, joined: int, joined_widths: Sequence[int], cut: int, cut_widths: Sequence[int]
    ) -> torch.Tensor:
        """What lay split along the dim `joined` lies split along `cut`."""

    def along(self, mesh_axis: int) -> Transport:
        """This device's end along another axis of the mesh."""


@runtime_checkable
class InMemory(Protocol):
    """An end whose collectives code in C++ may call: the table of csrc/cpu/collectives.h."""

    def capsule(self) -> object:
        """The table, as a capsule; it is good while this object is there."""

    def explain(self) -> None:
        """Raises what made a function of the table fail."""
