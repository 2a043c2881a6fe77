"""A plan as a worker has it: a laid-out graph made ready to run on one device.

Gives `encode`, for the controller, and `Loaded`, for a worker.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence

import torch

from shapescript.devices.executors import make_executor
from shapescript.devices.random_key import RandomKey
from shapescript.devices.runner import Executes
from shapescript.devices.transport import Transport
from shapescript.ir.codec import decode_graph, encode_graph
from shapescript.layout.laid import LaidGraph

MOST_COUNTS = 8


def encode(laid: LaidGraph) -> bytes:
    """What a worker needs of a laid-out graph."""
    if laid.padded:
        raise ValueError("a padded graph is for devices that capture it; CPU workers run each width as it is")
    return pickle.dumps((encode_graph(laid.graph), laid.mesh, laid.parts, dict(laid.resting.written)))


class Loaded:
    """A graph ready to run; the counts of this device follow from the whole ones."""

    def __init__(self, laid: LaidGraph, device: int, executor: Executes) -> None:
        self.laid = laid
        self.device = device
        self.executor = executor
        self._counts: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}

    @staticmethod
    def decode(data: bytes, device: int, place: torch.device, transport: Transport) -> Loaded:
        """From bytes of `encode`."""
        graph_data, mesh, parts, written = pickle.loads(data)
        graph = decode_graph(graph_data)
        laid = LaidGraph(graph, mesh, [], [], [], [], [], [], parts)
        return Loaded(laid, device, make_executor(graph, place, transport, written))

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        counts: Mapping[str, int],
        key: RandomKey,
        given_up: Collection[int] = (),
    ) -> list[torch.Tensor]:
        """The outputs; `given_up` are inputs that nobody needs after the run, whose memory may be used."""
        asked = tuple(counts.items())
        own = self._counts.get(asked)
        if own is None:
            own = self._counts[asked] = self.laid.counts_for(self.device, counts)
            if len(self._counts) > MOST_COUNTS:
                del self._counts[next(iter(self._counts))]
        return self.executor.run(inputs, own, key, given_up)
