"""Draws of a model's first values that are longer than a word of the counter counts."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from shapescript.random_bits import philox
from shapescript.specialise.initialise import _drawn, initial
from shapescript.types.element import F64


def first_word(bits: NDArray[np.uint32]) -> torch.Tensor:
    return torch.from_numpy(bits[:, 0].astype("float64"))


def test_a_long_draw_goes_on_in_the_next_row() -> None:
    """With rows of 8 elements in the place of 2**32, 20 of them: each has the bits of its own counter."""
    found = _drawn((4, 5), 7, first_word, at_once=4, row=8).flatten()
    for element in range(20):
        bits = philox(7, 0, 0, None, element // 8, 1, element % 8)
        assert found[element] == float(bits[0, 0])


def test_a_draw_is_the_same_however_many_are_drawn_at_once() -> None:
    whole = first_word(philox(7, 0, 0, None, 0, 30))
    for at_once in (1, 7, 30, 100):
        assert torch.equal(_drawn((30,), 7, first_word, at_once=at_once), whole)


def test_a_normal_draw_is_normal() -> None:
    drawn = initial("normal", {"std": 2.0}, (100, 100), F64, 0, "w")
    assert abs(drawn.mean().item()) < 0.1 and abs(drawn.std().item() - 2.0) < 0.05
