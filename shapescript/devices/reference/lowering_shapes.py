"""Primitives that move values about, in torch: reshapes, slices, lookups, and the contraction.

A lookup out of range is a `ValueProblem` that names the value and the size; so is a slice that doesn't fit its axis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from shapescript.devices.dtypes import dtype_of
from shapescript.devices.reference.lowering import (
    Run,
    Shape,
    Step,
    ValueProblem,
    axes_of,
    half,
    line_up,
    lowers,
    over_position,
    over_positions,
    shape_of,
    whole_number,
)
from shapescript.devices.reference.lowering_elementwise import check_range
from shapescript.ir.graph import Node
from shapescript.ops.registry import over_axes, position_of
from shapescript.types.axes import Axis, same


@lowers("broadcast")
def broadcast(node: Node, static: Mapping[str, int]) -> Step:
    """x repeated along the axes that it lacks; nothing is copied."""
    turn, shape = line_up(node.operands[0].axes, node.axes), shape_of(node.axes, static)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        return (x if turn is None else turn(x)).expand(shape.at(run))

    return step


@lowers("relabel")
def relabel(node: Node, static: Mapping[str, int]) -> Step:
    """x itself: only its axes are called otherwise."""
    return lambda run, x: x


@lowers("rearrange")
def rearrange(node: Node, static: Mapping[str, int]) -> Step:
    """Split into leaf parts, put in order, put together."""
    before = [leaf for axis in node.operands[0].axes for leaf in leaves(axis)]
    after = [leaf for axis in node.axes for leaf in leaves(axis)]
    order: list[int] = []
    for leaf in after:
        free = [i for i, other in enumerate(before) if i not in order and same(other, leaf)]
        named = [i for i in free if before[i].name == leaf.name]
        if not free:
            raise ValueError(f"`{leaf}` isn't a part of {node.operands[0].type}")
        order.append((named or free)[0])
    if len(order) != len(before):
        raise ValueError(f"{node.operands[0].type} has parts that {node.type} lacks")
    split, merged = shape_of(before, static), shape_of(node.axes, static)
    whole = order == list(range(len(order)))

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        if not whole:
            x = x.reshape(split.at(run)).permute(order)
        return x.reshape(merged.at(run))

    return step


def leaves(axis: Axis) -> list[Axis]:
    """The parts of an axis that have no parts, without those of size 1."""
    if axis.parts:
        return [leaf for part in axis.parts for leaf in leaves(part)]
    return [] if axis.name is None and axis.size.constant == 1 else [axis]


@lowers("slice")
def cut(node: Node, static: Mapping[str, int]) -> Step:
    """A range of an axis."""
    dim, start, stop = over_position(node), node.attributes["start"], node.attributes["stop"]
    axis = over_axes(node.attributes)[0]

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        first, last, size = whole_number(start, run), whole_number(stop, run), x.shape[dim]
        if not 0 <= first <= last <= size:
            raise ValueProblem(f"`{axis}` is {size} long, so {first}..{last} isn't a part of it")
        return x.narrow(dim, first, last - first)

    return step


@lowers("pad")
def pad(node: Node, static: Mapping[str, int]) -> Step:
    """x with a value around it along an axis."""
    dim, before, after = over_position(node), node.attributes["before"], node.attributes["after"]
    value = node.attributes["value"]
    if not isinstance(value, (int, float)):
        raise TypeError(f"`value` is no number: {value!r}")

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        first, last = whole_number(before, run), whole_number(after, run)
        shape = list(x.shape)
        shape[dim] += first + last
        padded = x.new_full(shape, value)
        padded.narrow(dim, first, x.shape[dim]).copy_(x)
        return padded

    return step


@lowers("concat")
def concat(node: Node, static: Mapping[str, int]) -> Step:
    """Tensors end to end."""
    dim = node.attributes["position"]
    if not isinstance(dim, int):
        raise TypeError(f"`position` is no whole number: {dim!r}")
    at = dim
    return lambda run, *operands: torch.cat(operands, at)


@lowers("roll")
def roll(node: Node, static: Mapping[str, int]) -> Step:
    """An axis moved round."""
    dims, shift = over_positions(node), node.attributes["shift"]
    return lambda run, x: torch.roll(x, whole_number(shift, run), dims)


@lowers("gather")
def gather(node: Node, static: Mapping[str, int]) -> Step:
    """A lookup along an axis; what the index shares with x goes side by side."""
    x_axes, index_axes, over = node.operands[0].axes, node.operands[1].axes, over_axes(node.attributes)[0]
    dim = over_position(node)
    shared = [
        (at, i)
        for i, axis in enumerate(index_axes)
        if not same(axis, over) and (at := position_of(x_axes, axis)) is not None and at != dim
    ]
    others = [i for i in range(len(index_axes)) if i not in [i for _, i in shared]]
    x_order = [at for at, _ in shared] + [dim]
    rest = [p for p in range(len(x_axes)) if p not in x_order]
    index_order = [i for _, i in shared] + others
    made = [index_axes[i] for i in index_order] + [x_axes[p] for p in rest]
    result_order = _order_of(made, len(shared), len(others), x_order, rest, dim)
    name = str(over)

    def step(run: Run, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        check_range(index, x.shape[dim], name)
        index = index.to(torch.int64)
        if not shared:
            y = x.index_select(dim, index.reshape(-1))
            return y.reshape((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]))
        x = x.permute(x_order + rest)
        index = index.permute(index_order)
        places = [_along(k, x.shape[k], index.dim(), x.device) for k in range(len(shared))]
        return x[(*places, index)].permute(result_order)

    return step


def _order_of(
    made: Sequence[Axis], shared: int, others: int, x_order: Sequence[int], rest: Sequence[int], dim: int
) -> list[int]:
    """From `[shared, others, rest]` to x's order, the others where the looked-up axis stood."""
    place = {p: k for k, p in enumerate(x_order[:-1])} | {p: shared + others + k for k, p in enumerate(rest)}
    order: list[int] = []
    for p in range(len(x_order) + len(rest)):
        order.extend(range(shared, shared + others) if p == dim else [place[p]])
    assert sorted(order) == list(range(len(made)))
    return order


def _along(k: int, size: int, rank: int, device: torch.device) -> torch.Tensor:
    """0, 1, 2 … along dimension k of `rank`."""
    return torch.arange(size, device=device).reshape([size if i == k else 1 for i in range(rank)])


@lowers("scatter_add")
def scatter_add(node: Node, static: Mapping[str, int]) -> Step:
    """The converse of a lookup: rows are added where the index says."""
    x_axes, index_axes, over = node.operands[0].axes, node.operands[1].axes, over_axes(node.attributes)[0]
    result = axes_of(node)
    kept = [i for i, a in enumerate(index_axes) if not same(a, over) and position_of(result, a) is not None]
    summed = [i for i in range(len(index_axes)) if i not in kept]
    index_order = kept + summed
    in_x: list[int] = []
    for i in index_order:
        at = position_of(x_axes, index_axes[i])
        if at is None:
            raise ValueError(f"`{index_axes[i]}` of the index isn't an axis of {node.operands[0].type}")
        in_x.append(at)
    rest = [p for p in range(len(x_axes)) if p not in in_x]
    made = [index_axes[i] for i in kept] + [over] + [x_axes[p] for p in rest]
    turn = [next(k for k, a in enumerate(made) if same(a, axis)) for axis in result]
    size, name = Shape([over.size], static), str(over)

    def step(run: Run, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        places = size.at(run)[0]
        check_range(index, places, name)
        x = x.permute(in_x + rest)
        index = index.to(torch.int64).permute(index_order)
        rows = list(index.shape[: len(kept)])
        row = torch.arange(math.prod(rows), device=x.device).reshape(rows + [1] * len(summed))
        flat = (row * places + index).reshape(-1)
        wide = x.float() if half(x) else x
        tail = list(x.shape[len(in_x) :])
        total = wide.new_zeros([math.prod(rows) * places, math.prod(tail)])
        total.index_add_(0, flat, wide.reshape(flat.numel(), math.prod(tail)))
        return total.reshape([*rows, places, *tail]).permute(turn).to(x.dtype)

    return step


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@lowers("contract")
def contract(node: Node, static: Mapping[str, int]) -> Step:
    """An einsum of two operands; a plain product of matrices goes straight to torch's."""
    left, right, result = lettered([*(operand.axes for operand in node.operands), node.axes])
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ValueError(f"an axis stands twice in an operand of {node!r}")
    matrix = bool(left) and left[-1] == right[:1] and len(right) == 2 and result == left[:-1] + right[1]
    equation = f"{left},{right}->{result}"
    dtype = dtype_of(node.element)

    def step(run: Run, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if not a.is_floating_point():
            exact = torch.int64 if run.device.type == "cpu" else torch.float64
            a, b = a.to(exact), b.to(exact)
        y = torch.matmul(a, b) if matrix else torch.einsum(equation, a, b)
        return y if y.dtype == dtype else y.to(dtype)

    return step


def lettered(lists: Sequence[Sequence[Axis]]) -> list[str]:
    """A letter for each axis of each list, one for what is the same.

    An axis that stands exactly so in two lists is itself there; only what stands in one list alone is looked for by
    `same`. So a sequence's length without a name isn't taken for the other sequence's axis of equal size.
    """
    plain = [[replace(axis, batch=False) for axis in axes] for axes in lists]
    count = Counter(axis for axes in plain for axis in set(axes))
    letters: dict[Axis, str] = {}
    for axis in [axis for axis, times in count.items() if times > 1] + [
        axis for axis, times in count.items() if times == 1
    ]:
        alike = [known for known in letters if count[axis] == 1 and same(known, axis)]
        free = [known for known in alike if not any(known in axes and axis in axes for axes in plain)]
        letters[axis] = letters[free[0]] if free else LETTERS[len(set(letters.values()))]
    return ["".join(letters[axis] for axis in axes) for axes in plain]
