"""The measuring: rounds in which all contestants take turns, and what is made of the times.

Machines are noisy: a figure alone says little. So all contestants of a workload live at once, each round asks each of
them for one block, in an order that turns from round to round, and what is compared are medians of one run. Takes
anything that can be asked for a block; gives seconds per step, medians with quartiles, and ratios. Starts no process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bench.wire import Answer, Block
from bench.workloads import EPOCHS

TOLERANCE = 1e-5
"""How far the losses of two contestants may be apart, relatively: they train alike."""

Key = TypeVar("Key")


class Asked(Protocol):
    """A contestant."""

    def ask(self, block: Block) -> Answer:
        """Has a block run."""
        ...


@dataclass(frozen=True)
class Summary:
    """A median, the quartiles around it, and how many values they are of."""

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Summary:
        """The summary of one value or more."""
        if not values:
            raise ValueError("there is nothing to summarise")
        if len(values) == 1:
            return Summary(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return Summary(median, low, high, len(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Summary:
    """The ratio of the medians; the quartiles are those of the ratios round by round."""
    if len(ours) != len(theirs):
        raise ValueError(f"a ratio is of values of the same rounds, and these are {len(ours)} and {len(theirs)}")
    rounds = Summary.of([mine / other for mine, other in zip(ours, theirs, strict=True)])
    return Summary(statistics.median(ours) / statistics.median(theirs), rounds.low, rounds.high, rounds.count)


def turned(keys: Sequence[Key], number: int) -> list[Key]:
    """The order of a round: each round begins with the next one, and every other goes backwards.

    Nobody is always the one who comes after the slowest.
    """
    start = number % len(keys) if keys else 0
    order = [*keys[start:], *keys[:start]]
    return order[::-1] if number % 2 else order


def steps_for(seconds: float, step: float, most: int) -> int:
    """How many steps make a block of about so many seconds, two at least and an epoch at most."""
    return max(2, min(most, round(seconds / step)))


def calibrate(contestant: Asked, seconds: float, most: int) -> int:
    """The steps of this contestant's blocks, by the best of three short ones; a process's first steps don't count."""
    few = min(most, 5)
    contestant.ask(Block("plain", 0, few))
    least = min(contestant.ask(Block("plain", seed, few)).seconds for seed in range(1, 4))
    return steps_for(seconds, least / few, most)


def one_round(contestant: Asked, mode: str, number: int, steps: int) -> float:
    """Seconds per step of one block; a tenth of it runs before, so that the caches are this contestant's again."""
    seed = number % EPOCHS
    contestant.ask(Block("plain", seed, max(1, steps // 10)))
    return contestant.ask(Block(mode, seed, steps)).seconds / steps


def rest(seconds: float = 0.03) -> None:
    """Lets the threads of the one before fall asleep: OpenMP's spin for a while after their last work."""
    time.sleep(seconds)


def disagreement(losses: Mapping[str, Sequence[float]], reference: str) -> dict[str, str]:
    """Whose losses aren't those of `reference`, and where."""
    found: dict[str, str] = {}
    wanted = losses[reference]
    for name, given in losses.items():
        if len(given) != len(wanted):
            found[name] = f"{len(given)} losses, and `{reference}` has {len(wanted)}"
            continue
        for step, (mine, right) in enumerate(zip(given, wanted, strict=True)):
            if not abs(mine - right) <= TOLERANCE * abs(right):  # so that nan is caught
                found[name] = f"loss {mine:.7g} at step {step}, and `{reference}` has {right:.7g}"
                break
    return found


def best_of(medians: Mapping[str, float]) -> str:
    """The name with the least median."""
    return min(medians, key=lambda name: medians[name])
