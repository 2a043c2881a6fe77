"""Memory of a step's buffers, planned once: values that aren't needed at one time share places of one arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LINE = 256
"""Each buffer begins at a multiple of so many bytes."""


def arena(sizes: Mapping[int, int], lives: Mapping[int, tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Where each buffer begins, and how long the arena is; `lives` are the first and last item that touch a buffer."""
    places: dict[int, int] = {}
    taken: list[tuple[int, int, int, int]] = []  # begin, end, and the life
    for buffer in sorted(sizes, key=lambda each: (-sizes[each], each)):
        first, last = lives[buffer]
        length = max(1, -(-sizes[buffer] // LINE)) * LINE
        begin = 0
        for other_begin, other_end, other_first, other_last in sorted(taken):
            if other_first > last or other_last < first:
                continue
            if begin + length <= other_begin:
                break
            begin = max(begin, other_end)
        places[buffer] = begin
        taken.append((begin, begin + length, first, last))
    return places, max((end for _, end, _, _ in taken), default=0)


def lives_of(touched: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    """The first and the last item that touch each buffer."""
    lives: dict[int, tuple[int, int]] = {}
    for item, buffers in enumerate(touched):
        for buffer in buffers:
            lives[buffer] = (lives.get(buffer, (item, item))[0], item)
    return lives
