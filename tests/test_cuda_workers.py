"""`devices cuda[0 1 2]` on a machine without a GPU: three processes, all of a worker but the GPU as it is.

Kernels run through the shim, recordings are lists, and NCCL is a stand-in that is found by `dlopen`; what comes out is
compared with one device's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from layout_programs import TEXTS, Text, gone_through
from programs import CHAPTER, Program
from several import dims_of
from shimmed_cuda import ROOT, compiled, shimmed
from shimmed_machine import ShimmedMachine
from shimmed_worker import EVENTS, Pretended
from worker_graphs import SPAN, B, D, calls, linear
from worker_graphs import laid_out as laid_out_exactly

pytest.importorskip("shapescript._executor")
pytest.importorskip("shapescript._transport")

from shapescript.controller.placing import OneDevice, Place  # noqa: E402
from shapescript.controller.run import run_program  # noqa: E402
from shapescript.controller.several_devices import SeveralDevices  # noqa: E402
from shapescript.devices.captured.runner import Recorder  # noqa: E402
from shapescript.devices.random_key import RandomKey  # noqa: E402
from shapescript.devices.several import SeveralRunner  # noqa: E402
from shapescript.devices.workers.failure import WorkerFailure  # noqa: E402
from shapescript.devices.workers.launching import search_path  # noqa: E402
from shapescript.devices.workers.pool import WorkerPool  # noqa: E402
from shapescript.diagnostics.diagnostic import ProgramError  # noqa: E402
from shapescript.ir.builder import Builder  # noqa: E402
from shapescript.ir.graph import Graph  # noqa: E402
from shapescript.layout.laid import LaidGraph, Resting  # noqa: E402
from shapescript.layout.lay_out import lay_out  # noqa: E402
from shapescript.layout.mesh import Mesh  # noqa: E402
from shapescript.layout.policy import policy_for  # noqa: E402
from shapescript.session import Session  # noqa: E402
from shapescript.types.element import F32, I64  # noqa: E402

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


class PretendedDevice(OneDevice):
    """`cuda[0]` of this process, by a machine that is none."""

    def __init__(self, machine: ShimmedMachine) -> None:
        super().__init__(machine.device)
        recorder = Recorder(machine.device, machine)
        self._make, self.gather = recorder.runner, recorder.rows


def laid_out(graph: Graph, tags: Sequence[str], mesh: Mesh, padded: bool = False) -> LaidGraph:
    if not padded:
        return laid_out_exactly(graph, tags, mesh)
    return lay_out(graph, mesh, policy_for(graph, mesh), Resting(tuple(tags)), padded=True, checked=True)


def lookup() -> Graph:
    """Rows of a table by an index."""
    graph = Graph(sizes={"D": 5})
    table, index = graph.input("table", (D,), F32), graph.input("index", (B,), I64)
    b = Builder(graph)
    with b.at(SPAN):
        graph.outputs = [b.gather(table, index, D)]
    return graph


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with pretended() as made:
        yield made


def trained(text: Text, rows: tuple[int, ...], place: SeveralDevices | None) -> list[torch.Tensor]:
    return gone_through(Program(text.program, place=place), text, rows)


@pytest.mark.parametrize("text", [pytest.param(text, id=text.name) for text in TEXTS])
def test_programs_train_as_on_one_device(text: Text, pool: WorkerPool) -> None:
    rows = (7, 7, 2, 7, 1)
    found = trained(text, rows, SeveralDevices(pool, padded=True))
    wanted = trained(text, rows, None)
    for number, (got, good) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == good.shape
        assert torch.allclose(got, good, rtol=1e-9, atol=1e-10), (number, (got - good).abs().max())


# --- the chapter's program, as a user runs it


TRAINING = f"""{CHAPTER}
import python digits

fn main():
    m = Mlp(seed=0)
    train(mut m, digits.some() as Dataset[Digit], 2)
"""
DIGITS = """
import torch
from shapescript import TensorDataset

def some():
    random = torch.Generator().manual_seed(1)
    images = torch.rand(150, 784, generator=random)
    return TensorDataset(img=images, label=torch.randint(0, 10, (150,), generator=random))
"""


def losses(folder: Path, devices: str, place: Place, capsys: pytest.CaptureFixture[str]) -> list[float]:
    """What the program prints on some devices."""
    (folder / "digits.py").write_text(DIGITS)
    (folder / "program.ss").write_text(TRAINING)
    session = Session(folder / "program.ss", "program.ss", devices)
    assert not session.diagnostics
    run_program(session.typed, session.placed.kinds, {}, 0, session.path, place)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("loss ") for line in lines)
    return [float(line.split()[1]) for line in lines]


def test_the_chapters_program_is_one_devices(
    tmp_path: Path, pool: WorkerPool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches of 64, 64 and 22, twice: the padded last ones come by the same recording."""
    sent = {number for number, _ in enumerate(pool._plans)}
    several = losses(tmp_path, "cuda[0 1 2]", SeveralDevices(pool, padded=True), capsys)
    machine = ShimmedMachine(name="cuda[0]")
    alone = losses(tmp_path, "cuda[0]", PretendedDevice(machine), capsys)
    wanted = losses(tmp_path, "cpu", OneDevice("cpu"), capsys)
    assert len(wanted) == 6 and several == pytest.approx(wanted, abs=1e-5)
    assert alone == pytest.approx(wanted, abs=1e-5)
    # a step sends what the chapter says, and a replayed one too
    for told in pool.ask("sent"):
        assert isinstance(told, dict)
        (step,) = [each for plan, each in told.items() if plan not in sent and each.launches]
        assert (step.launches, step.values, step.bytes) == (6, 6 * 203_264, 6 * 813_056)
    assert machine.events.count("record") == 1


def test_a_program_that_names_several_gpus_gets_them_and_the_controller_begins_no_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of `run_program`, but for the launcher that pretends."""
    pytest.importorskip("shapescript._cuda", reason="built without nvcc")

    def begun(*arguments: object) -> None:
        raise AssertionError("the controller began CUDA")

    shimmed()
    monkeypatch.setenv("SHAPESCRIPT_NCCL", str(compiled("libnccl.so.2", [TESTS / "stand_in_nccl.cpp"], "-shared")))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "_lazy_init", begun)
    (tmp_path / "program.ss").write_text(SMALL)
    (tmp_path / "rows.py").write_text(ROWS)
    session = Session(tmp_path / "program.ss", "program.ss")
    assert not session.diagnostics
    launcher = Pretended(1, search_path(TESTS))
    run_program(session.typed, session.placed.kinds, {}, 0, session.path, launcher=launcher)
    assert capsys.readouterr().out == "sum 36.0\n"


ROWS = """
import torch
from shapescript import TensorDataset

def some():
    return TensorDataset(x=torch.arange(9.0).reshape(3, 3))
"""
SMALL = """
devices cuda[0 1]

dim D = 3

data Row:
    x: [D]

import python rows

fn added(batch: [b] Row) -> []:
    return sum(batch.x, over=[b D])

fn main():
    for batch in rows.some() as Dataset[Row] |> batches(3):
        print("sum", added(batch))
"""


# --- what goes wrong


def test_python_splits_a_recording_and_runs_on_each_devices_rows(pool: WorkerPool) -> None:
    graph = calls("raises")
    runner = SeveralRunner(laid_out(graph, ["rows"], pool.mesh), pool)
    for rows in (7, 7, 2, 7):
        x = torch.arange(float(rows)) / 2
        total, each = runner.run([x], {"b": rows}, None)
        assert torch.equal(each.fetch(), x) and float(total.fetch()) == float(x.sum())


def test_an_index_out_of_range_names_the_line_and_the_device() -> None:
    with pytest.raises(ProgramError) as found, pretended() as pool:
        runner = SeveralRunner(laid_out(lookup(), ["whole", "rows"], pool.mesh, padded=True), pool)
        table = torch.arange(5.0)
        for index in ([0, 1, 2], [4, 4, 4], [1, 9, 2], [0, 0, 0]):
            runner.run([table, torch.tensor(index)], {"b": 3}, RandomKey(0, 1))
        pool.finish()
    diagnostic = found.value.diagnostic
    assert "9 is out of range for `D`, which holds 0..5" in diagnostic.message
    assert diagnostic.primary.span == SPAN and diagnostic.notes == ("on `cuda[1]`, at step 1",)


def test_a_step_that_never_ends_is_noticed_and_ends_the_run() -> None:
    with pytest.raises(WorkerFailure, match=r"Hang: `cuda\[1\]` hasn't finished a step for 0.2 s") as found:
        with pretended(2, SHIMMED_HANG="1", SHAPESCRIPT_STEP_DEADLINE="0.2") as pool:
            runner = SeveralRunner(laid_out(linear(), ["rows", "param"], pool.mesh, padded=True), pool)
            for number in range(1, 6):
                runner.run([torch.ones(4, 5).double(), torch.ones(5, 6).double()], {"b": 4}, RandomKey(0, number))
            pool.finish()
    assert found.value.device == "cuda[1]" and found.value.step == 4


def test_each_worker_sees_its_own_gpu_and_lets_go_of_recordings_before_the_communicator(tmp_path: Path) -> None:
    environment = {EVENTS: str(tmp_path), "CUDA_VISIBLE_DEVICES": "5,3"}
    with pretended(2, **environment) as pool:
        runner = SeveralRunner(laid_out(linear(), ["rows", "param"], pool.mesh, padded=True), pool)
        for rows in (4, 4, 3):
            runner.run([torch.ones(rows, 5).double(), torch.ones(5, 6).double()], {"b": rows}, None)
    events = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [each[0] for each in events] == ["sees 5", "sees 3"]
    for each in events:
        assert each[1:4] == ["record", "replay", "replay"]
        assert each[-3:] == ["close", "destroy", "ended"]


@pytest.mark.parametrize("how", ["shard", "split"])
def test_parameters_that_are_shared_out(how: str, tmp_path: Path) -> None:
    text = next(each for each in TEXTS if each.name == "attention")
    rows = (7, 2, 7, 7)
    splits, shard = (("H",), False) if how == "split" else ((), True)
    with pretended(2) as pool:
        place = SeveralDevices(pool, splits, shard, dims_of(text.program, splits), padded=True)
        found, wanted = trained(text, rows, place), trained(text, rows, None)
        for got, good in zip(found, wanted, strict=True):
            assert torch.allclose(got, good, rtol=1e-9, atol=1e-10)


def test_torchs_operations_one_by_one_where_that_is_asked_for() -> None:
    with pretended(2, SHAPESCRIPT_EXECUTOR="reference") as pool:
        found, wanted = trained(TEXTS[0], (7, 2), SeveralDevices(pool)), trained(TEXTS[0], (7, 2), None)
        for got, good in zip(found, wanted, strict=True):
            assert torch.allclose(got, good, rtol=1e-9, atol=1e-10)
