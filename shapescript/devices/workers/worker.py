"""A worker process's beginning.

Takes what the pool started it with (`Start`, as JSON on the command line); guards itself, so that it never outlives
the controller, and only then imports torch and serves. SIGINT is the controller's to answer.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import asdict, dataclass

from shapescript.devices.workers.native import native

BOOT = "import sys; sys.path[:] = sys.argv[2:]; from shapescript.devices.workers.worker import main; main(sys.argv[1])"
"""What Python is given to run: modules are found where the controller finds them, and nowhere else."""


@dataclass(frozen=True)
class Start:
    """What a worker must know at first; the numbers of files are those it inherits. -1 is a file that isn't there."""

    rank: int
    devices: tuple[str, ...]
    mesh: tuple[int, ...]
    parent: int
    socket: int
    lifeline: int
    link: int
    exchange: int
    staging: int
    scalars: int
    commands: int
    meeting: int
    spin: bool
    threads: int

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> Start:
        """From the command line."""
        fields = json.loads(text)
        return Start(**{**fields, "devices": tuple(fields["devices"]), "mesh": tuple(fields["mesh"])})


def main(text: str) -> None:
    """Runs the worker until it is told to go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was blocked until it could be ignored
    start = Start.of(text)
    if native is not None:
        native.guard(native.Link(start.link), start.rank, start.lifeline, start.parent)
    else:
        threading.Thread(target=end_with_controller, args=(start.lifeline,), daemon=True).start()
    from shapescript.devices.workers.serve import serve

    serve(start)


def end_with_controller(lifeline: int) -> None:
    """Ends the process when the controller has gone: its end of the pipe is closed then."""
    os.read(lifeline, 1)
    os._exit(1)
