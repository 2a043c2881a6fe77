"""A graph with memory for some widths, ready to run as recorded work.

Takes a counted graph lowered for the GPU's kernels, and the sizes; gives `Step`. What follows from the sizes alone is
done once. The rest is a list of works: tile programs that don't need one another are one launch, and what can't be
recorded (Python, an operation of torch that waits for the device or asks for a count) stands between two recordings.
The first run does everything as it comes, so that nothing is initialised while it is recorded; the second records.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch

from shapescript.devices.captured.buckets import together
from shapescript.devices.captured.counts import CountedGraph
from shapescript.devices.captured.lent import Lent
from shapescript.devices.captured.machine import Machine, Recording, Work
from shapescript.devices.captured.memory import arena, lives_of
from shapescript.devices.captured.programs import Prepared, pack, prepare
from shapescript.devices.captured.rows import Feed, feed_work
from shapescript.devices.captured.shown import MOST_SHOWN, ShownScalar
from shapescript.devices.captured.works import CALL, COUNTS, POSITION, STRIDE, Buffers, Works
from shapescript.devices.dtypes import DTYPES
from shapescript.devices.native.lower import Lowered
from shapescript.devices.native.plan import Called, Instruction, Place
from shapescript.devices.native.sizes import value_of
from shapescript.devices.native.views import View
from shapescript.devices.reference.executor import perform
from shapescript.devices.reference.lowering import LOWERINGS, Run
from shapescript.devices.reference.lowering import Step as ReferenceStep
from shapescript.devices.reference.lowering_collectives import end_along
from shapescript.devices.transport import Sent
from shapescript.ir.graph import Node

RECORDED = set(
    """
    add subtract multiply negate abs exp expm1 log log1p sqrt rsqrt square sin cos tanh sigmoid relu gelu gelu_tanh
    silu softplus erf floor ceil round sign is_nan equal not_equal less less_equal greater greater_equal maximum
    minimum where and or not stop_gradient again whole relabel broadcast rearrange slice sum max min prod any all
    softmax log_softmax logsumexp layer_norm rms_norm cumsum cumprod sort argsort contract conv conv_transpose
    conv_weights max_pool max_pool_spread max_pool_pick avg_pool avg_pool_spread attention all_reduce keep_first
    argmax argmin concat pad flip roll all_gather reduce_scatter all_to_all take_part
    """.split()
)
"""Operations of torch that neither wait for the device nor ask for a count: they can be recorded as they are. Where a
count is asked for, as by a collective on a padded batch, the node is among `CountedGraph.open`."""


@dataclass
class Item:
    """Work that stands at one place of the order: an instruction, or several programs of tiles."""

    reads: set[int]
    writes: set[int]
    instructions: list[Instruction]
    work: Work | None = None
    recorded: bool = True
    programs: list[Prepared] = field(default_factory=list)


def recordable(instruction: Instruction, counted: CountedGraph) -> bool:
    """Whether an instruction can be recorded: it asks for no count that changes, and doesn't wait for the device."""
    if any(node.number in counted.open for node in instruction.nodes):
        return False
    return instruction.method != "call" or all(node.name in RECORDED for node in instruction.nodes)


class Step:
    """The step for some widths."""

    def __init__(
        self,
        machine: Machine,
        counted: CountedGraph,
        lowered: Lowered,
        sizes: Mapping[str, int],
        replaces: Mapping[int, int],
        names: Sequence[str],
        perform_now: Callable[[bool], Run],
        feed: Feed | None = None,
    ) -> None:
        self.machine, self.counted, self.lowered, self.sizes = machine, counted, lowered, sizes
        self.names, self.perform_now, self.feed = names, perform_now, feed
        self.numbers = lowered.table.numbers(sizes)
        device = machine.device
        self.control = torch.zeros(
            COUNTS + len(counted.counts) + len(counted.first_rows), dtype=torch.int64, device=device
        )
        self.record = torch.zeros(3, dtype=torch.int64, device=device)
        self.done = torch.zeros(1, dtype=torch.int64, device=device)
        self.shown = machine.shown(4)  # the first wrong value, and how many steps are finished
        self.written = dict(replaces)
        self.lent = Lent()
        self.sent: Sent | None = None  # what a run sends, known after the first
        self.buffers = Buffers({})
        self._kept: list[torch.Tensor] = []
        self._steps: dict[int, ReferenceStep] = {}
        self.inputs: list[torch.Tensor] = []
        self.outputs: list[torch.Tensor] = []
        fixed, items = self._items()
        self._allocate(fixed, items)
        self._prepare(fixed)
        for item in fixed:
            assert item.work is not None
            machine.do(item.work)
        self._prepare(items)
        if feed is not None:
            self.order = torch.zeros(max(1, feed.longest), dtype=torch.int64, device=device)
            self.ordered: object = None  # the order that is there
            work = feed_work(machine, feed, self.inputs, self.order, self.control)
            items.insert(0, Item(set(), set(), [], work))
        self.items = items
        self._show_scalars()
        self._parts: list[Item | Recording] | None = None
        self.runs = 0
        self.told: list[int] = []  # what the control block holds

    # --- the order

    def _items(self) -> tuple[list[Item], list[Item]]:
        fixed: list[Item] = []
        items: list[Item] = []
        for instruction in self.lowered.instructions:
            into = fixed if instruction.fixed else items
            reads, writes = set(instruction.reads), set(instruction.writes)
            if instruction.method == "tiles":
                joined = self._together(into, reads, writes)
                if joined is not None:
                    joined.instructions.append(instruction)
                    joined.reads |= reads
                    joined.writes |= writes
                    continue
            into.append(Item(reads, writes, [instruction], None, recordable(instruction, self.counted)))
        return fixed, items

    def _together(self, items: Sequence[Item], reads: set[int], writes: set[int]) -> Item | None:
        """The launch of tiles that a program may be part of: the first after all that it needs, or that needs its
        memory."""
        found = None
        for item in reversed(items):
            clash = item.writes & (reads | writes) or item.reads & self._same_memory(writes)
            if clash or item.writes & self._same_memory(reads | writes):
                break
            if item.instructions[0].method == "tiles":
                found = item
        return found

    def _same_memory(self, buffers: set[int]) -> set[int]:
        """These buffers, and the inputs whose memory they take."""
        also = {
            self.lowered.inputs[given]
            for output, given in self.lowered.replaced.items()
            if self.lowered.output_views[output].buffer in buffers
        }
        back = {
            self.lowered.output_views[output].buffer
            for output, given in self.lowered.replaced.items()
            if self.lowered.inputs[given] in buffers
        }
        return buffers | also | back

    @property
    def unrecorded(self) -> list[Node]:
        """The nodes that stand between two recordings."""
        return [node for item in self.items if not item.recorded for node in item.instructions[0].nodes]

    # --- what the host sees

    def _show_scalars(self) -> None:
        """The scalars that a run gives, such as its loss, are copied to where the host reads them."""
        places = [
            place
            for place, memory in enumerate(self.outputs)
            if place not in self.written and not self.counted.graph.outputs[place].axes and memory.numel() == 1
        ]
        self.scalars = {place: number for number, place in enumerate(places)}
        self.shown_scalars = self.machine.shown(max(1, MOST_SHOWN * len(places)))
        rows = [[self.outputs[place].data_ptr(), self.outputs[place].element_size()] for place in places]
        self._scalar_table = torch.tensor(rows or [[0, 0]], dtype=torch.int64).to(self.machine.device)
        self._looked_at: list[list[weakref.ref[ShownScalar]]] = [[] for _ in range(MOST_SHOWN)]

    @property
    def finished(self) -> int:
        """How many runs the device has finished."""
        return int(self.shown[3])

    def make_room(self) -> None:
        """Before a run: the scalars of the run whose place it takes are kept by whoever may still look at them."""
        waiting = self._looked_at[self.runs % MOST_SHOWN]
        for reference in waiting:
            scalar = reference()
            if scalar is not None:
                scalar.keep()
        waiting.clear()

    def scalar(self, place: int, tensor: torch.Tensor, settle: Callable[[Step, int], None]) -> ShownScalar:
        """A scalar of the last run, as the host sees it; `settle` waits for a run."""
        run = self.runs
        row = (run - 1) % MOST_SHOWN
        memory = self.shown_scalars[row * len(self.scalars) + self.scalars[place]].reshape(1)
        made = ShownScalar(memory, tensor, lambda: self.finished >= run, lambda: settle(self, run))
        self._looked_at[row].append(weakref.ref(made))
        return made

    # --- memory

    def _sized(self, ref: int) -> int:
        return self.numbers[ref]

    def _allocate(self, fixed: Sequence[Item], items: Sequence[Item]) -> None:
        lowered, device = self.lowered, self.machine.device
        replaced = {lowered.output_views[output].buffer: given for output, given in lowered.replaced.items()}
        lengths = {number: value_of(buffer.length, self.sizes) for number, buffer in enumerate(lowered.draft.buffers)}

        def new(number: int) -> torch.Tensor:
            return torch.zeros(lengths[number], dtype=DTYPES[lowered.draft.buffers[number].element], device=device)

        for place, number in enumerate(lowered.inputs):
            count = place - self.counted.inputs
            at = COUNTS + count
            self.buffers.tensors[number] = new(number) if count < 0 else self.control[at : at + 1]
            if count < 0:
                self.inputs.append(self.buffers.tensors[number])
        if lowered.key_buffer >= 0:
            self.buffers.tensors[lowered.key_buffer] = self.control[1:2]
        shared: dict[int, int] = {}
        for number, buffer in enumerate(lowered.draft.buffers):
            if buffer.place is Place.OUTPUT:
                given = replaced.get(number)
                self.buffers.tensors[number] = new(number) if given is None else self.inputs[given]
            elif buffer.place is Place.FIXED:
                self.buffers.tensors[number] = new(number)
            elif buffer.place is Place.RUN:
                shared[number] = lengths[number] * DTYPES[buffer.element].itemsize
        self.outputs = [self.buffers.tensors[view.buffer] for view in lowered.output_views]
        lives = lives_of([sorted(item.reads | item.writes) for item in items])
        used = {number: size for number, size in shared.items() if number in lives}
        places, length = arena(used, lives)
        memory = torch.zeros(length, dtype=torch.uint8, device=device)
        self._kept.append(memory)
        for number, begin in places.items():
            dtype = DTYPES[lowered.draft.buffers[number].element]
            self.buffers.tensors[number] = memory[begin : begin + used[number]].view(dtype)
        self.bytes = length

    # --- works

    def _prepare(self, items: Sequence[Item]) -> None:
        first_rows = {
            number: COUNTS + len(self.counted.counts) + place for place, number in enumerate(self.counted.first_rows)
        }
        works = Works(self.machine, self.buffers, self._sized, self.control, self.record, first_rows)
        for item in items:
            first = item.instructions[0]
            if first.method == "tiles":
                item.work = self._tiles(item)
            elif first.method == "call":
                called = self.lowered.calls[self.lowered.instructions.index(first)]
                item.work = self._called(called)
            elif first.node.number in self.counted.open:
                item.work = self._in_torch(first.node)
            else:
                item.work = works.of(first)

    def _tiles(self, item: Item) -> Work:
        machine, kernels = self.machine, self.machine.kernels
        ops, limits = kernels.tile_ops(), kernels.limits()
        grid = machine.grid()
        programs = [
            prepare(each.arguments, self._sized, ops, self.names, limits, grid.threads) for each in item.instructions
        ]
        address, width = self.buffers.address, self.buffers.width
        size = len(pack(programs, address, width, 0, limits, grid.threads, grid.blocks)[0])
        memory = torch.zeros(size, dtype=torch.uint8, device=machine.device)
        data, blocks = pack(programs, address, width, memory.data_ptr(), limits, grid.threads, grid.blocks)
        memory.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        self._kept.append(memory)
        count = len(programs)
        return lambda: kernels.tiles(memory.data_ptr(), count, blocks, machine.grid())

    def _tensor(self, view: View) -> torch.Tensor:
        sizes = [value_of(size, self.sizes) for size in view.sizes]
        strides = [value_of(stride, self.sizes) for stride in view.strides]
        return self.buffers.view(view.buffer, sizes, strides, value_of(view.offset, self.sizes))

    def _called(self, called: Called) -> Work:
        """Operations of torch, as the reference executor does them."""
        operands = [[self._tensor(view) for view in views] for views in called.operands]
        results = [self._tensor(view) for view in called.results]
        if called.nodes[0].name == "all_reduce":
            return self._together_sent(called.nodes, [each[0] for each in operands], results)

        recorded = all(node.name in RECORDED and node.number not in self.counted.open for node in called.nodes)

        def work() -> None:
            run = self.perform_now(recorded)
            with torch.no_grad():
                for node, given, result in zip(called.nodes, operands, results, strict=True):
                    result.copy_(perform(node, self._step_of(node), run, given))

        return work

    def _together_sent(self, nodes: Sequence[Node], given: list[torch.Tensor], results: list[torch.Tensor]) -> Work:
        """All-reduces of one launch."""
        kind = str(nodes[0].attributes["kind"])
        return together(self.machine, given, results, kind, lambda: end_along(self.perform_now(True), nodes[0]))

    def _in_torch(self, node: Node) -> Work:
        """An instruction's node by the reference executor instead."""
        lowered = self.lowered
        operands = [self._tensor(lowered.views[operand.number]) for operand in node.operands]
        result = self._tensor(lowered.views[node.number])

        def work() -> None:
            with torch.no_grad():
                result.copy_(perform(node, self._step_of(node), self.perform_now(False), operands))

        return work

    def _step_of(self, node: Node) -> ReferenceStep:
        step = self._steps.get(node.number)
        if step is None:
            step = self._steps[node.number] = LOWERINGS[node.name](node, self.counted.graph.sizes)
        return step

    # --- running

    def run(self) -> None:
        """Puts the step on the stream: as it comes at first, then what was recorded."""
        self.runs += 1
        if self.runs == 1:
            for item in self.items:
                assert item.work is not None
                self.machine.do(item.work)
            self._end()
            return
        if self._parts is None:
            self._parts = self._recorded_or_not()
        for part in self._parts:
            if isinstance(part, Item):
                assert part.work is not None
                self.machine.do(part.work)
            else:
                part.replay()

    def _recorded_or_not(self) -> list[Item | Recording]:
        """The recordings; where CUDA doesn't allow one, the works, to be done as they come."""
        try:
            return self._recorded()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as problem:
            text = str(problem).partition("\n")[0]
            warnings.warn(f"a step can't be recorded, and runs without a CUDA graph, slower: {text}", stacklevel=2)
            return [*self.items, Item(set(), set(), [], self._end)]

    def _recorded(self) -> list[Item | Recording]:
        parts: list[Item | Recording] = []
        groups = [(key, list(group)) for key, group in groupby(self.items, key=lambda item: item.recorded)]
        if not groups or not groups[-1][0]:
            groups.append((True, []))
        for number, (recorded, group) in enumerate(groups):
            if not recorded:
                parts.extend(group)
                continue

            def work(group: list[Item] = group, last: bool = number == len(groups) - 1) -> None:
                for item in group:
                    assert item.work is not None
                    self.machine.do(item.work)
                if last:
                    self._end()

            parts.append(self.machine.record(work))
        return parts

    def _end(self) -> None:
        """Counts the step, shows what went wrong and the scalars, and moves the control block on."""
        kernels, machine = self.machine.kernels, self.machine
        arguments = [each.data_ptr() for each in (self.record, self.shown, self.done, self.control, self._scalar_table)]
        shown, count = self.shown_scalars.data_ptr(), len(self.scalars)
        machine.do(lambda: kernels.finish(*arguments, count, shown, MOST_SHOWN, machine.grid()))

    def moved_on(self) -> None:
        """What the control block holds after a run: the next call, and the next rows."""
        if self.told:
            self.told[CALL] += 1
            self.told[POSITION] += self.told[STRIDE]

    @property
    def recordings(self) -> int:
        """How many recordings the step has; 0 before the second run."""
        return sum(not isinstance(part, Item) for part in self._parts or ())

    def close(self) -> None:
        """Frees the recordings, which must be gone before the communicator is."""
        self.machine.synchronize()
        for part in self._parts or ():
            if not isinstance(part, Item):
                part.close()
        self._parts = None
