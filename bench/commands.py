"""What a user waits for before a program runs: whole commands, one of each kind in turn.

A bare Python, `shapescript check` of the digits example, and `import torch`, which a check does without.
"""

from __future__ import annotations

import subprocess
import sys
import time

from bench.contestant import ROOT
from bench.goals import IMPORT_TORCH
from bench.measure import turned

EXAMPLE = ROOT / "examples" / "digits" / "train.ss"
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "shapescript check": [sys.executable, "-m", "shapescript", "check", str(EXAMPLE)],
    IMPORT_TORCH: [sys.executable, "-c", "import torch"],
}


def seconds_of(command: list[str]) -> float:
    """The time of one whole process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - start


def measure_commands(rounds: int) -> dict[str, list[float]]:
    """The seconds of each, interleaved, after one round that nobody counts."""
    for command in COMMANDS.values():
        seconds_of(command)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(rounds):
        for name in turned(list(COMMANDS), number):
            times[name].append(seconds_of(COMMANDS[name]))
    return times
