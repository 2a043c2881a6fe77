"""The machine and the versions of a run, as its report says them; nothing that names the host."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bench.contestants import Machine

PACKAGES = ("torch", "jax", "numpy")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> Machine:
    """What decides who can take part."""
    import torch

    return Machine(cores(), torch.cuda.device_count())


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def instructions() -> str:
    """The widest vectors that it has."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return "unknown"
    names = {"avx2": "AVX2", "avx512f": "AVX-512", "amx_tile": "AMX"}
    return ", ".join(words for flag, words in names.items() if flag in flags) or "none of AVX2, AVX-512, AMX"


def version(package: str) -> str:
    """A package's version."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def described() -> dict[str, str]:
    """What the report says."""
    from shapescript import __version__

    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{processor()}, {cores()} cores, {instructions()}",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": f"shapescript {__version__}, " + ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        busy = ", so others were at work: expect noise" if load > 0.5 else ""
        found["load before"] = f"{load:.1f}{busy}"
    gpus = gpu_names()
    if gpus:
        found["GPUs"] = gpus
    return found


def gpu_names() -> str:
    """The NVIDIA GPUs that torch finds."""
    import torch

    return ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
