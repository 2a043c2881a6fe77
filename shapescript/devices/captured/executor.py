"""Runs a graph on a CUDA device: each step is a recorded graph, replayed.

Takes a graph after the passes; gives `CapturedExecutor`, with the interface of the reference executor. A graph with a
batch is padded to the largest count that was met, so that one recording serves every batch; counts, the seed, the
call's number and where rows begin are written to a block of the device's memory where they differ from what the last
run left there. An output that takes an input's place keeps its memory, so a training step moves nothing.

A wrong value is met by the host when it next looks: at the next run, or at `finish`, as an error at the program's line.
A device that doesn't finish a step for a minute is a `Hang` where the host waits for it.
A graph that can't be padded or has no room in the kernels is run by the reference executor; `reason` says why.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache

import torch

from shapescript.devices.captured.counts import CountedGraph, with_counts
from shapescript.devices.captured.machine import CudaMachine, Machine
from shapescript.devices.captured.step import Step
from shapescript.devices.captured.tile_codes import TooLarge, kernel_names
from shapescript.devices.captured.works import CALL, COUNTS, FIRST_ROW, SEED
from shapescript.devices.dtypes import dtype_of
from shapescript.devices.native.lower import Lowered, lower
from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.executor import Executor, blamed
from shapescript.devices.reference.lowering import Run
from shapescript.devices.transport import Transport
from shapescript.ir.graph import Graph, Node
from shapescript.layout.laid import LaidGraph, Resting
from shapescript.layout.lay_out import lay_out
from shapescript.layout.masks import Unpadded
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import batch_atoms, policy_for
from shapescript.layout.words import here, own, room
from shapescript.types.axes import show_axes

LONGEST_STEP = 60.0
"""Seconds after which a step that isn't finished is a hang; what several devices do together may be one for ever."""
MOST_NAMED = 3
MOST_STEPS = 4
"""How many widths recordings are kept for."""


class Hang(Exception):
    """The device doesn't finish a step; its process can't be used any more."""


class CapturedExecutor:
    """A graph made ready to be recorded. `transport` is there where the graph is laid out over several devices."""

    def __init__(
        self,
        graph: Graph,
        device: torch.device | str = "cuda",
        transport: Transport | None = None,
        *,
        replaces: Mapping[int, int] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.graph, self.device, self.transport = graph, torch.device(device), transport
        self.replaces = dict(replaces or {})
        self.longest_step = LONGEST_STEP
        self.reason: str | None = None
        self.batches = batch_atoms(graph) if transport is None else _laid_batches(graph)
        self.laid: LaidGraph | None = None
        self._reference: Executor | None = None
        self._steps: dict[tuple[tuple[str, int], ...], Step] = {}
        self._most: dict[str, int] = {}
        self._run = Run({}, self.device, RandomKey(), 0, transport)
        self._versions: dict[tuple[tuple[str, int], ...], int] = {}
        self.machine = machine or machine_of(self.device)
        self.kernels = kernel_names(self.machine.kernels.tile_ops())
        try:
            self.counted, self.lowered = self._lowered()
        except Unpadded as problem:
            self.reason = str(problem)

    def _lowered(self) -> tuple[CountedGraph, Lowered]:
        graph = self.graph
        if self.batches and self.transport is None:
            mesh = Mesh((1,))
            tags = tuple(
                "rows" if any(not axis.size.atoms.isdisjoint(self.batches) for axis in node.axes) else "whole"
                for node in graph.inputs
            )
            self.laid = lay_out(graph, mesh, policy_for(graph, mesh), Resting(tags), padded=True)
            graph = self.laid.graph
        counted = with_counts(graph, self.batches)
        return counted, lower(counted.graph, self.replaces, self.kernels)

    # --- running

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        counts: Mapping[str, int] | None = None,
        key: RandomKey | None = None,
        given_up: Collection[int] = (),
    ) -> list[torch.Tensor]:
        """The outputs for these inputs, which may not have been computed yet.

        Raises:
            ProgramError: an operation met a size that can't be, or an earlier run a value that can't be.
        """
        if len(inputs) != len(self.graph.inputs):
            raise ValueError(f"the graph has {len(self.graph.inputs)} inputs, and {len(inputs)} are given")
        counts, key = dict(counts or {}), key or RandomKey()
        self.check()
        if self.reason is None:
            known = self._known(counts)
            self._run = Run(known, self.device, key, self._version(known), self.transport)
            try:
                step = self._step(known)
            except TooLarge as problem:
                self.reason = str(problem)
            else:
                return self._run_step(step, inputs, known, key, given_up)
        if self._reference is None:
            self._reference = Executor(self.graph, self.device, self.transport)
        return self._reference.run(inputs, counts, key, given_up)

    def _known(self, counts: Mapping[str, int]) -> dict[str, int]:
        """All sizes of a run: the graph has room for the largest count that was met."""
        if self.laid is None:
            return {**self.graph.sizes, **counts}
        for atom in self.batches:
            self._most[atom] = max(self._most.get(atom, 0), counts.get(atom, 0), 1)
        return {**self.laid.graph.sizes, **self.laid.counts_for(0, counts, self._most)}

    def _widths(self, known: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """The sizes that a recording is for: all but the counts that are data."""
        changing = {atom for batch in self.batches for atom in (batch, own(batch), f"{batch}.first")}
        if self.laid is None and self.transport is None:
            changing = set()
        return tuple(sorted((atom, size) for atom, size in known.items() if atom not in changing))

    def _version(self, known: Mapping[str, int]) -> int:
        """A number for the sizes of a run, by which torch's operations keep what follows from them."""
        asked = tuple(sorted(known.items()))
        return self._versions.setdefault(asked, len(self._versions) + 1)

    def _step(self, known: Mapping[str, int]) -> Step:
        widths = self._widths(known)
        step = self._steps.pop(widths, None)
        if step is None:
            self._look_at_cuts(known)
            if len(self._steps) >= MOST_STEPS:
                oldest = next(iter(self._steps))
                self._steps.pop(oldest).close()
            try:
                step = Step(
                    self.machine,
                    self.counted,
                    self.lowered,
                    known,
                    self.replaces,
                    list(self.kernels),
                    lambda: self._run,
                )
            except torch.OutOfMemoryError as error:
                raise self._full(known) from error
        self._steps[widths] = step
        return step

    def _full(self, known: Mapping[str, int]) -> Exception:
        """What is said where the device has no room: the largest values, and the line of the largest."""

        def size(node: Node) -> int:
            places = math.prod(axis.size.evaluate(known) for axis in node.axes)
            return places * dtype_of(node.element).itemsize

        largest = sorted(self.counted.graph.nodes, key=size, reverse=True)[:MOST_NAMED]
        named = ", ".join(f"{node.name} of {show_axes(node.axes)} with {size(node):,} bytes" for node in largest)
        message = f"the memory of `{self.device}` is full; the largest values of the step are {named}"
        return blamed("E2103", message, largest[0])

    def _look_at_cuts(self, known: Mapping[str, int]) -> None:
        """Whether sizes and slices can be, which the reference executor says in its own words."""
        from shapescript.devices.native.sizes import UnfitSize

        try:
            self.lowered.table.numbers(known)
        except UnfitSize as error:
            if error.node is None:
                raise
            raise blamed("E2102", str(error), error.node) from error

    def _run_step(
        self,
        step: Step,
        inputs: Sequence[torch.Tensor],
        known: Mapping[str, int],
        key: RandomKey,
        given_up: Collection[int],
    ) -> list[torch.Tensor]:
        back: dict[int, torch.Tensor] = {}
        for place, (tensor, held) in enumerate(zip(inputs, step.inputs, strict=True)):
            ours = tensor.device == held.device and tensor.data_ptr() == held.data_ptr() and held.numel() > 0
            written = place in step.written.values()
            if ours and written and place not in given_up:
                back[place] = held.clone()  # whoever holds it goes on holding it
            elif not ours:
                self._take(held, tensor, step, place)
        self._tell(step, known, key)
        step.run()
        outputs = self._outputs(step, known, given_up, back)
        for place, kept in back.items():
            step.inputs[place].copy_(kept)
        return outputs

    def _take(self, held: torch.Tensor, tensor: torch.Tensor, step: Step, place: int) -> None:
        """An input's values where the recording reads them; rows that aren't there are left as they are."""
        node = self.counted.graph.inputs[place]
        wide = [axis.size.evaluate(step.sizes) for axis in node.axes]
        tensor = tensor.to(dtype_of(node.element))
        if list(tensor.shape) == wide:
            held.view(wide).copy_(tensor, non_blocking=True)
            return
        part = held.view(wide)
        for dim, size in enumerate(tensor.shape):
            part = part.narrow(dim, 0, size)
        part.copy_(tensor, non_blocking=True)

    def _tell(self, step: Step, known: Mapping[str, int], key: RandomKey) -> None:
        """Writes to the control block what the last run didn't leave there."""
        wanted = [0] * (COUNTS + len(self.counted.counts) + len(self.counted.first_rows))
        wanted[SEED] = (key.seed + 2**63) % 2**64 - 2**63
        wanted[CALL], wanted[FIRST_ROW] = key.call, key.first_row
        sizes = [*self.counted.counts, *self.counted.first_rows.values()]
        for place, size in enumerate(sizes, COUNTS):
            wanted[place] = size.evaluate(known)
        if step.told != wanted:
            step.control.copy_(torch.tensor(wanted, dtype=torch.int64))
            step.told = wanted

    def _outputs(
        self, step: Step, known: Mapping[str, int], given_up: Collection[int], back: Mapping[int, torch.Tensor]
    ) -> list[torch.Tensor]:
        found = []
        for place, (node, memory) in enumerate(zip(self.counted.graph.outputs, step.outputs, strict=True)):
            wide = [axis.size.evaluate(step.sizes) for axis in node.axes]
            tensor = memory.view(wide)
            given = step.written.get(place)
            if given is not None and given not in back:
                held = step.inputs[given]
                if held.data_ptr() != memory.data_ptr():
                    held.copy_(memory)
                found.append(held.view(wide))
                continue
            for dim, size in enumerate(self._real(place, known)):
                tensor = tensor.narrow(dim, 0, size)
            found.append(tensor.clone(memory_format=torch.contiguous_format))
        return found

    def _real(self, place: int, known: Mapping[str, int]) -> list[int]:
        """The sizes of an output's real part, which the logical graph knows."""
        node = self.graph.outputs[place]
        return [axis.size.evaluate(known) for axis in node.axes]

    # --- what went wrong

    def check(self) -> None:
        """Raises what an earlier run met, as far as the device has said it."""
        for step in self._steps.values():
            if int(step.shown[0]) & 0xFFFFFFFF:
                node = self.counted.graph.nodes[int(step.shown[0]) >> 32]
                value, bound = int(step.shown[1]), int(step.shown[2])
                step.record.zero_()
                step.shown.zero_()
                raise blamed("E2101", _words(node, value, bound), node)

    def finish(self) -> None:
        """Waits for the device, and raises what it met."""
        if self.reason is None:
            self.wait()
            self.machine.synchronize()
            self.check()

    def wait(self) -> None:
        """Waits until the device has counted every step; the count is read in memory, which no hang can keep.

        Raises:
            Hang: it stands still.
        """
        before, since = -1, time.monotonic()
        while (finished := self.finished_steps()) < sum(step.runs for step in self._steps.values()):
            if finished != before:
                before, since = finished, time.monotonic()
            elif time.monotonic() - since > self.longest_step:
                raise Hang(f"`{self.device}` hasn't finished a step for {self.longest_step:g} s")
            time.sleep(0.0002)

    def finished_steps(self) -> int:
        """How many steps the device has finished: a number that stands still is a hang."""
        return sum(int(step.finished[0]) for step in self._steps.values())

    def describe(self) -> str:
        """How the graph runs, for `plan`."""
        if self.reason is not None:
            return f"not recorded: {self.reason}"
        apart = sorted({node.name for step in self._steps.values() for node in step.unrecorded})
        return f"recorded in parts, around {', '.join(apart)}" if apart else "recorded whole"

    def close(self) -> None:
        """Frees all recordings."""
        for step in self._steps.values():
            step.close()
        self._steps.clear()


def _words(node: Node, value: int, bound: int) -> str:
    """As the reference executor says it."""
    if node.name == "require_finite":
        return f"{node.attributes['what']} isn't finite"
    if node.name in ("cast", "refine"):
        return f"{value} is out of range for `{node.element}`, which holds 0..{bound}"
    return f"{value} is out of range for `{node.attributes['over']}`, which holds 0..{bound}"


def _laid_batches(graph: Graph) -> tuple[str, ...]:
    """The batches of a graph that is laid out already: their atoms' first parts."""
    found: dict[str, None] = {}
    for node in graph.nodes:
        for axis in node.axes:
            for atom in axis.size.atoms:
                for suffix in (here(""), room("")):
                    if atom.endswith(suffix) and not atom.startswith("flat") and axis.batch:
                        found[atom.removesuffix(suffix)] = None
    return tuple(found)


@cache
def machine_of(device: torch.device) -> CudaMachine:
    """The GPU, one for all executors of the process."""
    return CudaMachine(device)
