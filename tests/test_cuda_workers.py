"""`devices cuda[0 1 2]` on a machine without a GPU: three processes, all of a worker but the GPU as it is.

Kernels run through the shim, recordings are lists, and NCCL is a stand-in that is found by `dlopen`; what comes out is
compared with one device's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from layout_programs import TEXTS, Text
from programs import Program, tensors
from shimmed_cuda import ROOT, compiled, shimmed
from shimmed_worker import Pretended

pytest.importorskip("shapescript._executor")
pytest.importorskip("shapescript._transport")

from shapescript.controller.several_devices import SeveralDevices  # noqa: E402
from shapescript.devices.workers.launching import search_path  # noqa: E402
from shapescript.devices.workers.pool import WorkerPool  # noqa: E402
from shapescript.layout.mesh import Mesh  # noqa: E402

TESTS = ROOT / "tests"


def pretended(count: int = 3, mesh: Mesh | None = None, **environment: str) -> WorkerPool:
    """A pool of `cuda[0]`, `cuda[1]`.. that are none."""
    shimmed()
    library = compiled("libnccl.so.2", [TESTS / "stand_in_nccl.cpp"], "-shared")
    new = {"SHAPESCRIPT_NCCL": str(library), **environment}
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        names = [f"cuda[{number}]" for number in range(count)]
        made = WorkerPool(names, mesh, folder=str(TESTS), launcher=Pretended(1, search_path(TESTS)))
        made._supervisor.started.wait()
        return made
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with pretended() as made:
        yield made


def trained(text: Text, rows: tuple[int, ...], place: SeveralDevices | None) -> list[torch.Tensor]:
    program = Program(text.program, place=place)
    random = torch.Generator().manual_seed(3)
    m = program.call("make")
    opt = program.call("optimizer", m)
    found: list[torch.Tensor] = []
    for n in rows:
        result = program.call("step", m, opt, text.batch(n, random))
        assert isinstance(result, tuple)
        found.extend(result)
    found.extend(tensors(m).values())
    return found


@pytest.mark.parametrize("text", [pytest.param(text, id=text.name) for text in TEXTS])
def test_programs_train_as_on_one_device(text: Text, pool: WorkerPool) -> None:
    rows = (7, 7, 2, 7, 1)
    found = trained(text, rows, SeveralDevices(pool, padded=True))
    wanted = trained(text, rows, None)
    for number, (got, good) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == good.shape
        assert torch.allclose(got, good, rtol=1e-9, atol=1e-10), (number, (got - good).abs().max())
