"""A worker's failure as the error that a user of the package catches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shapescript.controller.errors import WorkerError
from shapescript.devices.captured.hang import Hang
from shapescript.devices.workers.failure import WorkerFailure


@contextmanager
def failures_told() -> Iterator[None]:
    """While workers are used: what ends them comes out as a `WorkerError`, once, with its first cause."""
    try:
        yield
    except WorkerFailure as failure:
        raise WorkerError("\n".join((str(failure), *failure.lines))) from None
    except Hang as hang:
        raise WorkerError(str(hang)) from None
