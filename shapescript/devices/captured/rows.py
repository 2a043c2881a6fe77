"""Rows of a dataset that stay on the GPU until a step reads them.

Gives `DatasetRows`, a batch's field before anyone has looked at it: the dataset's column, an order of its rows, and
where in it the batch begins. A recorded step takes the rows itself, by the order and a position in the device's
memory; what else asks for them gets them taken out at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from shapescript.devices.captured.machine import Machine, Work
from shapescript.devices.captured.works import POSITION, ROWS
from shapescript.devices.dtypes import dtype_of
from shapescript.devices.held import Held
from shapescript.ir.graph import Node


class DatasetRows(Held):
    """The rows `order[first : first + count]` of a column, whose rows are its first axis.

    `follows`: the next batch of this order is expected to begin where this one ends.
    """

    def __init__(self, column: torch.Tensor, order: torch.Tensor, first: int, count: int, follows: bool = True) -> None:
        self.column, self.order, self.first, self.count, self.follows = column, order, first, count, follows
        self.dtype = column.dtype
        self._taken: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the rows together."""
        return (self.count, *self.column.shape[1:])

    def ready(self) -> bool:
        """The dataset is there."""
        return True

    def fetch(self) -> torch.Tensor:
        """The rows, on the dataset's device."""
        if self._taken is None:
            numbers = self.order[self.first : self.first + self.count].to(self.column.device)
            self._taken = self.column.index_select(0, numbers)
        return self._taken


@dataclass(frozen=True)
class Feed:
    """Which inputs of a step are rows of which columns, and how long an order may be."""

    columns: Mapping[int, torch.Tensor]
    longest: int

    @property
    def key(self) -> tuple[object, ...]:
        """What a recording depends on."""
        return (self.longest, *((place, id(column)) for place, column in self.columns.items()))


def feed_of(inputs: Sequence[object], nodes: Sequence[Node]) -> Feed | None:
    """The inputs that can be taken by one order, of one batch; `nodes` are the graph's inputs."""
    rows = {place: each for place, each in enumerate(inputs) if isinstance(each, DatasetRows)}
    if not rows:
        return None
    batch, first = next(iter(rows.items()))
    taken = {
        place: each.column
        for place, each in rows.items()
        if (each.order is first.order and each.first == first.first and each.count == first.count)
        and nodes[place].axes[0].size == nodes[batch].axes[0].size
        and each.dtype == dtype_of(nodes[place].element)
        and each.column.is_contiguous()
    }
    longest = max(len(first.order), len(first.column))
    return Feed(taken, longest) if taken else None


def feed_work(
    machine: Machine, feed: Feed, inputs: Sequence[torch.Tensor], order: torch.Tensor, control: torch.Tensor
) -> Work:
    """Takes the rows into the step's inputs, each as wide as there is room; rows that aren't there become 0."""
    rows, most, room = [], 1, 0
    for place, column in feed.columns.items():
        size = column[:1].numel() * column.element_size()
        into = inputs[place]
        unit = next(each for each in (8, 4, 2, 1) if (size | column.data_ptr() | into.data_ptr()) % each == 0)
        rows.append([column.data_ptr(), into.data_ptr(), unit, size // unit])
        room = max(room, into.numel() * into.element_size() // size if size else 0)
        most = max(most, room * size // unit)
    table = torch.tensor(rows, dtype=torch.int64).to(machine.device)
    count, places = len(rows), control.data_ptr()
    kernels = machine.kernels

    def work() -> None:
        addresses = table.data_ptr(), count, order.data_ptr(), places + 8 * POSITION, places + 8 * ROWS
        kernels.take_rows(*addresses, room, most, machine.grid())

    return work
