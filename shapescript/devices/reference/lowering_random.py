"""Random draws in torch, from Philox's bits.

Each number depends on the run's seed, the number of the controller's call, the draw's place in the program and the
element's place in the whole value: its row of the batch axis and its index within the other axes. Four words of bits
are spent on each element: uniform numbers take as many bits as their element holds exactly, normal ones are made in
f64 by Box and Muller's transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from shapescript.devices.dtypes import dtype_of
from shapescript.devices.reference.lowering import Run, Shape, Step, lowers, shape_of
from shapescript.ir.graph import Node
from shapescript.random_bits import philox
from shapescript.types.size import Size

UNIFORM_BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


@lowers("random_key")
def random_key(node: Node, static: Mapping[str, int]) -> Step:
    """The number of the controller's call."""
    return lambda run: torch.tensor(run.key.call, dtype=torch.int64)


def _drawer(node: Node, static: Mapping[str, int]) -> Callable[[Run, torch.Tensor], tuple[NDArray[np.uint32], Place]]:
    """What gives the bits of a draw, and how its rows become the value."""
    at = next((i for i, axis in enumerate(node.axes) if axis.batch), None)
    shape, place = shape_of(node.axes, static), node.attributes["place"]
    if not isinstance(place, int):
        raise TypeError(f"`place` is no whole number: {place!r}")
    where = place

    def draw(run: Run, call: torch.Tensor) -> tuple[NDArray[np.uint32], Place]:
        sizes = shape.at(run)
        rows = None if at is None else sizes[at]
        others = math.prod(size for i, size in enumerate(sizes) if i != at)
        first = run.key.first_row if at is not None else 0
        return philox(run.key.seed, int(call), where, rows, first, others), Place(sizes, at)

    return draw


class Place:
    """How numbers drawn row by row become a value whose batch axis may stand anywhere."""

    def __init__(self, sizes: tuple[int, ...], batch: int | None) -> None:
        self.sizes, self.batch = sizes, batch

    def value(self, numbers: NDArray[np.float64] | NDArray[np.int64], run: Run, dtype: torch.dtype) -> torch.Tensor:
        """The value on its device."""
        x = torch.from_numpy(numbers)
        if self.batch is None:
            x = x.reshape(self.sizes)
        else:
            others = [size for i, size in enumerate(self.sizes) if i != self.batch]
            x = x.reshape([self.sizes[self.batch], *others]).movedim(0, self.batch)
        return x.to(device=run.device, dtype=dtype)


@lowers("random_uniform")
def random_uniform(node: Node, static: Mapping[str, int]) -> Step:
    """Numbers from 0 up to 1, never 1 itself."""
    draw, dtype, bits = _drawer(node, static), dtype_of(node.element), UNIFORM_BITS[node.element.name]

    def step(run: Run, call: torch.Tensor) -> torch.Tensor:
        words, place = draw(run, call)
        return place.value(unit(words[:, 0], words[:, 1], bits), run, dtype)

    return step


def unit(high: NDArray[np.uint32], low: NDArray[np.uint32], bits: int) -> NDArray[np.float64]:
    """Numbers from 0 up to 1 of so many bits; up to 32 come from the first word alone."""
    if bits <= 32:
        return (high >> np.uint32(32 - bits)).astype(np.float64) * 2.0**-bits
    both = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    return (both >> np.uint64(64 - bits)).astype(np.float64) * 2.0**-bits


@lowers("random_normal")
def random_normal(node: Node, static: Mapping[str, int]) -> Step:
    """Standard normal numbers."""
    draw, dtype = _drawer(node, static), dtype_of(node.element)

    def step(run: Run, call: torch.Tensor) -> torch.Tensor:
        words, place = draw(run, call)
        radius = np.sqrt(-2.0 * np.log(1.0 - unit(words[:, 0], words[:, 1], 53)))
        angle = 2.0 * math.pi * unit(words[:, 2], words[:, 3], 53)
        return place.value(radius * np.cos(angle), run, dtype)

    return step


@lowers("random_integers")
def random_integers(node: Node, static: Mapping[str, int]) -> Step:
    """Whole numbers from 0 up to the bound; 64 bits each, so that no number is favoured by more than 2**-32."""
    draw, dtype, bound = _drawer(node, static), dtype_of(node.element), node.attributes["bound"]
    if isinstance(bound, int):
        bound = Size.of(bound)
    if not isinstance(bound, Size):
        raise TypeError(f"`bound` is no size: {bound!r}")
    most = Shape([bound], static)

    def step(run: Run, call: torch.Tensor) -> torch.Tensor:
        words, place = draw(run, call)
        both = (words[:, 0].astype(np.uint64) << np.uint64(32)) | words[:, 1].astype(np.uint64)
        return place.value((both % np.uint64(max(1, most.at(run)[0]))).astype(np.int64), run, dtype)

    return step
