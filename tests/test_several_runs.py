"""Whole runs on several devices, by the command line: what one prints, and what the next prints, bit for bit.

The parts of their batches are short or empty: two examples over three devices, one over five.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """devices cpu

dim D = 6
dim H = 8
dim C = 3

import python rows

model Net:
    param w1: [D H] = normal(std=0.5)
    param w2: [H C] = normal(std=0.5)

data Row:
    x: [D]
    label: [] Index[C]

fn loss(m: Net, batch: [b] Row) -> [] NonNeg:
    return cross_entropy(dropout(relu(batch.x @ m.w1), 0.2) @ m.w2, batch.label, over=C)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, clip(g, norm=0.5))
    return l

fn main(size: int):
    m = Net(seed=1)
    opt = adamw(m, lr=0.01)
    for epoch in 0..2:
        for batch in rows.rows() as Dataset[Row] |> shuffle(seed=epoch) |> batches(size):
            print(len(batch), step(mut m, mut opt, batch))
"""
ROWS = """import torch


def rows():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(11, 6, generator=random)
    return torch.utils.data.TensorDataset(x, torch.randint(3, (11,), generator=random))
"""


def run(folder: Path, devices: str, size: int) -> str:
    """What a run prints, with all digits that tell one number from another."""
    command = [sys.executable, "-m", "shapescript", "run", "--devices", devices, "train.ss", str(size)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(("devices", "size"), [("cpu[0 1 2]", 4), ("cpu[0 1 2]", 2), ("cpu[0 1 2 3 4]", 1)])
def test_two_runs_print_the_same_and_short_parts_do_not_count(devices: str, size: int, tmp_path: Path) -> None:
    (tmp_path / "train.ss").write_text(PROGRAM)
    (tmp_path / "rows.py").write_text(ROWS)
    first = run(tmp_path, devices, size)
    assert run(tmp_path, devices, size) == first
    alone = run(tmp_path, "cpu", size)
    for line, wanted in zip(first.splitlines(), alone.splitlines(), strict=True):
        (count, loss), (count_alone, loss_alone) = line.split(), wanted.split()
        assert count == count_alone and float(loss) == pytest.approx(float(loss_alone), abs=2.4e-7)
