"""A long loop of a device function that the controller calls runs round by round, with the results of one unrolled."""

from __future__ import annotations

import pytest
import torch
from programs import Program, codes

from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.specialise import rounds

HEAD = """
dim D = 3
dim L = 2
dim T = 100
model Layer:
    param w: [D D] f64 = normal(std=0.5)
model Net:
    layers: [L] Layer
    param scale: [T] f64 = uniform(0.5, 1)
data Row:
    x: [D] f64
fn new() -> Net:
    return Net(seed=1)
"""
X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)

BODIES = {
    "the number of a round picks a place": """
fn f(m: Net, x: [b D] f64) -> [b D] f64:
    for i in 0..T:
        x = x + m.scale[T=i] * 0.01 * i
    return x
""",
    "two values go from round to round": """
fn f(m: Net, x: [b D] f64) -> ([b D] f64, [b] f64):
    total = zeros[b] as f64
    for i in 0..T:
        y = tanh(x @ m.layers[0].w)
        x = x + 0.1 * y
        total = total + sum(y, over=D)
    return x, total
""",
    "a loop in a loop, over models": """
fn f(m: Net, x: [b D] f64) -> [b D] f64:
    for i in reversed(0..T):
        for layer in m.layers:
            x = tanh(x @ layer.w) + x / (i + 1)
    return x
""",
    "a way out of a loop, and of the function": """
fn f(m: Net, x: [b D] f64, stop: int) -> [b D] f64:
    for i in 0..T:
        if i % 3 == 1:
            continue
        x = x * 1.01
        if i == stop:
            break
        if i == 90:
            return -x
    return x + 1
""",
    "a value that a branch may give": """
fn f(m: Net, x: [b D] f64, flag: bool) -> [b D] f64:
    y = x * 0
    for i in 0..T:
        if flag:
            y = y + i
        x = x + y * 0.001
    return x + y
""",
    "a choice by the number of a round": """
fn f(m: Net, x: [b D] f64) -> [b D] f64:
    for i in 0..70:
        if i % 3 == 0:
            x = x + m.scale[T=i] * i
        else:
            x = x * 0.9
    return x
""",
    "an int as an axis": """
fn f(m: Net, k: int) -> [k D] f64:
    x = ones[k D] as f64
    for i in 0..T:
        x = x + i * 0.5
    return x
""",
    "any axes": """
fn f(m: Net, x: [.. D] f64) -> [.. D] f64:
    for i in 0..T:
        x = x * m.scale[T=i]
    return x
""",
}
MORE = {"a way out of a loop, and of the function": (7,), "a value that a branch may give": (True,)}


def arguments(name: str) -> tuple[object, ...]:
    return (2,) if name == "an int as an axis" else (X, *MORE.get(name, ()))


@pytest.mark.parametrize("name", BODIES)
def test_it_gives_what_the_unrolled_loop_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + BODIES[name]
    stepped = Program(text)
    got = stepped.call("f", stepped.call("new"), *arguments(name))
    made = [
        info.name for info in map(stepped.typed.function_of.__getitem__, stepped.domain.specialiser.specialisations)
    ]
    assert any("line" in each for each in made), "it was run round by round"
    monkeypatch.setattr(rounds, "is_long", lambda *_: False)
    monkeypatch.setattr("shapescript.specialise.evaluator.is_long", lambda *_: False)
    whole = Program(text)
    wanted = whole.call("f", whole.call("new"), *arguments(name))
    for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (got, wanted)), strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


def test_one_plan_serves_all_rounds() -> None:
    program = Program(HEAD + BODIES["the number of a round picks a place"])
    program.call("f", program.call("new"), X)
    assert sum(each.times for each in program.domain.specialiser.specialisations.values()) <= 3
    program.call("f", program.call("new"), X)
    assert sum(each.times for each in program.domain.specialiser.specialisations.values()) <= 3


TRAINING = (
    HEAD
    + """
fn loss(m: Net, batch: [b] Row, rate: float) -> [] f64:
    h = dropout(batch.x @ m.layers[1].w, rate)
    return mean(sum(square(h - batch.x), over=D), over=b)
fn train(mut m: Net, mut opt: Adam[Net], batch: [b] Row, rounds: int) -> ([] f64, [] f64):
    first = 0 as [] f64
    last = 0 as [] f64
    for i in 0..rounds:
        last, g = value_and_grad(loss, m, batch, {rate})
        update(mut m, mut opt, g, lr=0.1 / (i + 1))
        if i == 0:
            first = last
    return first, last
fn f(x: [n D] f64, rounds: int) -> ([] f64, [] f64, [D D] f64):
    m = Net(seed=1)
    opt = adam(m, lr=0.1)
    first, last = train(mut m, mut opt, Row(x=x), rounds)
    return first, last, m.layers[1].w
"""
)


def test_training_in_a_loop_is_the_same_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TRAINING.replace("{rate}", "0.0")
    got = Program(text).call("f", X, 65)
    monkeypatch.setattr("shapescript.specialise.evaluator.is_long", lambda *_: False)
    wanted = Program(text).call("f", X, 65)
    for one, other in zip(got, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)
    assert got[1] < got[0]


def test_each_round_draws_anew() -> None:
    text = HEAD + "fn f(x: [n D]) -> [n D]:\n    for i in 0..T:\n        x = x + normal[n D]()\n    return x\n"
    x = Program(text).call("f", torch.zeros(500, 3))
    assert float(x.std()) == pytest.approx(10, rel=0.1)


def test_a_mut_tensor_gets_its_value() -> None:
    text = (
        "fn g(mut x: [n], k: int):\n    for i in 0..k:\n        x = x + 1\n"
        "fn f(x: [n]) -> [n]:\n    g(mut x, 80)\n    g(mut x, 3)\n    return x\n"
    )
    assert Program(text).call("f", torch.zeros(2)).tolist() == [83, 83]


def test_too_long_a_loop_in_what_is_differentiated() -> None:
    body = """
fn loss(m: Net, x: [b D] f64, k: int) -> [] f64:
    for i in 0..k:
        x = x * m.scale[T=i]
    return sum(x, over=[b D])
fn step(m: Net, x: [b D] f64, k: int) -> [T] f64:
    g = grad(loss, m, x, k)
    return g.scale
fn f(x: [n D] f64, k: int) -> [T] f64:
    return step(Net(seed=0), x, k)
"""
    program = Program(HEAD + body)
    assert program.call("f", X, 64).shape == (100,)
    with pytest.raises(ProgramError) as error:
        program.call("f", X, 65)
    assert error.value.diagnostic.code == "E1805"
    assert codes(HEAD + body.replace("0..k", "0..65")) == ["E1805"]
