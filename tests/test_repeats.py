"""Whole runs of the command on several devices: the same bits each time, and no example too few or too many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """devices cpu[0 1 2]

dim D = 12
dim H = 9
dim C = 4

import python rows

model Net:
    param w1: [D H] = xavier
    param w2: [H C] = xavier

data Row:
    x: [D]
    label: [] Index[C]

fn loss(m: Net, batch: [b] Row) -> [] NonNeg:
    return cross_entropy(batch.x @ m.w1 |> gelu |> dropout(0.2) |> matmul(m.w2), batch.label, over=C)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, clip(g, norm=1.0))
    return l

fn count(batch: [b] Row) -> [] i64:
    return sum(ones[b] as [b] i64, over=b)

fn main():
    data = rows.rows() as Dataset[Row]
    m = Net(seed=1)
    opt = adamw(m, lr=0.01)
    for epoch in 0..2:
        for batch in data |> shuffle |> batches(8):
            print(step(mut m, mut opt, batch), count(batch))
    print(m.w2)
"""
ROWS = """import torch


def rows():
    draw = torch.Generator().manual_seed(0)
    return torch.utils.data.TensorDataset(torch.rand(26, 12, generator=draw), torch.randint(4, (26,), generator=draw))
"""


def output(folder: Path) -> str:
    command = [sys.executable, "-m", "shapescript", "run", "train.ss"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_runs_print_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "train.ss").write_text(PROGRAM)
    (tmp_path / "rows.py").write_text(ROWS)
    first = output(tmp_path)
    assert output(tmp_path) == first
    # 26 rows in batches of 8; the last has two rows for three devices
    counts = [line.split()[1] for line in first.splitlines()[:8]]
    assert counts == ["8", "8", "8", "2"] * 2
