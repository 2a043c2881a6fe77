"""The C++ and CUDA sources are laid out by clang-format, as .clang-format says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".h", ".hpp", ".cpp", ".cuh", ".cu", ".cc")
)


def test_the_sources_are_formatted() -> None:
    program = shutil.which("clang-format", path=str(Path(sys.executable).parent)) or shutil.which("clang-format")
    if program is None:
        pytest.fail("there is no clang-format: install the package with its `test` extra")
    assert SOURCES
    done = subprocess.run(
        [program, "--dry-run", "-Werror", *map(str, SOURCES)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
