"""`extern fn` in device functions: called once a run with the rows there are; its mistakes show the program's line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """devices cpu

dim D = 3

import python rows

model M:
    param w: [D] = ones

data Row:
    x: [D]

extern fn twice(x: [b D]) -> [b D] = "rows.twice"

fn loss(m: M, batch: [b] Row) -> []:
    return mean(sum(twice(batch.x) * m.w, over=D), over=b)

fn step(mut m: M, mut opt: SGD[M], batch: [b] Row) -> []:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn main():
    m = M(seed=0)
    opt = sgd(m, lr=0.1)
    for batch in rows.load() as Dataset[Row] |> batches(4):
        print(step(mut m, mut opt, batch))
    print(rows.calls)
"""
ROWS = """import torch

calls = []

def load():
    return [{"x": torch.full((3,), float(i))} for i in range(6)]

def twice(x):
    calls.append(len(x))
    return RESULT
"""


def run(folder: Path, result: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.ss").write_text(PROGRAM)
    (folder / "rows.py").write_text(ROWS.replace("RESULT", result))
    command = [sys.executable, "-m", "shapescript", str(folder / "program.ss")]
    return subprocess.run(command, capture_output=True, text=True)


def test_it_is_called_once_a_step_with_the_rows_there_are(tmp_path: Path) -> None:
    result = run(tmp_path, "2 * x")
    assert result.stderr == ""
    first, second, calls = result.stdout.splitlines()
    assert float(first) == 2 * 3 * 1.5
    # after the first step each weight is 1 - 0.1 * 3
    assert abs(float(second) - 2 * 3 * 4.5 * 0.7) < 1e-5
    assert calls == "[4, 2]"


def test_its_exception_is_shown_with_the_line_of_the_program(tmp_path: Path) -> None:
    result = run(tmp_path, "x if len(x) == 4 else 1 // 0")
    assert result.returncode == 1
    assert "`rows.twice` raised ZeroDivisionError" in result.stderr
    assert "program.ss:16:" in result.stderr and "Traceback" not in result.stderr


def test_another_shape_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path, "x[:, :2]")
    assert result.returncode == 1
    assert "gave the shape [4, 2], and is declared [b D], [4, 3]" in result.stderr
