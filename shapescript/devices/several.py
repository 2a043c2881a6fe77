"""Runs a graph on several devices.

Takes a laid-out graph and the pool of workers; gives `SeveralRunner`. Inputs are tensors of the controller's, which are
put where the graph wants them, or values that already lie with the workers; one that lies otherwise than the graph
wants is fetched and put anew. Outputs stay with the workers. Where the workers share memory each updates its part of
the parameters alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from shapescript.devices.held import Somewhere
from shapescript.devices.random_key import RandomKey
from shapescript.devices.workers.cutting import Lie
from shapescript.devices.workers.pool import WorkerPool
from shapescript.devices.workers.values import WorkerValue
from shapescript.layout.halves import in_halves
from shapescript.layout.laid import LaidGraph

MOST_KNOWN = 8


@dataclass
class Wanted:
    """How the graph wants an input to lie, and what was last met that is the same."""

    lie: Lie
    met: Lie | None = None


class SeveralRunner:
    """A graph with a pool's workers, ready to run."""

    def __init__(self, laid: LaidGraph, pool: WorkerPool) -> None:
        self.laid = in_halves(laid) if pool.halves else laid
        self.pool = pool
        self.plan = pool.load(self.laid, place_of(self.laid))
        self._known: dict[tuple[tuple[str, int], ...], list[Wanted]] = {}

    def run(
        self,
        inputs: Sequence[Somewhere],
        counts: Mapping[str, int] | None,
        key: RandomKey | None,
        given_up: Collection[int] = (),
    ) -> list[WorkerValue]:
        """The outputs, which are being computed."""
        if len(inputs) != len(self.laid.inputs):
            raise ValueError(f"the graph has {len(self.laid.inputs)} inputs, and {len(inputs)} are given")
        wanted = self._wanted(counts or {})
        placed = [
            # a step's inputs lie as the last one's did
            each
            if isinstance(each, WorkerValue) and each.lie is place.met and each.pool is self.pool
            else self._placed(number, each, place)
            for number, (each, place) in enumerate(zip(inputs, wanted, strict=True))
        ]
        # what was put anew for this run is nobody else's either, but isn't written to again
        given = [number for number in given_up if placed[number] is inputs[number]]
        return self.pool.run(self.plan, placed, counts, key, given)

    def _wanted(self, counts: Mapping[str, int]) -> list[Wanted]:
        """How the graph wants its inputs for some counts, kept for the last few of them."""
        asked = tuple(counts.items())
        found = self._known.pop(asked, None)
        if found is None:
            sizes = {**self.laid.graph.sizes, **counts}
            found = [
                Wanted(Lie.of_axes(node.axes, sizes, layout, self.pool.mesh))
                for node, layout in zip(self.laid.logical_inputs, self.laid.inputs, strict=True)
            ]
        self._known[asked] = found
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return found

    def _placed(self, number: int, given: Somewhere, place: Wanted) -> WorkerValue:
        """An input where the graph wants it."""
        lie = place.lie
        if isinstance(given, WorkerValue) and given.pool is self.pool and given.lie.same_as(lie):
            place.met = given.lie
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
