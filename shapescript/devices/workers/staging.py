"""Memory through which values pass between the controller and its workers, handed out in the order of commands.

Gives `Staging`, the controller's view: a place is used by one command, and is free again when all workers have
finished that one and the controller doesn't hold it. Doesn't move any values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from shapescript.devices.workers.segments import Segment

ALIGNMENT = 64
USUAL = 64 << 20


@dataclass
class Place:
    """Some bytes of the memory, the command that uses them (0: not posted yet), and whether they are held."""

    start: int
    size: int
    number: int = 0
    held: bool = True


class Staging:
    """`wait(number)` is how to wait until all workers have finished a command; `finished` asks."""

    def __init__(self, segment: Segment, wait: Callable[[int], None], finished: Callable[[int], bool]) -> None:
        self.segment = segment
        self._size = segment.size
        self._wait = wait
        self._finished = finished
        self._places: deque[Place] = deque()

    def place(self, size: int) -> Place:
        """Bytes for the next command; waits for old ones where there is no room."""
        size = max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
        while True:
            while self._places and self._is_free(self._places[0]):
                self._places.popleft()
            if not self._places:
                self._fit(size)
            start = self._start(size)
            if start is not None:
                place = Place(start, size)
                self._places.append(place)
                return place
            self._wait(self._places[0].number)

    def _is_free(self, place: Place) -> bool:
        return not place.held and self._finished(place.number)

    def _fit(self, size: int) -> None:
        """While nothing is in it: as long as this asks for, and no longer than usual otherwise."""
        wanted = max(USUAL, size)
        if self._size != wanted:
            self.segment.resize(wanted)
            self._size = wanted

    def _start(self, size: int) -> int | None:
        """Where there is room, in a ring."""
        if not self._places:
            return 0
        first, last = self._places[0].start, self._places[-1]
        end = last.start + last.size
        if last.start >= first:
            if end + size <= self._size:
                return end
            return 0 if size < first else None
        return end if end + size < first else None
