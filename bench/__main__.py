"""`python -m bench`: what a user waits for before a program runs.

Whole processes, one of each kind in turn: a bare Python, `shapescript check` of the digits example, and
`import torch`, which a check does without. Prints the median and the spread of each, and the ratios of medians.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 9
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits" / "train.ss"
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "shapescript check": [sys.executable, "-m", "shapescript", "check", str(EXAMPLE)],
    "import torch": [sys.executable, "-c", "import torch"],
}


def seconds(command: list[str]) -> float:
    """The time of one whole process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Measures, interleaved, after one round that nobody counts."""
    for command in COMMANDS.values():
        seconds(command)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    check = statistics.median(times["shapescript check"])
    for name, found in times.items():
        median = statistics.median(found)
        spread = f"{min(found):.3f}-{max(found):.3f}"
        print(f"{name:<18} {median:.3f} s ({spread}), a check is {check / median:.2f} of it")


if __name__ == "__main__":
    main()
