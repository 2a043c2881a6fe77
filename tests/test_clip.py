"""`clip` and `norm` at the edges: huge gradients don't overflow, infinite ones are an error that names the field."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """devices cpu

dim D = 100

model M:
    param w: [D] = zeros

fn loss(m: M, scale: float) -> []:
    return sum(m.w * scale, over=D)

fn measured(m: M, scale: float) -> ([], []):
    l, g = value_and_grad(loss, m, scale)
    return norm(g), norm(clip(g, norm=1.0))

fn main(scale: float):
    m = M(seed=0)
    before, after = measured(m, scale)
    print(before, after)
"""


def run(folder: Path, scale: str) -> subprocess.CompletedProcess[str]:
    file = folder / "clip.ss"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "shapescript", str(file), scale]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_huge_gradient_is_clipped_to_one(tmp_path: Path) -> None:
    before, after = map(float, run(tmp_path, "1e20").stdout.split())
    assert abs(before / 1e21 - 1) < 1e-6
    assert abs(after - 1) < 1e-6


def test_a_zero_gradient_stays_zero(tmp_path: Path) -> None:
    assert [float(word) for word in run(tmp_path, "0.0").stdout.split()] == [0.0, 0.0]


def test_an_infinite_gradient_is_an_error_that_names_the_parameter(tmp_path: Path) -> None:
    result = run(tmp_path, "1e39")
    assert result.returncode == 1
    assert "the gradient of `w` isn't finite" in result.stderr
    assert "clip.ss:13:" in result.stderr
