"""The name that somebody probably meant.

`nearest` takes the word as written and the names that could stand there, and gives one of them or None: a suggestion
that is wrong costs more than none.
"""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` was probably meant to be.

    The only one there is; else one that differs by capitals alone; else the nearest whose distance is at most a third
    of the longer word's length (at least one), the first of several in the order given.
    """
    names = list(dict.fromkeys(candidate for candidate in candidates if candidate != word))
    if len(names) == 1:
        return names[0]
    for name in names:
        if name.lower() == word.lower():
            return name
    best: tuple[int, str] | None = None
    for name in names:
        most = max(1, max(len(name), len(word)) // 3)
        away = distance(word, name, most)
        if away <= most and away < len(word) and (best is None or away < best[0]):
            best = away, name
    return best[1] if best else None


def distance(a: str, b: str, most: int) -> int:
    """How many letters to add, drop, change or swap make `a` into `b`; `most + 1` for more than `most`."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    earlier: list[int] = []
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
        earlier, before = before, row
    return min(before[-1], most + 1)
