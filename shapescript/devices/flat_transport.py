"""The collectives on tensors, by collectives on flat memory.

Gives `FlatTransport`: the dims of tensors become parts that stand one after another, what is sent is counted, and a
transport of its own (shared memory, gloo) has only to move flat memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from shapescript.devices.transport import Sent


class FlatTransport(ABC):
    """One device's end along one axis of the mesh; `ends` has those along all axes, this one too."""

    def __init__(self, rank: int, count: int, sent: Sent, ends: list[FlatTransport]) -> None:
        self.rank = rank
        self.count = count
        self.sent = sent
        self._ends = ends
        ends.append(self)

    def along(self, mesh_axis: int) -> FlatTransport:
        """This device's end along another axis of the mesh."""
        return self._ends[mesh_axis]

    # --- what moves flat memory; all tensors are contiguous and of one dtype

    @abstractmethod
    def reduce_flat(self, tensors: Sequence[torch.Tensor], kind: str, weight: float | None) -> list[torch.Tensor]:
        """New tensors: each combined over the devices; times each device's own weight where one is given."""

    @abstractmethod
    def gather_flat(self, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """The flat tensors of all devices, one after another."""

    @abstractmethod
    def scatter_flat(self, tensor: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """The sum over the devices of this device's part of a flat tensor."""

    @abstractmethod
    def exchange_flat(self, tensor: torch.Tensor, table: Sequence[Sequence[int]]) -> torch.Tensor:
        """What comes from each device, one after another; `table[i][j]` values go from device i to device j."""

    # --- the collectives

    def all_reduce(self, tensors: Sequence[torch.Tensor], kind: str = "sum") -> list[torch.Tensor]:
        """Each tensor combined over the devices by `sum`, `max` or `min`, in the order of the ranks; one launch."""
        return self._reduce(tensors, kind, None)

    def weighted_all_reduce(self, tensors: Sequence[torch.Tensor], weight: float) -> list[torch.Tensor]:
        """Each tensor's sum over the devices, each device's times a weight of its own; one launch."""
        return self._reduce(tensors, "sum", weight)

    def _reduce(self, tensors: Sequence[torch.Tensor], kind: str, weight: float | None) -> list[torch.Tensor]:
        results: list[torch.Tensor | None] = [None] * len(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
            made = self.reduce_flat([tensors[place].contiguous() for place in places], kind, weight)
            for place, result in zip(places, made, strict=True):
                results[place] = result
        self.sent.launches += 1
        self.sent.values += sum(tensor.numel() for tensor in tensors)
        self.sent.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return [result for result in results if result is not None]

    def all_gather(self, tensor: torch.Tensor, dim: int, widths: Sequence[int]) -> torch.Tensor:
        """The parts of all devices, joined along a dim."""
        rest = math.prod(tensor.shape[:dim]) * math.prod(tensor.shape[dim + 1 :])
        flat = self.gather_flat(tensor.contiguous().reshape(-1), [width * rest for width in widths])
        self.sent.add(sum(widths) * rest, tensor.element_size())
        shapes = [(*tensor.shape[:dim], width, *tensor.shape[dim + 1 :]) for width in widths]
        if dim == 0 or math.prod(tensor.shape[:dim]) == 1:
            return flat.reshape((*tensor.shape[:dim], sum(widths), *tensor.shape[dim + 1 :]))
        return torch.cat([part.reshape(shape) for part, shape in zip(split(flat, shapes), shapes, strict=True)], dim)

    def reduce_scatter(self, tensor: torch.Tensor, dim: int, widths: Sequence[int]) -> torch.Tensor:
        """The sum over the devices, of which each keeps its part along a dim."""
        pieces = torch.split(tensor, list(widths), dim)
        flat = torch.cat([piece.reshape(-1) for piece in pieces])
        own = self.scatter_flat(flat, [piece.numel() for piece in pieces])
        self.sent.add(tensor.numel(), tensor.element_size())
        return own.reshape(pieces[self.rank].shape)

    def all_to_all(
        self, tensor: torch.Tensor, joined: int, joined_widths: Sequence[int], cut: int, cut_widths: Sequence[int]
    ) -> torch.Tensor:
        """What lay split along the dim `joined` lies split along `cut`."""
        pieces = torch.split(tensor, list(cut_widths), cut)
        flat = torch.cat([piece.reshape(-1) for piece in pieces])
        sizes = [size for dim, size in enumerate(tensor.shape) if dim not in (joined, cut)]
        rest = math.prod(sizes)
        table = [[rows * columns * rest for columns in cut_widths] for rows in joined_widths]
        received = self.exchange_flat(flat, table)
        shape = list(tensor.shape)
        shape[cut] = cut_widths[self.rank]
        shapes = [(*shape[:joined], rows, *shape[joined + 1 :]) for rows in joined_widths]
        self.sent.add(sum(joined_widths) * sum(cut_widths) * rest, tensor.element_size())
        parts = [part.reshape(each) for part, each in zip(split(received, shapes), shapes, strict=True)]
        return torch.cat(parts, joined)


def split(flat: torch.Tensor, shapes: Sequence[Sequence[int]]) -> tuple[torch.Tensor, ...]:
    """A flat tensor in pieces that have as many values as these shapes."""
    return torch.split(flat, [math.prod(shape) for shape in shapes])
