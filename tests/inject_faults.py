"""Does faults to the workers of real runs at random moments, by hand: `python tests/inject_faults.py --times 200`.

Each run trains on `cpu[0 1 2]`; after a random time a random worker, or the controller, is killed or stopped. What must
hold: the run ends within ten seconds with the right status and one line of error, and no process of it is left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

PROGRAM = """devices cpu[0 1 2]

dim D = 64
dim C = 10

import python rows

model Net:
    param w: [D C] = normal(std=0.02)

data Row:
    x: [D]
    label: [] Index[C]

fn loss(m: Net, batch: [b] Row) -> [] NonNeg:
    return cross_entropy(batch.x @ m.w, batch.label, over=C)

fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Row) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn main():
    rows_of = rows.rows() as Dataset[Row]
    m = Net(seed=1)
    opt = sgd(m, lr=0.1)
    for epoch in 0..1_000_000:
        for batch in rows_of |> shuffle(seed=epoch) |> batches(64):
            print("loss", step(mut m, mut opt, batch))
"""
ROWS = """import torch


def rows():
    return torch.utils.data.TensorDataset(torch.rand(640, 64), torch.randint(10, (640,)))
"""
FAULTS = {
    "kill a worker": (signal.SIGKILL, "worker"),
    "stop a worker": (signal.SIGSTOP, "worker"),
    "end a worker": (signal.SIGTERM, "worker"),
    "crash a worker": (signal.SIGSEGV, "worker"),
    "kill the fork server": (signal.SIGKILL, "fork server"),
    "kill the controller": (signal.SIGKILL, "controller"),
    "interrupt the controller": (signal.SIGINT, "controller"),
}
STATUS = {"kill the controller": -signal.SIGKILL, "interrupt the controller": 130}
MOST_SECONDS = 10.0


def listen() -> None:
    """A shell starts what runs in the background with the signal ignored, and a child inherits that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def one(folder: Path, draw: random.Random) -> str:
    """One run with one fault; what was wrong with its end, or nothing."""
    fault = draw.choice(list(FAULTS))
    number, at = FAULTS[fault]
    output, errors = folder / "output", folder / "errors"
    with output.open("w") as out, errors.open("w") as err:
        run = subprocess.Popen(
            [sys.executable, "-m", "shapescript", "train.ss"], cwd=folder, stdout=out, stderr=err, preexec_fn=listen
        )
    controller = psutil.Process(run.pid)
    while output.stat().st_size == 0 and run.poll() is None:
        time.sleep(0.05)
    time.sleep(draw.uniform(0.0, 1.5))
    if run.poll() is not None:
        return f"{fault}: the run ended before, with {run.returncode}: {errors.read_text()}"
    family = controller.children(recursive=True)
    workers = [process for process in family if process.name().startswith("cpu[")]
    servers = [process for process in family if process not in workers]
    if len(workers) != 3:
        run.kill()
        return f"{fault}: {len(workers)} workers before the fault: {errors.read_text()}"
    os.kill(draw.choice({"worker": workers, "fork server": servers, "controller": [controller]}[at]).pid, number)
    began = time.monotonic()
    try:
        status = run.wait(3 * MOST_SECONDS)
    except subprocess.TimeoutExpired:
        run.kill()
        return f"{fault}: still there after {3 * MOST_SECONDS:.0f} s"
    seconds = time.monotonic() - began
    _, left = psutil.wait_procs(family, timeout=5)
    wrong = []
    if status != STATUS.get(fault, 1):
        wrong.append(f"status {status}")
    if seconds > MOST_SECONDS:
        wrong.append(f"{seconds:.1f} s")
    if left:
        wrong.append(f"left: {left}")
    said = errors.read_text().count("error: ")
    if said != (0 if at == "controller" else 1) or "Traceback" in errors.read_text():
        wrong.append(f"said {errors.read_text()!r}")
    print(f"{fault:<26}{seconds:6.2f} s  {'; '.join(wrong) or 'as it should be'}", flush=True)
    return f"{fault}: {'; '.join(wrong)}" if wrong else ""


def main() -> int:
    """So many faults; the status says whether all runs ended as they should."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--times", type=int, default=200)
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    draw = random.Random(given.seed)
    bad = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.ss").write_text(PROGRAM)
        (folder / "rows.py").write_text(ROWS)
        for _ in range(given.times):
            wrong = one(folder, draw)
            if wrong:
                bad.append(wrong)
    print(f"{given.times} faults, {len(bad)} runs that ended otherwise than they should")
    for wrong in bad:
        print(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
