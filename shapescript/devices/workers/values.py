"""A value that lies with workers, as the controller has it.

Gives `WorkerValue`, which is a `Held`. The workers let go of it when nothing here refers to it any more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import torch

from shapescript.devices.held import Held
from shapescript.devices.workers.cutting import Lie

if TYPE_CHECKING:
    from shapescript.devices.workers.pool import WorkerPool


class WorkerValue(Held):
    """A value by its number; `command` makes it, and `scalar` is its place among that run's scalars, if it is one."""

    def __init__(
        self,
        pool: WorkerPool,
        number: int,
        lie: Lie,
        dtype: torch.dtype,
        command: int,
        scalar: int | None,
        dropped: deque[int],
    ) -> None:
        self.pool = pool
        self.number = number
        self.lie = lie
        self.dtype = dtype
        self.command = command
        self.scalar = scalar
        self._dropped = dropped
        self.given_up = False
        self._fetched: torch.Tensor | None = None

    def give_up(self) -> None:
        """The workers have let go of it, or write over it: it isn't to be looked at again."""
        self.given_up = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the whole value."""
        return self.lie.shape

    def ready(self) -> bool:
        """Whether `fetch` would give it without waiting for a step."""
        return self._fetched is not None or self.pool.has_finished(self.command)

    def fetch(self) -> torch.Tensor:
        """The whole value, on the CPU, as a tensor of the caller's own; waits for it."""
        if self._fetched is None:
            fetched = self.pool.fetch(self)
            if fetched.dim() == 0:
                self._fetched = fetched  # a loss may be looked at again long after
            return fetched
        return self._fetched.clone()

    def __del__(self) -> None:
        if not self.given_up:
            self._dropped.append(self.number)

    def __repr__(self) -> str:
        shape = " ".join(map(str, self.shape))
        return f"<value {self.number} of the workers: [{shape}] {self.dtype}>"
