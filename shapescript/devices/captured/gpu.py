"""A worker's GPU: found by its name, alone in the worker's process, with its end of NCCL.

Takes the device's name, `cuda[1]`, and the transport by which the workers meet on the CPU; gives `Gpu`. The worker
sees no other GPU, so that it touches nothing on another: CUDA counts those that `CUDA_VISIBLE_DEVICES` names, which is
read once, before CUDA is begun.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from shapescript.devices.captured.executor import CapturedExecutor
from shapescript.devices.captured.machine import CudaMachine, Machine
from shapescript.devices.captured.rows import DatasetRows
from shapescript.devices.executors import executor_name
from shapescript.devices.held import Held
from shapescript.devices.nccl import NcclTransport, nccl_transport
from shapescript.devices.reference.executor import Executor
from shapescript.devices.runner import Executes
from shapescript.devices.transport import Transport
from shapescript.layout.laid import LaidGraph

VISIBLE = "CUDA_VISIBLE_DEVICES"


def show_one(name: str) -> None:
    """Lets this process see one GPU alone; of those that it was let see, the one of this number.

    Raises:
        RuntimeError: CUDA was begun before.
    """
    number = int(name.partition("[")[2].rstrip("]") or 0)
    seen = [each.strip() for each in os.environ.get(VISIBLE, "").split(",") if each.strip()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise RuntimeError(f"CUDA was begun before the worker of `{name}` said which GPU it is")
    os.environ[VISIBLE] = seen[number] if seen else str(number)


def machine_called(name: str) -> Machine:
    """The GPU of this name, the only one that this process sees."""
    show_one(name)
    return CudaMachine(torch.device("cuda", 0), name)


class Gpu:
    """A GPU and its end of the collectives; `axes` is how many axes the mesh has."""

    def __init__(self, name: str, meeting: Transport, axes: int) -> None:
        self.machine = machine_called(name)
        self.device = self.machine.device
        kernels, grid = self.machine.kernels, self.machine.grid
        self.transport: NcclTransport = nccl_transport(meeting, axes, kernels, lambda: int(grid().stream), self.device)
        self._executors: list[CapturedExecutor] = []

    def executor(self, laid: LaidGraph) -> Executes:
        """What runs a graph here: recorded, unless the environment asks for torch's operations one by one."""
        if executor_name(torch.device("cuda")) == "reference":
            return Executor(laid.graph, self.device, self.transport)
        batches = tuple(part.atom for part in laid.parts if part.batch) if laid.padded else ()
        made = CapturedExecutor(
            laid.graph,
            self.device,
            self.transport,
            replaces=laid.resting.written,
            machine=self.machine,
            batches=batches,
        )
        self._executors.append(made)
        return made

    def rows(self, columns: Sequence[torch.Tensor], first: int, numbers: torch.Tensor) -> dict[int, Held]:
        """Rows of a dataset's columns, numbered from `first` on, which a step takes itself."""
        order = numbers.clone()  # the memory is the controller's, and used again
        return {
            place: DatasetRows(column, order, 0, len(order), follows=False)
            for place, column in enumerate(columns, first)
        }

    def settle(self) -> None:
        """Waits for what was asked of it, and raises what it met.

        Raises:
            Hang, ProgramError, RuntimeError: a step doesn't end, met a wrong value, or NCCL failed.
        """
        for executor in self._executors:
            executor.finish()

    def close(self) -> None:
        """Lets go of it: recordings first, then the communicators that they hold."""
        for executor in self._executors:
            executor.close()
        self.transport.close()
