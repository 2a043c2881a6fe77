"""NCCL by the project's own communicator, in three processes: a stand-in for the library is loaded the same way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from shimmed_cuda import ROOT, compiled, shimmed

RANK = ROOT / "tests" / "nccl_rank.py"


@pytest.fixture(scope="module")
def library() -> Path:
    shimmed()
    return compiled("libnccl.so.2", [ROOT / "tests" / "stand_in_nccl.cpp"], "-shared")


def ranks(library: Path, folder: Path, how: str) -> list[tuple[int, str, str]]:
    environment = {**os.environ, "SHAPESCRIPT_NCCL": str(library), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    started = [
        subprocess.Popen(
            [sys.executable, str(RANK), str(rank), "3", str(folder / "meeting"), how],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        found = []
        for process in started:
            said, wrong = process.communicate(timeout=120)
            found.append((process.returncode, said, wrong))
        return found
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_every_collective_in_three_processes(library: Path, tmp_path: Path) -> None:
    for status, said, wrong in ranks(library, tmp_path, "all"):
        assert (status, said.strip()) == (0, "right"), wrong


def test_a_rank_that_is_gone_is_an_error_of_the_others(library: Path, tmp_path: Path) -> None:
    first, second, gone = ranks(library, tmp_path, "gone")
    assert gone[0] == 3
    for status, _, wrong in (first, second):
        assert status != 0
        assert "ncclAllReduce: a peer didn't come" in wrong


def test_a_library_that_is_none_is_an_error() -> None:
    code = "from shimmed_cuda import shimmed; from shapescript.devices.nccl import load_nccl; load_nccl(shimmed())"
    environment = {**os.environ, "SHAPESCRIPT_NCCL": "/no/such/libnccl.so.2", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "NCCL `/no/such/libnccl.so.2` doesn't load" in done.stderr
