"""The run's own words, on the standard error, apart from the program's output."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from shapescript.rent.ask import duration

_one_at_a_time = threading.Lock()


def say(text: str) -> None:
    """One line that begins with `modal:`; a terminal that is gone must not keep a machine from being ended."""
    with _one_at_a_time:
        try:
            print(f"modal: {text}", file=sys.stderr, flush=True)
        except OSError:
            return


class Waiting:
    """Says what is waited for when it takes long: once after some seconds, then each minute."""

    def __init__(self, what: str, first: float = 15, then: float = 60) -> None:
        self.what, self.first, self.then = what, first, then
        self.over = threading.Event()
        self.since = time.monotonic()
        self.thread = threading.Thread(target=self.tell, daemon=True)

    def tell(self) -> None:
        pause = self.first
        while not self.over.wait(pause):
            say(f"still waiting {self.what}, {duration(time.monotonic() - self.since)} by now; Ctrl-C gives up")
            pause = self.then

    def __enter__(self) -> Waiting:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
