"""`training` and `evaluating` from a controller function, and a file of weights that doesn't fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """devices cpu

dim D = 4000

model A:
    param w: [D] = ones

model B:
    param v: [D] = ones

fn dropped(x: [n]) -> [n]:
    return dropout(x, 0.5)

fn main():
    print(mean(training(dropped, ones[D]) == 0, over=D))
    print(mean(evaluating(dropped, ones[D]) == 0, over=D))
    print(mean(dropped(ones[D]) == 0, over=D))
    a = A(seed=0)
    save(a, "a.safetensors")
    b = B(seed=0)
    load(mut b, "a.safetensors")
"""


def test_modes_and_a_file_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "modes.ss").write_text(PROGRAM)
    command = [sys.executable, "-m", "shapescript", str(tmp_path / "modes.ss")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    training, evaluating, plain = map(float, done.stdout.split())
    assert 0.45 < training < 0.55
    assert evaluating == plain == 0
    assert done.returncode == 1
    assert "`a.safetensors` doesn't fit what it is loaded into; nothing was changed:\n" in done.stderr
    assert "= note: `v` is missing: [D], 4000" in done.stderr
    assert "`w` is in the file, 4000, and nothing here has this name" in done.stderr
