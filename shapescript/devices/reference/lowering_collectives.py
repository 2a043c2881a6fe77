"""The collectives and the operations on a device's own part, in torch.

A collective goes to the run's transport, along its axis of the mesh; one device alone is a mesh of one. A split leaf
of a merged axis is made a dimension of its own on the way. Where a graph is padded, the parts of a batch axis are of
one width, the rows of the whole stand together at its beginning, and what follows them is garbage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from shapescript.devices.reference.lowering import (
    LOWERINGS,
    Run,
    Shape,
    Step,
    ValueProblem,
    line_up,
    lowers,
    over_position,
    over_positions,
    shape_of,
)
from shapescript.devices.reference.lowering_elementwise import check_range
from shapescript.devices.transport import Sent, Transport
from shapescript.ir.graph import Node
from shapescript.layout.mesh import first_of, parts
from shapescript.layout.words import here, room
from shapescript.ops.rules import attribute, axes_attribute, size_attribute


class Alone:
    """The end of a mesh of one device: every part is the whole, and nothing is sent."""

    def __init__(self) -> None:
        self.rank, self.count, self.sent = 0, 1, Sent()

    def all_reduce(self, tensors: Sequence[torch.Tensor], kind: str = "sum") -> list[torch.Tensor]:
        """The tensors."""
        return list(tensors)

    def all_gather(self, tensor: torch.Tensor, dim: int, widths: Sequence[int]) -> torch.Tensor:
        """The tensor."""
        return tensor

    def reduce_scatter(self, tensor: torch.Tensor, dim: int, widths: Sequence[int]) -> torch.Tensor:
        """The tensor."""
        return tensor

    def all_to_all(
        self, tensor: torch.Tensor, joined: int, joined_widths: Sequence[int], cut: int, cut_widths: Sequence[int]
    ) -> torch.Tensor:
        """The tensor."""
        return tensor

    def along(self, mesh_axis: int) -> Transport:
        """The same."""
        return self


ALONE = Alone()


def end_along(run: Run, node: Node) -> Transport:
    """This device's end along the node's axis of the mesh."""
    return (run.transport or ALONE).along(attribute(node.attributes, "mesh_axis", int))


@dataclass(frozen=True)
class Cut:
    """Where a value is cut: a leaf of one of its axes, and what that leaf's whole length is."""

    atom: str
    dim: int
    before: Shape
    inner: Shape
    count: Shape
    padded: bool

    @staticmethod
    def of(node: Node, static: Mapping[str, int], prefix: str = "") -> Cut:
        """As a node's attributes say it."""
        attributes = node.attributes

        def shape(name: str) -> Shape:
            return Shape([size_attribute(attributes, prefix + name)], static)

        dim = attribute(attributes, prefix + "dim", int)
        padded = bool(attributes.get(prefix + "padded"))
        return Cut(str(attributes[prefix + "atom"]), dim, shape("before"), shape("inner"), shape("count"), padded)

    def opened(self, x: torch.Tensor, run: Run) -> torch.Tensor:
        """x with the leaf as dimension `dim + 1` of its own."""
        before, inner = self.before.at(run)[0], self.inner.at(run)[0]
        width = x.shape[self.dim] // (before * inner) if before * inner else 0
        return x.reshape((*x.shape[: self.dim], before, width, inner, *x.shape[self.dim + 1 :]))

    def widths(self, run: Run, n: int) -> list[int]:
        """How long each device's part is."""
        if self.padded:
            return [run.sizes[here(self.atom)]] * n
        return parts(self.count.at(run)[0], n)

    def spread(self, x: torch.Tensor, run: Run, n: int, dim: int) -> torch.Tensor:
        """The whole, its rows moved to where each padded part begins."""
        if not self.padded:
            return x
        width, count = run.sizes[here(self.atom)], self.count.at(run)[0]
        places = torch.arange(n * width, device=x.device)
        starts = torch.tensor([first_of(count, n, place) for place in range(n)], device=x.device)
        rows = starts[places // max(1, width)] + places % max(1, width)
        return x.index_select(dim, rows.clamp(max=max(0, x.shape[dim] - 1)))

    def closed(self, x: torch.Tensor, run: Run, n: int, dim: int) -> torch.Tensor:
        """The whole of padded parts, its rows together at the beginning; the rest repeats a row."""
        if not self.padded:
            return x
        width, count = run.sizes[here(self.atom)], self.count.at(run)[0]
        widths = parts(count, n)
        rows = [place * width + row for place, own_rows in enumerate(widths) for row in range(own_rows)]
        rows += [max(0, x.shape[dim] - 1)] * (run.sizes[room(self.atom)] - len(rows))
        return x.index_select(dim, torch.tensor(rows, device=x.device, dtype=torch.int64))


@lowers("whole")
def whole(node: Node, static: Mapping[str, int]) -> Step:
    """x itself: a layout that gathers it has done so before."""
    return lambda run, x: x


@lowers("mask")
def mask(node: Node, static: Mapping[str, int]) -> Step:
    """A value in the places of a leaf that aren't real."""
    dim, value = attribute(node.attributes, "dim", int), node.attributes["value"]
    before, inner, real = (Shape([size_attribute(node.attributes, n)], static) for n in ("before", "inner", "count"))
    if not isinstance(value, (int, float)):
        raise TypeError(f"`value` is no number: {value!r}")
    fill = value

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        outer, within, count = before.at(run)[0], inner.at(run)[0], real.at(run)[0]
        width = x.shape[dim] // max(1, outer * within)
        opened = x.reshape((*x.shape[:dim], outer, width, within, *x.shape[dim + 1 :]))
        unreal = torch.arange(width, device=x.device) >= count
        unreal = unreal.reshape((width, *([1] * (opened.dim() - dim - 2))))
        return torch.where(unreal, _filling(opened, fill), opened).reshape(x.shape)

    return step


def _filling(x: torch.Tensor, value: int | float) -> torch.Tensor:
    """A number as x's element holds it; an infinite one is the greatest or least of whole numbers."""
    if not x.is_floating_point() and value in (math.inf, -math.inf):
        if x.dtype == torch.bool:
            return x.new_tensor(value > 0)
        info = torch.iinfo(x.dtype)
        return x.new_tensor(info.max if value > 0 else info.min)
    return x.new_tensor(value)


@lowers("all_reduce")
def all_reduce(node: Node, static: Mapping[str, int]) -> Step:
    """One tensor combined; the executor hands those of one launch over together."""
    kind = str(node.attributes["kind"])
    return lambda run, x: end_along(run, node).all_reduce([x.contiguous()], kind)[0]


@lowers("keep_first")
def keep_first(node: Node, static: Mapping[str, int]) -> Step:
    """x, or zeros where this isn't the first device."""
    return lambda run, x: x if end_along(run, node).rank == 0 else torch.zeros_like(x)


def _flat(node: Node) -> bool:
    return bool(node.attributes["flat"])


@lowers("all_gather")
def all_gather(node: Node, static: Mapping[str, int]) -> Step:
    """The parts joined."""
    cut, shape = Cut.of(node, static), shape_of(node.axes, static)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        end = end_along(run, node)
        opened = cut.opened(x, run).contiguous()
        joined = end.all_gather(opened, cut.dim + 1, cut.widths(run, end.count))
        return cut.closed(joined, run, end.count, cut.dim + 1).reshape(shape.at(run))

    return step


def _parted(
    node: Node, static: Mapping[str, int], take: Callable[[Transport, torch.Tensor, int, list[int]], torch.Tensor]
) -> Step:
    """A step from the whole to a part."""
    cut, shape, flat = Cut.of(node, static), shape_of(node.axes, static), _flat(node)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        end = end_along(run, node)
        opened = cut.opened(x.reshape(-1) if flat else x, run)
        spread = cut.spread(opened, run, end.count, cut.dim + 1)
        return take(end, spread, cut.dim + 1, cut.widths(run, end.count)).reshape(shape.at(run))

    return step


@lowers("reduce_scatter")
def reduce_scatter(node: Node, static: Mapping[str, int]) -> Step:
    """The sum of the devices' values, of which this one keeps its part."""
    return _parted(node, static, lambda end, x, dim, widths: end.reduce_scatter(x.contiguous(), dim, widths))


@lowers("take_part")
def take_part(node: Node, static: Mapping[str, int]) -> Step:
    """This device's part of a whole value; nothing is sent."""
    return _parted(node, static, lambda end, x, dim, widths: x.narrow(dim, sum(widths[: end.rank]), widths[end.rank]))


@lowers("all_to_all")
def all_to_all(node: Node, static: Mapping[str, int]) -> Step:
    """Split along one leaf, then along another."""
    joined, cut = Cut.of(node, static, "joined_"), Cut.of(node, static, "cut_")
    shape = shape_of(node.axes, static)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        end = end_along(run, node)
        n = end.count
        # The leaf that stands later is opened first, so that the places of the other stay.
        x = (cut if cut.dim > joined.dim else joined).opened(x, run)
        x = (joined if cut.dim > joined.dim else cut).opened(x, run)
        shift = 2
        at_joined = joined.dim + 1 + (shift if joined.dim > cut.dim else 0)
        at_cut = cut.dim + 1 + (shift if cut.dim > joined.dim else 0)
        x = cut.spread(x, run, n, at_cut).contiguous()
        x = end.all_to_all(x, at_joined, joined.widths(run, n), at_cut, cut.widths(run, n))
        return joined.closed(x, run, n, at_joined).reshape(shape.at(run))

    return step


# --- on a part -----------------------------------------------------------------------------------------------------


@lowers("part_best")
def part_best(node: Node, static: Mapping[str, int]) -> Step:
    """The greatest or least of a part; of an empty one what any other beats, unless the whole is empty too."""
    greatest, dims = node.attributes["kind"] == "max", over_positions(node)
    shape, count = shape_of(node.axes, static), Shape([size_attribute(node.attributes, "count")], static)
    best = torch.amax if greatest else torch.amin

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        if count.at(run)[0] == 0:
            raise ValueProblem(f"`{node.attributes['kind']}` over an empty axis: there is nothing to choose from")
        if any(x.shape[dim] == 0 for dim in dims):
            return _filling(x, -math.inf if greatest else math.inf).expand(shape.at(run))
        return best(x, dims)

    return step


def _own_places(index: torch.Tensor, begin: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An index as this device numbers its places, 0 for another's, and which are its own."""
    moved = index.to(torch.int64) - begin
    mine = (moved >= 0) & (moved < width)
    return torch.where(mine, moved, 0), mine


@lowers("part_gather")
def part_gather(node: Node, static: Mapping[str, int]) -> Step:
    """A lookup that gives 0 where another device has the place."""
    whole_gather = LOWERINGS["gather"](node, static)
    turn = line_up(node.operands[1].axes, axes_attribute(node.attributes))
    begin, real, count = (Shape([size_attribute(node.attributes, n)], static) for n in ("first", "own", "count"))
    dim, name, shape = over_position(node), str(node.attributes["over"]), shape_of(node.axes, static)

    def step(run: Run, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        check_range(index, count.at(run)[0], name)
        if x.shape[dim] == 0:
            return x.new_zeros(shape.at(run))
        index, mine = _own_places(index, begin.at(run)[0], real.at(run)[0])
        found: torch.Tensor = whole_gather(run, x, index)
        return torch.where(mine if turn is None else turn(mine), found, found.new_zeros(()))

    return step


@lowers("part_scatter")
def part_scatter(node: Node, static: Mapping[str, int]) -> Step:
    """What falls into this device's places, added."""
    whole_scatter = LOWERINGS["scatter_add"](node, static)
    turn = line_up(node.operands[1].axes, node.operands[0].axes)
    begin, count = (Shape([size_attribute(node.attributes, name)], static) for name in ("first", "count"))
    shape, name = shape_of(node.axes, static), str(node.attributes["over"])
    axes = axes_attribute(node.attributes)
    over = next(place for place, axis in enumerate(axes) if axis == node.attributes["over"])

    def step(run: Run, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        check_range(index, count.at(run)[0], name)
        sizes = shape.at(run)
        if sizes[over] == 0:
            return x.new_zeros(sizes)
        index, mine = _own_places(index, begin.at(run)[0], sizes[over])
        kept = torch.where(mine if turn is None else turn(mine), x, x.new_zeros(()))
        result: torch.Tensor = whole_scatter(run, kept, index)
        return result

    return step
