"""Philox: the published known answers, the same bits from C++ and numpy, and bits that no split changes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapescript import random_bits

WORD = st.integers(0, 2**32 - 1)

# Random123, tests/kat_vectors, philox4x32 10: counter, key, answer
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]) -> None:
    index, row, place, call = counter
    seed = key[0] + (key[1] << 32)
    bits = random_bits.philox(seed, call, place, None, row, 1, first_index=index)
    assert bits.dtype == np.uint32
    assert bits.tolist() == [list(answer)]
    by_numpy = np.empty((1, 1, 4), dtype=np.uint32)
    random_bits.fill_with_numpy(by_numpy, seed, index, row, place, call)
    assert by_numpy[0, 0].tolist() == list(answer)


@given(st.integers(0, 2**64 - 1), WORD, WORD, st.integers(0, 5), WORD, st.integers(0, 7), WORD)
@settings(max_examples=50, deadline=None)
def test_numpy_gives_the_bits_of_the_native_module(
    key: int, call: int, place: int, rows: int, row: int, others: int, index: int
) -> None:
    core = pytest.importorskip("shapescript._core")
    row, index = min(row, 2**32 - rows), min(index, 2**32 - others)
    row, index = min(row, 2**32 - 1), min(index, 2**32 - 1)
    native = np.empty((rows, others, 4), dtype=np.uint32)
    by_numpy = np.empty_like(native)
    core.fill_philox(native, key, index, row, place, call)
    random_bits.fill_with_numpy(by_numpy, key, index, row, place, call)
    assert np.array_equal(native, by_numpy)


def test_the_fallback_is_used_without_the_native_module(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = random_bits.philox(7, 1, 2, 3, 4, 5)
    monkeypatch.setattr(random_bits, "_core", None)
    assert not random_bits.native()
    assert np.array_equal(random_bits.philox(7, 1, 2, 3, 4, 5), expected)


@given(st.integers(0, 2**64 - 1), st.integers(1, 9), st.integers(0, 9), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_rows_split_over_devices_have_the_bits_of_the_whole(seed: int, rows: int, cut: int, others: int) -> None:
    cut = min(cut, rows)
    whole = random_bits.philox(seed, 3, 1, rows, 0, others)
    parts = [random_bits.philox(seed, 3, 1, cut, 0, others), random_bits.philox(seed, 3, 1, rows - cut, cut, others)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_no_batch_axis_is_one_row_and_no_elements_are_none() -> None:
    assert np.array_equal(random_bits.philox(1, 0, 0, None, 0, 6), random_bits.philox(1, 0, 0, 1, 0, 6))
    assert random_bits.philox(1, 0, 0, 0, 0, 6).shape == (0, 4)
    assert random_bits.philox(1, 0, 0, 3, 0, 0).shape == (0, 4)


def test_each_word_of_the_counter_and_the_key_matters() -> None:
    draws = [
        random_bits.philox(0, 0, 0, 1, 0, 1),
        random_bits.philox(1, 0, 0, 1, 0, 1),
        random_bits.philox(2**32, 0, 0, 1, 0, 1),
        random_bits.philox(0, 1, 0, 1, 0, 1),
        random_bits.philox(0, 0, 1, 1, 0, 1),
        random_bits.philox(0, 0, 0, 1, 1, 1),
        random_bits.philox(0, 0, 0, 1, 0, 1, first_index=1),
    ]
    assert len({tuple(draw[0].tolist()) for draw in draws}) == len(draws)


def test_a_seed_is_taken_modulo_64_bits() -> None:
    assert np.array_equal(random_bits.philox(-1, 0, 0, 1, 0, 4), random_bits.philox(2**64 - 1, 0, 0, 1, 0, 4))


@pytest.mark.parametrize("arguments", [(0, 2**32, 0, 1, 0, 1), (0, 0, -1, 1, 0, 1), (0, 0, 0, 2, 2**32 - 1, 1)])
def test_a_counter_that_would_wrap_is_refused(arguments: tuple[int, int, int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        random_bits.philox(*arguments)


def test_threads_may_draw_at_once() -> None:
    expected = random_bits.philox(5, 0, 0, 200, 0, 300)
    found: list[bool] = []

    def draw() -> None:
        found.append(np.array_equal(random_bits.philox(5, 0, 0, 200, 0, 300), expected))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
