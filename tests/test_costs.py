"""What `plan` says that a step sends is what the transports count as it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from programs import Program, session
from several import devices, pool

from shapescript.cli import main
from shapescript.controller.costs import costs
from shapescript.devices.several import SeveralRunner

CHAPTER = """devices cuda[0 1 2]

dim D = 784
dim Hd = 256
dim C = 10

model Mlp:
    param w1: [D Hd] = normal(std=0.02)
    param w2: [Hd C] = normal(std=0.02)

data Digit:
    img: [D]
    label: [] Index[C]

fn loss(m: Mlp, batch: [b] Digit) -> [] NonNeg:
    return cross_entropy(batch.img @ m.w1 |> gelu |> matmul(m.w2), batch.label, over=C)

fn step(mut m: Mlp, mut opt: AdamW[Mlp], batch: [b] Digit) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn make() -> Mlp:
    return Mlp(seed=0)

fn optimizer(m: Mlp) -> AdamW[Mlp]:
    return adamw(m, lr=3e-4)
"""

NORMS = """devices cuda[0 1 2]

dim D = 12
dim C = 5

model Net:
    bn: BatchNorm[D]
    param w: [D C] = normal(std=0.1)

data Row:
    x: [D]
    label: [] Index[C]

fn loss(mut m: Net, batch: [b] Row) -> [] NonNeg:
    return cross_entropy(batch_norm(batch.x, mut m.bn, over=b) @ m.w, batch.label, over=C)

fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Row) -> ([] NonNeg, [] f32):
    l, g = value_and_grad(loss, mut m, batch)
    size = norm(g)
    update(mut m, mut opt, clip(g, norm=1.0))
    return l, size

fn make() -> Net:
    return Net(seed=0)

fn optimizer(m: Net) -> SGD[Net]:
    return sgd(m, lr=0.1)
"""


def batch(text: str, count: int) -> dict[str, torch.Tensor]:
    width, classes = (784, 10) if text is CHAPTER else (12, 5)
    random = torch.Generator().manual_seed(0)
    name = "img" if text is CHAPTER else "x"
    label = torch.randint(classes, (count,), generator=random)
    return {name: torch.randn(count, width, generator=random), "label": label}


@pytest.mark.parametrize("shard", [False, True], ids=["whole", "sharded"])
@pytest.mark.parametrize("text", [CHAPTER, NORMS], ids=["chapter", "norms"])
def test_the_figures_are_those_that_are_counted(text: str, shard: bool) -> None:
    if shard:
        text = text.replace("devices cuda[0 1 2]", "devices cuda[0 1 2]\n    shard params")
    seen = session(text)
    assert not seen.diagnostics
    report = costs(seen.typed, seen.placed.kinds, seen.path, ["step"])["step"]
    assert not isinstance(report, str)
    program = Program(text.replace("cuda", "cpu"), place=devices(3, shard=shard))
    m = program.call("make")
    opt = program.call("optimizer", m)
    rows = batch(CHAPTER if "Mlp" in text else NORMS, 64)
    steps = 3
    for _ in range(steps):
        program.call("step", m, opt, rows)
    (runner,) = (plan.runner for plan in program.domain.plans if plan.function.name == "step")
    assert isinstance(runner, SeveralRunner)
    for sent in pool(3).sent(runner.plan):
        assert sent.bytes == steps * report.total.bytes
        assert sent.values == steps * sum(report.total.values.values())
        assert sent.launches == steps * report.total.launches


def test_the_chapters_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.ss").write_text(CHAPTER)
    assert main(["plan", str(tmp_path / "train.ss"), "step"]) == 0
    out = capsys.readouterr().out
    assert "value_and_grad: 203,264 f32 values, 813,056 bytes per step" in out
    assert "sends g.m.w1  [D Hd]  partial sum -> whole  all-reduce  200,704 f32      802,816 B" in out
    assert "sends g.m.w2  [Hd C]  partial sum -> whole  all-reduce  2,560 f32       10,240 B" in out
    assert "b split 22/21/21" in out


def test_memory_of_sharded_parameters_is_a_third() -> None:
    figures = []
    for text in (CHAPTER, CHAPTER.replace("devices cuda[0 1 2]", "devices cuda[0 1 2]\n    shard params")):
        seen = session(text)
        report = costs(seen.typed, seen.placed.kinds, seen.path, ["step"])["step"]
        assert not isinstance(report, str)
        figures.append([each.resting["param"] + each.resting["state"] for each in report.memory])
    whole, sharded = figures
    for one, share in zip(whole, sharded, strict=True):
        assert share == pytest.approx(one / 3, rel=0.05)


def test_what_depends_on_a_number_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.ss").write_text("devices cpu\nfn f(k: int) -> [k] f32:\n    return zeros[k]\n")
    assert main(["plan", str(tmp_path / "k.ss")]) == 0
    assert "isn't known before it runs: it depends on the value of `k`" in capsys.readouterr().out
