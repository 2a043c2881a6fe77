"""What a worker does: takes commands, one after another, and keeps the values that they make.

Takes `Start`; runs until the channel ends. What a command raises is reported once, with the place in the program where
it has one, and the worker goes no further. Imports neither syntax nor checker.
"""

from __future__ import annotations

import os
import pickle
import resource
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from shapescript.devices.captured.hang import longest_step
from shapescript.devices.dtypes import DTYPES, as_bytes
from shapescript.devices.executors import make_executor
from shapescript.devices.flat_transport import FlatTransport
from shapescript.devices.gloo import Lost, gloo_transport
from shapescript.devices.held import Somewhere
from shapescript.devices.profile import Recorded, current_profile, record
from shapescript.devices.rows import rows_of
from shapescript.devices.runner import Executes
from shapescript.devices.transport import Sent
from shapescript.devices.workers import commands
from shapescript.devices.workers.channel import Ended, Reader, SharedReader, SocketReader
from shapescript.devices.workers.commands import Command
from shapescript.devices.workers.cutting import Lie
from shapescript.devices.workers.loaded import Loaded
from shapescript.devices.workers.native import native
from shapescript.devices.workers.reports import Answer, Failed, send_report
from shapescript.devices.workers.scalars import Scalars
from shapescript.devices.workers.segments import Segment
from shapescript.devices.workers.shared_transport import shared_transport
from shapescript.devices.workers.watchdog import LONGEST, Watchdog
from shapescript.devices.workers.worker import Start
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.layout.laid import LaidGraph
from shapescript.layout.mesh import Mesh, first_of, parts

if TYPE_CHECKING:
    from shapescript.devices.captured.gpu import Gpu

PACKAGE = Path(__file__).resolve().parents[2]


def serve(start: Start) -> None:
    """Serves until the channel ends, or something is raised."""
    torch.set_num_threads(start.threads)
    if start.profile:
        record()
    to_controller = socket.socket(fileno=start.socket)
    number = 0
    worker: Worker | None = None
    try:
        worker = Worker(start, to_controller)
        watchdog: Watchdog | None = None
        if worker.gpu is None:
            watchdog = Watchdog(longest_step(LONGEST), lambda report: send_report(to_controller, report))
        while True:
            data = worker.reader.take()
            number += 1
            if watchdog is not None:
                watchdog.begin(number)
            worker.perform(number, commands.unpack(data))
            if watchdog is not None:
                watchdog.end()
            worker.reader.finish(number)
    except Ended:
        status = 0
        if worker is not None:
            worker.close()
    except BaseException as error:  # whatever it is, the controller must hear of it
        send_report(to_controller, failure(number, error))
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class Worker:
    """The values, plans and datasets of one device."""

    def __init__(self, start: Start, to_controller: socket.socket) -> None:
        self.start = start
        self.rank = start.rank
        self.mesh = Mesh(start.mesh)
        self.to_controller = to_controller
        self.reader: Reader
        self.transport: FlatTransport
        if native is not None:
            link = native.Link(start.link)
            self.reader = SharedReader(link, start.rank)
        else:
            self.reader = SocketReader(socket.socket(fileno=start.commands))
        if native is not None and start.exchange >= 0:
            self.transport = shared_transport(start.rank, self.mesh, link, native.Mapping(start.exchange), start.spin)
        else:
            self.transport = gloo_transport(start.rank, self.mesh, f"/dev/fd/{start.meeting}")
        self.gpu: Gpu | None = None
        if start.devices[start.rank].startswith("cuda"):
            from shapescript.devices.captured.gpu import Gpu

            self.gpu = Gpu(start.devices[start.rank], self.transport, len(self.mesh.sizes))
            self.transport = self.gpu.transport
        self.staging = Segment(start.staging)
        self.scalars = Scalars(Segment(start.scalars), self.mesh.count)
        self.values: dict[int, Somewhere] = {}
        self.plans: dict[int, Loaded] = {}
        self.datasets: dict[int, list[torch.Tensor]] = {}
        self.sent: dict[int, Sent] = {}

    def perform(self, number: int, command: Command) -> None:
        """Does what a command says."""
        match command:
            case commands.RunPlan():
                self._run(number, command)
            case commands.TakeRows():
                self._take_rows(command)
            case commands.Fetch():
                self._fetch(command)
            case commands.PutScalar():
                data = torch.frombuffer(bytearray(command.data), dtype=DTYPES[command.dtype])
                self.values[command.value] = data.reshape(()).to(self.device)
            case commands.Put():
                self._put(command)
            case commands.LoadPlan():
                self._load(command)
            case commands.OpenDataset():
                self._open(command)
            case commands.DropDataset():
                del self.datasets[command.dataset]
            case commands.Free():
                self._free(command.values)
            case commands.Ask():
                send_report(self.to_controller, Answer(number, self._answer(command.question)))
            case _:
                raise ValueError(f"an unknown command: {command!r}")

    def _run(self, number: int, command: commands.RunPlan) -> None:
        self._free(command.free)
        plan = self.plans[command.plan]
        inputs = [self.values[each] for each in command.inputs]
        self._free(tuple(command.inputs[place] for place in command.given_up))
        before = Sent(self.transport.sent.launches, self.transport.sent.values, self.transport.sent.bytes)
        outputs = plan.run(inputs, command.counts, command.key, command.given_up)
        if self.gpu is not None:
            self.gpu.settle()
        sent = self.sent.setdefault(command.plan, Sent())
        sent.launches += self.transport.sent.launches - before.launches
        sent.values += self.transport.sent.values - before.values
        sent.bytes += self.transport.sent.bytes - before.bytes
        for place, tensor in enumerate(outputs, command.first):
            self.values[place] = tensor
        self.scalars.write(number, self.rank, [tensor.cpu() for tensor in outputs if tensor.dim() == 0])

    def _free(self, values: tuple[int, ...]) -> None:
        for value in values:
            del self.values[value]

    def _take_rows(self, command: commands.TakeRows) -> None:
        n, at = self.mesh.sizes[command.mesh_axis], self.mesh.coordinates(self.rank)[command.mesh_axis]
        width, first = parts(command.count, n)[at], first_of(command.count, n, at)
        rows = self.staging.bytes_at(command.at + 8 * first, 8 * width).view(torch.int64)
        if self.gpu is not None:
            self.values.update(self.gpu.rows(self.datasets[command.dataset], command.first, rows))
            return
        for place, column in enumerate(self.datasets[command.dataset], command.first):
            self.values[place] = rows_of(column, rows.numpy())

    def _fetch(self, command: commands.Fetch) -> None:
        at, size = command.places[self.rank]
        if at < 0:
            return  # another device has the same
        value = self.values[command.value]
        held = value if isinstance(value, torch.Tensor) else value.fetch()
        data = as_bytes(held.cpu().contiguous())
        if len(data) != size:
            raise ValueError(f"a value has {len(data)} bytes here, and the controller expects {size}")
        self.staging.bytes_at(at, size).copy_(data)

    def _put(self, command: commands.Put) -> None:
        lie = command.lie
        assert isinstance(lie, Lie)
        if command.inline is None:
            data = self.staging.bytes_at(command.at, command.size)
        else:
            data = torch.frombuffer(bytearray(command.inline or b"\0"), dtype=torch.uint8)[: command.size]
        whole = data.view(DTYPES[command.dtype]).reshape(lie.shape)
        part = lie.cut(whole, self.rank)
        self.values[command.value] = part.to(self.device, copy=True, memory_format=torch.contiguous_format)

    def _load(self, command: commands.LoadPlan) -> None:
        sys.path[:] = command.path
        data = self.staging.bytes_at(command.at, command.size)
        self.plans[command.plan] = Loaded.decode(data.numpy().tobytes(), self.rank, self._executor)

    def _executor(self, laid: LaidGraph) -> Executes:
        if self.gpu is not None:
            return self.gpu.executor(laid)
        return make_executor(laid.graph, self.device, self.transport, laid.resting.written)

    def _open(self, command: commands.OpenDataset) -> None:
        _, files, _, _ = socket.recv_fds(self.to_controller, 1, 1)
        memory = Segment(files[0])
        columns = []
        for dtype, shape, at in command.columns:
            lie = Lie.of_shape(shape, (), Mesh(()))
            size = torch.empty(0, dtype=DTYPES[dtype]).element_size() * torch.Size(lie.shape).numel()
            columns.append(memory.bytes_at(at, size).view(DTYPES[dtype]).reshape(shape))
        memory.close()
        self.datasets[command.dataset] = [column.to(self.device) for column in columns]

    @property
    def device(self) -> torch.device:
        """The device of this worker; all CPUs are one to torch."""
        return torch.device("cpu") if self.gpu is None else self.gpu.device

    def close(self) -> None:
        """Lets go of a GPU, in the order that it asks for; what holds memory alone ends with the process."""
        if self.gpu is not None:
            self.gpu.close()

    def _answer(self, question: str) -> object:
        match question:
            case "sent":
                return dict(self.sent)
            case "modules":
                return sorted(sys.modules)
            case "threads":
                return torch.get_num_threads()
            case "profile":
                profile = current_profile()
                return Recorded() if profile is None else profile.own
            case "memory":
                tensors = [each for each in self.values.values() if isinstance(each, torch.Tensor)]
                values = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
                return values, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        raise ValueError(f"an unknown question: {question}")


def failure(number: int, error: BaseException) -> Failed:
    """What the controller is told of an error."""
    diagnostic = error.diagnostic if isinstance(error, ProgramError) else None
    if diagnostic is not None:
        try:
            pickle.dumps(diagnostic)
        except Exception:  # its words can be told in any case
            diagnostic = None
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if PACKAGE not in Path(frame.filename).resolve().parents]
    lines = [f"{each.filename}:{each.lineno}, in {each.name}: {each.line}" for each in (own or frames)[-3:]]
    return Failed(number, diagnostic, f"{type(error).__name__}: {error}", tuple(lines), isinstance(error, Lost))
