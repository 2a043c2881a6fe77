"""Programs that the tests of layouts train, all in f64: a text, what a batch holds, and what may be split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from programs import Program, tensors

Batch = dict[str, torch.Tensor]


def gone_through(program: Program, text: Text, rows: Sequence[int]) -> list[torch.Tensor]:
    """What each step of a program gives, for batches of so many rows, and its parameters after them."""
    random = torch.Generator().manual_seed(3)
    m = program.call("make")
    opt = program.call("optimizer", m)
    found: list[torch.Tensor] = []
    for n in rows:
        result = program.call("step", m, opt, text.batch(n, random))
        assert isinstance(result, tuple)
        found.extend(result)
    found.extend(tensors(m).values())
    return found


@dataclass(frozen=True)
class Text:
    """A program with `make() -> Net`, `optimizer(m)` and `step(mut m, mut opt, batch)`; `splits` are dims of it."""

    name: str
    text: str
    batch: Callable[[int, torch.Generator], Batch]
    splits: tuple[tuple[str, ...], ...] = ()
    padded: bool = True

    @property
    def program(self) -> str:
        kind = "AdamW" if "AdamW[" in self.text else "SGD"
        rate = "lr=0.01" if kind == "AdamW" else "lr=0.1, momentum=0.9"
        return (
            f"devices cpu\n{self.text}\nfn make() -> Net:\n    return Net(seed=0)\n\n"
            f"fn optimizer(m: Net) -> {kind}[Net]:\n    return {kind.lower()}(m, {rate})\n"
        )


def digits(n: int, random: torch.Generator) -> Batch:
    return {
        "pixels": torch.randn(n, 6, generator=random, dtype=torch.float64),
        "digit": torch.randint(0, 4, (n,), generator=random),
    }


def words(n: int, random: torch.Generator) -> Batch:
    return {
        "tokens": torch.randint(0, 8, (n, 4), generator=random),
        "next": torch.randint(0, 8, (n, 4), generator=random),
    }


DIGITS = """
dim D = 6
dim Hd = 4
dim C = 4

data Sample:
    pixels: [D] f64
    digit: [] Index[C]
"""

STEP = """
fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Sample) -> ([] f64, [] f64):
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l, norm(g)
"""

NET = """
model Net:
    param w1: [D Hd] f64 = normal(std=0.5)
    param b1: [Hd] f64 = zeros
    param w2: [Hd C] f64 = normal(std=0.5)
    param unused: [C D] f64 = ones
"""

MLP = Text(
    "mlp",
    DIGITS
    + NET
    + """
fn scores(m: Net, pixels: [b D] f64) -> [b C] f64:
    return gelu(pixels @ m.w1 + m.b1) @ m.w2

fn loss(m: Net, batch: [b] Sample) -> [] f64:
    return cross_entropy(scores(m, batch.pixels), batch.digit, over=C) + 0 * sum(m.unused, over=[C D])

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Sample) -> ([] f64, [] f64, [b C] f64, [] i64):
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    found = scores(m, batch.pixels)
    return l, norm(g), found, sum(argmax(found, over=C) == batch.digit, over=b)
""",
    digits,
    (("Hd",), ("C",), ("D",), ("Hd", "C")),
)

CLIPPED = Text(
    "clip, dropout and accumulation",
    DIGITS
    + NET
    + """
fn loss(m: Net, batch: [b] Sample) -> [] f64:
    h = dropout(gelu(batch.pixels @ m.w1 + m.b1), rate=0.3)
    return cross_entropy(dropout(h @ m.w2, rate=0.2), batch.digit, over=C) + 0 * sum(m.unused, over=[C D])

fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Sample) -> ([] f64, [] f64):
    l, g = value_and_grad(loss, m, batch)
    k, h = value_and_grad(loss, m, batch)
    total = clip(g + h, norm=0.05)
    update(mut m, mut opt, total)
    return l + k, norm(total)
""",
    digits,
    (("Hd",), ("C",)),
)

IGNORED = Text(
    "ignored labels",
    DIGITS.replace("Index[C]", "i64")
    + """
model Net:
    param w: [D C] f64 = normal(std=0.5)

fn loss(m: Net, batch: [b] Sample) -> [] f64:
    return cross_entropy(batch.pixels @ m.w, batch.digit, over=C, ignore=-1)
"""
    + STEP,
    lambda n, random: {
        **digits(n, random),
        "digit": torch.randint(-1, 4, (n,), generator=random).index_fill(0, torch.tensor([0]), 1),
    },
    (("C",), ("D",)),
)

NORMED = Text(
    "batch_norm",
    DIGITS
    + """
model Net:
    param w1: [D Hd] f64 = normal(std=0.5)
    bn: BatchNorm[Hd]
    param w2: [Hd C] f64 = normal(std=0.5)

fn loss(mut m: Net, batch: [b] Sample) -> [] f64:
    h = batch_norm(batch.pixels @ m.w1 + 100, mut m.bn, over=b)
    return cross_entropy(relu(h) @ m.w2, batch.digit, over=C)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Sample) -> ([] f64, [] f64):
    l, g = value_and_grad(loss, mut m, batch)
    update(mut m, mut opt, g)
    return l, norm(g)
""",
    digits,
    (("Hd",), ("C",)),
)

CONTRASTIVE = Text(
    "contrastive",
    """
dim D = 6
dim E = 4

data Sample:
    pixels: [D] f64
    other: [D] f64

model Net:
    param w: [D E] f64 = normal(std=0.5)
    param u: [D E] f64 = normal(std=0.5)
    param scale: [] f64 = ones

fn loss(m: Net, batch: [b] Sample) -> [] f64:
    i = batch.pixels @ m.w
    t = batch.other @ m.u
    it = m.scale * einsum(i, whole(t): b E, c E -> b c)
    ti = m.scale * einsum(t, whole(i): b E, c E -> b c)
    return 0.5 * cross_entropy(it, arange[b], over=c) + 0.5 * cross_entropy(ti, arange[b], over=c)
"""
    + STEP,
    lambda n, random: {name: torch.randn(n, 6, generator=random, dtype=torch.float64) for name in ("pixels", "other")},
    (("E",), ("D",)),
)

EMBEDDED = Text(
    "tied embedding",
    """
dim V = 8
dim T = 4
dim D = 6

data Sample:
    tokens: [T] Index[V]
    next: [T] Index[V]

model Net:
    param tok: [V D] f64 = normal(std=0.5)
    param gain: [D] f64 = ones

fn loss(m: Net, batch: [b] Sample) -> [] f64:
    x = layer_norm(m.tok[batch.tokens], over=D) * m.gain
    return cross_entropy(einsum(x, m.tok: b T D, V D -> b T V), batch.next, over=V)
"""
    + STEP,
    words,
    (("V",), ("D",), ("T",)),
)

HEADS = Text(
    "attention",
    """
dim V = 8
dim T = 4
dim H = 4
dim Dh = 2
dim D = H * Dh
dim F = 6

data Sample:
    tokens: [T] Index[V]
    next: [T] Index[V]

model Block:
    param w_qkv: [D (3 H Dh)] f64 = normal(std=0.4)
    param w_o: [(H Dh) D] f64 = normal(std=0.4)
    param ln: [D] f64 = ones
    param up: [D F] f64 = normal(std=0.4)
    param down: [F D] f64 = normal(std=0.4)

model Net:
    param tok: [V D] f64 = normal(std=0.4)
    blocks: [2] Block

fn mixed(m: Block, x: [b n D] f64) -> [b n D] f64:
    q, k, v = layer_norm(x, over=D) * m.ln @ m.w_qkv |> split(b n (3 H Dh) -> b H n Dh)
    score = einsum(q, k: b H n Dh, b H m Dh -> b H n m) / 1.4
    weight = softmax(masked_fill(score, !causal[n m], -inf), over=m)
    y = einsum(weight, v: b H n m, b H m Dh -> b H n Dh)
    return x + dropout(rearrange(y: b H n Dh -> b n (H Dh)) @ m.w_o, rate=0.2)

fn loss(m: Net, batch: [b] Sample) -> [] f64:
    x = m.tok[batch.tokens]
    for block in m.blocks:
        x = mixed(block, x)
        x = x + relu(layer_norm(x, over=D) @ block.up) @ block.down
    return cross_entropy(einsum(x, m.tok: b T D, V D -> b T V), batch.next, over=V)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Sample) -> ([] f64, [] f64):
    l, g = value_and_grad(loss, m, batch)
    g = clip(g, norm=1.0)
    update(mut m, mut opt, g)
    return l, norm(g)
""",
    words,
    (("H",), ("F",), ("V",), ("H", "F", "V"), ("Dh",)),
)

EXTREMES = Text(
    "extremes over the batch",
    DIGITS
    + """
model Net:
    param w: [D C] f64 = normal(std=0.5)

fn loss(m: Net, batch: [b] Sample) -> [] f64:
    y = batch.pixels @ m.w
    high, low = max(y, over=b), min(y, over=b)
    spread = softmax(whole(y), over=b) * y
    return mean(square(high - low), over=C) + logsumexp(max(y, over=[b C]) + high, over=C) + mean(spread, over=[b C])

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Sample) -> ([] f64, [] f64, [C] f64):
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l, norm(g), max(batch.pixels @ m.w, over=b)
""",
    digits,
    (("C",),),
)

AS_ONE = Text(
    "attention, D as (H Dh)",
    HEADS.text.replace("param w_o: [(H Dh) D]", "param w_o: [D D]"),
    words,
    (("H",), ("H", "F")),
)

TEXTS = (MLP, CLIPPED, IGNORED, NORMED, CONTRASTIVE, EMBEDDED, HEADS, AS_ONE, EXTREMES)
