"""NCCL itself: one rank, and two and three on one GPU where NCCL allows it (2.30.3 and later), a process each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RANK = ROOT / "tests" / "gpu" / "rank.py"
SEVERAL = 23003
"""The first version that lets several ranks share a GPU."""


def version() -> int:
    import torch  # noqa: F401  (its NCCL is the one that is found)

    from shapescript import _cuda
    from shapescript.devices.nccl import load_nccl

    return load_nccl(_cuda)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_collectives_and_a_recording_of_them(count: int, tmp_path: Path) -> None:
    import torch

    if count > torch.cuda.device_count() and version() < SEVERAL:
        pytest.skip(f"NCCL {version()} allows one rank on a GPU; 2.30.3 and later allow several")
    shared = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "1"} if count > torch.cuda.device_count() else {}
    environment = {**os.environ, **shared, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    started = [
        subprocess.Popen(
            [sys.executable, str(RANK), str(rank), str(count), str(tmp_path / "meeting")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        for process in started:
            said, wrong = process.communicate(timeout=180)
            assert (process.returncode, said.strip()) == (0, "right"), wrong[-3000:]
    finally:
        for process in started:
            process.kill()
            process.wait()
