"""`shapescript new NAME`: a folder with a program that trains at once, its data in Python, and a page that says how.

Takes the name of a folder that isn't there yet; writes it whole or not at all.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

from shapescript.cli.usage import UsageError

TRAIN = """\
# Learns which of two moons a point lies on. Run it: shapescript run train.ss, or train.ss 20 for 20 epochs.

devices cpu

dim P = 2   # the coordinates of a point
dim H = 32  # features
dim C = 2   # moons

import python points

model Net:
    param into: [P H] = kaiming
    param b1:   [H]   = zeros
    param out:  [H C] = xavier
    param b2:   [C]   = zeros

data Point:
    place: [P]
    moon:  [] Index[C]

fn scores(m: Net, place: [b P]) -> [b C]:
    return relu(place @ m.into + m.b1) @ m.out + m.b2

fn loss(m: Net, batch: [b] Point) -> [] NonNeg:
    return cross_entropy(scores(m, batch.place), batch.moon, over=C)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Point) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn right(m: Net, batch: [b] Point) -> [] i64:
    return sum(argmax(scores(m, batch.place), over=C) == batch.moon, over=b)

fn main(epochs: int = 10, lr: float = 0.01):
    train = points.load("train") as Dataset[Point]
    test = points.load("test") as Dataset[Point]
    m = Net(seed=0)
    opt = adamw(m, lr=lr)
    for epoch in 0..epochs:
        for batch in train |> shuffle(seed=epoch) |> batches(32):
            log("loss", step(mut m, mut opt, batch))
        hits = 0
        for batch in test |> batches(256):
            hits = hits + right(m, batch)
        print("epoch", epoch + 1, "test accuracy", hits / len(test))
    save(m, "net.safetensors")
"""

POINTS = '''\
"""Points of two moons, made here: 800 to train on, 200 to test on."""

from __future__ import annotations

import math

import torch
from torch.utils.data import Dataset

Item = dict[str, torch.Tensor]


class Points(Dataset[Item]):
    """Points and the moon on which each lies: an item has the fields of `data Point`."""

    def __init__(self, places: torch.Tensor, moons: torch.Tensor) -> None:
        self.places = places
        self.moons = moons

    def __len__(self) -> int:
        return len(self.moons)

    def __getitem__(self, place: int) -> Item:
        return {"place": self.places[place], "moon": self.moons[place]}


def load(part: str) -> Points:
    """The `"train"` or the `"test"` part."""
    draw = torch.Generator().manual_seed(0)
    moons = torch.arange(1000) % 2
    angles = torch.rand(1000, generator=draw) * math.pi
    x = torch.where(moons == 0, angles.cos(), 1 - angles.cos())
    y = torch.where(moons == 0, angles.sin(), 0.5 - angles.sin())
    places = torch.stack([x, y], dim=1) + 0.1 * torch.randn(1000, 2, generator=draw)
    chosen = slice(800, 1000) if part == "test" else slice(0, 800)
    return Points(places[chosen], moons[chosen])
'''

README = """\
# {name}

```sh
shapescript check train.ss           # what the checker says, without running
shapescript run train.ss             # trains, and writes net.safetensors
shapescript run train.ss 20 --lr 0.02
shapescript run --devices 'cpu[0 1 2]' train.ss
shapescript watch                    # the curves of the last run
```

`train.ss` is the program, `points.py` its data. Metrics go to `runs/`, for TensorBoard too.
"""
FILES = {
    "train.ss": TRAIN,
    "points.py": POINTS,
    "README.md": README,
    ".gitignore": "runs/\n*.safetensors\n__pycache__/\n",
}


def new(arguments: argparse.Namespace) -> int:
    """Makes the project."""
    folder = Path(arguments.name)
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", folder.name):
        raise UsageError(f"`{arguments.name}` can't be the name of a project: letters, digits, `-` and `_` can")
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"`{arguments.name}` is there already; choose another name")
    if not folder.parent.is_dir():
        raise UsageError(f"there is no folder `{folder.parent}` to put `{folder.name}` into")
    try:
        folder.mkdir()
    except OSError as error:
        raise UsageError(f"`{arguments.name}` can't be made: {error.strerror}") from None
    try:
        for name, text in FILES.items():
            (folder / name).write_text(text.format(name=folder.name) if name == "README.md" else text, encoding="utf-8")
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise UsageError(f"`{arguments.name}` can't be written: {error.strerror}") from None
        raise
    print(f"{arguments.name} is made. It trains:\n\n  cd {arguments.name}\n  shapescript run train.ss")
    return 0
