"""Python beside programs, case by case: what others got wrong, and the right answer.

The numbers of the tests are those of a list of public reports.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shapescript

NET = """devices cpu

dim D = 3

import python case_g

model Net:
    param w: [D] = ones

data Row:
    x: [D]

extern fn check(x: [b D]) -> [b D] = "case_g.check"
extern fn other(x: [b D]) -> [b D] = "case_g.other"

fn loss(m: Net, x: [b D]) -> []:
    return mean(x @ m.w, over=b)

fn step(mut m: Net, mut opt: SGD[Net], x: [b D]) -> []:
    l, g = value_and_grad(loss, m, check(x))
    update(mut m, mut opt, g)
    return l

fn train(mut m: Net, mut opt: SGD[Net], data: Dataset[Row]):
    for batch in data |> batches(1):
        print("step", step(mut m, mut opt, batch.x))

fn through(x: [b D]) -> [b D]:
    return other(x) + 1.0

fn scaled(x: [b D], by: float) -> [b D]:
    return x * by

fn labels(x: [b] Index[D]) -> [b] i64:
    return x as i64
"""
CODE = """import shapescript

calls = 0

def check(x):
    global calls
    calls += 1
    if calls == 3:
        raise ValueError("the third is wrong")
    return x

def other(x):
    import case_g_second
    return case_g_second.double(x)
"""
SECOND = """devices cpu

dim D = 3

fn double(x: [b D]) -> [b D]:
    return x * 2.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("case_g")
    (place / "net.ss").write_text(NET)
    (place / "case_g.py").write_text(CODE)
    (place / "case_g_second.ss").write_text(SECOND)
    return place


@pytest.fixture(scope="module")
def net(folder: Path) -> Iterator[Any]:
    with shapescript.load(folder / "net.ss") as module:
        yield module


def test_g2_an_exception_of_python_ends_the_run_with_its_words_and_the_line(net: Any, capsys: Any) -> None:
    m = net.Net(seed=0)
    opt = shapescript.sgd(m, lr=0.1)
    data = shapescript.TensorDataset(x=torch.ones(5, 3))
    with pytest.raises(shapescript.RunError, match="`case_g.check` raised ValueError: the third is wrong") as caught:
        net.train(m, opt, data)
    assert "value_and_grad(loss, m, check(x))" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert capsys.readouterr().out.count("step") == 2 and opt.steps == 2


def test_g3_results_do_not_change_when_the_next_step_runs(net: Any) -> None:
    first = net.scaled(torch.ones(2, 3), 1.0)
    second = net.scaled(torch.ones(2, 3), 2.0)
    assert first.unique().tolist() == [1.0] and second.unique().tolist() == [2.0]
    many = [net.scaled(torch.ones(1, 3), float(by)) for by in range(10)]
    assert [value[0, 0].item() for value in many] == list(range(10))


def test_g4_a_script_without_a_guard_runs_once_on_three_devices(folder: Path) -> None:
    (folder / "script.py").write_text(
        "print('top level')\n"
        "import shapescript, torch\n"
        "net = shapescript.load('net.ss', devices='cpu[0 1 2]')\n"
        "def mine(item):\n"
        "    return {**item, 'x': item['x'] * 2}\n"
        "class Local(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return {'x': torch.full((3,), float(i))}\n"
        "m = net.Net(seed=0)\n"
        "opt = shapescript.sgd(m, lr=0.0)\n"
        "print(net.scaled(torch.ones(2, 3), 2.0).tolist())\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "top level\n[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]\n"


def test_g4_a_function_of_the_script_itself_can_be_extern(folder: Path) -> None:
    (folder / "own.ss").write_text(
        'devices cpu\n\ndim D = 3\n\nextern fn mine(x: [b D]) -> [b D] = "__main__.mine"\n\n'
        "fn f(x: [b D]) -> [b D]:\n    return mine(x) * 2.0\n\n"
        "fn g(x: [b D]) -> [b D]:\n    return mine(x) * 3.0\n"
    )
    (folder / "own_script.py").write_text(
        "import shapescript, sys, torch, threading\nby = 1\nlock = None\n"
        "def more(x):\n    assert lock is None\n    return x + by\n"
        "def mine(x):\n    return more(x)\n"
        "own = shapescript.load('own.ss', devices=sys.argv[1])\n"
        "print(own.f(torch.ones(1, 3)).tolist())\n"
        "lock = threading.Lock()\n"
        "try:\n    print(own.g(torch.ones(1, 3)).tolist())\n"
        "except shapescript.Error as error:\n    print(error)\n"
        "print(own.f(torch.ones(1, 3)).tolist())\n"
    )
    command = [sys.executable, "own_script.py", "cpu[0 1]"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    first, *refused, last = done.stdout.splitlines()
    assert first == last == "[[4.0, 4.0, 4.0]]"
    assert "`__main__.mine` can't be copied to the workers" in refused[1] and "own.ss:11:12" in "".join(refused)


ROWS = np.arange(6, dtype=np.float64).reshape(2, 3)


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        ROWS.astype(np.float32),
        np.asfortranarray(ROWS),
        ROWS[::-1][::-1],
        ROWS[::-1, ::-1][::-1, ::-1].copy(order="F"),
        ROWS.astype(">f8"),
        ROWS.tolist(),
        [np.float32(1) * row for row in ROWS],
        tuple(map(tuple, ROWS)),
        torch.from_numpy(ROWS),
    ],
)
def test_g5_numpys_kinds_are_converted(net: Any, given: object) -> None:
    for by in (2, 2.0, np.float32(2), np.float64(2), np.int64(2), np.array(2.0), torch.tensor(2.0)):
        assert torch.equal(net.scaled(given, by), torch.tensor(ROWS * 2, dtype=torch.float32))


def test_g5_negative_strides_and_what_is_refused(net: Any) -> None:
    assert net.scaled(ROWS[::-1, ::-1], 1)[0].tolist() == [5.0, 4.0, 3.0]
    for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint16, np.uint32, np.uint64):
        assert net.labels(np.array([0, 2], dtype=kind)).tolist() == [0, 2]
    refused = (
        (lambda: net.scaled(ROWS.astype(np.int64), 1), shapescript.ShapeError, "`x` of `scaled` should be .* i64"),
        (lambda: net.scaled(ROWS > 1, 1), shapescript.ShapeError, "`x` of `scaled` should be .* holds bool"),
        (lambda: net.scaled(ROWS + 1j, 1), shapescript.ArgumentError, "`x` of `scaled` .* complex"),
        (lambda: net.scaled(np.array([["a"] * 3]), 1), shapescript.ArgumentError, "`x` of `scaled`"),
        (lambda: net.scaled([[1.0], [1.0, 2.0]], 1), shapescript.ArgumentError, "`x` of `scaled`"),
        (lambda: net.scaled(ROWS, np.bool_(True)), shapescript.ArgumentError, "`by` of `scaled` is float, .* bool"),
        (lambda: net.scaled(ROWS, "2"), shapescript.ArgumentError, "`by` of `scaled` is float, and this is str, '2'"),
        (lambda: net.labels(np.array([3])), shapescript.DataError, r"`x` of `labels` .* 0..3, and holds 3"),
        (lambda: net.labels(np.array([1.0])), shapescript.ShapeError, "`x` of `labels` .* holds f64"),
        (lambda: net.labels(np.array([2**63], np.uint64)), shapescript.ArgumentError, "more than i64 holds"),
    )
    for call, error, words in refused:
        with pytest.raises(error, match=words):
            call()


def test_g6_python_that_calls_a_program_works_and_compiles_once(
    net: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    x = torch.ones(2, 3)
    for _ in range(3):
        assert net.through(x).unique().tolist() == [3.0]
    second = sys.modules["case_g_second"]
    for runtime in (net._runtime, second._runtime):
        counts = {node.name: done.times for node, done in runtime.domain.specialiser.specialisations.items()}
        assert counts.get("through", counts.get("double")) == 1
    second.close()
