"""Reductions and what works along axes, in torch.

Sums over f16 and bf16 are kept in f32, those over small whole numbers in i64, until the result is cast to the node's
element. The greatest of nothing is a `ValueProblem` that names the axis. A softmax over nothing but -inf is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from shapescript.devices.dtypes import dtype_of
from shapescript.devices.reference.lowering import (
    Run,
    Step,
    ValueProblem,
    half,
    lowers,
    over_position,
    over_positions,
    whole_number,
)
from shapescript.ir.graph import Node
from shapescript.ops.registry import over_axes

INFINITY = float("inf")


def _wide(x: torch.Tensor) -> torch.Tensor:
    """x in the element in which it is added up."""
    if half(x):
        return x.float()
    return x if x.is_floating_point() else x.to(torch.int64)


def _sum(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return _wide(x).sum(dims) if dims else x


def _prod(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    x = _wide(x)
    for dim in sorted(dims, reverse=True):
        x = x.prod(dim)
    return x


def _any(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return torch.any(x, dims) if dims else x


def _all(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return torch.all(x, dims) if dims else x


def _max(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return torch.amax(x, dims) if dims else x


def _min(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return torch.amin(x, dims) if dims else x


def _logsumexp(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return torch.logsumexp(_wide(x), dims) if dims else x


REDUCTIONS: dict[str, Callable[[torch.Tensor, list[int]], torch.Tensor]] = {
    "sum": _sum,
    "prod": _prod,
    "any": _any,
    "all": _all,
    "logsumexp": _logsumexp,
    "max": _max,
    "min": _min,
}


@lowers(*REDUCTIONS)
def reduction(node: Node, static: Mapping[str, int]) -> Step:
    """A reduction over several axes."""
    function, dims, dtype = REDUCTIONS[node.name], over_positions(node), dtype_of(node.element)
    needs_some = node.name in ("max", "min")

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        if needs_some:
            refuse_empty(node, x, dims)
        return function(x, dims).to(dtype)

    return step


def refuse_empty(node: Node, x: torch.Tensor, dims: list[int]) -> None:
    """Refuses to look for the best of nothing.

    Raises:
        ValueProblem: an axis in which something is to be found has no places.
    """
    for dim, axis in zip(dims, over_axes(node.attributes), strict=True):
        if x.shape[dim] == 0:
            raise ValueProblem(f"`{node.name}` over `{axis}`, which is empty: there is nothing to choose from")


@lowers("argmax", "argmin")
def place_of_best(node: Node, static: Mapping[str, int]) -> Step:
    """The first place of the greatest or the least."""
    find = torch.argmax if node.name == "argmax" else torch.argmin
    dim = over_position(node)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        refuse_empty(node, x, [dim])
        return find(x.to(torch.uint8) if x.dtype == torch.bool else x, dim)

    return step


@lowers("softmax", "log_softmax")
def softmax(node: Node, static: Mapping[str, int]) -> Step:
    """Softmax or its logarithm; along a slice of -inf alone it is 0, or -inf."""
    log = node.name == "log_softmax"
    dims = over_positions(node)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        if x.numel() == 0:
            return x
        moved, back = (x, None) if len(dims) == 1 else _together(x, dims)
        dim = dims[0] if back is None else -1
        y = torch.log_softmax(moved, dim) if log else torch.softmax(moved, dim)
        dead = moved.amax(dim, keepdim=True) == -INFINITY
        y = y.masked_fill(dead, -INFINITY if log else 0.0)
        return y if back is None else back(y)

    return step


def _together(x: torch.Tensor, dims: list[int]) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """x with some axes as one, at the end, and the way back."""
    order = [d for d in range(x.dim()) if d not in dims] + dims
    moved = x.permute(order)
    shape = moved.shape
    inverse = [order.index(d) for d in range(x.dim())]
    return moved.reshape(*shape[: x.dim() - len(dims)], -1), lambda y: y.reshape(shape).permute(inverse)


@lowers("layer_norm", "rms_norm")
def normalise(node: Node, static: Mapping[str, int]) -> Step:
    """Normalisation over some axes, in f32 at least."""
    dims, dtype = over_positions(node), dtype_of(node.element)
    value = node.attributes.get("eps", 1e-5)
    if not isinstance(value, (int, float)):
        raise TypeError(f"`eps` is no number: {value!r}")
    eps, rank, centred = float(value), len(node.axes), node.name == "layer_norm"
    trailing = centred and dims == list(range(rank - len(dims), rank))

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        wide = _wide(x)
        if trailing:
            return functional.layer_norm(wide, wide.shape[rank - len(dims) :], None, None, eps).to(dtype)
        if centred:
            variance, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
            return ((wide - mean) * torch.rsqrt(variance + eps)).to(dtype)
        return (wide * torch.rsqrt(wide.square().mean(dims, keepdim=True) + eps)).to(dtype)

    return step


@lowers("cumsum", "cumprod")
def running(node: Node, static: Mapping[str, int]) -> Step:
    """Running sums and products."""
    function = torch.cumsum if node.name == "cumsum" else torch.cumprod
    dim, dtype = over_position(node), dtype_of(node.element)
    return lambda run, x: function(_wide(x), dim).to(dtype)


@lowers("sort", "argsort")
def sort(node: Node, static: Mapping[str, int]) -> Step:
    """Values in rising order, or where they stand; equal ones keep their order."""
    which = 0 if node.name == "sort" else 1
    dim, falling = over_position(node), bool(node.attributes.get("descending", False))
    return lambda run, x: torch.sort(x, dim=dim, descending=falling, stable=True)[which]


@lowers("topk_values", "topk_indices")
def topk(node: Node, static: Mapping[str, int]) -> Step:
    """The k greatest in falling order, of equal ones the first."""
    which = 0 if node.name == "topk_values" else 1
    dim, asked = over_position(node), node.attributes["k"]
    axis = over_axes(node.attributes)[0]

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        k = whole_number(asked, run)
        if k > x.shape[dim]:
            raise ValueProblem(f"the {k} greatest over `{axis}` are asked for, but it has {x.shape[dim]}")
        return torch.sort(x, dim=dim, descending=True, stable=True)[which].narrow(dim, 0, k)

    return step


@lowers("flip")
def flip(node: Node, static: Mapping[str, int]) -> Step:
    """An axis backwards."""
    dims = over_positions(node)
    return lambda run, x: torch.flip(x, dims)
