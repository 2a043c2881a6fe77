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
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache
from importlib import import_module

import torch

from shapescript.devices.captured.counts import CountedGraph, with_counts
from shapescript.devices.captured.hang import Hang, longest_step
from shapescript.devices.captured.machine import CudaMachine, Machine
from shapescript.devices.captured.rows import DatasetRows, Feed, feed_of
from shapescript.devices.captured.shown import ShownScalar
from shapescript.devices.captured.step import Step, recordable
from shapescript.devices.captured.tile_codes import TooLarge, kernel_names
from shapescript.devices.captured.works import CALL, COUNTS, FIRST_ROW, POSITION, ROWS, SEED, STRIDE
from shapescript.devices.dtypes import dtype_of
from shapescript.devices.native.lower import Lowered, lower
from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.executor import Executor, blamed
from shapescript.devices.reference.lowering import Run
from shapescript.devices.transport import Sent, Transport
from shapescript.ir.graph import Graph, Node
from shapescript.layout.laid import LaidGraph, Resting
from shapescript.layout.lay_out import lay_out
from shapescript.layout.masks import Unpadded
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import batch_atoms, policy_for
from shapescript.layout.report import show_calls
from shapescript.layout.words import first, here, leaves_of, own, room
from shapescript.types.axes import Axis, show_axes

MOST_NAMED = 3
MOST_STEPS = 4
"""How many widths recordings are kept for."""
MOST_VERSIONS = 64


SPIN = 0.001
"""For so many seconds the host looks again and again whether a step is finished, before it sleeps in between."""


class CapturedExecutor:
    """A graph made ready to be recorded. `transport` is there where the graph is laid out over several devices.

    `batches` are then the batches for which it is padded; a graph of one device is laid out here.
    """

    def __init__(
        self,
        graph: Graph,
        device: torch.device | str = "cuda",
        transport: Transport | None = None,
        *,
        replaces: Mapping[int, int] | None = None,
        machine: Machine | None = None,
        batches: Sequence[str] = (),
    ) -> None:
        self.graph, self.device, self.transport = graph, torch.device(device), transport
        self.replaces = dict(replaces or {})
        self.longest_step = longest_step()
        self.reason: str | None = None
        self.batches = tuple(batches)
        self.laid: LaidGraph | None = None
        self._reference: Executor | None = None
        self._steps: dict[tuple[Hashable, Hashable], Step] = {}
        self._most: dict[str, int] = {}
        self._runs = {recorded: Run({}, self.device, RandomKey(), 0, transport) for recorded in (True, False)}
        self._versions: dict[Hashable, int] = {}
        self._last: tuple[Step, dict[int, torch.Tensor]] | None = None
        self.machine = machine or machine_of(self.device)
        self.kernels = kernel_names(self.machine.kernels.tile_ops())
        if transport is None:
            self.laid, self.batches, self.unpadded = padded(graph)
            graph = graph if self.laid is None else self.laid.graph
        self.counted = with_counts(graph, self.batches)
        self.lowered = lower(self.counted.graph, self.replaces, self.kernels)
        # when nobody has it any more, or the process ends: while CUDA is still there
        self._end = weakref.finalize(self, close_steps, self._steps, self.machine)

    # --- running

    def takes(self, value: object) -> bool:
        """Whether a value that isn't a tensor is taken as it is: rows of a dataset, and scalars of earlier runs."""
        return isinstance(value, (DatasetRows, ShownScalar))

    def run(
        self,
        inputs: Sequence[torch.Tensor | DatasetRows | ShownScalar],
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
        given = [each.tensor if isinstance(each, ShownScalar) else each for each in inputs]
        self._last = None
        if self.reason is None:
            known = self._known(counts)
            feed = feed_of(given, self.counted.graph.inputs)
            try:
                step = self._step(known, feed, key)
            except TooLarge as problem:
                self.reason = str(problem)
            else:
                return self._run_step(step, given, known, key, given_up)
        if self._reference is None:
            self._reference = Executor(self.graph, self.device, self.transport)
        return self._reference.run([tensor_of(each) for each in given], counts, key, given_up)

    def _known(self, counts: Mapping[str, int]) -> dict[str, int]:
        """All sizes of a run: the graph has room for the largest count that was met."""
        if self.laid is None:
            return {**self.graph.sizes, **counts}
        for atom in self.batches:
            self._most[atom] = max(self._most.get(atom, 0), counts.get(atom, 0), 1)
        return {**self.laid.graph.sizes, **self.laid.counts_for(0, counts, self._most)}

    def _widths(self, known: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """The sizes that a recording is for: all but the counts that are data."""
        changing = {atom for batch in self.batches for atom in (batch, own(batch), first(batch))}
        return tuple(sorted((atom, size) for atom, size in known.items() if atom not in changing))

    def _version(self, sizes: Hashable) -> int:
        """A number for the sizes of a run, by which torch's operations keep what follows from them."""
        if len(self._versions) > MOST_VERSIONS:
            self._versions = {}
        number = self._versions.get(sizes)
        if number is None:
            self._made_versions += 1
            number = self._versions[sizes] = self._made_versions
        return number

    _made_versions = 0

    def _step(self, known: Mapping[str, int], feed: Feed | None, key: RandomKey) -> Step:
        widths = self._widths(known)
        # what is recorded depends on widths alone, what stands between recordings on the counts of each run
        for recorded, sizes in ((True, widths), (False, tuple(sorted(known.items())))):
            self._runs[recorded] = Run(known, self.device, key, self._version((recorded, sizes)), self.transport)
        asked = widths, feed.key if feed else None
        step = self._steps.pop(asked, None)
        if step is None:
            self._look_at_cuts(known)
            if self.laid is not None or self.transport is not None and self.batches:
                for old in [each for each in self._steps if each[0] != widths]:
                    self.let_go(old)  # a batch's room only grows: it is of no use any more
            while len(self._steps) >= MOST_STEPS:
                self.let_go(next(iter(self._steps)))
            try:
                step = Step(
                    self.machine,
                    self.counted,
                    self.lowered,
                    known,
                    self.replaces,
                    list(self.kernels),
                    self._runs.__getitem__,
                    feed,
                )
            except torch.OutOfMemoryError as error:
                raise self._full(known) from error
        self._steps[asked] = step
        self.machine.kept.use(self, asked)
        return step

    def let_go(self, name: Hashable) -> None:
        """Frees the recordings of a step, whose runs are finished first."""
        assert isinstance(name, tuple)
        if name in self._steps:
            self.wait()
            self.check()
            self._steps.pop(name).close()
            self.machine.kept.forget(self, name)

    def _full(self, known: Mapping[str, int]) -> Exception:
        """What is said where the device has no room: the largest values, and the line of the largest."""

        def size(node: Node) -> int:
            places = math.prod(axis.size.evaluate(known) for axis in node.axes)
            return places * dtype_of(node.element).itemsize

        largest = sorted(self.counted.graph.nodes, key=size, reverse=True)[:MOST_NAMED]
        named = ", ".join(f"{node.name} of {show_axes(node.axes)} with {size(node):,} bytes" for node in largest)
        message = f"the memory of `{self.machine.name}` is full; the largest values of the step are {named}"
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
        inputs: Sequence[torch.Tensor | DatasetRows],
        known: Mapping[str, int],
        key: RandomKey,
        given_up: Collection[int],
    ) -> list[torch.Tensor]:
        step.lent.take_back(inputs, given_up)
        step.make_room()
        rows = self._feed(step, inputs)
        self._take(step, {place: tensor_of(each) for place, each in enumerate(inputs) if place not in rows}, known)
        self._tell(step, known, key, next(iter(rows.values()), None))
        before = replace(self.transport.sent) if self.transport is not None else None
        try:
            step.run()
        except torch.OutOfMemoryError as error:
            raise self._full(known) from error
        step.moved_on()
        if self.transport is not None and before is not None:
            self._count_sent(step, self.transport.sent, before)
        outputs = self._outputs(step, known)
        self._last = step, {place: outputs[place] for place in step.scalars}
        return outputs

    def _count_sent(self, step: Step, sent: Sent, before: Sent) -> None:
        """What a recording sends isn't seen when it is replayed: it is what the first run sent."""
        if step.sent is None:
            step.sent = Sent(*(now - then for now, then in zip(astuple(sent), astuple(before), strict=True)))
        total = replace(before)
        total.include(step.sent)
        sent.launches, sent.values, sent.bytes = astuple(total)

    def _feed(self, step: Step, inputs: Sequence[torch.Tensor | DatasetRows]) -> dict[int, DatasetRows]:
        """The inputs that the step takes itself, their order in its memory."""
        if step.feed is None:
            return {}
        rows = {place: each for place in step.feed.columns if isinstance(each := inputs[place], DatasetRows)}
        order = next(iter(rows.values())).order
        if step.ordered is not order:
            step.order[: len(order)].copy_(order)
            step.ordered = order
        return rows

    def _take(self, step: Step, tensors: Mapping[int, torch.Tensor], known: Mapping[str, int]) -> None:
        """Inputs' values where the recording reads them; rows that aren't there are left as they are."""
        elsewhere: dict[int, torch.Tensor] = {}
        own_places = {held.data_ptr() for held in step.inputs if held.numel()}
        for place, tensor in tensors.items():
            held = step.inputs[place]
            if tensor.device == held.device and tensor.data_ptr() == held.data_ptr() and held.numel() > 0:
                continue
            # a value that lies in the place of another input is read before that is written
            shared = tensor.device == held.device and tensor.data_ptr() in own_places
            elsewhere[place] = tensor.clone() if shared else tensor
        real = self._real_sizes(known)
        for place, tensor in elsewhere.items():
            node = self.counted.graph.inputs[place]
            part = real_part(step.inputs[place], node.axes, step.sizes, real)
            part.copy_(tensor.to(dtype_of(node.element)).view(part.shape), non_blocking=True)

    def _tell(self, step: Step, known: Mapping[str, int], key: RandomKey, rows: DatasetRows | None) -> None:
        """Writes to the control block what the last run didn't leave there."""
        wanted = [0] * (COUNTS + len(self.counted.counts) + len(self.counted.first_rows))
        if self.lowered.key_buffer >= 0 or not step.told:
            wanted[SEED] = (key.seed + 2**63) % 2**64 - 2**63
            wanted[CALL], wanted[FIRST_ROW] = key.call, key.first_row
        else:  # nothing is drawn
            wanted[: FIRST_ROW + 1] = step.told[: FIRST_ROW + 1]
        if rows is not None:
            wanted[POSITION], wanted[ROWS] = rows.first, rows.count
            wanted[STRIDE] = rows.count if rows.follows else 0
        sizes = [*self.counted.counts, *self.counted.first_rows.values()]
        for place, size in enumerate(sizes, COUNTS):
            wanted[place] = size.evaluate(known)
        if step.told != wanted:
            step.control.copy_(torch.tensor(wanted, dtype=torch.int64))
            step.told = wanted
            self.tellings += 1

    tellings = 0
    """How often the control block was written to from here."""

    def _outputs(self, step: Step, known: Mapping[str, int]) -> list[torch.Tensor]:
        found = []
        real = self._real_sizes(known)
        for place, (node, memory) in enumerate(zip(self.counted.graph.outputs, step.outputs, strict=True)):
            given = step.written.get(place)
            if given is None:
                part = real_part(memory, node.axes, step.sizes, real)
                shape = [axis.size.evaluate(real) for axis in node.axes]
                found.append(part.clone(memory_format=torch.contiguous_format).view(shape))
                continue
            held = step.inputs[given]
            if held.data_ptr() != memory.data_ptr():
                held.copy_(memory)
            found.append(step.lent.hand_out(given, held.view([axis.size.evaluate(step.sizes) for axis in node.axes])))
        return found

    def _real_sizes(self, known: Mapping[str, int]) -> dict[str, int]:
        """The sizes without the rows that only give room."""
        real = dict(known)
        for atom in self.batches:
            for wide, narrow in ((here(atom), own(atom)), (room(atom), atom)):
                if wide in real:
                    real[wide] = real[narrow]
        return real

    # --- what the host sees

    def scalars(self) -> dict[int, ShownScalar]:
        """The scalars of the last run by the number of the output, to be looked at without waiting for later ones."""
        if self._last is None:
            return {}
        step, tensors = self._last
        return {place: step.scalar(place, tensor, self.settle) for place, tensor in tensors.items()}

    def settle(self, step: Step, run: int) -> None:
        """Waits for a run of a step, and raises what was met up to it.

        Raises:
            Hang, ProgramError: as `wait` and `check`.
        """
        self._wait(lambda: step.finished >= run)
        self.check()

    def check(self) -> None:
        """Raises what an earlier run met, as far as the device has said it."""
        for step in self._steps.values():
            if int(step.shown[0]) & 0xFFFFFFFF:
                node = self.counted.graph.nodes[int(step.shown[0]) >> 32]
                value, bound = int(step.shown[1]), int(step.shown[2])
                self.wait()  # a run that is under way could show it again
                self.machine.synchronize()
                step.record.zero_()
                step.shown[:3].zero_()
                raise blamed("E2101", _words(node, value, bound), node)

    def finish(self) -> None:
        """Waits for the device, and raises what it met."""
        if self._steps:
            self.wait()
            self.check()

    def wait(self) -> None:
        """Waits until the device has counted every run; the count is read in memory, which no hang can keep.

        Raises:
            Hang: it stands still.
        """
        self._wait(lambda: self.finished_steps() >= sum(step.runs for step in self._steps.values()))

    def _wait(self, over: Callable[[], bool]) -> None:
        before, since = -1, time.monotonic()
        while not over():
            finished, now = self.finished_steps(), time.monotonic()
            if finished != before:
                before, since = finished, now
            elif now - since > self.longest_step:
                self.machine.hung = True
                raise Hang(f"`{self.machine.name}` hasn't finished a step for {self.longest_step:g} s")
            if now - since > SPIN:
                if self.transport is not None:
                    check = getattr(self.transport, "check", None)
                    if check is not None:
                        check()  # NCCL may have met that another device has gone
                time.sleep(SPIN / 5)

    def finished_steps(self) -> int:
        """How many runs the device has finished: a number that stands still is a hang."""
        return sum(step.finished for step in self._steps.values())

    def describe(self) -> str:
        """How the graph runs, for `plan`."""
        if self.reason is not None:
            return f"not recorded: {self.reason}"
        return described(between(self.counted, self.lowered), self.unpadded)

    unpadded: str | None = None

    def close(self) -> None:
        """Frees all recordings; where the device hangs, they go with the process."""
        if not self.machine.hung:
            self.wait()
        for name in self._steps:
            self.machine.kept.forget(self, name)
        close_steps(self._steps, self.machine)


def close_steps(steps: dict[tuple[Hashable, Hashable], Step], machine: Machine) -> None:
    """Frees recordings; those of a device that hangs can't be."""
    if not machine.hung:
        for step in steps.values():
            step.close()
    steps.clear()


def padded(graph: Graph) -> tuple[LaidGraph | None, tuple[str, ...], str | None]:
    """A graph of one device with room for its batches, these, and why there is none where there is none."""
    batches = batch_atoms(graph)
    if not batches:
        return None, (), None
    mesh = Mesh((1,))
    tags = tuple(
        "rows" if any(not axis.size.atoms.isdisjoint(batches) for axis in node.axes) else "whole"
        for node in graph.inputs
    )
    try:
        return lay_out(graph, mesh, policy_for(graph, mesh), Resting(tags), padded=True), batches, None
    except Unpadded as problem:
        return None, (), str(problem)


def real_part(
    memory: torch.Tensor, axes: Sequence[Axis], wide: Mapping[str, int], real: Mapping[str, int]
) -> torch.Tensor:
    """The places of a value that are no mere room, each leaf of its axes a dimension."""
    leaves = [leaf.size for axis in axes for leaf in leaves_of(axis)]
    part = memory.view([size.evaluate(wide) for size in leaves])
    for dim, size in enumerate(leaves):
        part = part.narrow(dim, 0, size.evaluate(real))
    return part


def tensor_of(value: torch.Tensor | DatasetRows) -> torch.Tensor:
    """A value as a tensor."""
    return value if isinstance(value, torch.Tensor) else value.fetch()


def between(counted: CountedGraph, lowered: Lowered) -> list[Node]:
    """The nodes that can't be recorded, and stand between two recordings."""
    return [node for each in lowered.instructions if not recordable(each, counted) for node in each.nodes]


def described(apart: Sequence[Node], unpadded: str | None) -> str:
    """How a graph is recorded: whole, or in parts, and whether one recording serves every batch."""
    text = f"recorded in parts, around {show_calls(apart)}" if apart else "recorded whole"
    return text if unpadded is None else f"{text}, anew for each size of a batch: {unpadded}"


def foreseen(graph: Graph, laid: LaidGraph | None, unpadded: str | None) -> str:
    """How a graph will be recorded, which needs no GPU; `laid` is the graph over several devices, and why it isn't
    padded is `unpadded`."""
    batches: tuple[str, ...] = ()
    if laid is None:
        alone, batches, unpadded = padded(graph)
        graph = graph if alone is None else alone.graph
    else:
        graph = laid.graph
        batches = tuple(part.atom for part in laid.parts if part.batch) if laid.padded else ()
    counted = with_counts(graph, batches)
    kernels = kernel_names(import_module("shapescript._cuda").tile_ops())
    return described(between(counted, lower(counted.graph, kernels=kernels)), unpadded)


def _words(node: Node, value: int, bound: int) -> str:
    """As the reference executor says it."""
    if node.name == "require_finite":
        return f"{node.attributes['what']} isn't finite"
    if node.name in ("cast", "refine"):
        return f"{value} is out of range for `{node.element}`, which holds 0..{bound}"
    return f"{value} is out of range for `{node.attributes['over']}`, which holds 0..{bound}"


@cache
def machine_of(device: torch.device) -> CudaMachine:
    """The GPU, one for all executors of the process."""
    return CudaMachine(device)
