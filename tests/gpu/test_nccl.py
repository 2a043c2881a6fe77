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


def shared_gpu(count: int, gpus: int, nccl: int) -> dict[str, str] | str:
    """What NCCL must be told so that so many ranks can be had, or why they can't."""
    if count <= gpus:
        return {}
    if nccl < SEVERAL:
        return f"NCCL {nccl} allows one rank on a GPU, and here are {gpus}; 2.30.3 and later allow several"
    return {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "1"}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_collectives_and_a_recording_of_them(count: int, tmp_path: Path) -> None:
    import torch

    told = shared_gpu(count, torch.cuda.device_count(), version())
    if isinstance(told, str):
        pytest.skip(told)
    environment = {**os.environ, **told, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
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
