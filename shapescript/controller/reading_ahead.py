"""Reading ahead that nobody asked for: where Python code makes the examples and takes long, a process reads them too.

`read_as_it_pays` gives the batches of these numbers in order, as `loaders.read_ahead` does. It reads them itself until
that has taken a second, and a good part of the time. Then it begins processes, and reads on while they start.

Nobody may be able to tell from the batches. So a process is believed only once it has read a batch that was read here
too, to the same bits, from a copy that was made before others were read here. A dataset with a generator of its own, or
whose examples depend on how many were read, fails that, and is read here for good. At the next pass the copy is
compared with a new one, and the first batch is read on both sides again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from shapescript.controller.dataset_items import Rows
from shapescript.controller.dataset_reading import Numbers, Reader
from shapescript.controller.loaders import Idle, Loader, end, in_order, keep_idle, new_loaders, pickled, take_idle
from shapescript.devices.dtypes import as_bytes

LONG = 1.0
"""Seconds that reading has taken before processes are begun: about what it costs to begin one."""
SHARE = 0.1
"""How much of the time reading must take."""
MOST_PROCESSES = 4


@dataclass
class Cost:
    """What reading a source has cost so far, and whether it must be read here."""

    seconds: float = 0.0
    stays: bool = False


_costs: WeakKeyDictionary[Any, Cost] = WeakKeyDictionary()


@contextmanager
def read_as_it_pays(reader: Reader, numbers: Sequence[Numbers]) -> Iterator[Iterator[Rows]]:
    """The batches of these numbers in order; the processes of a pass that came to its end wait for the next one."""
    reading = _Reading(reader, numbers)
    complete = False
    try:
        yield reading.batches()
        complete = True
    finally:
        reading.close(complete)


class _Reading:
    """One pass over a dataset."""

    def __init__(self, reader: Reader, numbers: Sequence[Numbers]) -> None:
        self.reader = reader
        self.numbers = numbers
        self.cost = cost_of(reader)
        self.loaders: list[Loader] = []
        self.digest = b""
        self.read_since = 0
        """How many batches were read here since the copy was made."""

    def batches(self) -> Iterator[Rows]:
        """The batches in order."""
        self._take_up()
        begun, spent = time.perf_counter(), 0.0
        for at, numbers in enumerate(self.numbers):
            start = time.perf_counter()
            rows = self.reader.rows(numbers)
            seconds = time.perf_counter() - start
            spent += seconds
            self.cost.seconds += seconds
            self.read_since += 1
            trusted = self._is_trusted(numbers, rows)
            yield rows
            if trusted:
                yield from in_order(self.loaders, self.numbers[at + 1 :])
                return
            share = spent / (time.perf_counter() - begun)
            if not self.loaders and not self.cost.stays and self.cost.seconds >= LONG and share >= SHARE:
                self._begin()

    def close(self, complete: bool) -> None:
        """Ends the processes, or lets them wait."""
        if complete and self.loaders and all(loader.is_open for loader in self.loaders):
            keep_idle(Idle(self.reader, self.loaders, self.digest))
        else:
            end(self.loaders)
        self.loaders = []

    def _take_up(self) -> None:
        """The processes of an earlier pass, where a copy made now would be the one that they have."""
        idle = take_idle(self.reader, None)
        if idle is None:
            return
        picture = self._picture()
        if picture is not None and digest(picture) == idle.digest:
            self.loaders, self.digest, self.read_since = idle.loaders, idle.digest, 1
        else:
            end(idle.loaders)

    def _begin(self) -> None:
        picture = self._picture()
        if picture is None:
            self.cost.stays = True
            return
        self.digest = digest(picture)
        self.loaders = new_loaders(picture, min(MOST_PROCESSES, max(1, (os.cpu_count() or 1) // 2)))
        self.read_since = 0

    def _picture(self) -> bytes | None:
        """A copy of the reader, of no epoch in particular; None where it can't be copied."""
        try:
            return pickled(self.reader.copied())
        except Exception:
            return None  # whatever it holds that can't be copied: then it is read here

    def _is_trusted(self, numbers: Numbers, rows: Rows) -> bool:
        """Whether the processes have started, and read what was read here."""
        if not self.loaders or self.read_since < 2 or not all(loader.would_answer() for loader in self.loaders):
            return False
        try:
            for loader in self.loaders:
                loader.open()
                loader.begin(self.reader.key)
                loader.ask(numbers)
            found = [loader.answer() for loader in self.loaders]
        except Exception:
            found = []  # it can't be read there, whatever the reason: it was read here
        if found and all(same_bits(each, rows) for each in found):
            return True
        end(self.loaders)
        self.loaders = []
        self.cost.stays = True
        return False


def cost_of(reader: Reader) -> Cost:
    """What is known of a source, or of what is done to columns, for as long as it lives."""
    try:
        return _costs.setdefault(reader.steps[-1].function if reader.steps else reader.source, Cost())
    except TypeError:  # what can't be a key, as a list
        return Cost()


def digest(picture: bytes) -> bytes:
    """What stands for a copy of a reader."""
    return hashlib.sha256(picture).digest()


def same_bits(rows: Rows, others: Rows) -> bool:
    """Whether two batches are the same, NaNs included."""
    return rows.keys() == others.keys() and all(
        tensor.dtype == others[name].dtype and tensor.shape == others[name].shape and _equal(tensor, others[name])
        for name, tensor in rows.items()
    )


def _equal(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(as_bytes(tensor.contiguous()), as_bytes(other.contiguous()))
