"""`extern fn` in device functions: called once a run with the rows there are; its mistakes show the program's line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import shapescript

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


BENT = """devices cpu

dim D = 3

model M:
    param w: [D] = constant(0.5)
    param v: [D] = ones

extern fn bend(x: [b D], w: [D]) -> [b D] = "bend.bend"
extern fn away(x: [b D]) -> [b D] = "bend.away"
extern fn drop(x: [b D]) -> [b D] = "bend.drop"

fn bent(m: M, x: [b D]) -> []:
    return sum(bend(x * m.v, m.w) + away(stop_gradient(m.v * x)), over=[b D])

fn dropped(m: M, x: [b D]) -> []:
    return sum(drop(x * m.v), over=[b D])

fn slope(m: M, x: [b D]) -> ([], Grads[M]):
    l, g = value_and_grad(bent, m, x)
    return l, g

fn lost(m: M, x: [b D]) -> []:
    return sum(away(m.v * x), over=[b D])

fn lost_slope(m: M, x: [b D]) -> Grads[M]:
    return grad(lost, m, x)

fn drop_slope(m: M, x: [b D]) -> ([], Grads[M]):
    l, g = value_and_grad(dropped, m, x)
    return l, g
"""
BEND = """import torch

def bend(x, w):
    return torch.sin(x * w) * x

def away(x):  # leaves torch: nothing comes back through it
    return x.detach().numpy() * 2

def drop(x):
    return torch.where(torch.rand(x.shape) < 0.5, x, torch.zeros(()))
"""


def test_its_gradient_is_torchs(tmp_path: Path) -> None:
    (tmp_path / "bend.py").write_text(BEND)
    (tmp_path / "bent.ss").write_text(BENT)
    with shapescript.load(tmp_path / "bent.ss") as bent:
        m = bent.M(seed=0)
        x = torch.tensor([[0.3, -0.2, 1.1], [0.7, 0.4, -0.9]])
        w, v = (tensor.requires_grad_() for tensor in m.parameters())
        loss = (torch.sin(x * v * w) * (x * v)).sum() + 2 * (x * v).sum().detach()
        loss.backward()
        found, g = bent.slope(m, x)
        torch.testing.assert_close(found, loss.detach())
        torch.testing.assert_close(g.w, w.grad)
        torch.testing.assert_close(g.v, v.grad)


def test_code_that_leaves_torch_has_no_gradient_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "bend.py").write_text(BEND)
    (tmp_path / "bent.ss").write_text(BENT)
    with shapescript.load(tmp_path / "bent.ss") as bent:
        with pytest.raises(shapescript.RunError, match=r"(?s)E2115.*`bend.away` gives what torch didn't follow"):
            bent.lost_slope(bent.M(seed=0), torch.ones(2, 3))


def test_it_draws_the_same_for_its_gradient_and_anew_at_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "bend.py").write_text(BEND)
    (tmp_path / "bent.ss").write_text(BENT)
    values = []
    for _ in range(2):
        with shapescript.load(tmp_path / "bent.ss", seed=4) as bent:
            x = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
            for _ in range(3):
                loss, g = bent.drop_slope(bent.M(seed=0), x)
                torch.testing.assert_close(loss, g.v.sum())  # it is linear in v, which is 1
                values.append(loss.item())
    assert values[:3] == values[3:]
    assert len(set(values)) == 3
