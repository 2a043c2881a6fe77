"""How a value is cut for several devices, and put together again.

Takes a layout's words and the sizes of a value's leaves; gives `Lie`, which cuts the whole value into what each device
has and joins that again: parts of a split value stand one after another, partial ones are combined in the order of the
devices, and of a whole one any device's will do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from shapescript.devices.combine import combined
from shapescript.layout.mesh import Mesh, first_of, parts
from shapescript.layout.words import Layout, Partial, Sharded, Split, leaves_of
from shapescript.types.axes import Axis


@dataclass(frozen=True)
class Lie:
    """Where a value lies: how long each leaf of each of its axes is, and a word for each axis of the mesh."""

    leaves: tuple[tuple[int, ...], ...]
    layout: Layout
    mesh: Mesh

    @staticmethod
    def of_shape(shape: Sequence[int], layout: Layout, mesh: Mesh) -> Lie:
        """That of a value none of whose axes is split by a part of it."""
        return Lie(tuple((size,) for size in shape), layout, mesh)

    @staticmethod
    def of_axes(axes: Sequence[Axis], sizes: Mapping[str, int], layout: Layout, mesh: Mesh) -> Lie:
        """That of a value with these axes."""
        leaves = tuple(tuple(leaf.size.evaluate(sizes) for leaf in leaves_of(axis)) for axis in axes)
        return Lie(leaves, layout, mesh)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The whole value's sizes."""
        return tuple(math.prod(axis) for axis in self.leaves)

    def same_as(self, other: Lie) -> bool:
        """Whether a value that lies so lies as the other says; what a split axis is called doesn't matter."""
        if self is other or self == other:
            return True
        return self.shape == other.shape and self.mesh == other.mesh and self._cuts == other._cuts

    @cached_property
    def _cuts(self) -> list[object]:
        return [
            (word.dim, self._before(word), self.leaves[word.dim][word.leaf]) if isinstance(word, Split) else word
            for word in self.layout
        ]

    def _before(self, word: Split) -> int:
        return math.prod(self.leaves[word.dim][: word.leaf])

    def _opened(self, word: Split) -> int:
        """The number of a split leaf's dimension where each leaf is a dimension of its own."""
        return sum(len(axis) for axis in self.leaves[: word.dim]) + word.leaf

    def local_leaves(self, device: int) -> tuple[tuple[int, ...], ...]:
        """The leaves as one device has them, before a sharded value is laid flat."""
        found = [list(axis) for axis in self.leaves]
        for word, n, at in zip(self.layout, self.mesh.sizes, self.mesh.coordinates(device), strict=True):
            if isinstance(word, Split):
                found[word.dim][word.leaf] = parts(found[word.dim][word.leaf], n)[at]
        return tuple(map(tuple, found))

    def local_shape(self, device: int) -> tuple[int, ...]:
        """The sizes of what one device has."""
        shape = tuple(math.prod(axis) for axis in self.local_leaves(device))
        for word, n, at in zip(self.layout, self.mesh.sizes, self.mesh.coordinates(device), strict=True):
            if isinstance(word, Sharded):
                shape = (parts(math.prod(shape), n)[at],)
        return shape

    def cut(self, tensor: torch.Tensor, device: int) -> torch.Tensor:
        """What one device has of a whole value: a view of it, or zeros where another device keeps the whole."""
        opened = tensor.reshape([size for axis in self.leaves for size in axis])
        place = list(zip(self.layout, self.mesh.sizes, self.mesh.coordinates(device), strict=True))
        for word, n, at in place:
            if isinstance(word, Split):
                dim = self._opened(word)
                count = opened.shape[dim]
                opened = opened.narrow(dim, first_of(count, n, at), parts(count, n)[at])
        local = opened.reshape([math.prod(axis) for axis in self.local_leaves(device)])
        for word, n, at in place:
            if isinstance(word, Sharded):
                flat = local.reshape(-1)
                local = flat.narrow(0, first_of(len(flat), n, at), parts(len(flat), n)[at])
            elif isinstance(word, Partial) and at > 0:
                if word.kind != "sum":
                    continue  # the largest of equal values is that value
                local = torch.zeros_like(local)
        return local

    def devices(self) -> list[int]:
        """The devices whose parts make the value: the first of those that have the same."""
        return self._devices

    @cached_property
    def _devices(self) -> list[int]:
        return [
            device
            for device in range(self.mesh.count)
            if all(
                at == 0 or isinstance(word, (Split, Partial, Sharded))
                for word, at in zip(self.layout, self.mesh.coordinates(device), strict=True)
            )
        ]

    def join(self, local: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """The whole value of what the `devices` have."""
        if not self.leaves and len(self.layout) == 1 and not isinstance(self.layout[0], Sharded):
            # a loss, which may be looked at in every step
            (word,), parts_of_it = self.layout, list(local.values())
            return combined(parts_of_it, word.kind) if isinstance(word, Partial) else parts_of_it[0]
        found = {self.mesh.coordinates(device): tensor for device, tensor in local.items()}
        # what was cut last is joined first
        for axis in reversed(range(len(self.layout))):
            if isinstance(self.layout[axis], Sharded):
                found = self._joined(found, axis, torch.cat)
        opened = {
            at: tensor.reshape([size for leaf in self.local_leaves(self.mesh.device(at)) for size in leaf])
            for at, tensor in found.items()
        }
        for axis in reversed(range(len(self.layout))):
            word = self.layout[axis]
            if isinstance(word, Partial):
                opened = self._joined(opened, axis, partial(combined, kind=word.kind))
            elif isinstance(word, Split):
                opened = self._joined(opened, axis, partial(torch.cat, dim=self._opened(word)))
        (whole,) = opened.values()
        return whole.reshape(self.shape)

    def _joined(
        self,
        found: Mapping[tuple[int, ...], torch.Tensor],
        axis: int,
        join: Callable[[list[torch.Tensor]], torch.Tensor],
    ) -> dict[tuple[int, ...], torch.Tensor]:
        """Those that differ in their place along one axis of the mesh, made one, which stands at its beginning."""
        groups: dict[tuple[int, ...], list[torch.Tensor]] = {}
        for at in sorted(found):
            groups.setdefault((*at[:axis], 0, *at[axis + 1 :]), []).append(found[at])
        return {at: join(tensors) for at, tensors in groups.items()}
