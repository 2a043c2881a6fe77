"""The errors that Python code which uses ShapeScript can catch; all are `Error`.

A mistake found while a program runs that has a place in it is a `ProgramError` with a diagnostic; these are the ones
of the border to Python: what was handed in, what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapescript.diagnostics.diagnostic import Diagnostic


class Error(Exception):
    """Anything that ShapeScript raises."""


class CheckError(Error):
    """A program doesn't check; the text is the checker's words."""


class RunError(Error):
    """A line of the program went wrong while it ran; the text shows it, `diagnostic` has the place."""

    def __init__(self, message: str, diagnostic: Diagnostic | None = None) -> None:
        super().__init__(message)
        self.diagnostic = diagnostic


class ArgumentError(Error, TypeError):
    """A function is called with too few arguments, too many, or something of another kind."""


class DeviceError(Error):
    """A tensor on another device than the program's, or a device that isn't there."""


class ShapeError(Error):
    """An argument's axes, sizes or element aren't those of its type."""


class DataError(Error):
    """A dataset's items aren't what its `data` says, or there are none."""


class CheckpointError(Error):
    """A file of weights can't be read or written, or doesn't fit what it is loaded into."""


class WorkerError(Error):
    """A device's worker failed: which device, at which step and line, and the first cause."""
