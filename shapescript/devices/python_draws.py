"""Randomness of Python code that makes examples: seeded anew for each example of each epoch.

Gives `epoch_key`, a number for one pass over a dataset, and `seeded`, in which `random`, numpy's global generator and
torch's CPU generator are the examples' own: what the program draws from them elsewhere isn't disturbed. An example's
draws depend on the epoch's key and its number alone, so they are the same whichever process reads it, in whatever
order. A generator that a dataset keeps for itself isn't seen from here.
"""

from __future__ import annotations

import hashlib
import random
from _random import Random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_OWN = np.random.MT19937(0)
_GLOBAL: Any = np.random  # the stubs don't have the exchange of its generator
_PYTHONS: Any = random._inst
_MASK = 2**64 - 1


def epoch_key(*numbers: int) -> int:
    """One number from several: the run's seed, those of the shuffles, the count of passes."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def seed_example(key: int, number: int) -> None:
    """Seeds the three generators for one example, within `seeded`."""
    word = (key + (number + 1) * 0x9E3779B97F4A7C15) & _MASK  # splitmix64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    word ^= word >> 31
    Random.seed(_PYTHONS, word)  # `random.seed`, without its checks
    _PYTHONS.gauss_next = None
    np.random.seed(word & 0xFFFFFFFF)
    torch.default_generator.manual_seed(word >> 1)


@contextmanager
def seeded() -> Iterator[None]:
    """Within it, the global generators are the examples'; after it, they are as before."""
    kept = random.getstate()
    torch_kept = torch.default_generator.get_state()
    numpy_kept = _GLOBAL.get_bit_generator()
    _GLOBAL.set_bit_generator(_OWN)
    try:
        yield
    finally:
        _GLOBAL.set_bit_generator(numpy_kept)
        torch.default_generator.set_state(torch_kept)
        random.setstate(kept)


class Watch:
    """Whether something has been drawn, within `seeded`, since this was made.

    To copy and compare the generators' states is slow. So they are started from a known seed, and whoever asks draws
    the next number: if it isn't the one that is due, another was drawn in between.
    """

    def __init__(self) -> None:
        seed_example(0, 0)
        self.asked = 0

    def moved(self) -> bool:
        """Whether a generator isn't where it was; it may be asked so many times as there are numbers in `DUE`."""
        due = DUE[self.asked]
        self.asked += 1
        drawn = (_PYTHONS.random(), _OWN.random_raw())
        return drawn != due or not torch.equal(torch.default_generator.get_state(), TORCH_STATE)


def _due() -> tuple[list[tuple[float, int]], torch.Tensor]:
    """The first numbers of the known seed, and torch's state there."""
    with seeded():
        seed_example(0, 0)
        return [(_PYTHONS.random(), _OWN.random_raw()) for _ in range(2)], torch.default_generator.get_state()


DUE, TORCH_STATE = _due()
