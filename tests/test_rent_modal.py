"""One run on the real Modal, with a token of one's own, for less than a cent: only when asked for.

`SHAPESCRIPT_TEST_MODAL=1 pytest -s tests/test_rent_modal.py`; docs/modal.md says what it shows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = """\
devices cuda[0]

dim D = 3

import python machine

model Line:
    param w: [D] = zeros

data Point:
    x: [D]
    y: []

fn loss(m: Line, batch: [b] Point) -> [] NonNeg:
    return mse(batch.x @ m.w, batch.y)

fn step(mut m: Line, mut opt: SGD[Line], batch: [b] Point) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn main(rounds: int):
    points = machine.points() as Dataset[Point]
    m = Line(seed=0)
    opt = sgd(m, lr=0.1)
    for round in 0..rounds:
        for batch in points |> batches(16):
            step(mut m, mut opt, batch)
    print("w", m.w)
    print(machine.words())
    save(m, "line.safetensors")
"""

MACHINE = """\
import platform
import torch

import shapescript


class Points(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        self.y = self.x @ torch.tensor([1.0, -2.0, 0.5])

    def __len__(self):
        return 64

    def __getitem__(self, at):
        return {"x": self.x[at], "y": self.y[at]}


def points():
    return Points()


def words():
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    return f"{platform.python_version()} {torch.__version__.partition('+')[0]} {shapescript.__version__} {gpu}"
"""


def looks_right(output: str, folder: Path, gpu: str) -> None:
    """What the program prints and leaves, on a machine with this GPU and the versions that are here."""
    import torch

    import shapescript

    weights, words = output.strip().splitlines()
    assert [float(word) for word in re.findall(r"-?\d+\.\d*", weights)] == pytest.approx([1.0, -2.0, 0.5], abs=0.01)
    python, version = ".".join(map(str, sys.version_info[:3])), torch.__version__.partition("+")[0]
    assert words.startswith(f"{python} {version} {shapescript.__version__} ") and gpu in words
    assert (folder / "line.safetensors").stat().st_size > 12


def write_program(folder: Path) -> None:
    (folder / "train.ss").write_text(TRAIN)
    (folder / "machine.py").write_text(MACHINE)


@pytest.mark.skipif(
    os.environ.get("SHAPESCRIPT_TEST_MODAL") != "1", reason="SHAPESCRIPT_TEST_MODAL=1 rents a GPU for less than a cent"
)
def test_a_run_on_a_real_t4(tmp_path: Path) -> None:
    write_program(tmp_path)
    command = [sys.executable, "-m", "shapescript", "run", "--modal", "T4", "--timeout", "3m", "train.ss", "50"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=1800)
    assert done.returncode == 0
    looks_right(done.stdout, tmp_path, "T4")
    command = [sys.executable, "-m", "modal", "app", "list", "--json"]
    left = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    apps = [str(app).lower() for app in json.loads(left.stdout)]
    assert not [app for app in apps if "shapescript-run" in app and "ephemeral" in app], "an app of ours still runs"
