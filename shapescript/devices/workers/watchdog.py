"""Notices that a worker on the CPU doesn't get on with a command, though it runs.

Takes how long a command may take and where to tell; gives `Watchdog`, which is told when each begins and ends. It tells
once: where Python code of the program was met, that it hangs there; otherwise that the worker may be waiting for
another. A thread of its own looks, so that a lock that is never opened is seen; code that never lets another thread of
Python run is seen by the other workers only, who wait for it. A GPU's steps have a deadline of their own.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from shapescript.devices.workers.reports import Failed

PACKAGE = Path(__file__).resolve().parents[2]
LONGEST = 600.0
"""Seconds that a command may take; SHAPESCRIPT_STEP_DEADLINE changes it."""
MOST_LINES = 3


class Watchdog:
    """`seconds` is how long a command may take, which is counted in the thread that makes this."""

    def __init__(self, seconds: float, tell: Callable[[Failed], None]) -> None:
        self._seconds = seconds
        self._tell = tell
        self._watched = threading.get_ident()
        self._doing: tuple[int, float] | None = None
        threading.Thread(target=self._look, name="watchdog", daemon=True).start()

    def begin(self, number: int) -> None:
        """A command begins."""
        self._doing = number, time.monotonic()

    def end(self) -> None:
        """It is finished."""
        self._doing = None

    def _look(self) -> None:
        while True:
            time.sleep(min(1.0, self._seconds / 4))
            doing = self._doing
            if doing is not None and time.monotonic() - doing[1] > self._seconds:
                lines = python_lines(self._watched)
                words = f"it hasn't finished the step for {self._seconds:g} s"
                self._tell(Failed(doing[0], None, words, lines, lost=not lines))
                return


def python_lines(thread: int) -> tuple[str, ...]:
    """The last lines of Python that a thread is in, but for the package's own."""
    frame = sys._current_frames().get(thread)
    found: list[str] = []
    for each in reversed(traceback.extract_stack(frame)):
        if PACKAGE in Path(each.filename).resolve().parents:
            break
        found.insert(0, f"{each.filename}:{each.lineno}, in {each.name}: {each.line}")
    return tuple(found[-MOST_LINES:])
