"""The first values of a model's params and states.

Takes an initialiser, a shape, the seed and the field's path; gives a torch tensor on the CPU. A draw depends on the
seed and the path alone: not on the devices, on the order of the fields or on other fields. Fan in and fan out are
PyTorch's for a convolution's `[O I kh kw]`; a weight of two axes, `[I O]`, has its inputs first.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from shapescript.devices.dtypes import dtype_of
from shapescript.random_bits import WORD, philox
from shapescript.types.element import Element


def path_seed(seed: int, path: str) -> int:
    """The key of a field's draws: the seed and the path, mixed."""
    digest = hashlib.sha256(f"{seed % 2**64}:{path}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """Fan in and fan out of a weight."""
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    field = math.prod(shape[2:])
    first, second = shape[0] * field, shape[1] * field
    return (first, second) if len(shape) == 2 else (second, first)


def initial(
    name: str, arguments: Mapping[str, float], shape: Sequence[int], element: Element, seed: int, path: str
) -> torch.Tensor:
    """The tensor that an initialiser gives."""
    dtype = dtype_of(element)
    fan_in, fan_out = fans(shape)
    key = path_seed(seed, path)
    match name:
        case "zeros":
            return torch.zeros(tuple(shape), dtype=dtype)
        case "ones":
            return torch.ones(tuple(shape), dtype=dtype)
        case "constant":
            value = next(iter(arguments.values()))
            return torch.full(tuple(shape), value, dtype=dtype)
        case "normal":
            drawn = _normal(shape, key) * arguments.get("std", 1.0) + arguments.get("mean", 0.0)
        case "uniform":
            low, high = arguments.get("a", 0.0), arguments.get("b", 1.0)
            drawn = _uniform(shape, key) * (high - low) + low
        case "xavier":
            bound = math.sqrt(6.0 / max(1, fan_in + fan_out)) * arguments.get("gain", 1.0)
            drawn = (_uniform(shape, key) * 2 - 1) * bound
        case "kaiming":
            bound = math.sqrt(2.0) * math.sqrt(3.0 / max(1, fan_in))
            drawn = (_uniform(shape, key) * 2 - 1) * bound
        case "orthogonal":
            drawn = _orthogonal(shape, key) * arguments.get("gain", 1.0)
        case _:
            raise ValueError(f"there is no initialiser `{name}`")
    return drawn.to(dtype)


AT_ONCE = 2**22
"""How many elements are drawn at once, so that their bits take little memory beside the tensor."""


def _drawn(
    shape: Sequence[int],
    key: int,
    numbers: Callable[[NDArray[np.uint32]], torch.Tensor],
    at_once: int = AT_ONCE,
    row: int = WORD,
) -> torch.Tensor:
    """A tensor of what `numbers` makes of each element's bits; a counter holds `row` elements, and then the next."""
    made = torch.empty(math.prod(shape), dtype=torch.float64)
    for start in range(0, len(made), at_once):
        first, number = start % row, start // row
        count = min(at_once, len(made) - start)
        made[start : start + count] = numbers(philox(key, 0, 0, None, number, count, first))
    return made.reshape(tuple(shape))


def _uniform(shape: Sequence[int], key: int) -> torch.Tensor:
    def numbers(bits: NDArray[np.uint32]) -> torch.Tensor:
        high, low = bits[:, 0].astype("float64"), (bits[:, 1] >> 11).astype("float64")
        return torch.from_numpy((high * 2.0**21 + low) * 2.0**-53)

    return _drawn(shape, key, numbers)


def _normal(shape: Sequence[int], key: int) -> torch.Tensor:
    """Box and Muller's way, one number for each element, in f64."""

    def numbers(bits: NDArray[np.uint32]) -> torch.Tensor:
        first = (bits[:, 0].astype("float64") + 1.0) * 2.0**-32
        second = bits[:, 1].astype("float64") * 2.0**-32
        radius = torch.sqrt(-2.0 * torch.log(torch.from_numpy(first)))
        return radius * torch.cos(2.0 * math.pi * torch.from_numpy(second))

    return _drawn(shape, key, numbers)


def _orthogonal(shape: Sequence[int], key: int) -> torch.Tensor:
    if len(shape) < 2:
        return _normal(shape, key)
    rows, columns = shape[0], math.prod(shape[1:])
    drawn = _normal((max(rows, columns), min(rows, columns)), key)
    q, r = torch.linalg.qr(drawn)
    q = q * torch.sign(torch.diagonal(r))
    made: torch.Tensor = (q if rows >= columns else q.T).reshape(tuple(shape)).contiguous()
    return made
