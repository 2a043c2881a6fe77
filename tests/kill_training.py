"""Kills a training at random moments, goes on from its checkpoint each time, and compares with one that wasn't killed.

    python tests/kill_training.py --times 200

The program has dropout, a shuffle without a seed, random augmentation in Python and a learning rate that drops, and
writes checkpoints beside its steps. Each time it is killed, the path must load as a whole checkpoint of one step; in
the end the losses of all steps must be bit-equal to those of the training that wasn't killed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import shapescript
from shapescript.controller import checkpoint_files

PROGRAM = """devices cpu

dim D = 6
dim H = 8
dim C = 3

import python rows

model Net:
    param w1: [D H] = normal(std=0.3)
    param w2: [H C] = normal(std=0.3)

data Row:
    x: [D]
    y: [] Index[C]

fn loss(m: Net, batch: [b] Row) -> [] NonNeg:
    h = batch.x @ m.w1 |> relu |> dropout(0.3)
    return cross_entropy(h @ m.w2, batch.y, over=C)

fn train_step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row, lr: float) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g, lr=lr)
    return l

fn main(resume: bool = false, epochs: int = 3, every: int = 2, workers: int = 0, stop: int = 0):
    train = rows.load() as Dataset[Row]
    m = Net(seed=0)
    opt = adamw(m, lr=0.01)
    epoch = 0
    place = 0
    step = 0
    if resume:
        load_checkpoint("run.ckpt", mut m, mut opt, mut epoch, mut place, mut step)
    while epoch < epochs:
        for batch in train |> shuffle |> map(rows.noisy) |> batches(8, workers=workers) |> skip(place):
            lr = 0.01
            if step >= 9:
                lr = 0.001
            rows.note(step, lr, train_step(mut m, mut opt, batch, lr))
            step = step + 1
            place = place + 1
            if step % every == 0:
                save_checkpoint("run.ckpt", m, opt, epoch, place, step)
            if step == stop:
                return
        epoch = epoch + 1
        place = 0
"""
ROWS = """import os
import random

import torch

def load():
    drawn = torch.Generator().manual_seed(0)
    return [{"x": torch.rand(6, generator=drawn), "y": i % 3} for i in range(50)]

def noisy(item):
    return {**item, "x": item["x"] + 0.1 * torch.randn(6) + 0.01 * random.random()}

def note(step, lr, loss):
    with open(os.environ["LOSSES"], "a") as file:
        file.write(f"{step} {lr} {loss.item().hex()}\\n")
"""
STEPS = 21


def losses(path: Path) -> dict[int, str]:
    """What was noted of each step; a step that was done twice must have been the same."""
    found: dict[int, str] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        step, *rest = line.split()
        if len(rest) < 2 or not rest[1].startswith(("0x", "-0x")) or "p" not in rest[1]:
            continue  # the kill came within the line
        assert found.setdefault(int(step), " ".join(rest)) == " ".join(rest), f"step {step} came out otherwise"
    return found


def write_program(folder: Path) -> Path:
    """The program and its module, in a folder."""
    (folder / "rows.py").write_text(ROWS)
    (folder / "train.ss").write_text(PROGRAM)
    return folder / "train.ss"


def run(folder: Path, name: str, **arguments: object) -> None:
    """Runs the program in this process."""
    os.environ["LOSSES"] = str(folder / name)
    with shapescript.load(folder / "train.ss") as program:
        program.main(**arguments)


def run_in_child(folder: Path, name: str, seconds: float, **arguments: object) -> bool:
    """Runs the program in a copy of this process and kills it after some time; whether it was done before."""
    child = os.fork()
    if child == 0:
        try:
            run(folder, name, **arguments)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert status == 0, f"the program ended with {status}"
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def kill(folder: Path, times: int, seed: int = 0) -> int:
    """Kills so many times, over as many trainings as that takes; gives the number of trainings that came to the end."""
    import torch

    torch.set_num_threads(1)  # a copied process has no threads of torch's
    os.chdir(folder)
    write_program(folder)
    moments = random.Random(seed)
    start = time.monotonic()
    run_in_child(folder, "whole.txt", 600.0)
    long = time.monotonic() - start
    expected = losses(folder / "whole.txt")
    assert len(expected) == STEPS
    checkpoint = folder / "run.ckpt"
    killed = trainings = 0
    while killed < times:
        checkpoint.unlink(missing_ok=True)
        (folder / "parts.txt").unlink(missing_ok=True)
        done = False
        while not done:
            resume = checkpoint.exists()
            last = killed >= times
            done = run_in_child(folder, "parts.txt", 600.0 if last else moments.uniform(0.0, 1.1 * long), resume=resume)
            killed += not done
            if checkpoint.exists():
                found = checkpoint_files.read(checkpoint)
                updates = int(found.tensors["opt.steps.step"].item())
                assert updates == found.numbers["step"], "a checkpoint of two steps"
        assert losses(folder / "parts.txt") == expected, "the losses aren't those of the training that wasn't killed"
        left = [path.name for path in folder.iterdir() if path.name.startswith(".run.ckpt")]
        assert not left, f"left behind: {left}"
        trainings += 1
    return trainings


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        count = kill(Path(name), given.times, given.seed)
    print(f"killed {given.times} times, {count} trainings came to the end, all losses bit-equal")
