"""A scalar that a recorded step gives, such as its loss, as the host looks at it.

The device writes it where the host reads it, so that looking waits for that step alone, and with a deadline. The
number is copied out before the step so many runs later writes over it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from shapescript.devices.held import Held

MOST_SHOWN = 64
"""The scalars of how many runs are there at once."""


class ShownScalar(Held):
    """A step's scalar. `tensor` is the same on the device, for runs that go on with it."""

    def __init__(
        self, memory: torch.Tensor, tensor: torch.Tensor, finished: Callable[[], bool], settle: Callable[[], None]
    ) -> None:
        self.tensor, self.dtype = tensor, tensor.dtype
        self._value: torch.Tensor | None = None
        self._waited_for: tuple[torch.Tensor, Callable[[], bool], Callable[[], None]] | None
        self._waited_for = memory, finished, settle

    @property
    def shape(self) -> tuple[int, ...]:
        """None: it is a scalar."""
        return ()

    def ready(self) -> bool:
        """Whether its step is finished."""
        return self._waited_for is None or self._waited_for[1]()

    def keep(self) -> None:
        """Waits for it, and copies it out."""
        if self._waited_for is not None:
            memory, _, settle = self._waited_for
            settle()
            size = self.tensor.element_size()
            self._value = memory.view(torch.uint8)[:size].clone().view(self.tensor.dtype).reshape(())
            self._waited_for = None  # the step may go

    def fetch(self) -> torch.Tensor:
        """The number, on the CPU.

        Raises:
            ProgramError: its step, or one before, met a value that can't be.
        """
        self.keep()
        assert self._value is not None
        return self._value.clone()

    def here(self) -> torch.Tensor:
        """The number on the device; waits, so that what went wrong is said before someone goes on with it."""
        self.keep()
        return self.tensor
