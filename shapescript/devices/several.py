"""Runs a graph on several devices.

Takes a laid-out graph and the pool of workers; gives `SeveralRunner`. Inputs are tensors of the controller's, which are
put where the graph wants them, or values that already lie with the workers; one that lies otherwise than the graph
wants is fetched and put anew. Outputs stay with the workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from shapescript.devices.held import Somewhere
from shapescript.devices.random_key import RandomKey
from shapescript.devices.workers.cutting import Lie
from shapescript.devices.workers.pool import WorkerPool
from shapescript.devices.workers.values import WorkerValue
from shapescript.layout.laid import LaidGraph


class SeveralRunner:
    """A graph with a pool's workers, ready to run."""

    def __init__(self, laid: LaidGraph, pool: WorkerPool) -> None:
        self.laid = laid
        self.pool = pool
        self.plan = pool.load(laid, place_of(laid))

    def run(
        self, inputs: Sequence[Somewhere], counts: Mapping[str, int] | None, key: RandomKey | None
    ) -> Sequence[Somewhere]:
        """The outputs, which are being computed."""
        if len(inputs) != len(self.laid.inputs):
            raise ValueError(f"the graph has {len(self.laid.inputs)} inputs, and {len(inputs)} are given")
        sizes = {**self.laid.graph.sizes, **(counts or {})}
        placed = [self._placed(number, each, sizes) for number, each in enumerate(inputs)]
        return self.pool.run(self.plan, placed, counts, key)

    def _placed(self, number: int, given: Somewhere, sizes: Mapping[str, int]) -> WorkerValue:
        """An input where the graph wants it."""
        layout = self.laid.inputs[number]
        lie = Lie.of_axes(self.laid.logical_inputs[number].axes, sizes, layout, self.pool.mesh)
        if isinstance(given, WorkerValue) and given.pool is self.pool and given.lie.same_as(lie):
            return given
        tensor = given if isinstance(given, torch.Tensor) else given.fetch()
        if tuple(tensor.shape) != lie.shape:
            raise ValueError(f"input {number} has sizes {list(lie.shape)}, and {list(tensor.shape)} are given")
        return self.pool.put_as(tensor, lie)


def place_of(laid: LaidGraph) -> str | None:
    """The line of the program at which a graph begins."""
    for node in laid.graph.nodes:
        if node.span is not None:
            return f"{node.span.source.name}:{node.span.line}"
    return None
