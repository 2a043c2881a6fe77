"""How often each loop over data has begun: what an epoch's own order and its own random augmentation depend on.

A place of the program (`main:12`) that shuffles without a seed, or puts a dataset into batches, asks for its next
number. A loop that is going on when a checkpoint is written begins again with the same number in the run that goes
on from it; so `state` counts what has been gone through to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


class Passes:
    """The counts of one run, and the seed that its draws depend on besides."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.begun: dict[str, int] = {}
        self.going_on: list[tuple[str, ...]] = []

    def next(self, place: str) -> int:
        """The number of a pass that begins: 0, 1, 2 and so on at each place."""
        number = self.begun.get(place, 0)
        self.begun[place] = number + 1
        return number

    @contextmanager
    def loop(self, places: Sequence[str]) -> Iterator[None]:
        """While a loop goes through data whose passes these places numbered."""
        entry = tuple(places)
        self.going_on.append(entry)
        try:
            yield
        finally:
            self.going_on.remove(entry)

    def state(self) -> dict[str, int]:
        """The counts for a checkpoint."""
        counts = dict(self.begun)
        for place in {place for places in self.going_on for place in places}:
            counts[place] -= 1
        return {place: count for place, count in counts.items() if count > 0}

    def restore(self, state: Mapping[str, int]) -> None:
        """Goes on from a checkpoint's counts."""
        self.begun = dict(state)
