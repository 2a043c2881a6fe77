# `mlp.ss` with its parameters shared out. Run by `python -m bench`.

devices cpu[0 1 2]
    shard params

dim D  = 784
dim Hd = 256
dim C  = 10

import python bench_clock
import python bench_data

model Mlp:
    param w1: [D Hd] = normal(std=0.02)
    param w2: [Hd C] = normal(std=0.02)

data Digit:
    img:   [D]
    label: [] Index[C]

fn loss(m: Mlp, batch: [b] Digit) -> [] NonNeg:
    return cross_entropy(batch.img @ m.w1 |> gelu |> matmul(m.w2), batch.label, over=C)

fn step(mut m: Mlp, mut opt: AdamW[Mlp], batch: [b] Digit) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn step_at(mut m: Mlp, mut opt: AdamW[Mlp], batch: [b] Digit, lr: float) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g, lr=lr)
    return l

# steps whose losses nobody looks at, but for the last one's: it's there when all of them are done
fn plain(mut m: Mlp, mut opt: AdamW[Mlp], data: Dataset[Digit], batch: int, seed: int, steps: int) -> float:
    l = zeros[]
    for rows in data |> shuffle(seed=seed) |> batches(batch) |> take(steps):
        l = step(mut m, mut opt, rows)
    return float(l)

fn printing(mut m: Mlp, mut opt: AdamW[Mlp], data: Dataset[Digit], batch: int, seed: int, steps: int) -> float:
    l = zeros[]
    for rows in data |> shuffle(seed=seed) |> batches(batch) |> take(steps):
        l = step(mut m, mut opt, rows)
        print("loss", l)
    return float(l)

fn watched(mut m: Mlp, mut opt: AdamW[Mlp], data: Dataset[Digit], batch: int, seed: int, steps: int) -> float:
    l = zeros[]
    for rows in data |> shuffle(seed=seed) |> batches(batch) |> take(steps):
        l = step(mut m, mut opt, rows)
        bench_clock.loss(float(l))
    return float(l)

fn rated(mut m: Mlp, mut opt: AdamW[Mlp], data: Dataset[Digit], batch: int, seed: int, steps: int) -> float:
    l = zeros[]
    lr = 3e-4
    for rows in data |> shuffle(seed=seed) |> batches(batch) |> take(steps):
        lr = lr * 0.9999
        l = step_at(mut m, mut opt, rows, lr)
    return float(l)

fn main(batch: int = 64):
    data = bench_data.digits() as Dataset[Digit]
    m    = Mlp(seed=0)
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
