"""Lists of models: gradients, an optimizer's state and updates of a list, and of one model of it."""

from __future__ import annotations

import pytest
import torch
from programs import Program, codes, diagnose

HEAD = """
dim L = 3
dim D = 2
model Block:
    param w: [D] = ones
model Net:
    blocks: [L] Block
    param v: [D] = ones
    bn: BatchNorm[D]
fn apply(blocks: [k] Block, x: [b D]) -> [b D]:
    for block in blocks:
        x = x * block.w
    return x
fn loss(m: Net, x: [b D]) -> []:
    return mean(sum(apply(m.blocks, x) * m.v, over=D), over=b)
"""
WHOLE = (
    HEAD
    + """
fn step(mut m: Net, mut opt: Adam[[L] Block], x: [b D]) -> []:
    g = grad(loss, m, x)
    update(mut m.blocks, mut opt, clip(g.blocks + g.blocks * 2.0, norm=1.0))
    return norm(g.blocks)
fn f(x: [n D]) -> ([], [D], [D], [D]):
    m = Net(seed=0)
    opt = adam(m.blocks, lr=0.1)
    size = step(mut m, mut opt, x)
    return size, m.blocks[0].w, m.blocks[2].w, m.v
"""
)


def test_a_list_is_trained_by_a_state_of_its_own() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    size, first, last, kept = Program(WHOLE).call("f", x)
    slope = x.mean(0)
    assert float(size) == pytest.approx(float((3 * slope.square().sum()).sqrt()), rel=1e-6)
    assert torch.allclose(first, torch.tensor([0.9, 0.9])) and torch.equal(first, last) and kept.tolist() == [1, 1]


def test_one_model_of_a_list_is_trained() -> None:
    text = (
        HEAD
        + """
fn step(mut m: Net, mut opt: SGD[Block], x: [b D]):
    g = grad(loss, m, x)
    update(mut m.blocks[1], mut opt, g.blocks[1])
fn f(x: [n D]) -> ([D], [D]):
    m = Net(seed=0)
    opt = sgd(m.blocks[1], lr=0.5)
    step(mut m, mut opt, x)
    return m.blocks[0].w, m.blocks[1].w
"""
    )
    first, second = Program(text).call("f", torch.ones(4, 2))
    assert first.tolist() == [1, 1] and second.tolist() == [0.5, 0.5]


def test_gradients_of_a_list_are_visited() -> None:
    text = (
        HEAD
        + """
fn f(x: [n D]) -> []:
    return total(Net(seed=0), x)
fn total(m: Net, x: [b D]) -> []:
    g = grad(loss, m, x)
    t = 0 as []
    for each in g.blocks:
        t = t + sum(each.w, over=D)
    return t
"""
    )
    assert float(Program(text).call("f", torch.ones(4, 2))) == 6


def test_a_list_of_any_length_and_width() -> None:
    text = """
dim L = 3
dim D = 2
model Block[O]:
    param w: [O] = ones
model Net:
    blocks: [L] Block[D]
fn apply(blocks: [k] Block[o], x: [b o]) -> [b o]:
    for block in blocks:
        x = x * (block.w + 1)
    return x * k
fn f(x: [n D]) -> [n D]:
    m = Net(seed=0)
    return apply(m.blocks, x)
"""
    assert Program(text).call("f", torch.ones(4, 2)).tolist() == [[24, 24]] * 4


def test_a_state_of_another_list_is_refused() -> None:
    wrong = WHOLE.replace("Adam[[L] Block]", "Adam[Block]")
    assert codes(wrong) == ["E0709"]
    assert codes(WHOLE.replace("[[L] Block]", "[[L] Nothing]")) == ["E0205"]
    assert codes(WHOLE.replace("[[L] Block]", "[[L] f32]")) == ["E0216"]


def test_a_state_has_no_gradient() -> None:
    text = HEAD + "fn f(m: Net, x: [b D]) -> [D]:\n    g = grad(loss, m, x)\n    return g.bn.mean\n"
    found = diagnose(text)
    assert [each.code for each in found] == ["E0616"] and "isn't trained" in found[0].message
