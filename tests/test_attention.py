"""Attention against torch's and the formula: masks, groups of heads, rows that look at nothing; the gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from programs import Program

HEAD = "dim B = 2\ndim H = 3\ndim G = 2\ndim N = 5\ndim M = 4\ndim D = 6\ndim E = 7\n"


def run(call: str, shapes: dict[str, str], result: str, tensors: list[torch.Tensor], extra: str = "") -> Any:
    """The result of a call on m.q, m.k, m.v, the gradients of its squares, and the ops of its plan."""
    fields = "".join(f"    param {name}: [{axes}] f64 = zeros\n" for name, axes in shapes.items())
    given = ", ".join(f"{name}: [{axes}] f64" for name, axes in shapes.items())
    more = f", mask: {extra}" if extra else ""
    hand = ", mask" if extra else ""
    gives = f"([{result}] f64, " + ", ".join(f"[{axes}] f64" for axes in shapes.values()) + ")"
    text = (
        HEAD
        + f"model A:\n{fields}"
        + f"fn loss(m: A{more}) -> ([] f64, [{result}] f64):\n    y = {call}\n"
        + f"    return sum(square(y), over=[{result}]), y\n"
        + f"fn step(m: A{more}) -> {gives}:\n    (l, y), g = value_and_grad(loss, m{hand})\n"
        + "    return y, "
        + ", ".join(f"g.{name}" for name in shapes)
        + "\n"
        + f"fn f({given}{more}) -> {gives}:\n    m = A(seed=0)\n"
        + "".join(f"    m.{name} = {name}\n" for name in shapes)
        + f"    return step(m{hand})\n"
    )
    program = Program(text)
    found = program.call("f", *tensors)
    names = {node.name for plan in program.domain.plans for node in plan.graph.nodes}
    assert "attention" in names, "it is one op in the plan"
    return found


def formula(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, groups: bool = False
) -> Any:
    q, k, v = (x.clone().requires_grad_(True) for x in (q, k, v))
    wide_k, wide_v = (k.unsqueeze(-3), v.unsqueeze(-3)) if groups else (k, v)
    scores = q @ wide_k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        dead = ~mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~(mask | dead), -math.inf)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(dead, 0)
    y = weights @ wide_v
    return (y.detach(), *torch.autograd.grad(y.square().sum(), (q, k, v)))


def agree(got: Any, wanted: Any) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape and torch.allclose(one, other, rtol=1e-9, atol=1e-10)


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


Q, K, V = values(2, 3, 5, 6), values(2, 3, 4, 6, seed=1), values(2, 3, 4, 7, seed=2)
SHAPES = {"q": "B H N D", "k": "B H M D", "v": "B H M E"}
PATTERN = "attention(m.q, m.k, m.v: B H N D, B H M D, B H M E -> B H N E"


def test_without_a_mask() -> None:
    agree(run(PATTERN + ")", SHAPES, "B H N E", [Q, K, V]), formula(Q, K, V))


def test_causal() -> None:
    found = run(PATTERN + ", mask=causal[N M])", SHAPES, "B H N E", [Q, K, V])
    agree(found, formula(Q, K, V, torch.ones(5, 4, dtype=torch.bool).tril()))


@pytest.mark.parametrize("axes", ["N M", "B M", "B N M", "B H N M", "M"])
def test_masks(axes: str) -> None:
    sizes = {"B": 2, "H": 3, "N": 5, "M": 4}
    mask = torch.rand([sizes[axis] for axis in axes.split()], generator=torch.Generator().manual_seed(5)) > 0.4
    if "N" in axes:
        mask.select(axes.split().index("N"), 2).fill_(False)
    shape = [sizes[axis] if axis in axes.split() else 1 for axis in ("B", "H", "N", "M")]
    wide = mask.reshape(shape).expand(2, 3, 5, 4)
    found = run(PATTERN + ", mask=mask)", SHAPES, "B H N E", [Q, K, V, mask], f"[{axes}] bool")
    agree(found, formula(Q, K, V, wide))


def test_heads_of_a_group_share_keys() -> None:
    q, k, v = values(2, 2, 3, 5, 6), values(2, 2, 4, 6, seed=1), values(2, 2, 4, 6, seed=2)
    shapes = {"q": "B G H N D", "k": "B G M D", "v": "B G M D"}
    call = "attention(m.q, m.k, m.v: B G H N D, B G M D, B G M D -> B G H N D, mask=mask)"
    mask = torch.ones(5, 4, dtype=torch.bool).tril()
    agree(run(call, shapes, "B G H N D", [q, k, v, mask], "[N M] bool"), formula(q, k, v, mask, groups=True))


def test_the_heads_may_stand_anywhere() -> None:
    shapes = {"q": "B N H D", "k": "B M H D", "v": "M B H E"}
    tensors = [Q.transpose(1, 2), K.transpose(1, 2), V.permute(2, 0, 1, 3)]
    call = "attention(m.q, m.k, m.v: B N H D, B M H D, M B H E -> B N H E, mask=causal[N M])"
    found = run(call, shapes, "B N H E", [each.contiguous() for each in tensors])
    y, dq, dk, dv = formula(Q, K, V, torch.ones(5, 4, dtype=torch.bool).tril())
    agree(found, (y.transpose(1, 2), dq.transpose(1, 2), dk.transpose(1, 2), dv.permute(2, 0, 1, 3)))


@pytest.mark.parametrize("element", ["f32", "bf16", "f16"])
def test_other_elements(element: str) -> None:
    text = (
        f"fn f(q: [b h n d] {element}, k: [b h m d] {element}, v: [b h m d] {element}) -> [b h n d] {element}:\n"
        "    return attention(q, k, v: b h n d, b h m d, b h m d -> b h n d, mask=causal[n m])\n"
    )
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[element]
    tensors = [x.to(dtype) for x in (values(2, 3, 5, 6), values(2, 3, 5, 6, seed=1), values(2, 3, 5, 6, seed=2))]
    got = Program(text).call("f", *tensors)
    wanted = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
    assert got.dtype == dtype and torch.allclose(got.float(), wanted.float(), rtol=2e-2, atol=2e-2)


def test_no_rows() -> None:
    text = (
        "fn f(q: [b h n d], k: [b h m d], v: [b h m d]) -> [b h n d]:\n"
        "    return attention(q, k, v: b h n d, b h m d, b h m d -> b h n d)\n"
    )
    empty = torch.zeros(0, 2, 3, 4)
    assert tuple(Program(text).call("f", empty, empty, empty).shape) == (0, 2, 3, 4)
