"""The optimizers against torch.optim over fifty steps in f64, Lion against its formula, and clipping."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from shapescript.controller.host_builtins import HOST
from shapescript.controller.host_domain import HostDomain, host_evaluator
from shapescript.controller.output import Output
from shapescript.source import Source
from shapescript.specialise.builtins import new_optimizer
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.optimizers import update
from shapescript.specialise.values import DeviceTensor, GradientsValue, ModelValue, OptimizerValue
from shapescript.syntax.parse import parse
from shapescript.types.axes import Axis
from shapescript.types.checker import check_program
from shapescript.types.element import F64
from shapescript.types.kinds import ModelOf

PROGRAM = """devices cpu

dim D = 3
dim C = 2

model Net:
    param w: [D C] = zeros
    param b: [C] = zeros
"""
AXES = {"w": (Axis.named("D"), Axis.named("C")), "b": (Axis.named("C"),)}


def evaluator(tmp: Path) -> Evaluator:
    source = Source("program.ss", PROGRAM)
    program = check_program(source, parse(source), lambda module: None)
    output = Output("program", tmp, io.StringIO(), io.StringIO())
    return host_evaluator(HostDomain(program, program.known_sizes(), lambda function: True, output, HOST, seed=0))


def net_type(ev: Evaluator) -> ModelOf:
    return ModelOf(ev.program.models["Net"].node)


def tensors(values: Mapping[str, torch.Tensor]) -> dict[str, object]:
    return {name: DeviceTensor(value, AXES[name], F64) for name, value in values.items()}


def drawn(random: torch.Generator) -> dict[str, torch.Tensor]:
    return {
        "w": torch.randn(3, 2, generator=random, dtype=torch.float64),
        "b": torch.randn(2, generator=random, dtype=torch.float64),
    }


class Training:
    """A model and its optimizer; each step takes gradients that are given."""

    def __init__(self, tmp: Path, kind: str, start: Mapping[str, torch.Tensor], **options: object) -> None:
        self.evaluator = evaluator(tmp)
        self.type = net_type(self.evaluator)
        self.model = ModelValue(self.type, tensors(start))
        self.state: OptimizerValue = new_optimizer(self.evaluator, kind, self.model, dict(options))

    def step(self, gradients: Mapping[str, torch.Tensor], lr: float | None = None) -> None:
        update(self.evaluator.domain, self.model, self.state, GradientsValue(self.type, tensors(gradients)), lr)

    def now(self, name: str) -> torch.Tensor:
        found = self.model.fields[name]
        assert isinstance(found, DeviceTensor)
        return found.data


@pytest.mark.parametrize(
    ("kind", "options", "made"),
    [
        ("SGD", {"lr": 0.1}, torch.optim.SGD),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, torch.optim.SGD),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}, torch.optim.SGD),
        ("Adam", {"lr": 0.01}, torch.optim.Adam),
        ("Adam", {"lr": 0.01, "weight_decay": 0.1}, torch.optim.Adam),
        ("AdamW", {"lr": 0.01}, torch.optim.AdamW),
        ("AdamW", {"lr": 0.01, "weight_decay": 0.3, "betas": (0.8, 0.95)}, torch.optim.AdamW),
    ],
)
def test_fifty_steps_are_torchs(
    tmp_path: Path, kind: str, options: dict[str, Any], made: Callable[..., torch.optim.Optimizer]
) -> None:
    random = torch.Generator().manual_seed(1)
    start = drawn(random)
    ours = Training(tmp_path, kind, start, **options)
    theirs = {name: value.clone().requires_grad_() for name, value in start.items()}
    optimizer = made(list(theirs.values()), **options)
    for _ in range(50):
        gradients = drawn(random)
        ours.step(gradients)
        for name, parameter in theirs.items():
            parameter.grad = gradients[name]
        optimizer.step()
    for name, parameter in theirs.items():
        assert torch.allclose(ours.now(name), parameter.detach(), rtol=1e-12, atol=1e-12)


def test_lion_is_its_formula(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(2)
    start = drawn(random)
    ours = Training(tmp_path, "Lion", start, lr=0.01, weight_decay=0.1)
    p, m = start["w"].clone(), torch.zeros(3, 2, dtype=torch.float64)
    for _ in range(50):
        gradients = drawn(random)
        ours.step(gradients)
        p = p * (1 - 0.01 * 0.1) - 0.01 * torch.sign(0.9 * m + 0.1 * gradients["w"])
        m = 0.99 * m + 0.01 * gradients["w"]
    assert torch.allclose(ours.now("w"), p, rtol=1e-12, atol=1e-12)


def full(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((3, 2), value, dtype=torch.float64), "b": torch.full((2,), value, dtype=torch.float64)}


def test_decay_is_decoupled_in_adamw_alone(tmp_path: Path) -> None:
    for kind, wanted in (("AdamW", 0.89), ("Adam", 0.90)):
        training = Training(tmp_path, kind, full(1.0), lr=0.1, weight_decay=0.1)
        training.step(full(0.1))
        assert float(training.now("b")[0]) == pytest.approx(wanted, abs=1e-6)


def test_the_bias_is_corrected_by_the_step(tmp_path: Path) -> None:
    training = Training(tmp_path, "Adam", full(0.0), lr=0.1)
    found = []
    for gradient in (1.0, 2.0, 3.0):
        training.step(full(gradient))
        found.append(float(training.now("b")[0]))
    assert found == pytest.approx([-0.1, -0.1965182010, -0.2923183223], abs=1e-8)


def test_decay_takes_the_rate_of_its_step(tmp_path: Path) -> None:
    training = Training(tmp_path, "AdamW", full(1.0), lr=0.1, weight_decay=0.1)
    found = []
    for rate in (0.1, 0.05):
        training.step(full(0.0), rate)
        found.append(float(training.now("b")[0]))
    assert found == pytest.approx([0.99, 0.98505], abs=1e-12)


def test_decay_axes_spares_what_has_fewer(tmp_path: Path) -> None:
    training = Training(tmp_path, "AdamW", full(1.0), lr=0.1, weight_decay=0.1, decay_axes=2)
    training.step(full(0.0))
    assert float(training.now("w")[0, 0]) == pytest.approx(0.99) and float(training.now("b")[0]) == 1
