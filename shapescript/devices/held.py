"""A tensor that lies with devices other than the controller's.

Gives `Held`, what the controller knows of one: its shape and element at once, its numbers when they are looked at.
Who keeps it, and how it lies there, is the business of what made it.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import torch


@runtime_checkable
class Held(Protocol):
    """A value of the workers'. It may not have been computed yet."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the whole value."""

    @property
    def dtype(self) -> torch.dtype:
        """Its element."""

    def ready(self) -> bool:
        """Whether `fetch` would give it without waiting."""

    def fetch(self) -> torch.Tensor:
        """The whole value, on the CPU; waits for it, and raises what kept it from being computed."""


Somewhere: TypeAlias = torch.Tensor | Held
"""A tensor of this process, or one that is held elsewhere."""
