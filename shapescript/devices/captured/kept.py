"""How many recordings a GPU holds: those that were used last, of all graphs together.

Gives `Kept`. A recording holds memory for its buffers, and CUDA holds some for each graph; a program that makes ever
new ones gets on with a bounded number. Every device of a group keeps and frees the same ones, because all run the same.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol

MOST_KEPT = 64


class Owner(Protocol):
    """What has the recordings of a graph."""

    def let_go(self, name: Hashable) -> None:
        """Frees one, if it is there."""


class Kept:
    """The recordings in the order of their last use."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self.most = most
        self._kept: OrderedDict[tuple[int, Hashable], weakref.ref[Owner]] = OrderedDict()

    def use(self, owner: Owner, name: Hashable) -> None:
        """One is used; the ones that were used longest ago make room."""
        key = id(owner), name
        self._kept.pop(key, None)
        self._kept[key] = weakref.ref(owner)
        while len(self._kept) > self.most:
            (_, oldest), reference = self._kept.popitem(last=False)
            found = reference()
            if found is not None:
                found.let_go(oldest)

    def forget(self, owner: Owner, name: Hashable) -> None:
        """One is freed."""
        self._kept.pop((id(owner), name), None)

    def __len__(self) -> int:
        return len(self._kept)
