"""Updates on parts: bit for bit what whole updates give, on real workers, and what can't be cut stays whole."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("shapescript._transport")

from programs import Program, tensors  # noqa: E402
from several import devices, pool  # noqa: E402

from shapescript.devices.several import SeveralRunner  # noqa: E402
from shapescript.layout.words import Sharded  # noqa: E402

MODEL = """devices cpu

dim D = 7
dim H = 5
dim K = 2

model Net:
    param w: [D H] = normal(std=0.3)
    param b: [H] = normal(std=0.3)
    param v: [H K] = normal(std=0.3)
    param few: [K] = normal(std=0.3)
    param unused: [H] = normal(std=1.0)

data Row:
    x: [D]

fn loss(m: Net, batch: [b] Row) -> [] f32:
    h = tanh(batch.x @ m.w + m.b)
    return mean((h @ m.v + m.few) ** 2, over=[b K])

fn make() -> Net:
    return Net(seed=0)

"""
STEP = """fn step(mut m: Net, mut opt: {kind}[Net], batch: [b] Row) -> [] f32:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, {gradient})
    return l

fn optimizer(m: Net) -> {kind}[Net]:
    return {make}
"""
OPTIMIZERS = {
    "AdamW": "adamw(m, lr=0.01, weight_decay=0.1)",
    "Lion": "lion(m, lr=0.01)",
    "SGD": "sgd(m, lr=0.1, momentum=0.9)",
}
"""SGD's momentum is linear in the gradient, and is summed with it: its all-reduce gives the state itself."""


def text_of(kind: str, gradient: str = "g") -> str:
    return MODEL + STEP.format(kind=kind, make=OPTIMIZERS[kind], gradient=gradient)


def rows(count: int, seed: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(count, 7, generator=torch.Generator().manual_seed(seed))}


def trained(text: str, count: int, halves: bool) -> tuple[list[torch.Tensor], SeveralRunner]:
    """Losses, parameters and the optimizer's state after some steps, with a short batch and other losses between."""
    workers = pool(count)
    before, workers.halves = workers.halves, halves
    try:
        program = Program(text, place=devices(count))
        m = program.call("make")
        opt = program.call("optimizer", m)
        found = []
        for step, size in enumerate([9, 9, 2, 9]):
            found.append(program.call("step", m, opt, rows(size, step)))
            found.append(program.call("loss", m, rows(4, step)))
        found.extend(tensors(m).values())
        found.extend(tensors(opt).values())
        (runner,) = (plan.runner for plan in program.domain.plans if plan.function.name == "step")
        assert isinstance(runner, SeveralRunner)
        whole = [each if isinstance(each, torch.Tensor) else each.fetch() for each in found]  # type: ignore[attr-defined]
        return whole, runner
    finally:
        workers.halves = before


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("kind", ["AdamW", "Lion"])
def test_parts_give_the_same_bits(kind: str, count: int) -> None:
    """Parts that don't go up, and parts without any values (two values on three devices)."""
    on_parts, runner = trained(text_of(kind), count, halves=True)
    whole, plain = trained(text_of(kind), count, halves=False)
    assert any(isinstance(word, Sharded) for layout in runner.laid.outputs for word in layout)
    assert not any(isinstance(word, Sharded) for layout in plain.laid.outputs for word in layout)
    assert len(on_parts) == len(whole) > 10
    for got, wanted in zip(on_parts, whole, strict=True):
        assert torch.equal(got, wanted)
    for parts, together in zip(pool(count).sent(runner.plan), pool(count).sent(plain.plan), strict=True):
        assert parts == together


@pytest.mark.parametrize(("kind", "gradient"), [("AdamW", "clip(g, norm=0.1)"), ("SGD", "g")])
def test_what_is_needed_whole_stays_whole(kind: str, gradient: str) -> None:
    text = text_of(kind, gradient)
    found, runner = trained(text, 3, halves=True)
    assert not any(isinstance(word, Sharded) for layout in runner.laid.outputs for word in layout)
    wanted, _ = trained(text, 3, halves=False)
    for got, each in zip(found, wanted, strict=True):
        assert torch.equal(got, each)
