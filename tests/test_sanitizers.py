"""The C++ of the executor under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parent.parent / "csrc"
SOURCES = (
    *("combine", "elementwise", "empty", "executor", "kernels", "kernels_baseline", "moves", "products", "random"),
    "threads",
)
WIDE = {"kernels_avx2": "-mavx2 -mfma", "kernels_avx512": "-mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl"}
COMMON = "-std=c++20 -O0 -g1 -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-omit-frame-pointer"


def built(folder: Path, sanitizers: str) -> Path:
    """The test program with sanitizers in it."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    objects = []
    # threads meet in what runs the kernels; for them those of one instruction set are enough
    wide = WIDE if platform.machine() == "x86_64" and sanitizers != "thread" else {}
    only = [] if wide else ["-DSHAPESCRIPT_BASELINE_ONLY"]
    for name in (*SOURCES, *wide, "executor_test"):
        source = CSRC / ("tests" if name.endswith("_test") else "cpu") / f"{name}.cpp"
        objects.append(folder / f"{name}.o")
        flags = [
            *COMMON.split(),
            f"-fsanitize={sanitizers}",
            "-fno-sanitize-recover=all",
            *only,
            *wide.get(name, "").split(),
        ]
        subprocess.run([compiler, *flags, "-c", str(source), "-o", str(objects[-1])], check=True)
    program = folder / "executor_test"
    link = [compiler, f"-fsanitize={sanitizers}", *map(str, objects), "-o", str(program), "-ldl", "-lpthread"]
    subprocess.run(link, check=True)
    return program


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_the_executor_is_clean(sanitizers: str, tmp_path: Path) -> None:
    done = subprocess.run([built(tmp_path, sanitizers)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "all right\n" and done.stderr == ""
