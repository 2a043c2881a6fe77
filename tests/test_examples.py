"""The programs of `examples/`, in short: a few steps on one device, on three, and in PyTorch, from the same weights.

Each trains by its own `step` on its own data. Its peer in `bench/peers/models/` is the oracle; what a program draws at
random (the noise of a VAE) is a field of the data here, so that both get the same. `examples/*/README.md` has what the
whole runs reach.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from several import devices

import shapescript
from bench.measure import disagreement
from bench.peers.models import load_task
from shapescript.python import runtime

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS = 20

Rows = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Example:
    """A program: its model's and its data's name, its optimizer, its rows, and what `step` takes besides a batch."""

    name: str
    model: str
    data: str
    optimizer: Callable[[Any], Any]
    rows: Callable[[Any], Rows]
    module: str
    size: int = 32
    step: str = "step"
    more: tuple[object, ...] = ()


def mnist(code: Any) -> Rows:
    return dict(code.columns("train"))


def windows(code: Any) -> Rows:
    taken = code.windows("held", 32)
    items = [taken[place] for place in range(200)]
    return {name: torch.stack([item[name] for item in items]) for name in ("x", "y")}


def pictures_and_noise(code: Any) -> Rows:
    rows = dict(code.columns("train"))
    rows["noise"] = torch.randn(len(rows["picture"]), 8, generator=torch.Generator().manual_seed(2))
    return rows


def points_and_noise(code: Any) -> Rows:
    random = torch.Generator().manual_seed(2)
    return {
        "x": code.points(400, 0),
        "t": torch.randint(100, (400,), generator=random),
        "noise": torch.randn(400, 2, generator=random),
    }


def pairs_and_others(code: Any) -> Rows:
    rows = {name: column[:2000] for name, column in code.columns("held").items()}
    drawn = torch.randint(code.TABLE, (2000, code.OTHERS), generator=torch.Generator().manual_seed(2))
    return {**rows, "other": code.table()[drawn]}


ALL = [
    Example(
        "conv",
        "Net",
        "Sample",
        lambda m: shapescript.sgd(m, lr=0.1, momentum=0.9, weight_decay=5e-4),
        mnist,
        "mnist",
        more=(0.1,),
    ),
    Example("lstm", "Net", "Window", lambda m: shapescript.adamw(m, lr=4e-3), windows, "shakespeare"),
    Example(
        "vae", "Vae", "Drawn", lambda m: shapescript.adam(m, lr=2e-3), pictures_and_noise, "pictures", step="step_given"
    ),
    Example(
        "ddpm",
        "Denoiser",
        "Drawn",
        lambda m: shapescript.adamw(m, lr=1e-3),
        points_and_noise,
        "moons",
        size=100,
        step="step_given",
    ),
    Example(
        "clip", "Clip", "Pair", lambda m: shapescript.adamw(m, lr=2e-3), lambda code: code.columns("train"), "captions"
    ),
    Example(
        "vit",
        "Vit",
        "Sample",
        lambda m: shapescript.adamw(m, lr=2e-3),
        lambda code: code.columns("train"),
        "patches",
        more=(2e-3,),
    ),
    Example(
        "experts",
        "Experts",
        "Sample",
        lambda m: shapescript.adamw(m, lr=5e-3),
        lambda code: code.columns(1000, 0),
        "rings",
        size=50,
    ),
    Example(
        "word2vec",
        "Words",
        "Drawn",
        lambda m: shapescript.adamw(m, lr=2e-3),
        pairs_and_others,
        "words",
        step="step_given",
    ),
]


@contextmanager
def loaded(example: Example, count: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program on so many devices, whose workers are those of all tests."""
    place = devices(count)
    place.close = lambda: None  # type: ignore[method-assign]
    start = runtime.start_program
    monkeypatch.setattr(runtime, "start_program", lambda *given: start(*given, place=place))
    names = "cpu" if count == 1 else f"cpu[{' '.join(map(str, range(count)))}]"
    yield shapescript.load(EXAMPLES / example.name / f"{example.name}.ss", devices=names)
    monkeypatch.setattr(runtime, "start_program", start)


def batches(example: Example) -> list[Rows]:
    """The rows of each step; the last is shorter and divides by no number of devices."""
    rows = example.rows(sys.modules.get(example.module) or import_module(example.module))
    order = torch.randperm(len(next(iter(rows.values()))), generator=torch.Generator().manual_seed(1))
    found = []
    for step in range(STEPS):
        size = example.size if step < STEPS - 1 else example.size - 5
        chosen = order[torch.arange(step * example.size, step * example.size + size) % len(order)]
        found.append({name: column[chosen].clone() for name, column in rows.items()})
    return found


def trained(example: Example, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], Any, list[Rows]]:
    """The losses of the program's own steps, its initial weights and its batches."""
    with loaded(example, count, monkeypatch) as program:
        m = getattr(program, example.model)(seed=0)
        weights = m.state_dict()
        opt = example.optimizer(m)
        step = getattr(program, example.step)
        given = batches(example)
        losses = [float(step(m, opt, getattr(program, example.data)(**rows), *example.more)) for rows in given]
    return losses, weights, given


@pytest.mark.parametrize("example", ALL, ids=lambda example: str(example.name))
def test_one_device_three_and_pytorch_have_the_same_losses(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, weights, given = trained(example, 1, monkeypatch)
    several, _, _ = trained(example, 3, monkeypatch)
    task = load_task(example.name)
    model = task.make(weights)
    optimizer = task.optimizer(model.parameters())
    theirs = []
    for rows in given:
        loss = task.loss(model, *[rows[name] for name in task.fields])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    assert theirs[-1] != theirs[0]
    assert not disagreement({"one device": ours, "three devices": several, "PyTorch": theirs}, "PyTorch")
