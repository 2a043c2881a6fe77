"""Which random numbers a run of a graph draws.

Gives `RandomKey`: the run's seed and the number of the controller's call. The place in the program and the element's
place in the value come from the graph, and together they decide each number, so a draw is the same on any devices.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RandomKey:
    """`call` counts the controller's calls; `first_row` is where this device's part of a batch begins."""

    seed: int = 0
    call: int = 0
    first_row: int = 0
