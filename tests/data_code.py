"""For tests: Python that programs import. What a program hands over is kept in `seen`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

seen: list[list[int]] = []
made: list[object] = []


def note(ids: torch.Tensor) -> None:
    """Keeps the numbers of a batch's examples."""
    seen.append(ids.tolist())


def examples(count: int) -> list[dict[str, object]]:
    """Examples that know their numbers."""
    drawn = torch.Generator().manual_seed(0)
    return [{"x": torch.rand(3, generator=drawn), "id": number} for number in range(count)]


class Stream:
    """The same, to be gone through once; `said` is the length that it claims."""

    def __init__(self, count: int, said: int | None = None) -> None:
        self.count = count
        if said is not None:
            self.__class__ = type("Claiming", (Stream,), {"__len__": lambda self: said})

    def __iter__(self) -> Iterator[dict[str, object]]:
        for item in examples(self.count):
            made.append(item["id"])
            yield item


def stream(count: int) -> Stream:
    return Stream(count)


def claiming(count: int, said: int) -> Stream:
    return Stream(count, said)


def forget() -> None:
    """Empties what is kept."""
    seen.clear()
    made.clear()
