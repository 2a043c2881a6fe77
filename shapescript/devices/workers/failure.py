"""What went wrong with a worker, in words.

Gives `WorkerFailure`: the device, the step, the line of the program where it is known, and the first cause. A mistake
of the program isn't one of these: it is a `ProgramError`, with a note on where it was met.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

STOPPED = ("T", "t")
"""A process's state in /proc that isn't run until it is told to go on."""


class WorkerFailure(Exception):
    """A device's worker failed, and with it the run; `str(error)` says all of it on one line.

    `step` is the number of the controller's call, None where there was none yet; `lines` are those of Python that led
    to it, where it was an exception.
    """

    def __init__(self, device: str, step: int | None, place: str | None, cause: str, lines: Sequence[str] = ()) -> None:
        self.device = device
        self.step = step
        self.place = place
        self.cause = cause
        self.lines = tuple(lines)
        at = "".join([f", at step {step}" if step else ", before its first step", f", {place}" if place else ""])
        super().__init__(f"the worker of `{device}`{at}: {cause}")


class PoolClosed(Exception):
    """A value is looked at, or something is asked, after the workers were ended by `close`."""

    def __init__(self) -> None:
        super().__init__("the program's workers were ended, and their values with them")


class UnknownDeadline(ValueError):
    """The environment asks for a deadline that is no number of seconds."""

    def __init__(self, text: str) -> None:
        super().__init__(f"SHAPESCRIPT_DEADLINE is `{text}`; it should be a number of seconds, such as 5")


def words_for_exit(status: int) -> str:
    """Why a process went, by its exit status as `subprocess` has it."""
    if status >= 0:
        return f"it ended by itself, with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    memory = " (maybe by the system, when its memory was full)" if name == "SIGKILL" else ""
    return f"it was killed by {name}{memory}"


def words_for_silence(state: str | None, seconds: float) -> str:
    """Why a process didn't beat; `state` is its letter in /proc."""
    if state in STOPPED:
        return f"it was stopped (by SIGSTOP or a debugger), and didn't go on for {seconds:.1f} s"
    return f"it hasn't run for {seconds:.1f} s"


def state_of(process: int) -> str | None:
    """The letter of a process's state, where there is /proc."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None
