"""`python -m tests.gpu`: all that needs a GPU, by one command, without a network.

Builds the modules in place, runs the tests of this folder and the bench on `cuda`, prints one table and writes
`gpu.json`. The status is 1 where something failed, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def ran(command: list[str], **environment: str) -> tuple[int, float]:
    """A command's status and time; its output goes to this one's."""
    print(f"--- {' '.join(command)}", flush=True)
    begun = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode
    return status, time.monotonic() - begun


def tests_of(report: Path) -> dict[str, Any]:
    """How many tests passed, failed and were skipped, and why these were."""
    cases = list(xml.parse(report).iter("testcase")) if report.exists() else []
    failed = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    reasons = [found.get("message") for case in cases if (found := case.find("skipped")) is not None]
    passed = len(cases) - len(failed) - len(reasons)
    return {"passed": passed, "failed": failed, "skipped": sorted({str(reason) for reason in reasons})}


def step_time(device: str = "cuda:0", steps: int = 1000) -> dict[str, Any] | None:
    """What step_time.py measures."""
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "step_time.py"), device, str(steps)]
    print(f"--- {' '.join(command)}", flush=True)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] | None = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    return found


def main() -> int:
    """Builds, tests, measures, and says it."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--no-build", action="store_true", help="the modules are built already")
    parser.add_argument("--no-bench", action="store_true", help="run the tests alone")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the file of the results (gpu.json)")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("python -m tests.gpu: there is no NVIDIA GPU here that torch can use", file=sys.stderr)
        return 2
    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(0),
        "gpus": torch.cuda.device_count(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }
    rows: list[tuple[str, str, float]] = []
    if not options.no_build:
        major, minor = torch.cuda.get_device_capability(0)
        status, took = ran(
            [sys.executable, "setup.py", "build_ext", "--inplace"],
            SHAPESCRIPT_NATIVE="1",
            SHAPESCRIPT_CUDA="1",
            # no more than this GPU needs
            SHAPESCRIPT_CUDA_ARCHS=os.environ.get("SHAPESCRIPT_CUDA_ARCHS", f"{major}{minor}"),
        )
        if status != 0:
            print(f"python -m tests.gpu: the build failed with {status}, as said above", file=sys.stderr)
            return 1
        rows.append(("build", "done", took))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        status, took = ran([sys.executable, "-m", "pytest", "-q", "tests/gpu", f"--junitxml={report}"])
        found["tests"] = tests_of(report)
        said = f"{found['tests']['passed']} passed, {len(found['tests']['failed'])} failed"
        rows.append(("tests", said if status in (0, 1) else f"pytest ended with {status}", took))
        failed = status != 0
        found["step"] = step_time()
        failed = failed or found["step"] is None
        if not options.no_bench:
            status, took = ran([sys.executable, "-m", "bench", "--devices", "cuda", "--no-commands", "--out", folder])
            results = Path(folder) / "results.json"
            found["bench"] = json.loads(results.read_text()) if results.exists() else None
            rows.append(("bench", "done" if status == 0 else f"failed: {status}", took))
            failed = failed or status != 0
    failed = failed or any(result.startswith("failed") for _, result, _ in rows)
    print(f"\n{found['gpu']} ({found['gpus']}), torch {found['torch']}, Python {found['python']}")
    for name, result, took in rows:
        print(f"{name:8} {result:32} {took:8.1f} s")
    step = found["step"]
    if step is not None:
        said = f"{step['ms_per_step']:.4f} ms, its kernels {step['kernels_ms_per_step']:.4f} ms"
        print(f"the chapter's step at batch 64, AdamW included: {said} (goal: 0.10 ms, and 1.5 times its kernels)")
    for name in found["tests"]["failed"]:
        print(f"failed: {name}")
    for reason in found["tests"]["skipped"]:
        print(f"skipped: {reason}")
    options.out.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
