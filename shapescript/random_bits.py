"""Random bits: Philox 4x32-10, four 32-bit words for each element of a draw.

Takes the run's seed and the place of an element; gives its bits, by the module in C++ where it was built and by
numpy elsewhere, the same bits either way. An element's bits depend on nothing but its own counter, so a draw is the
same however it is split over devices. Doesn't know distributions: the ops make numbers of the bits.

The counter's four words, lowest first: the element's index within the axes that aren't the batch's, its row of the
batch axis (0 without one), the draw's place in the program, and the number of the controller's call.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

_core: ModuleType | None
try:
    _core = import_module("shapescript._core")
except ModuleNotFoundError:  # installed without a compiler; one that doesn't load stays an error
    _core = None

WORD = 2**32
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def native() -> bool:
    """Whether the module in C++ was built."""
    return _core is not None


def philox(
    seed: int, call: int, place: int, rows: int | None, first_row: int, others: int, first_index: int = 0
) -> NDArray[np.uint32]:
    """The bits of `rows` rows of `others` elements each, row by row, as an array `[rows * others, 4]`.

    `rows` is None for a value without a batch axis: one row, numbered `first_row`. A seed of more than 64 bits, or
    a negative one, is taken modulo 2**64.

    Raises:
        ValueError: a word of the counter wouldn't fit in 32 bits.
    """
    count = 1 if rows is None else rows
    for name, first, number in (
        ("call", call, 1),
        ("place", place, 1),
        ("row", first_row, count),
        ("element", first_index, others),
    ):
        if first < 0 or number < 0 or first + number > WORD:
            raise ValueError(
                f"the {name} numbers {first} to {first + number - 1} of a random draw don't fit in 32 bits"
            )
    key = seed % 2**64
    bits = np.empty((count, others, 4), dtype=np.uint32)
    if _core is not None:
        _core.fill_philox(bits, key, first_index, first_row, place, call)
    else:
        fill_with_numpy(bits, key, first_index, first_row, place, call)
    return bits.reshape(-1, 4)


def fill_with_numpy(
    bits: NDArray[np.uint32], key: int, first_index: int, first_row: int, place: int, call: int
) -> None:
    """What `_core.fill_philox` does, in numpy: each word is kept in 64 bits, so that products don't overflow."""
    rows, others, _ = bits.shape
    low, shift = np.uint64(WORD - 1), np.uint64(32)
    shape = (rows, others)
    word0 = np.broadcast_to(np.arange(first_index, first_index + others, dtype=np.uint64), shape)
    word1 = np.broadcast_to(np.arange(first_row, first_row + rows, dtype=np.uint64)[:, None], shape)
    word2 = np.full(shape, place, dtype=np.uint64)
    word3 = np.full(shape, call, dtype=np.uint64)
    key0, key1 = key % WORD, key // WORD
    for _ in range(ROUNDS):
        product0, product1 = word0 * MULTIPLIERS[0], word2 * MULTIPLIERS[1]
        word0, word1 = (product1 >> shift) ^ word1 ^ np.uint64(key0), product1 & low
        word2, word3 = (product0 >> shift) ^ word3 ^ np.uint64(key1), product0 & low
        key0, key1 = (key0 + WEYL[0]) % WORD, (key1 + WEYL[1]) % WORD
    for position, word in enumerate((word0, word1, word2, word3)):
        bits[:, :, position] = word
