"""A machine without a GPU for the captured executor: its kernels run on the CPU, and what is recorded is a list.

What is recorded isn't done, and a replay does the same launches with the same addresses and numbers as were recorded,
as a CUDA graph does: a value that should be read from memory and was taken over as a number shows.
"""

from __future__ import annotations

from typing import Any

import torch
from shimmed_cuda import shimmed

from shapescript.devices.captured.kept import Kept
from shapescript.devices.captured.machine import Work


class ListRecording:
    """Recorded work."""

    def __init__(self, machine: ShimmedMachine, works: list[Work]) -> None:
        self.machine, self.works = machine, works

    def replay(self) -> None:
        self.machine.events.append("replay")
        for work in self.works:
            work()

    def close(self) -> None:
        self.machine.events.append("close")
        self.works = []


class ShimmedMachine:
    """The CPU in the place of a GPU; `events` are what was asked of it."""

    def __init__(self, threads: int = 8, blocks: int = 2, name: str = "cpu") -> None:
        self.kernels = WithGrid(shimmed())
        self.device, self.name = torch.device("cpu"), name
        self.threads, self.blocks = threads, blocks
        self.kept, self.hung = Kept(), False
        self.recording: list[Work] | None = None
        self.events: list[str] = []

    def grid(self) -> Any:
        return self.kernels.grid(self.threads, self.blocks)

    def do(self, work: Work) -> None:
        if self.recording is not None:
            self.recording.append(work)
            return
        work()

    def record(self, work: Work) -> ListRecording:
        self.events.append("record")
        self.recording = []
        work()
        recorded, self.recording = self.recording, None
        return ListRecording(self, recorded)

    def shown(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=torch.int64)

    def synchronize(self) -> None:
        self.events.append("synchronize")


class WithGrid:
    """The module, whose grids say what they are."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def grid(self, threads: int, blocks: int) -> Any:
        return self.module.Grid(threads, blocks, 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)
