"""A worker process's beginning.

Takes what the pool started it with (`Start`, as JSON on the command line, or of a fork server); guards itself, so that
it never outlives the controller, and only then serves. SIGINT is the controller's to answer.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from shapescript.devices.workers.native import native

BOOT = "import sys; sys.path[:] = sys.argv[2:]; from shapescript.devices.workers.worker import main; main(sys.argv[1])"
"""What Python is given to run for a worker that is an interpreter of its own.

Modules are found where the controller finds them, and nowhere else.
"""
SET_DEATH_SIGNAL, SET_NAME = 1, 15
"""What `prctl` can be told, as <linux/prctl.h> numbers it."""
ABSENT = -1
FILES = ("socket", "lifeline", "link", "exchange", "staging", "scalars", "commands", "meeting")
"""The fields of `Start` that are numbers of files."""


@dataclass(frozen=True)
class Start:
    """What a worker must know at first; the numbers of files are those it has. ABSENT is a file that isn't there."""

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
    profile: bool

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    def files(self) -> list[int]:
        """The numbers of the files that are there, in the order of the fields."""
        return [number for name in FILES if (number := int(getattr(self, name))) != ABSENT]

    def with_files(self, numbers: Sequence[int], parent: int) -> Start:
        """The same with other numbers for its files, in the order of `files`, and another parent."""
        there = [name for name in FILES if getattr(self, name) != ABSENT]
        return Start(**{**asdict(self), "parent": parent, **dict(zip(there, numbers, strict=True))})

    @staticmethod
    def of(text: str) -> Start:
        """From the command line."""
        fields = json.loads(text)
        return Start(**{**fields, "devices": tuple(fields["devices"]), "mesh": tuple(fields["mesh"])})


def main(text: str) -> None:
    """Runs a worker that is an interpreter of its own."""
    leave_interrupts()
    begin(Start.of(text))


def leave_interrupts() -> None:
    """Ignores SIGINT, which was blocked until it could be ignored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def begin(start: Start) -> None:
    """Runs the worker until it is told to go."""
    tell_system(SET_NAME, start.devices[start.rank].encode())  # what `ps` and `top` call it
    if native is not None:
        native.guard(native.Link(start.link), start.rank, start.lifeline, start.parent)
    else:
        threading.Thread(target=end_with_controller, args=(start.lifeline,), daemon=True).start()
    from shapescript.devices.workers.serve import serve

    serve(start)


def tell_system(option: int, value: int | bytes) -> None:
    """Calls `prctl`, where the system has that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def end_with_controller(lifeline: int) -> None:
    """Ends the process when the controller has gone: its end of the pipe is closed then."""
    os.read(lifeline, 1)
    os._exit(1)
