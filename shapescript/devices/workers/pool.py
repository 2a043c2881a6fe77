"""The worker processes of a program, as the controller speaks to them.

Takes the names of devices, and laid-out graphs; gives `WorkerPool`. `run` returns at once, and runs ahead of the
workers by a bounded number of steps; a value is waited for where it is fetched. When a worker fails, whoever waits
next gets the first cause: a `ProgramError` where it is a mistake of the program, else a `WorkerFailure`; the pool is of
no use then. `close` ends the workers at once.

All of a pool's memory is without a name and all its files are inherited, so that two pools never meet and nothing is
left when the processes are gone. Processes are watched by `supervisor.py`.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import torch

from shapescript.devices.dtypes import DTYPES, as_bytes, dtype_of
from shapescript.devices.executors import executor_name
from shapescript.devices.random_key import RandomKey
from shapescript.devices.transport import Sent
from shapescript.devices.workers import loaded
from shapescript.devices.workers.channel import Channel, Ended
from shapescript.devices.workers.commands import (
    Ask,
    DropDataset,
    Fetch,
    Free,
    LoadPlan,
    OpenDataset,
    Put,
    PutScalar,
    RunPlan,
    TakeRows,
)
from shapescript.devices.workers.cutting import Lie
from shapescript.devices.workers.failure import PoolClosed, UnknownDeadline, WorkerFailure
from shapescript.devices.workers.launching import Launcher, search_path
from shapescript.devices.workers.native import native
from shapescript.devices.workers.scalars import MOST, RUNS, Scalars
from shapescript.devices.workers.segments import Segment
from shapescript.devices.workers.staging import Place, Staging
from shapescript.devices.workers.starting import start_workers
from shapescript.devices.workers.supervisor import Fault
from shapescript.devices.workers.values import WorkerValue
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.layout.laid import LaidGraph
from shapescript.layout.mesh import Mesh
from shapescript.layout.words import WHOLE_WORD, Layout, Split
from shapescript.types.axes import Axis

MOST_AHEAD = 32
"""How many steps the controller may be ahead of the slowest worker."""
INLINE = 256
"""Up to this many bytes a value goes with the command that puts it."""
MOST_DROPPED = 1024
MOST_COUNTS = 8
"""How many counts of batches what follows from them is kept for."""
DEADLINE = 5.0
"""Seconds for which a worker may not run at all; SHAPESCRIPT_DEADLINE changes it. A long step does run."""

NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass
class PlanFacts:
    """A loaded plan: the graph, where it stands in the program, and how its outputs lie by the counts."""

    laid: LaidGraph
    place: str | None
    outputs: dict[tuple[tuple[str, int], ...], list[tuple[Lie, torch.dtype, int | None]]]


@dataclass(frozen=True)
class Running:
    """A run that isn't known to be finished: its command, its plan and the number of the controller's call."""

    command: int
    plan: int
    step: int


@dataclass(frozen=True)
class DatasetFacts:
    """A dataset's columns: names, and elements and sizes of one row."""

    names: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    rows: tuple[tuple[int, ...], ...]
    columns: Mapping[str, torch.Tensor]
    lies: dict[tuple[int, int], list[Lie]] = field(default_factory=dict)


class WorkerPool:
    """A worker for each device. `devices` are their names, `mesh` how they stand (by default in one line).

    `launcher` is one for as many workers that may have been started before; it ends with the pool.
    """

    def __init__(
        self,
        devices: Sequence[str],
        mesh: Mesh | None = None,
        deadline: float | None = None,
        folder: str | None = None,
        transport: str = "shared",
        launcher: Launcher | None = None,
    ) -> None:
        self.devices = tuple(devices)
        self.mesh = mesh or Mesh((len(self.devices),))
        if self.mesh.count != len(self.devices) or not self.devices:
            raise ValueError(f"a mesh of {self.mesh.count} devices, and {len(self.devices)} names")
        self._folder = folder
        self._lock = threading.RLock()
        self._plans: list[PlanFacts] = []
        self._datasets: dict[int, DatasetFacts] = {}
        self._next_value = 0
        self._next_dataset = 0
        self._dropped: deque[int] = deque()
        self._running: deque[Running] = deque()
        self._last = 0
        self._failure: Exception | None = None
        self._closed = False
        self.halves = transport == "shared" and native is not None and all(each.startswith("cpu") for each in devices)
        """Whether the halves of an all-reduce are combined in C++."""
        if self.halves:
            self.halves = executor_name(torch.device("cpu")) == "native"
        started = start_workers(self.devices, self.mesh, self._path(), set_deadline(deadline), transport, launcher)
        self._channel: Channel = started.channel
        self._supervisor = started.supervisor
        self._sockets = started.sockets
        self._scalars = Scalars(started.scalars, self.mesh.count)
        self._staging = Staging(started.staging, self._wait_all, self.has_finished)
        self._end = weakref.finalize(self, started.end)

    # --- plans

    def load(self, laid: LaidGraph, place: str | None = None) -> int:
        """Sends a graph to all workers, once; `place` is its line of the program, for errors."""
        if laid.mesh != self.mesh:
            raise ValueError("the graph is laid out for another mesh")
        data = loaded.encode(laid)
        with self._lock:
            number = len(self._plans)
            self._plans.append(PlanFacts(laid, place, {}))
            at = self._stage(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            at.number = self._post(LoadPlan(number, at.start, len(data), self._path()).pack())
            at.held = False
            return number

    def run(
        self,
        plan: int,
        inputs: Sequence[WorkerValue],
        counts: Mapping[str, int] | None = None,
        key: RandomKey | None = None,
        given_up: Sequence[int] = (),
    ) -> list[WorkerValue]:
        """Runs a plan; returns at once, with values that are being computed.

        `given_up` are the places of inputs that nobody looks at again: the workers may write over them.
        """
        counts = counts or {}
        key = key or RandomKey()
        with self._lock:
            facts = self._plans[plan]
            outputs = self._outputs(facts, counts)
            # the last one stays, to be named when a worker fails between two
            while len(self._running) > 1 and self.has_finished(self._running[0].command):
                self._running.popleft()
            if len(self._running) >= MOST_AHEAD:  # to be woken once for many steps, not for each
                self._wait_all(self._running[MOST_AHEAD // 2].command)
            first = self._next_value
            self._next_value += len(outputs)
            numbers = tuple(each.number for each in inputs)
            command = self._post(
                RunPlan(plan, first, numbers, counts, key, self._take_dropped(), tuple(given_up)).pack()
            )
            for place in given_up:
                inputs[place].give_up()
            self._running.append(Running(command, plan, key.call))
            return [
                WorkerValue(self, number, lie, dtype, command, scalar, self._dropped)
                for number, (lie, dtype, scalar) in enumerate(outputs, first)
            ]

    def _outputs(self, facts: PlanFacts, counts: Mapping[str, int]) -> list[tuple[Lie, torch.dtype, int | None]]:
        """How each output lies for some counts, its dtype, and which of the run's scalars it is."""
        asked = tuple(counts.items())
        found = facts.outputs.get(asked)
        if found is None:
            laid = facts.laid
            sizes = {**laid.graph.sizes, **counts}
            if len(facts.outputs) >= MOST_COUNTS:
                del facts.outputs[next(iter(facts.outputs))]
            found = facts.outputs[asked] = []
            scalars = 0
            for node, layout in zip(laid.logical_outputs, laid.outputs, strict=True):
                scalar = scalars if not node.axes and scalars < MOST else None
                scalars += not node.axes
                lie = Lie.of_axes(node.axes, sizes, layout, self.mesh)
                found.append((lie, dtype_of(node.element), scalar))
        return found

    # --- values

    def put(
        self,
        tensor: torch.Tensor,
        layout: Layout | None = None,
        axes: Sequence[Axis] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> WorkerValue:
        """Gives the workers a value of the controller's, whole on each device or as a layout says.

        `axes` and the `sizes` of their atoms are asked for where a layout splits a part of a merged axis.
        """
        layout = layout or (WHOLE_WORD,) * len(self.mesh.sizes)
        if axes is None:
            lie = Lie.of_shape(tensor.shape, layout, self.mesh)
        else:
            lie = Lie.of_axes(axes, sizes or {}, layout, self.mesh)
        if lie.shape != tuple(tensor.shape):
            raise ValueError(f"a tensor of sizes {list(tensor.shape)} is put as one of {list(lie.shape)}")
        return self.put_as(tensor, lie)

    def put_as(self, tensor: torch.Tensor, lie: Lie) -> WorkerValue:
        """Gives the workers a value, to lie as it says."""
        data = as_bytes(tensor.detach().cpu().contiguous())
        name = NAMES[tensor.dtype]
        with self._lock:
            number = self._next_value
            self._next_value += 1
            if not lie.leaves and all(word == WHOLE_WORD for word in lie.layout):
                command = self._post(PutScalar(number, name, data.numpy().tobytes()).pack())
            elif len(data) <= INLINE:
                command = self._post(Put(number, lie, name, 0, len(data), data.numpy().tobytes()).pack())
            else:
                at = self._stage(data)
                command = at.number = self._post(Put(number, lie, name, at.start, len(data), None).pack())
                at.held = False
            return self._value(number, lie, tensor.dtype, command, None)

    def fetch(self, value: WorkerValue) -> torch.Tensor:
        """The whole value; waits until it is computed."""
        if value.pool is not self:
            raise ValueError("the value lies with other workers")
        if value.given_up:
            raise ValueError("the value was given up: a run has written over it")
        if value.scalar is not None and self._last - value.command < RUNS // 2:
            self._wait_all(value.command)
            local = {
                device: self._scalars.read(value.command, device, value.scalar, value.dtype)
                for device in value.lie.devices()
            }
            return value.lie.join(local)
        size = torch.empty(0, dtype=value.dtype).element_size()
        shapes = {device: value.lie.local_shape(device) for device in value.lie.devices()}
        sizes = {device: torch.Size(shape).numel() * size for device, shape in shapes.items()}
        with self._lock:
            starts, total = {}, 0
            for device, each in sizes.items():
                starts[device] = total
                total += -(-each // 64) * 64
            at = self._staging.place(total)
            try:
                places = tuple(
                    (at.start + starts[device], sizes[device]) if device in starts else (-1, 0)
                    for device in range(self.mesh.count)
                )
                at.number = self._post(Fetch(value.number, places).pack())
                self._wait_all(at.number)
                local = {
                    device: self._staging.segment.bytes_at(at.start + starts[device], sizes[device])
                    .clone()
                    .view(value.dtype)
                    .reshape(shape)
                    for device, shape in shapes.items()
                }
            finally:
                at.held = False
        return value.lie.join(local)

    # --- datasets

    def dataset(self, columns: Mapping[str, torch.Tensor]) -> int:
        """Puts the columns of a dataset into memory that the workers share, once for the machine."""
        with self._lock:
            number = self._next_dataset
            self._next_dataset += 1
            places: list[int] = []
            total = 0
            for column in columns.values():
                places.append(total)
                total += -(-column.numel() * column.element_size() // 64) * 64
            memory = Segment.make("dataset", max(1, total))
            shared: dict[str, torch.Tensor] = {}
            for (name, column), at in zip(columns.items(), places, strict=True):
                data = as_bytes(column.detach().cpu().contiguous())
                own = memory.bytes_at(at, len(data))
                own.copy_(data)
                shared[name] = own.view(column.dtype).reshape(column.shape)
            described = tuple(
                (NAMES[column.dtype], tuple(column.shape), at)
                for column, at in zip(columns.values(), places, strict=True)
            )
            self._post(OpenDataset(number, described).pack())
            for each in self._sockets:
                self._hand(each, memory.fileno)
            memory.close()
            self._datasets[number] = DatasetFacts(
                tuple(columns),
                tuple(column.dtype for column in columns.values()),
                tuple(tuple(column.shape[1:]) for column in columns.values()),
                shared,
            )
            return number

    def columns(self, dataset: int) -> Mapping[str, torch.Tensor]:
        """A dataset's columns, in the memory that the workers read too: they must not be written to."""
        return self._datasets[dataset].columns

    def drop_dataset(self, dataset: int) -> None:
        """Lets the workers forget a dataset."""
        with self._lock:
            del self._datasets[dataset]
            self._post(DropDataset(dataset).pack())

    def rows(self, dataset: int, indices: torch.Tensor, mesh_axis: int = 0) -> dict[str, WorkerValue]:
        """Rows of a dataset by their numbers, split along an axis of the mesh; only the numbers are carried."""
        indices = indices.to(torch.int64).contiguous()
        with self._lock:
            facts = self._datasets[dataset]
            first = self._next_value
            self._next_value += len(facts.names)
            at = self._stage(as_bytes(indices))
            at.number = self._post(TakeRows(dataset, first, at.start, len(indices), mesh_axis).pack())
            at.held = False
            lies = self._row_lies(facts, len(indices), mesh_axis)
            return {
                name: self._value(first + place, lie, dtype, at.number, None)
                for place, (name, lie, dtype) in enumerate(zip(facts.names, lies, facts.dtypes, strict=True))
            }

    def _row_lies(self, facts: DatasetFacts, count: int, mesh_axis: int) -> list[Lie]:
        """How so many rows of a dataset's columns lie."""
        found = facts.lies.get((count, mesh_axis))
        if found is None:
            layout = tuple(
                Split("rows", 0) if axis == mesh_axis else WHOLE_WORD for axis in range(len(self.mesh.sizes))
            )
            if len(facts.lies) >= MOST_COUNTS:
                facts.lies.clear()
            found = [Lie.of_shape((count, *row), layout, self.mesh) for row in facts.rows]
            facts.lies[count, mesh_axis] = found
        return found

    # --- waiting and ending

    def has_finished(self, command: int) -> bool:
        """Whether all workers have finished a command."""
        return all(self._channel.finished(rank) >= command for rank in range(self.mesh.count))

    def finish(self) -> None:
        """Waits until everything is done; what went wrong meanwhile is raised."""
        self._wait_all(self._last)

    def sent(self, plan: int) -> list[Sent]:
        """What each device has sent for a plan so far, over all its runs."""
        return [by_plan.get(plan, Sent()) for by_plan in self.ask("sent")]  # type: ignore[attr-defined]

    def ask(self, question: str) -> list[object]:
        """Each worker's answer: to `sent`, `modules`, `threads`, `profile` or `memory` (bytes now, at most)."""
        with self._lock:
            command = self._post(Ask(question).pack())
            self._wait_all(command)
            answers = self._supervisor.answers
            with self._supervisor.news:
                self._supervisor.news.wait_for(
                    lambda: len(answers.get(command, {})) == self.mesh.count or self._supervisor.fault is not None
                )
                found = answers.pop(command, {})
            if len(found) < self.mesh.count:
                raise self._failed()
            return [found[rank] for rank in range(self.mesh.count)]

    def close(self) -> None:
        """Ends the workers at once, whatever they do."""
        self._closed = True
        self._end()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    @property
    def processes(self) -> list[int]:
        """The numbers of the workers' processes; they may still be getting ready."""
        self._supervisor.started.wait()
        return [process.pid for process in self._supervisor.processes if process.pid]

    # --- inside

    def _path(self) -> tuple[str, ...]:
        """Where the controller finds modules now, the program's folder first."""
        return search_path(self._folder)

    def _value(self, number: int, lie: Lie, dtype: torch.dtype, command: int, scalar: int | None) -> WorkerValue:
        return WorkerValue(self, number, lie, dtype, command, scalar, self._dropped)

    def _take_dropped(self) -> tuple[int, ...]:
        """The values that nobody uses any more; other threads may drop more meanwhile."""
        found: list[int] = []
        while self._dropped and len(found) < MOST_DROPPED:
            found.append(self._dropped.popleft())
        return tuple(found)

    def _stage(self, data: torch.Tensor) -> Place:
        place = self._staging.place(len(data))
        # by this thread alone: torch shares a copy with threads of its own, which wait in a loop for workers' cores
        self._staging.segment.bytes_at(place.start, len(data)).numpy()[:] = data.numpy()
        return place

    def _post(self, command: bytes) -> int:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise PoolClosed
        try:
            if len(self._dropped) > MOST_DROPPED:
                self._channel.post(Free(self._take_dropped()).pack())
            self._last = self._channel.post(command)
        except Ended:
            raise self._failed() from None
        return self._last

    def _hand(self, to: socket.socket, file: int) -> None:
        try:
            socket.send_fds(to, [b"."], [file])
        except OSError:
            raise self._failed() from None

    def _wait_all(self, command: int) -> None:
        try:
            for rank in range(self.mesh.count):
                self._channel.wait(rank, command)
        except Ended:
            raise self._failed() from None

    def _failed(self) -> Exception:
        """The first cause, which is the same however often it is asked for."""
        if self._failure is None:
            fault = self._supervisor.wait_for_fault()
            if fault is None:
                return PoolClosed()
            self._failure = self._error_of(fault)
        return self._failure

    def _error_of(self, fault: Fault) -> Exception:
        device = self.devices[fault.rank]
        run = max(
            (run for run in self._running if run.command <= fault.number), key=lambda run: run.command, default=None
        )
        step = None if run is None else run.step
        place = None if run is None else self._plans[run.plan].place
        report = fault.report
        if report is None:
            return WorkerFailure(device, step, place, fault.words)
        if report.diagnostic is not None:
            where = f"on `{device}`" + (f", at step {step}" if step else "")
            diagnostic = report.diagnostic
            return ProgramError(replace(diagnostic, notes=(*diagnostic.notes, where)))
        return WorkerFailure(device, step, place, report.words, report.lines)


def set_deadline(given: float | None) -> float:
    """The deadline: as given, or as the environment says."""
    if given is not None:
        return given
    text = os.environ.get("SHAPESCRIPT_DEADLINE")
    if text is None:
        return DEADLINE
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise UnknownDeadline(text)
    return seconds
