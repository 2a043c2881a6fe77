# `gpt.ss` with its parameters shared out. Run by `python -m bench`.

devices cpu[0 1 2]
    shard params

dim V  = 512
dim T  = 128
dim D  = 256
dim L  = 6
dim H  = 8
dim Dh = D / H
dim F  = 4*D

import python bench_clock
import python bench_data

model Block:
    param g1:    [D]     = ones
    param b1:    [D]     = zeros
    param w_qkv: [D 3*D] = normal(std=0.02)
    param w_o:   [D D]   = normal(std=0.02)
    param g2:    [D]     = ones
    param b2:    [D]     = zeros
    param w_in:  [D F]   = normal(std=0.02)
    param w_out: [F D]   = normal(std=0.02)

model Gpt:
    param tok:  [V D] = normal(std=0.02)
    param pos:  [T D] = normal(std=0.02)
    blocks: [L] Block
    param gain:  [D]   = ones
    param shift: [D]   = zeros
    param head:  [D V] = normal(std=0.02)

data Window:
    x: [T] Index[V]
    y: [T] Index[V]

fn attend(block: Block, x: [b n D]) -> [b n D]:
    q, k, v = x @ block.w_qkv |> split(b n (3 H Dh) -> b H n Dh)
    y = attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh, mask=causal[n m])
    return y |> rearrange(b H n Dh -> b n (H Dh)) |> matmul(block.w_o)

fn feed(block: Block, x: [b n D]) -> [b n D]:
    return x @ block.w_in |> gelu |> matmul(block.w_out)

fn logits(m: Gpt, x: [b T] Index[V]) -> [b T V]:
    h = m.tok[x] + m.pos
    for block in m.blocks:
        h = h + attend(block, layer_norm(h, over=D) * block.g1 + block.b1)
        h = h + feed(block, layer_norm(h, over=D) * block.g2 + block.b2)
    return (layer_norm(h, over=D) * m.gain + m.shift) @ m.head

fn loss(m: Gpt, batch: [b] Window) -> [] NonNeg:
    return cross_entropy(logits(m, batch.x), batch.y, over=V)

fn step(mut m: Gpt, mut opt: AdamW[Gpt], batch: [b] Window) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn step_at(mut m: Gpt, mut opt: AdamW[Gpt], batch: [b] Window, lr: float) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g, lr=lr)
    return l

# steps whose losses nobody looks at, but for the last one's: it's there when all of them are done
fn plain(mut m: Gpt, mut opt: AdamW[Gpt], data: Dataset[Window], batch: int, seed: int, steps: int) -> float:
    l = zeros[]
    for rows in data |> shuffle(seed=seed) |> batches(batch) |> take(steps):
        l = step(mut m, mut opt, rows)
    return float(l)

fn printing(mut m: Gpt, mut opt: AdamW[Gpt], data: Dataset[Window], batch: int, seed: int, steps: int) -> float:
    l = zeros[]
    for rows in data |> shuffle(seed=seed) |> batches(batch) |> take(steps):
        l = step(mut m, mut opt, rows)
        print("loss", l)
    return float(l)

fn watched(mut m: Gpt, mut opt: AdamW[Gpt], data: Dataset[Window], batch: int, seed: int, steps: int) -> float:
    l = zeros[]
    for rows in data |> shuffle(seed=seed) |> batches(batch) |> take(steps):
        l = step(mut m, mut opt, rows)
        bench_clock.loss(float(l))
    return float(l)

fn rated(mut m: Gpt, mut opt: AdamW[Gpt], data: Dataset[Window], batch: int, seed: int, steps: int) -> float:
    l = zeros[]
    lr = 3e-4
    for rows in data |> shuffle(seed=seed) |> batches(batch) |> take(steps):
        lr = lr * 0.9999
        l = step_at(mut m, mut opt, rows, lr)
    return float(l)

fn main(batch: int = 8):
    data = bench_data.windows() as Dataset[Window]
    m    = Gpt(seed=0)
    load(mut m, str(bench_data.weights()))
    opt  = adamw(m, lr=3e-4)
    while bool(bench_clock.asked()):
        mode  = str(bench_clock.mode())
        seed  = int(bench_clock.seed())
        steps = int(bench_clock.steps())
        if mode == "plain":
            bench_clock.done(plain(mut m, mut opt, data, batch, seed, steps))
        elif mode == "print":
            bench_clock.done(printing(mut m, mut opt, data, batch, seed, steps))
        elif mode == "watch":
            bench_clock.done(watched(mut m, mut opt, data, batch, seed, steps))
        else:
            bench_clock.done(rated(mut m, mut opt, data, batch, seed, steps))
