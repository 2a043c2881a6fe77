"""Output whose values are still being computed, in the order of the program.

Takes what to write and the values it looks at; writes it once they are there, so that the controller needn't stop for
a loss that it prints: it goes on to the next step, and the line follows while that one runs. Lines never change their
order. As many may wait as pass in a twentieth of a second, and one always: where steps are slow, a line comes when
its step is done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from shapescript.devices.held import Held

SECONDS = 0.05
MOST = 64


class Waiting:
    """Lines that wait. Each is a function that writes it, and the values that it looks at."""

    def __init__(self) -> None:
        self.lines: deque[tuple[list[Held], Callable[[], None]]] = deque()
        self.seconds_a_line = SECONDS
        self.last = time.monotonic()

    def put(self, values: Iterable[object], write: Callable[[], None]) -> None:
        """Writes a line now, or after those that wait and when its values are there."""
        held = list(held_in(values))
        if held or self.lines:
            self.lines.append((held, write))
            self.settle()
        else:
            write()

    def settle(self) -> None:
        """Writes what can be written, and waits where too many lines do."""
        while self.lines and (self._first_is_ready() or len(self.lines) > self._allowed()):
            self._write_first()

    def finish(self) -> None:
        """Writes all, waiting for each."""
        while self.lines:
            self._write_first()

    def give_up(self) -> None:
        """Writes what is ready after a fault, and drops what never will be."""
        while self.lines and self._first_is_ready():
            self._write_first()
        self.lines.clear()

    def _allowed(self) -> int:
        return max(1, min(MOST, int(SECONDS / max(self.seconds_a_line, 1e-6))))

    def _first_is_ready(self) -> bool:
        return all(value.ready() for value in self.lines[0][0])

    def _write_first(self) -> None:
        _, write = self.lines.popleft()
        write()
        now = time.monotonic()
        self.seconds_a_line = 0.5 * self.seconds_a_line + 0.5 * (now - self.last)
        self.last = now


def held_in(values: Iterable[object]) -> Iterator[Held]:
    """The values that lie elsewhere, those within tuples and mappings too."""
    for value in values:
        if isinstance(value, tuple):
            yield from held_in(value)
        elif isinstance(value, dict):
            yield from held_in(value.values())
        elif isinstance(value, Held):
            yield value
