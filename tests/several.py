"""For tests: devices with worker processes, which all tests of a run share because each imports torch."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import cache

from shapescript.controller.placing import OneDevice, Place
from shapescript.controller.several_devices import SeveralDevices
from shapescript.devices.workers.pool import WorkerPool


@cache
def pool(count: int) -> WorkerPool:
    """The workers of `cpu[0 1 ..]`, started when they are first asked for."""
    made = WorkerPool([f"cpu[{number}]" for number in range(count)])
    atexit.register(made.close)
    return made


def devices(count: int, splits: Sequence[str] = (), shard: bool = False) -> Place:
    """So many devices; one is this process."""
    return OneDevice("cpu") if count == 1 else SeveralDevices(pool(count), splits, shard)
