"""A worker whose GPU is pretended: kernels through the shim, recordings by list, NCCL's stand-in found by `dlopen`.

`Pretended` is a launcher for a pool of `cuda[0]`, `cuda[1]`..; everything else of a worker is as it is. What was asked
of the machine is written to a file at the worker's end, where the environment names a folder for that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from shapescript.devices.workers import launching
from shapescript.devices.workers.launching import Interpreters, Process
from shapescript.devices.workers.worker import Start

BOOT = "import sys; sys.path[:] = sys.argv[2:]; from shimmed_worker import main; main(sys.argv[1])"
EVENTS = "SHIMMED_EVENTS"
HANG = "SHIMMED_HANG"
"""The rank whose second replay never ends."""


class Pretended(Interpreters):
    """Clean interpreters that pretend."""

    def launch(self, starts: Sequence[Start]) -> Sequence[Process]:
        before = launching.BOOT
        launching.BOOT = BOOT
        try:
            return super().launch(starts)
        finally:
            launching.BOOT = before


def main(text: str) -> None:
    from shimmed_machine import ListRecording, ShimmedMachine

    from shapescript.devices.captured import gpu
    from shapescript.devices.nccl import NcclTransport
    from shapescript.devices.workers import serve, worker

    def machine_called(name: str) -> ShimmedMachine:
        gpu.show_one(name)
        machine = ShimmedMachine(name=name)
        machine.events = events
        events.append(f"sees {os.environ['CUDA_VISIBLE_DEVICES']}")
        return machine

    def asked_for_reference(device: object) -> str:
        return "reference" if os.environ.get("SHAPESCRIPT_EXECUTOR") == "reference" else "captured"

    gpu.machine_called = machine_called
    gpu.executor_name = asked_for_reference
    rank = Start.of(text).rank
    if os.environ.get(HANG) == str(rank):
        replaying = ListRecording.replay

        def replay(self: ListRecording) -> None:
            if self.machine.events.count("replay") == 2:
                self.works = self.works[:-1]  # the step's end
            replaying(self)

        ListRecording.replay = replay  # type: ignore[method-assign]
    destroying = NcclTransport.close

    def destroy(self: NcclTransport) -> None:
        destroying(self)
        events.append("destroy")

    events: list[str] = []
    NcclTransport.close = destroy  # type: ignore[method-assign]
    closing = serve.Worker.close

    def close(self: serve.Worker) -> None:
        closing(self)
        folder = os.environ.get(EVENTS)
        if folder is not None and self.gpu is not None:
            Path(folder, f"{self.rank}.json").write_text(json.dumps([*events, "ended"]))

    serve.Worker.close = close  # type: ignore[method-assign]
    worker.main(text)
