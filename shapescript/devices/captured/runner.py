"""One GPU of the controller's own process: what runs graphs there, and how it is given batches.

Gives `Recorder`. A scalar that a run gives, such as its loss, is a `ShownScalar`: looking at it waits for its step
alone. Rows of a dataset are `DatasetRows`, which a step takes itself, by an order that is brought over once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from shapescript.devices.captured.executor import CapturedExecutor
from shapescript.devices.captured.machine import Machine
from shapescript.devices.captured.rows import DatasetRows
from shapescript.devices.held import Somewhere
from shapescript.devices.random_key import RandomKey
from shapescript.devices.runner import Border, LocalRunner
from shapescript.ir.graph import Graph


class CapturedRunner(LocalRunner):
    """A recorded graph, whose scalars are looked at one by one."""

    def __init__(self, executor: CapturedExecutor) -> None:
        super().__init__(executor)
        self.captured = executor

    def run(
        self,
        inputs: Sequence[Somewhere],
        counts: Mapping[str, int] | None,
        key: RandomKey | None,
        given_up: Collection[int] = (),
    ) -> Sequence[Somewhere]:
        """The outputs."""
        outputs = [*super().run(inputs, counts, key, given_up)]
        for place, scalar in self.captured.scalars().items():
            outputs[place] = scalar
        return outputs


class Recorder:
    """A GPU."""

    def __init__(self, device: torch.device, machine: Machine | None = None) -> None:
        self.device, self.machine = device, machine
        self._order: tuple[NDArray[np.int64], torch.Tensor] | None = None

    def runner(self, graph: Graph, border: Border) -> CapturedRunner:
        """What runs a graph."""
        return CapturedRunner(CapturedExecutor(graph, self.device, replaces=border.replaces, machine=self.machine))

    def rows(
        self, columns: Mapping[str, torch.Tensor], order: NDArray[np.int64], first: int, end: int
    ) -> dict[str, DatasetRows]:
        """Rows of columns by an order's numbers, none of which is looked at before a step takes them."""
        if self._order is None or self._order[0] is not order:
            self._order = order, torch.from_numpy(np.array(order))
        return {name: DatasetRows(column, self._order[1], first, end - first) for name, column in columns.items()}
