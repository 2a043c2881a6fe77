"""Runs a graph in C++, on one device of the CPU.

Takes a graph after the passes; gives `NativeExecutor`, with the interface of the reference executor. The graph becomes
a plan once; for each set of counts the plan gets its sizes and its memory once, and is kept for the last few. A run
allocates nothing but what its outputs need: memory of outputs that nobody holds any more is used again.

An operation without a kernel is called from C++ as the reference executor does it, and so is one that found a wrong
value: its own words tell what is wrong. So is what goes over no places at all, as an empty part of a batch has them.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import torch

from shapescript import _executor
from shapescript.devices.dtypes import dtype_of
from shapescript.devices.native.clusters import COLLECTIVES
from shapescript.devices.native.lower import Lowered, lower
from shapescript.devices.native.plan import Called, Instruction, Place
from shapescript.devices.native.sizes import UnfitSize, value_of
from shapescript.devices.native.views import View
from shapescript.devices.profile import Work, current_profile
from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.executor import blamed, full_memory, is_out_of_memory, perform
from shapescript.devices.reference.lowering import LOWERINGS, Run, Step, whole_number
from shapescript.devices.reference.lowering_collectives import end_along
from shapescript.devices.transport import InMemory, Sent, Transport
from shapescript.ir.graph import Graph, Node
from shapescript.types.size import SizeError

MOST_BOUND = 4
WORD = 2**32
UPDATE = "update("
"""What the span of an optimizer's operations begins with."""


@dataclass
class Bound:
    """A plan with memory for some counts."""

    native: _executor.Bound
    version: int
    sizes: Mapping[str, int]
    own: dict[int, torch.Tensor] = field(default_factory=dict)
    spare: list[list[torch.Tensor]] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    sent: Sent = field(default_factory=Sent)


class NativeExecutor:
    """A graph made ready to run in C++."""

    def __init__(
        self,
        graph: Graph,
        device: torch.device | str = "cpu",
        transport: Transport | None = None,
        *,
        replaces: Mapping[int, int] | None = None,
        threads: int | None = None,
        kernels: str = "",
    ) -> None:
        self.graph = graph
        self.device = torch.device(device)
        self.transport = transport
        self.kernels = kernels
        _blas()
        self.threads = threads_of(threads)
        self._ends = ends_of(graph, transport)
        self.lowered: Lowered = lower(graph, replaces, combines=bool(self._ends))
        self._input_dtypes = [dtype_of(node.element) for node in graph.inputs]
        self._output_dtypes = [dtype_of(node.element) for node in graph.outputs]
        self._bound: dict[tuple[tuple[str, int], ...], Bound] = {}
        self._versions = 0
        self._steps: dict[int, Step] = {}
        self._turn = threading.Lock()  # one run at a time: a plan's memory is one run's

    @property
    def fallbacks(self) -> list[str]:
        """The operations that have no kernel, by name."""
        return sorted({node.name for called in self.lowered.calls.values() for node in called.nodes})

    @cached_property
    def works(self) -> list[Work]:
        """The instructions as a profile shows them."""
        return [work_of(instruction) for instruction in self.lowered.instructions]

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        counts: Mapping[str, int] | None = None,
        key: RandomKey | None = None,
        given_up: Collection[int] = (),
    ) -> list[torch.Tensor]:
        """The outputs for these inputs; `given_up` are inputs that nobody needs any more, whose memory may be used.

        Raises:
            ProgramError: an operation met a value or a size that can't be.
        """
        if len(inputs) != len(self._input_dtypes):
            raise ValueError(f"the graph has {len(self._input_dtypes)} inputs, and {len(inputs)} are given")
        counts = counts or {}
        with self._turn:
            try:
                return self._run(inputs, counts, key or RandomKey(), given_up)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise full_memory(self._largest(counts), self.device) from error

    def _largest(self, counts: Mapping[str, int]) -> Node:
        """The node with the most values, which is to blame where memory is full."""
        known = {**self.graph.sizes, **counts}

        def values(node: Node) -> int:
            return math.prod(axis.size.evaluate(known) for axis in node.axes)

        return max((node for node in self.graph.nodes if node.op is not None), key=values)

    def _run(
        self, inputs: Sequence[torch.Tensor], counts: Mapping[str, int], key: RandomKey, given_up: Collection[int]
    ) -> list[torch.Tensor]:
        bound = self._of_counts(counts)
        if not 0 <= key.call < WORD or not 0 <= key.first_row < WORD:
            raise ValueError(f"the call {key.call} or the row {key.first_row} of a random draw doesn't fit in 32 bits")
        given = [
            tensor if tensor.dtype == dtype and tensor.is_contiguous() else tensor.to(dtype).contiguous()
            for tensor, dtype in zip(inputs, self._input_dtypes, strict=True)
        ]
        outputs = self._outputs(bound, given, given_up)
        caller = _Caller(self, bound, given, outputs, key)
        arguments = (
            bound.native,
            [tensor.data_ptr() for tensor in given],
            [tensor.data_ptr() for tensor in outputs],
            key.seed % 2**64,
            key.call,
            key.first_row,
            caller.call,
        )
        profile = current_profile()
        if profile is None:
            failed = self.threads.run(*arguments)
        else:
            failed, timings = self.threads.profile(*arguments)
            profile.add(self.works, timings)
        if failed >= 0:
            caller.tell(failed)
        if self.transport is not None:
            self.transport.sent.include(bound.sent)
        return outputs

    # --- what is known for some counts

    def _of_counts(self, counts: Mapping[str, int]) -> Bound:
        """The plan with memory for these counts."""
        asked = tuple(sorted(counts.items())) if len(counts) > 1 else tuple(counts.items())
        if asked in self._bound:
            found = self._bound.pop(asked)
            self._bound[asked] = found
            return found
        found = self._bind(counts)
        self._bound[asked] = found
        if len(self._bound) > MOST_BOUND:
            del self._bound[next(iter(self._bound))]
        return found

    def _bind(self, counts: Mapping[str, int]) -> Bound:
        known = {**self.graph.sizes, **counts}
        for node in self.graph.nodes:
            for axis in node.axes:
                try:
                    axis.size.evaluate(known)
                except SizeError as error:
                    raise blamed("E2102", str(error), node) from error
        for cut in self.lowered.cuts:
            run = Run(known, self.device, RandomKey(), 0)
            shape = [axis.size.evaluate(known) for axis in cut.node.operands[0].axes]
            if not 0 <= whole_number(cut.start, run) <= whole_number(cut.stop, run) <= shape[cut.axis]:
                self._perform(cut.node, [torch.empty(shape)], run)
        try:
            numbers = self.lowered.table.numbers(counts)
        except UnfitSize as error:
            if error.node is None:
                raise
            raise blamed("E2102", str(error), error.node) from error
        self._versions += 1
        tables = [end.capsule() for end in self._ends]
        bound = Bound(self.threads.bind(self.lowered.plan, numbers, self.kernels, tables), self._versions, known)
        for launch in self.lowered.launches:
            sent = [node.operands[0] for node in launch]
            lengths = [math.prod(axis.size.evaluate(known) for axis in node.axes) for node in sent]
            widths = [dtype_of(node.element).itemsize for node in launch]
            together = Sent(1, sum(lengths), sum(n * width for n, width in zip(lengths, widths, strict=True)))
            bound.sent.include(together)
        bound.shapes = [tuple(axis.size.evaluate(known) for axis in node.axes) for node in self.graph.outputs]
        bound.spare = [[] for _ in bound.shapes]
        caller = _Caller(self, bound, [], [], RandomKey())
        failed = self.threads.prepare(bound.native, caller.call)
        if failed >= 0:
            caller.tell(failed)
        return bound

    # --- outputs

    def _outputs(
        self, bound: Bound, inputs: Sequence[torch.Tensor] = (), given_up: Collection[int] = ()
    ) -> list[torch.Tensor]:
        """Memory for the outputs: an input's that was given up, an earlier output's that nobody holds, or new."""
        found: list[torch.Tensor] = []
        for at, (spare, shape, dtype) in enumerate(zip(bound.spare, bound.shapes, self._output_dtypes, strict=True)):
            replaced = self.lowered.replaced.get(at)
            if replaced is not None:
                given = inputs[replaced] if replaced in given_up else None
                if given is None or _made.get(id(given)) is not given or not _is_free(given):
                    given = torch.empty(shape, dtype=dtype)
                    _made[id(given)] = given
                found.append(given)
                continue
            tensor = next((each for each in spare if _is_free(each)), None)
            if tensor is None:
                tensor = torch.empty(shape, dtype=dtype)
                if tensor.numel() >= SMALLEST_KEPT:
                    spare.append(tensor)
                    del spare[:-MOST_SPARE]
            found.append(tensor if tensor.numel() < SMALLEST_KEPT else tensor.view(shape))
        return found

    # --- operations without a kernel

    def _perform(self, node: Node, operands: Sequence[torch.Tensor], run: Run) -> torch.Tensor:
        step = self._steps.get(node.number)
        if step is None:
            step = self._steps[node.number] = LOWERINGS[node.name](node, self.graph.sizes)
        return perform(node, step, run, operands)


SMALLEST_KEPT = 1024
"""From how many values on an output's memory is kept for later runs."""
MOST_SPARE = 3

_made: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
"""Tensors whose memory is nobody's but ours: what came from Python may be an array's of the user."""


def _is_free(tensor: torch.Tensor) -> bool:
    """Whether no other tensor has this one's memory."""
    return bool(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) <= 2)  # its own, and the one asked here


class _Caller:
    """Does what C++ calls back for, on the memory of one run."""

    def __init__(
        self,
        executor: NativeExecutor,
        bound: Bound,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        key: RandomKey,
    ) -> None:
        self.executor, self.bound, self.inputs, self.outputs, self.key = executor, bound, inputs, outputs, key
        self.problem: BaseException | None = None

    def call(self, instruction: int) -> bool:
        """Does an operation that has no kernel; keeps what it raises."""
        try:
            lowered = self.executor.lowered
            called = lowered.calls.get(instruction)
            with torch.no_grad():
                if called is not None:
                    self._call(called)
                else:
                    self._by_reference(lowered.instructions[instruction])
            return True
        except BaseException as problem:
            self.problem = problem
            return False

    def _call(self, called: Called) -> None:
        run = self._run()
        if called.nodes[0].name == "all_reduce":  # those of one launch
            given = [self._tensor(view).contiguous() for (view,) in called.operands]
            first = called.nodes[0]
            combined = end_along(run, first).all_reduce(given, str(first.attributes["kind"]))
            for result, tensor in zip(called.results, combined, strict=True):
                self._tensor(result).copy_(tensor)
            return
        for node, operands, result in zip(called.nodes, called.operands, called.results, strict=True):
            made = self.executor._perform(node, [self._tensor(view) for view in operands], run)
            self._tensor(result).copy_(made)

    def _by_reference(self, instruction: Instruction) -> None:
        """An instruction over no places, by the operations that it is made of."""
        lowered, run = self.executor.lowered, self._run()
        own = {node.number for node in instruction.nodes}
        known: dict[int, torch.Tensor] = {}

        def value(node: Node) -> torch.Tensor:
            found = known.get(node.number)
            if found is None:
                view = lowered.views.get(node.number)
                if view is not None and node.number not in own:
                    found = self._tensor(view)
                else:
                    found = self.executor._perform(node, [value(operand) for operand in node.operands], run)
                known[node.number] = found
            return found

        made = [
            (view, value(node).clone())
            for node in instruction.nodes
            if (view := lowered.views.get(node.number)) is not None and view.buffer in instruction.writes
        ]
        for view, tensor in made:
            self._tensor(view).copy_(tensor)

    def tell(self, instruction: int) -> None:
        """Raises what went wrong: what a call raised, or what the reference executor says of the values."""
        if self.problem is not None:
            raise self.problem
        lowered = self.executor.lowered
        node = lowered.instructions[instruction].node
        if lowered.instructions[instruction].kind == "all_reduce":
            self.executor._ends[whole_number(node.attributes["mesh_axis"], self._run())].explain()
        operands = [self._tensor(lowered.views[operand.number]) for operand in node.operands]
        with torch.no_grad():
            self.executor._perform(node, operands, self._run())
        raise AssertionError(f"{node!r} failed, and the reference executor finds nothing wrong")

    def _run(self) -> Run:
        executor, bound = self.executor, self.bound
        return Run(bound.sizes, executor.device, self.key, bound.version, executor.transport)

    def _tensor(self, view: View) -> torch.Tensor:
        sizes = self.bound.sizes
        shape = [value_of(size, sizes) for size in view.sizes]
        strides = [value_of(stride, sizes) for stride in view.strides]
        return self._memory(view.buffer).as_strided(shape, strides, value_of(view.offset, sizes))

    def _memory(self, buffer: int) -> torch.Tensor:
        """A buffer's memory as a flat tensor."""
        lowered = self.executor.lowered
        place = lowered.draft.buffers[buffer].place
        if buffer == lowered.key_buffer:
            return torch.tensor([self.key.call])
        if place is Place.INPUT:
            return self.inputs[lowered.inputs.index(buffer)].reshape(-1)
        if place is Place.OUTPUT:
            at = next(i for i, view in enumerate(lowered.output_views) if view.buffer == buffer)
            return self.outputs[at].view(-1)
        found = self.bound.own.get(buffer)
        if found is None:
            found = self.bound.own[buffer] = self._own(buffer)
        return found

    def _own(self, buffer: int) -> torch.Tensor:
        of = self.executor.lowered.draft.buffers[buffer]
        dtype = dtype_of_name(of.element)
        count = value_of(of.length, self.bound.sizes)
        if count == 0:
            return torch.empty(0, dtype=dtype)
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(self.bound.native.address(buffer))
        return torch.frombuffer(memory, dtype=dtype, count=count)


def work_of(instruction: Instruction) -> Work:
    """An instruction as a profile shows it, at the line of its last node that has one; an optimizer's at its update."""
    spans = [node.span for node in instruction.nodes if node.span is not None]
    operations = " ".join(node.name for node in instruction.nodes)
    kind = "sending" if instruction.node.name in COLLECTIVES else instruction.kind
    if not spans:
        return Work("", "", kind, operations)
    updates = [span for span in spans if span.text.startswith(UPDATE)]
    if updates and kind == "tiles":
        kind = "optimizer"
    span = (updates or spans)[-1]
    return Work(f"{span.source.name}:{span.line}", span.source.line(span.line).strip(), kind, operations)


def ends_of(graph: Graph, transport: Transport | None) -> list[InMemory]:
    """This device's end along each axis of the mesh, where all of them have functions in C++; else none."""
    axes = [number for node in graph.nodes if isinstance(number := node.attributes.get("mesh_axis"), int)]
    if transport is None or not axes:
        return []
    ends = [transport.along(axis) for axis in range(max(axes) + 1)]
    found: list[InMemory] = [end for end in ends if isinstance(end, InMemory)]
    return found if len(found) == len(ends) else []


def dtype_of_name(name: str) -> torch.dtype:
    """The dtype of an element by name."""
    from shapescript.devices.dtypes import DTYPES

    return DTYPES[name]


@cache
def threads_of(count: int | None) -> _executor.Executor:
    """The pool of threads of so many; one pool serves all executors of the process."""
    return _executor.Executor(count or default_threads())


def default_threads() -> int:
    """SHAPESCRIPT_THREADS, or as many as torch has for an operation: the cores, or a worker's share of them."""
    asked = os.environ.get("SHAPESCRIPT_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else torch.get_num_threads()


@cache
def _blas() -> bool:
    """Products are made by torch's library; where it has none, by kernels of our own."""
    folder = Path(torch.__file__).parent / "lib"
    return any(_executor.use_blas_of(str(path)) for path in folder.glob("libtorch_cpu.*"))
