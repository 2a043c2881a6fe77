"""For tests: devices with worker processes, which all tests of a run share because each imports torch."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from functools import cache

from programs import session

from shapescript.controller.placing import OneDevice, Place
from shapescript.controller.several_devices import SeveralDevices
from shapescript.devices.workers.pool import WorkerPool
from shapescript.layout.mesh import Mesh
from shapescript.types.size import Size


def pool(count: int, by: int = 1) -> WorkerPool:
    """The workers of `cpu[0 1 ..]`, started when they are first asked for; `by` is that of `split H by 2`."""
    return _pool(Mesh((count,) if by == 1 else (count // by, by)))


@cache
def _pool(mesh: Mesh) -> WorkerPool:
    made = WorkerPool([f"cpu[{number}]" for number in range(mesh.count)], mesh)
    atexit.register(made.close)
    return made


def dims_of(text: str, splits: Sequence[str]) -> Mapping[str, Size]:
    """The sizes of the dims that are split, as the checker knows them."""
    dims = session(text).typed.dims
    return {name: dims[name].axis.size for name in splits}


def devices(count: int, splits: Sequence[str] = (), shard: bool = False, by: int = 1, text: str = "") -> Place:
    """So many devices; one is this process. `text` is the program, where a dim that is split is made of others."""
    if count == 1:
        return OneDevice("cpu")
    return SeveralDevices(pool(count, by), splits, shard, dims_of(text, splits) if text else None)
