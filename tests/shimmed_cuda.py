"""The module for GPUs with its kernels compiled by the C++ compiler, through csrc/cuda/shim.hpp: `shimmed()`.

It is built once for its sources, into the folder of builds, and found there by later runs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
CUDA = ROOT / "csrc" / "cuda"
OPTIONS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
NAME = "_shimmed_cuda"


def compiler() -> str:
    """The C++ compiler; without one the tests that need it are skipped."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


def compiled(name: str, sources: list[Path], *options: str) -> Path:
    """A file made of sources, by the compiler; an old one where nothing has changed."""
    headers = [*CUDA.glob("*.hpp"), ROOT / "csrc" / "cpu" / "philox.hpp"]
    digest = hashlib.sha256(" ".join((compiler(), *OPTIONS, *options)).encode())
    for path in sorted([*sources, *headers]):
        digest.update(path.read_bytes())
    made = ROOT / "build" / "shimmed" / digest.hexdigest()[:16] / name
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        new = made.with_name(f"{name}.{os.getpid()}")
        languages = [word for path in sources for word in (("-x", "c++", str(path)))]
        done = subprocess.run(
            [compiler(), *OPTIONS, *options, *languages, "-o", str(new), "-pthread", "-ldl"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        os.replace(new, made)
    return made


@cache
def shimmed() -> ModuleType:
    """The module, its kernels run on the CPU."""
    import pybind11

    includes = [f"-isystem{folder}" for folder in (pybind11.get_include(), sysconfig.get_paths()["include"])]
    sources = [CUDA / name for name in ("launch_tiles.cu", "launch.cu", "bindings.cpp", "nccl.cpp")]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    path = compiled(f"{NAME}{suffix}", sources, "-shared", f"-DSHAPESCRIPT_MODULE={NAME}", *includes)
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
