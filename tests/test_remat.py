"""`remat`: the same numbers, with less kept for the way back."""

from __future__ import annotations

import pytest
import torch
from programs import Program

from shapescript.ir.graph import Graph

TEXT = """
dim L = 6
dim D = 16
model Block:
    param w: [D D] f64 = normal(std=0.3)
    param v: [D D] f64 = normal(std=0.3)
model Net:
    blocks: [L] Block
fn block(m: Block, x: [b D] f64) -> [b D] f64:
    h = gelu(x @ m.w)
    h = dropout(tanh(h) * sigmoid(h), {rate})
    return x + h @ m.v
fn loss(m: Net, x: [b D] f64) -> [] f64:
    for each in m.blocks:
        x = {call}
    return mean(square(x), over=[b D])
fn step(m: Net, x: [b D] f64) -> ([] f64, Grads[Net]):
    l, g = value_and_grad(loss, m, x)
    return l, g
fn f(x: [n D] f64) -> ([] f64, [D D] f64, [D D] f64):
    m = Net(seed=0)
    l, g = step(m, x)
    return l, g.blocks[0].w, g.blocks[5].v
"""


def run(call: str, rate: float) -> tuple[tuple[torch.Tensor, ...], Graph]:
    program = Program(TEXT.format(call=call, rate=rate))
    x = torch.randn(64, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = program.call("f", x)
    assert isinstance(found, tuple)
    return found, max((plan.graph for plan in program.domain.plans), key=lambda graph: len(graph.nodes))


def most_kept(graph: Graph) -> int:
    """How many values of the batch are kept at once, where each is let go after its last use."""
    size = {node.number: int(any(axis.name == "b" for axis in node.axes)) for node in graph.nodes}
    last = {}
    for node in graph.nodes:
        for operand in node.operands:
            last[operand.number] = node.number
    kept = most = 0
    for node in graph.nodes:
        kept += size.get(node.number, 0)
        most = max(most, kept)
        kept -= sum(size.get(number, 0) for number in {operand.number for operand in node.operands}
                    if last.get(number) == node.number)  # fmt: skip
    return most


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_the_numbers_are_the_same_and_less_is_kept(rate: float) -> None:
    plain, whole = run("block(each, x)", rate)
    again, repeated = run("remat(block, each, x)", rate)
    for one, other in zip(plain, again, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)
    assert sum(node.name == "again" for node in repeated.nodes) >= 6
    assert most_kept(repeated) < 0.6 * most_kept(whole)


def test_one_in_another() -> None:
    text = TEXT.replace(
        "fn loss", "fn outer(m: Block, x: [b D] f64) -> [b D] f64:\n    return remat(block, m, tanh(x))\nfn loss"
    )
    x = torch.randn(4, 16, dtype=torch.float64)
    got = Program(text.format(call="remat(outer, each, x)", rate=0.0)).call("f", x)
    wanted = Program(text.format(call="outer(each, x)", rate=0.0).replace("remat(block, m,", "block(m,")).call("f", x)
    for one, other in zip(got, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)
