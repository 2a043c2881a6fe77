"""Memory that the controller and its workers share.

Gives `Segment`, a file without a name, mapped. It has no name, so it goes with the last process that has it open, and
no other run can meet it. Doesn't know what lies in it.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import torch


class Segment:
    """A file without a name; `tensor` is its bytes. `fileno` is handed to processes, which map it too."""

    def __init__(self, fileno: int) -> None:
        self.fileno = fileno
        self._map: mmap.mmap | None = None

    @staticmethod
    def make(name: str, size: int) -> Segment:
        """A new one, of zeros."""
        if hasattr(os, "memfd_create"):
            fileno = os.memfd_create(f"shapescript-{name}", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile(prefix="shapescript-") as file:
                fileno = os.dup(file.fileno())
        os.ftruncate(fileno, size)
        return Segment(fileno)

    @property
    def size(self) -> int:
        """Its bytes."""
        return os.fstat(self.fileno).st_size

    def resize(self, size: int) -> None:
        """Makes it longer or shorter; what was cut off must not be looked at any more."""
        os.ftruncate(self.fileno, size)
        self._map = None

    def bytes_at(self, start: int, size: int) -> torch.Tensor:
        """Some of its bytes, as a tensor that shares them."""
        if size == 0:
            return torch.empty(0, dtype=torch.uint8)
        if self._map is None or len(self._map) < start + size:
            self._map = mmap.mmap(self.fileno, self.size)  # the other end may have made it longer
        return torch.frombuffer(self._map, dtype=torch.uint8, count=size, offset=start)

    def close(self) -> None:
        """Lets go of it; what was mapped stays until nothing uses it."""
        os.close(self.fileno)
        self._map = None
