"""Runs a graph on virtual devices: laid out, verified, cut, run by threads, and put together again.

For the tests of layouts. `VirtualPlace` stands in the place of a program's devices, so that whole programs run so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.executor import Executor
from shapescript.devices.runner import Border
from shapescript.devices.transport import Sent
from shapescript.devices.virtual import VirtualDevices, VirtualTransport
from shapescript.devices.workers.cutting import Lie
from shapescript.ir.graph import Graph
from shapescript.ir.verify import verify as verify_graph
from shapescript.layout.laid import LaidGraph, Resting
from shapescript.layout.lay_out import lay_out
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import policy_for
from shapescript.layout.words import SHARDED, Whole, leaves_of
from shapescript.types.axes import Axis
from shapescript.types.size import Size

TAGS = {"model": "param", "gradients": "gradient", "optimizer": "state", "batch": "rows", "value": "rows"}


def resting_of(border: Border) -> Resting:
    return Resting(tuple(TAGS[owner] for owner in border.owners), dict(border.replaces), border.names)


@dataclass
class Ways:
    """How to lay out: the mesh, what is split besides the batch, whether to shard and to pad."""

    mesh: Mesh
    splits: tuple[str, ...] = ()
    shard: bool = False
    padded: bool = False
    room: int = 0
    """More places than the batch needs, where it is padded."""
    dims: Mapping[str, Size] = field(default_factory=dict)
    """The sizes of split dims that are made of others."""


GARBAGE = {"float": float("nan"), "whole": 10**6}


def padded_part(x: torch.Tensor, axes: Sequence[Axis], local: Mapping[str, int], lie: Lie, device: int) -> torch.Tensor:
    """A device's exact part with garbage behind its rows, as wide as the padded graph has it."""
    x = x.reshape([size for leaf in lie.local_leaves(device) for size in leaf])
    wide = [leaf.size.evaluate(local) for axis in axes for leaf in leaves_of(axis)]
    filling = GARBAGE["float"] if x.is_floating_point() else True if x.dtype == torch.bool else GARBAGE["whole"]
    full = torch.full(wide, filling, dtype=x.dtype)
    full[tuple(slice(0, size) for size in x.shape)] = x
    return full.reshape([axis.size.evaluate(local) for axis in axes])


def real_part(x: torch.Tensor, axes: Sequence[Axis], local: Mapping[str, int], end: Lie, device: int) -> torch.Tensor:
    """The real rows of a device's padded part."""
    exact = [size for leaf in end.local_leaves(device) for size in leaf]
    x = x.reshape([leaf.size.evaluate(local) for axis in axes for leaf in leaves_of(axis)])
    for dim, width in enumerate(exact):
        x = x.narrow(dim, 0, width)
    return x.reshape(end.local_shape(device))


class OnVirtualDevices:
    """One graph on virtual devices; `sent` is what the first device took part in."""

    def __init__(self, graph: Graph, resting: Resting, ways: Ways) -> None:
        self.ways = ways
        self.logical = graph
        policy = policy_for(graph, ways.mesh, ways.splits, ways.shard, ways.dims)
        self.laid: LaidGraph = lay_out(graph, ways.mesh, policy, resting, ways.padded, checked=True)
        verify_graph(self.laid.graph)
        self.devices = VirtualDevices(ways.mesh)
        self.executors = [Executor(self.laid.graph, transport=transport) for transport in self.devices.transports]

    @property
    def sent(self) -> list[Sent]:
        return self.devices.sent

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        counts: Mapping[str, int] | None = None,
        key: RandomKey | None = None,
        given_up: Collection[int] = (),
    ) -> list[torch.Tensor]:
        laid, counts = self.laid, dict(counts or {})
        sizes = {**self.logical.sizes, **counts}
        most = {atom: count + self.ways.room for atom, count in counts.items()}
        mesh = self.ways.mesh
        lies = [Lie.of_axes(n.axes, sizes, lay, mesh) for n, lay in zip(laid.logical_inputs, laid.inputs, strict=True)]
        ends = [
            Lie.of_axes(n.axes, sizes, lay, mesh) for n, lay in zip(laid.logical_outputs, laid.outputs, strict=True)
        ]

        def work(device: int, transport: VirtualTransport) -> list[torch.Tensor]:
            local = laid.counts_for(device, counts, most)
            given = [lie.cut(x, device).contiguous() for lie, x in zip(lies, inputs, strict=True)]
            known = {**laid.graph.sizes, **local}
            if self.ways.padded:
                given = [
                    padded_part(x, node.axes, known, lie, device) if SHARDED not in lie.layout else x
                    for x, node, lie in zip(given, laid.graph.inputs, lies, strict=True)
                ]
            made = self.executors[device].run(given, local, key)
            if self.ways.padded:
                made = [
                    real_part(x, node.axes, known, end, device) if SHARDED not in end.layout else x
                    for x, node, end in zip(made, laid.graph.outputs, ends, strict=True)
                ]
            for x, end in zip(made, ends, strict=True):
                assert tuple(x.shape) == end.local_shape(device), (tuple(x.shape), end, device)
            return made

        found = self.devices.run(work)
        for place, layout in enumerate(laid.outputs):
            if all(isinstance(word, Whole) for word in layout):
                for other in found[1:]:
                    assert torch.equal(
                        torch.nan_to_num(found[0][place].double()), torch.nan_to_num(other[place].double())
                    ), f"output {place} is whole and differs from device to device"
        return [end.join({device: found[device][place] for device in end.devices()}) for place, end in enumerate(ends)]


class VirtualPlace:
    """In the place of a program's devices."""

    gather = None

    def __init__(self, ways: Ways) -> None:
        self.device = torch.device("cpu")
        self.ways = ways
        self.made: list[OnVirtualDevices] = []

    def runner(self, graph: Graph, border: Border) -> OnVirtualDevices:
        self.made.append(OnVirtualDevices(graph, resting_of(border), self.ways))
        return self.made[-1]

    def close(self) -> None:
        pass


__all__ = ["OnVirtualDevices", "VirtualPlace", "Ways", "resting_of"]
