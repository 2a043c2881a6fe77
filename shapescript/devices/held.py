"""A tensor that lies with devices other than the controller's.

Gives `Held`, what the controller knows of one: its shape and element at once, its numbers when they are looked at.
Who keeps it, and how it lies there, is the business of what made it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import torch


class Held(ABC):
    """A value of the workers', of the element `dtype`. It may not have been computed yet.

    A class to be derived from, not a protocol: each line that a program prints asks of its values whether they are
    held, and asking a protocol looks at every method.
    """

    dtype: torch.dtype

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The sizes of the whole value."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether `fetch` would give it without waiting."""

    @abstractmethod
    def fetch(self) -> torch.Tensor:
        """The whole value, on the CPU; waits for it, and raises what kept it from being computed."""

    def here(self) -> torch.Tensor:
        """The same where the controller's own tensors are."""
        return self.fetch()


Somewhere: TypeAlias = torch.Tensor | Held
"""A tensor of this process, or one that is held elsewhere."""
