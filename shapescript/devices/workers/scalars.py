"""A ring in shared memory for the scalars that runs give, such as losses.

Each worker writes its own after every run, and the controller reads those of a past run without telling the workers
anything. A run's place is used again after `RUNS` commands; only the first `MOST` scalars of a run are there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from shapescript.devices.workers.segments import Segment

RUNS = 512
MOST = 64
EACH = 8


class Scalars:
    """The ring, by the numbers of commands and the ranks of workers."""

    def __init__(self, segment: Segment, workers: int) -> None:
        self._bytes = segment.bytes_at(0, Scalars.size(workers)).reshape(RUNS, workers, MOST, EACH)
        self._start = self._bytes.data_ptr()
        self._workers = workers

    @staticmethod
    def size(workers: int) -> int:
        """The bytes that it takes."""
        return RUNS * workers * MOST * EACH

    def write(self, number: int, rank: int, scalars: Sequence[torch.Tensor]) -> None:
        """A worker's scalars of a command, which lie on the CPU, before it says that it is finished."""
        at = self._start + (number % RUNS * self._workers + rank) * MOST * EACH
        for place, scalar in enumerate(scalars[:MOST]):
            ctypes.memmove(at + place * EACH, scalar.data_ptr(), scalar.element_size())

    def read(self, number: int, rank: int, place: int, dtype: torch.dtype) -> torch.Tensor:
        """A scalar of a command that the worker has finished, not `RUNS` commands ago."""
        at = self._start + ((number % RUNS * self._workers + rank) * MOST + place) * EACH
        return torch.frombuffer(bytearray(ctypes.string_at(at, dtype.itemsize)), dtype=dtype).reshape(())
