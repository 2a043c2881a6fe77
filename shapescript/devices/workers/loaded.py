"""A plan as a worker has it: a laid-out graph made ready to run on one device.

Gives `encode`, for the controller, and `Loaded`, for a worker. A worker doesn't run the user's script again, so an
`extern fn` that is a function of the script itself, or of a notebook, goes with the plan that calls it, by value.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Collection, Mapping, Sequence

import torch

from shapescript.devices.held import Somewhere
from shapescript.devices.random_key import RandomKey
from shapescript.devices.runner import Executes, taken_by
from shapescript.diagnostics.diagnostic import Diagnostic, Label, ProgramError
from shapescript.ir.codec import decode_graph, encode_graph
from shapescript.ir.graph import Graph
from shapescript.layout.laid import LaidGraph, Resting

MOST_COUNTS = 8
SCRIPT = "__main__."


def encode(laid: LaidGraph) -> bytes:
    """What a worker needs of a laid-out graph."""
    graph = encode_graph(laid.graph)
    about = laid.mesh, laid.parts, laid.padded, dict(laid.resting.written)
    return pickle.dumps((graph, about, functions_of_script(laid.graph)))


def functions_of_script(graph: Graph) -> dict[str, bytes]:
    """The functions of the running script that a graph calls, by name, as they are now.

    Raises:
        ProgramError: one holds what can't be copied to another process.
    """
    found: dict[str, bytes] = {}
    for node in graph.nodes:
        target = str(node.attributes.get("target", ""))
        name = target.removeprefix(SCRIPT)
        if not target.startswith(SCRIPT) or name in found:
            continue
        import cloudpickle

        try:
            found[name] = cloudpickle.dumps(getattr(sys.modules["__main__"], name))
        except Exception as error:
            message = f"`{target}` can't be copied to the workers of the devices: {error}"
            helps = ("put it into a module beside the program, which each worker imports",)
            assert node.span is not None
            raise ProgramError(Diagnostic("E2114", message, Label(node.span), helps=helps)) from error
    return found


class Loaded:
    """A graph ready to run; the counts of this device follow from the whole ones."""

    def __init__(self, laid: LaidGraph, device: int, executor: Executes) -> None:
        self.laid = laid
        self.device = device
        self.executor = executor
        self._counts: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        self._most: dict[str, int] = {}  # of a padded graph, the largest counts that were met: it has room for those

    @staticmethod
    def decode(data: bytes, device: int, make: Callable[[LaidGraph], Executes]) -> Loaded:
        """From bytes of `encode`; `make` gives what runs the graph."""
        graph_data, (mesh, parts, padded, written), functions = pickle.loads(data)
        for name, function in functions.items():
            setattr(sys.modules["__main__"], name, pickle.loads(function))
        graph = decode_graph(graph_data)
        laid = LaidGraph(graph, mesh, [], [], [], [], [], [], parts, padded, Resting((), written))
        return Loaded(laid, device, make(laid))

    def run(
        self,
        inputs: Sequence[Somewhere],
        counts: Mapping[str, int],
        key: RandomKey,
        given_up: Collection[int] = (),
    ) -> list[torch.Tensor]:
        """The outputs; `given_up` are inputs that nobody needs after the run, whose memory may be used."""
        asked = tuple(counts.items())
        own = self._counts.get(asked)
        if own is None:
            if self.laid.padded and any(count > self._most.get(atom, 0) for atom, count in asked):
                self._most.update({atom: max(count, self._most.get(atom, 0)) for atom, count in asked})
                self._counts.clear()
            most = self._most if self.laid.padded else None
            own = self._counts[asked] = self.laid.counts_for(self.device, counts, most)
            if len(self._counts) > MOST_COUNTS:
                del self._counts[next(iter(self._counts))]
        return self.executor.run(taken_by(self.executor, inputs), own, key, given_up)
