"""`devices cuda[0 1 2]` on GPUs: workers that record, NCCL within the recordings, and a controller without CUDA."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from gpu.test_nccl import ROOT, shared_gpu, version


@pytest.mark.parametrize("count", [1, 2, 3])
def test_programs_train_as_on_the_cpu(count: int) -> None:
    gpus = torch.cuda.device_count()
    why = shared_gpu(count, gpus, version())
    if isinstance(why, str):
        pytest.skip(why)
    environment = {**os.environ, **why, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "several_gpus.py"), str(count), str(gpus)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert (done.returncode, done.stdout.strip()) == (0, "right"), done.stderr[-3000:]
