"""Random draws in torch, from Philox's bits.

Each number depends on the run's seed, the number of the controller's call, the draw's place in the program and the
element's place in the whole value: its row of the batch axis and its index within the other axes. Four words of bits
are spent on each element: uniform numbers take as many bits as their element holds exactly, normal ones are made in
f64 by Box and Muller's transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from shapescript.devices.dtypes import dtype_of
from shapescript.devices.reference.lowering import Run, Shape, Step, ValueProblem, axes_of, lowers, shape_of
from shapescript.devices.reference.lowering_shapes import leaves
from shapescript.ir.graph import Node
from shapescript.random_bits import WORD, philox
from shapescript.types.size import Size

UNIFORM_BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


@lowers("random_key")
def random_key(node: Node, static: Mapping[str, int]) -> Step:
    """The number of the controller's call."""
    return lambda run: torch.tensor(run.key.call, dtype=torch.int64)


def _check_width(elements: int) -> None:
    """Holds a draw to the counter's 32 bits, which number the elements of a row."""
    if elements > WORD:
        raise ValueProblem(f"a draw has at most 2**32 elements for each row of a batch, and this has {elements}")


Drawer = Callable[[Run, torch.Tensor], "tuple[NDArray[np.uint32], Place]"]


def _drawer(node: Node, static: Mapping[str, int]) -> Drawer:
    """What gives the bits of a draw, and how its rows become the value."""
    if "whole" in node.attributes:
        return _part_drawer(node, static)
    at = next((i for i, axis in enumerate(node.axes) if axis.batch), None)
    shape, place = shape_of(node.axes, static), node.attributes["place"]
    if not isinstance(place, int):
        raise TypeError(f"`place` is no whole number: {place!r}")
    where = place

    def draw(run: Run, call: torch.Tensor) -> tuple[NDArray[np.uint32], Place]:
        sizes = shape.at(run)
        rows = None if at is None else sizes[at]
        others = math.prod(size for i, size in enumerate(sizes) if i != at)
        _check_width(others)
        first = run.key.first_row if at is not None else 0
        return philox(run.key.seed, int(call), where, rows, first, others), Place(sizes, at)

    return draw


def _part_drawer(node: Node, static: Mapping[str, int]) -> Drawer:
    """The same for a device's part of a draw: each element is numbered by its place in the whole value."""
    whole, place = axes_of(node, "whole"), node.attributes["place"]
    assert isinstance(place, int)
    where = place
    at = next((i for i, axis in enumerate(whole) if axis.batch), None)
    shape = shape_of(node.axes, static)
    along = [_Along.of(node, dim, static) for dim in range(len(whole))]

    def draw(run: Run, call: torch.Tensor) -> tuple[NDArray[np.uint32], Place]:
        places = [each.places(run) for each in along]
        sizes = [each.whole.at(run) for each in along]
        others = [dim for dim in range(len(whole)) if dim != at]
        inner = math.prod(math.prod(sizes[dim]) for dim in others)
        _check_width(inner)
        rows = np.zeros(1, dtype=np.int64) if at is None else places[at]
        low, high = (int(rows.min()), int(rows.max()) + 1) if rows.size else (0, 0)
        bits = philox(run.key.seed, int(call), where, None if at is None else high - low, low, inner)
        bits = bits.reshape((high - low, *(math.prod(sizes[dim]) for dim in others), 4))
        if not (rows.size == high - low and (np.diff(rows) == 1).all()):
            bits = bits.take(rows - low, axis=0)
        for number, dim in enumerate(others, 1):
            if places[dim].size != bits.shape[number] or (places[dim] != np.arange(bits.shape[number])).any():
                bits = bits.take(places[dim], axis=number)
        return np.ascontiguousarray(bits.reshape(-1, 4)), Place(shape.at(run), at)

    return draw


class _Along:
    """Where the places of an axis's part stand in the whole axis."""

    def __init__(self, whole: Shape, local: Shape, firsts: Sequence[Shape | None]) -> None:
        self.whole, self.local, self.firsts = whole, local, firsts

    @staticmethod
    def of(node: Node, dim: int, static: Mapping[str, int]) -> _Along:
        """Of axis number `dim` of a draw."""
        own, local = leaves(axes_of(node, "whole")[dim]), leaves(node.axes[dim])
        firsts: list[Shape | None] = [None] * len(own)
        dims, numbers, begins = (axes_or_numbers(node, name) for name in ("dims", "leaves", "firsts"))
        for at, number, begin in zip(dims, numbers, begins, strict=True):
            if at == dim and isinstance(number, int) and isinstance(begin, Size):
                firsts[number] = Shape([begin], static)
        return _Along(Shape([a.size for a in own], static), Shape([a.size for a in local], static), firsts)

    def places(self, run: Run) -> NDArray[np.int64]:
        """The places, in order; those beyond the whole's end, which are garbage, as the last within a row."""
        found = np.zeros(1, dtype=np.int64)
        sizes = zip(self.whole.at(run), self.local.at(run), self.firsts, strict=True)
        for number, (whole, local, begin) in enumerate(sizes):
            own = np.arange(local, dtype=np.int64) + (begin.at(run)[0] if begin is not None else 0)
            if number > 0 or begin is None:
                own = np.minimum(own, max(0, whole - 1))
            found = (found[:, None] * whole + own).reshape(-1)
        return found


def axes_or_numbers(node: Node, name: str) -> tuple[object, ...]:
    """An attribute that is a tuple."""
    value = node.attributes[name]
    assert isinstance(value, tuple)
    return value


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
