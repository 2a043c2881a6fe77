"""Ctrl-C, SIGTERM and a closed terminal, while a machine is rented.

While something is waited for, the first signal raises `KeyboardInterrupt`, as without this. Inside `held()` signals
are counted and the one who holds them looks; the third ends the process at once, whatever it waits for.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from shapescript.rent.errors import INTERRUPTED
from shapescript.rent.say import say

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
PATIENCE = 3


class Interrupts:
    """The signals since it was entered."""

    def __init__(self) -> None:
        self.count = 0
        self.holding = False
        self.last_words = ""
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            self.before[number] = signal.signal(number, self.arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def arrived(self, number: int, frame: FrameType | None) -> None:
        """A signal."""
        self.count += 1
        if self.count >= PATIENCE and self.last_words:
            say(self.last_words)
            os._exit(INTERRUPTED)
        if not self.holding:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Counts signals and raises none."""
        before, self.holding = self.holding, True
        try:
            yield
        finally:
            self.holding = before
