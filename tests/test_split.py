"""A small GPT whose heads, columns and vocabulary are split, or whose parameters are sharded, trains as on one device.

Every option, and several together, on a line of devices and in a grid; in f64, against one device. Most run on virtual
devices, by the plans that workers run; one of each kind runs on workers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from on_virtual_devices import VirtualPlace, Ways
from programs import Program, tensors
from several import devices, dims_of

from shapescript.cli.main import main
from shapescript.controller.placing import Place
from shapescript.layout.mesh import Mesh

GPT = """
dim V = 12
dim T = 4
dim D = 8
dim H = 4
dim Dh = D / H
dim Hd = 2*D
dim L = 2

data Text:
    tokens: [T] Index[V]
    next:   [T] Index[V]

model Block:
    param ln1:   [D] f64          = ones
    param w_qkv: [D (3 H Dh)] f64 = normal(std=0.3)
    param w_o:   [(H Dh) D] f64   = normal(std=0.3)
    param ln2:   [D] f64          = ones
    param up:    [D Hd] f64       = normal(std=0.3)
    param shift: [Hd] f64         = normal(std=0.3)
    param down:  [Hd D] f64       = normal(std=0.3)

model Gpt:
    param tok:   [V D] f64 = normal(std=0.5)
    param pos:   [T D] f64 = normal(std=0.5)
    blocks:      [L] Block
    param spare: [Hd] f64 = ones

fn attend(m: Block, x: [b n D] f64) -> [b n D] f64:
    q, k, v = dropout(x, rate=0.1) @ m.w_qkv |> split(b n (3 H Dh) -> b H n Dh)
    y = attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh, mask=causal[n m])
    return dropout(y |> rearrange(b H n Dh -> b n (H Dh)) |> matmul(m.w_o), rate=0.2)

fn loss(m: Gpt, batch: [b] Text) -> [] f64:
    x = m.tok[batch.tokens] + m.pos
    for block in m.blocks:
        x = x + attend(block, layer_norm(x, over=D) * block.ln1)
        h = dropout(gelu(layer_norm(x, over=D) * block.ln2 @ block.up + block.shift), rate=0.3)
        x = x + h @ block.down
    logits = einsum(layer_norm(x, over=D), m.tok: b T D, V D -> b T V)
    return cross_entropy(dropout(logits, rate=0.1), batch.next, over=V)

fn step(mut m: Gpt, mut opt: AdamW[Gpt], batch: [b] Text) -> ([] f64, [] f64):
    l, g = value_and_grad(loss, m, batch)
    size = norm(g)
    update(mut m, mut opt, clip(g, norm=0.5))
    return l, size

fn make() -> Gpt:
    return Gpt(seed=0)

fn optimizer(m: Gpt) -> AdamW[Gpt]:
    return adamw(m, lr=0.01)
"""
ROWS = (7, 4, 1)
OPTIONS = [
    ((), True),
    (("H",), False),
    (("Hd",), False),
    (("V",), False),
    (("H", "Hd", "V"), False),
    (("H", "Hd", "V"), True),
]


def trained(place: Place | None) -> list[torch.Tensor]:
    program = Program(GPT, place=place)
    m = program.call("make")
    opt = program.call("optimizer", m)
    random = torch.Generator().manual_seed(5)
    found: list[torch.Tensor] = []
    for rows in ROWS:
        tokens, after = torch.randint(12, (2, rows, 4), generator=random)
        found.extend(program.call("step", m, opt, {"tokens": tokens, "next": after}))  # type: ignore[arg-type]
    return [*found, *tensors(m).values()]


@cache
def on_one() -> list[torch.Tensor]:
    return trained(None)


def compare(found: list[torch.Tensor]) -> None:
    for got, wanted in zip(found, on_one(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("sizes", [(2,), (4,), (3, 2), (2, 2)], ids=str)
@pytest.mark.parametrize(("splits", "shard"), OPTIONS, ids=str)
def test_options_change_no_result(sizes: tuple[int, ...], splits: tuple[str, ...], shard: bool) -> None:
    if len(sizes) > 1 and not splits:
        return
    compare(trained(VirtualPlace(Ways(Mesh(sizes), splits, shard, dims=dims_of(GPT, splits)))))


@pytest.mark.parametrize(
    ("splits", "shard"), [((), True), (("H", "Hd", "V"), False), (("H", "Hd", "V"), True)], ids=str
)
def test_options_change_no_result_on_workers(splits: tuple[str, ...], shard: bool) -> None:
    compare(trained(devices(2, splits, shard, text=GPT)))


def test_a_grid_of_workers() -> None:
    compare(trained(devices(4, ("H", "Hd", "V"), True, text=GPT, by=2)))


def test_a_dim_from_python_is_divided_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "widths.py").write_text("def width():\n    return 8\n")
    program = tmp_path / "wide.ss"
    program.write_text(
        "devices cpu[0 1 2]\n    split H\n\nimport python widths\n\ndim H = widths.width()\n\n"
        "fn main():\n    print(ones[H])\n"
    )
    assert main(["run", str(program)]) == 1
    told = capsys.readouterr().err
    assert "error[E1903]: `H` is 8, which 3 devices don't divide" in told
    assert "use 1, 2, 4 or 8 devices" in told
