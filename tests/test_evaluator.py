"""Programs run from their text to their results, on one device; and the values and initialisers below that.

Expected numbers are worked out by torch, or written out by hand.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from shapescript.controller.host_builtins import HOST
from shapescript.controller.host_domain import HostDomain, host_evaluator
from shapescript.controller.output import Output
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.placement.kinds import Kind, place_functions
from shapescript.source import Source
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.initialise import fans, initial
from shapescript.specialise.values import (
    BatchValue,
    DeviceTensor,
    ModelValue,
    OptimizerValue,
    flatten,
    is_tensor,
    named_tensors,
    unflatten,
)
from shapescript.syntax.parse import parse
from shapescript.types.axes import Axis
from shapescript.types.checker import check_program
from shapescript.types.element import F32


class Run:
    """A program that runs; `text` is what it printed."""

    def __init__(self, text: str, tmp: Path, seed: int = 0) -> None:
        source = Source("program.ss", "devices cpu\n" + text)
        self.program = check_program(source, parse(source), lambda name: None)
        assert not self.program.errors, [
            (error.code, error.message, error.primary.span.place) for error in self.program.errors
        ]
        kinds = place_functions(self.program)
        self.stream = io.StringIO()
        self.output = Output("program", tmp, self.stream, io.StringIO())
        sizes = self.program.known_sizes()

        def is_device(function: object) -> bool:
            return kinds[function].kind is Kind.DEVICE  # type: ignore[index]

        self.domain = HostDomain(self.program, sizes, is_device, self.output, HOST, seed=seed)
        self.evaluator: Evaluator = host_evaluator(self.domain)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def call(self, name: str, *arguments: object) -> object:
        """A call of a function by name; torch tensors become the controller's."""
        info = self.program.functions[name]
        values = {
            parameter.name: self._value(argument)
            for parameter, argument in zip(info.parameters, arguments, strict=False)
        }
        return self.evaluator.apply(info, values)[0]

    def _value(self, value: object) -> object:
        if isinstance(value, torch.Tensor):
            element = {torch.float32: "f32", torch.int64: "i64", torch.bool: "bool", torch.float64: "f64"}[value.dtype]
            axes = tuple(Axis.named(f"python{place}") for place in range(value.dim()))
            return DeviceTensor(value, axes, type(F32)(element))
        return value


def data(value: object) -> torch.Tensor:
    assert isinstance(value, DeviceTensor)
    return value.data


MLP = """
dim D = 4
dim H = 5
dim C = 3

model Net:
    param w1: [D H] = normal(std=0.5)
    param b1: [H]   = zeros
    param w2: [H C] = xavier

data Example:
    x: [D]
    y: [] Index[C]

fn logits(m: Net, x: [b D]) -> [b C]:
    return relu(x @ m.w1 + m.b1) @ m.w2

fn loss(m: Net, batch: [b] Example) -> [] NonNeg:
    return cross_entropy(logits(m, batch.x), batch.y, over=C)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Example) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn make() -> Net:
    return Net(seed=3)

fn main():
    m = Net(seed=3)
    print("made", len("abc"))
"""


def batch_of(run: Run, x: torch.Tensor, y: torch.Tensor) -> BatchValue:
    axis = Axis.named("rows", batch=True)
    info = run.program.datas["Example"]
    kinds = {name: field.type for name, field in info.fields.items()}
    parts = {"x": x, "y": y}
    fields: dict[str, object] = {
        name: DeviceTensor(parts[name], (axis, *kind.axes), kind.element)  # type: ignore[attr-defined]
        for name, kind in kinds.items()
    }
    return BatchValue(info.node, axis, fields)


# --- host values -----------------------------------------------------------------------------------------------------


def test_host_arithmetic_goes_downwards(tmp_path: Path) -> None:
    run = Run("fn main():\n    print(-7 // 2, 7 // -2, -7 % 2, 7 % -2, 7 / 2, 2 ** 3)\n", tmp_path)
    run.call("main")
    assert run.text == "-4 -4 1 -1 3.5 8\n"


def test_loops_and_branches(tmp_path: Path) -> None:
    text = """
fn main(n: int) -> int:
    total = 0
    for i in 0..n:
        if i == 2:
            continue
        elif i > 5:
            break
        total = total + i
    while total < 20:
        total = total + 3
    return total
"""
    assert Run(text, tmp_path).call("main", 10) == 22
    assert Run(text, tmp_path).call("main", -3) == 21, "a range that runs backwards has no rounds"


def test_a_division_by_zero_names_its_line(tmp_path: Path) -> None:
    run = Run("fn main(n: int) -> float:\n    return 1 / n\n", tmp_path)
    with pytest.raises(ProgramError) as error:
        run.call("main", 0)
    assert error.value.diagnostic.code == "E2111"
    assert error.value.diagnostic.primary.span.line == 3


def test_an_assertion_says_why(tmp_path: Path) -> None:
    run = Run('fn main(n: int):\n    assert n > 2, "too few"\n', tmp_path)
    run.call("main", 3)
    with pytest.raises(ProgramError, match="too few"):
        run.call("main", 2)


# --- device functions ------------------------------------------------------------------------------------------------


def test_a_device_function(tmp_path: Path) -> None:
    text = "dim D = 3\nfn double(x: [b D], by: float) -> [b D]:\n    return x * by + 1\n"
    run = Run(text, tmp_path)
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(data(run.call("double", x, 2.0)), x * 2 + 1)
    assert torch.equal(data(run.call("double", x, 3.0)), x * 3 + 1)
    assert len(run.domain.plans) == 1


def test_training_is_torchs(tmp_path: Path) -> None:
    run = Run(MLP, tmp_path)
    model = run.call("make")
    assert isinstance(model, ModelValue)
    w1, b1, w2 = (data(model.fields[name]).clone().requires_grad_() for name in ("w1", "b1", "w2"))
    optimizer = torch.optim.AdamW([w1, b1, w2], lr=0.01)
    state = optimizer_of(run, model)
    generator = torch.Generator().manual_seed(0)
    for rows in (6, 6, 3):
        x = torch.randn(rows, 4, generator=generator)
        y = torch.randint(0, 3, (rows,), generator=generator)
        expected = torch.nn.functional.cross_entropy(torch.relu(x @ w1 + b1) @ w2, y)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        found = run.call("step", model, state, batch_of(run, x, y))
        assert torch.allclose(data(found), expected.detach(), atol=1e-6)
    for name, weight in (("w1", w1), ("b1", b1), ("w2", w2)):
        assert torch.allclose(data(model.fields[name]), weight.detach(), atol=1e-5), name
    assert len([plan for plan in run.domain.plans if plan.function.name == "step"]) == 1


def optimizer_of(run: Run, model: ModelValue) -> OptimizerValue:
    from shapescript.specialise.builtins import new_optimizer

    return new_optimizer(run.evaluator, "AdamW", model, {"lr": 0.01})


# --- values ----------------------------------------------------------------------------------------------------------


def test_values_cross_and_come_back(tmp_path: Path) -> None:
    run = Run(MLP, tmp_path)
    model = run.call("make")
    value = (model, 3, 2.5, "text", [model], range(4))

    def form(leaf: object) -> object:
        return "leaf" if is_tensor(leaf) or isinstance(leaf, float) else None

    key, leaves = flatten(value, form)
    assert len(leaves) == 4, "a model that is met again crosses once"
    back = unflatten(key, iter(leaves))
    assert isinstance(back, tuple) and back[1:4] == (3, 2.5, "text") and back[5] == range(4)
    assert back[4][0] is back[0]
    again, _ = flatten(back, form)
    assert again == key and hash(again) == hash(key)


# --- initialisers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"), [((64, 32), (64, 32)), ((8, 4, 3, 3), (36, 72)), ((5,), (5, 5)), ((), (1, 1))]
)
def test_fans(shape: Sequence[int], expected: tuple[int, int]) -> None:
    assert fans(shape) == expected


def test_draws_depend_on_seed_and_path() -> None:
    def draw(seed: int, path: str, shape: Sequence[int] = (50, 40)) -> torch.Tensor:
        return initial("normal", {"std": 2.0}, shape, F32, seed, path)

    assert torch.equal(draw(0, "a.w"), draw(0, "a.w"))
    assert not torch.equal(draw(0, "a.w"), draw(1, "a.w"))
    assert not torch.equal(draw(0, "a.w"), draw(0, "b.w"))
    assert abs(draw(0, "w").std().item() - 2.0) < 0.1 and abs(draw(0, "w").mean().item()) < 0.2


def test_bounds_are_torchs() -> None:
    xavier = initial("xavier", {}, (30, 20), F32, 0, "w")
    assert xavier.abs().max() <= math.sqrt(6 / 50) and xavier.abs().max() > 0.9 * math.sqrt(6 / 50)
    kaiming = initial("kaiming", {}, (16, 8, 3, 3), F32, 0, "w")
    assert kaiming.abs().max() <= math.sqrt(6 / 72) and kaiming.abs().max() > 0.9 * math.sqrt(6 / 72)
    q = initial("orthogonal", {}, (6, 4), F32, 0, "w")
    assert torch.allclose(q.T @ q, torch.eye(4), atol=1e-5)


# --- models, modes and parts ----------------------------------------------------------------------------------------

DEEP = """
dim D = 4
dim L = 12

model Block:
    param w: [D D] = normal(std=0.3)
    param b: [D]   = zeros

model Net:
    blocks: [L] Block
    param w: [D] = ones
    bn: BatchNorm[D]

data Row:
    x: [D]
    y: []

fn hidden(mut m: Net, x: [b D]) -> [b D]:
    h = x
    for block in m.blocks:
        h = h + tanh(h @ block.w + block.b)
    return batch_norm(h, mut m.bn, over=b)

fn loss(mut m: Net, x: [b D], y: [b]) -> [] NonNeg:
    return mse(hidden(mut m, x) @ m.w, y)

fn step(mut m: Net, x: [b D], y: [b], mut opt: SGD[Net], lr: float) -> ([] NonNeg, [] NonNeg):
    l, g = value_and_grad(loss, mut m, x, y)
    update(mut m, mut opt, clip(g, norm=0.1), lr=lr)
    return l, norm(g)

fn make() -> Net:
    return Net(seed=0)

fn optimizer(m: Net) -> SGD[Net]:
    return sgd(m, lr=0.1)

fn mixed(mut a: Net, b: Net):
    average(mut a, b, keep=0.75)

fn dropped(x: [n D]) -> [n D]:
    return dropout(x, 0.5)

fn noise(n: int) -> [n D]:
    return normal[n D](std=1)

fn rows(x: [n D]) -> float:
    total = 0.0
    for i in 0..3:
        total = total + sum(x[D=i], over=n)
        print(i, total)
    return float(total)
"""


def test_a_deep_model_trains_as_torchs(tmp_path: Path) -> None:
    run = Run(DEEP, tmp_path)
    model = run.call("make")
    state = run.call("optimizer", model)
    assert isinstance(model, ModelValue)
    weights = {path: slots[name].data.clone().requires_grad_() for path, slots, name in named_tensors(model)}  # type: ignore[attr-defined]
    x, y = torch.randn(7, 4, generator=torch.Generator().manual_seed(1)), torch.arange(7.0)
    h = x
    for index in range(12):
        h = h + torch.tanh(h @ weights[f"blocks.{index}.w"] + weights[f"blocks.{index}.b"])
    norm = torch.nn.BatchNorm1d(4, affine=False)
    expected = torch.nn.functional.mse_loss(norm(h) @ weights["w"], y)
    expected.backward()
    result = run.call("step", model, x, y, state, 0.5)
    assert isinstance(result, tuple)
    trained = [weight for path, weight in weights.items() if not path.startswith("bn")]
    total = torch.sqrt(sum((weight.grad**2).sum() for weight in trained if weight.grad is not None))  # type: ignore[arg-type]
    assert torch.allclose(data(result[0]), expected.detach(), rtol=1e-5)
    assert torch.allclose(data(result[1]), total, rtol=1e-4)
    for path, slots, name in named_tensors(model):
        if path.startswith("bn"):
            continue
        weight = weights[path]
        assert weight.grad is not None
        wanted = weight.detach() - 0.5 * weight.grad * 0.1 / total
        assert torch.allclose(slots[name].data, wanted, atol=1e-5), path  # type: ignore[attr-defined]
    bn = model.fields["bn"]
    assert isinstance(bn, ModelValue) and norm.running_mean is not None and norm.running_var is not None
    assert torch.allclose(data(bn.fields["mean"]), norm.running_mean, atol=1e-5)
    assert torch.allclose(data(bn.fields["var"]), norm.running_var, atol=1e-4)


def test_an_average_of_models(tmp_path: Path) -> None:
    run = Run(DEEP, tmp_path)
    a, b = run.call("make"), run.call("make")
    assert isinstance(a, ModelValue) and isinstance(b, ModelValue)
    b.fields["w"] = DeviceTensor(torch.full((4,), 5.0), a.fields["w"].axes, F32)  # type: ignore[attr-defined]
    run.call("mixed", a, b)
    assert torch.allclose(data(a.fields["w"]), torch.full((4,), 2.0))
    assert torch.equal(data(b.fields["w"]), torch.full((4,), 5.0))


def test_dropout_is_nothing_outside_training_and_draws_are_new_at_each_call(tmp_path: Path) -> None:
    run = Run(DEEP, tmp_path)
    x = torch.randn(3, 4)
    assert torch.equal(data(run.call("dropped", x)), x)
    first, second = data(run.call("noise", 5)), data(run.call("noise", 5))
    assert first.shape == (5, 4) and not torch.equal(first, second)
    new = data(Run(DEEP, tmp_path).call("noise", 5))
    assert torch.equal(data(Run(DEEP, tmp_path).call("noise", 5)), new)
    assert not torch.equal(data(Run(DEEP, tmp_path, seed=1).call("noise", 5)), new)


def test_tensors_in_a_controller_function(tmp_path: Path) -> None:
    run = Run(DEEP, tmp_path)
    x = torch.arange(8.0).reshape(2, 4)
    assert run.call("rows", x) == 4.0 + 6.0 + 8.0
    assert run.text == "0 4.0\n1 10.0\n2 18.0\n"
