# SGD with the gradients clipped by their global norm
devices cpu

dim D = 64
dim H = 32
dim C = 10

import python oracle

model Net:
    param w1: [D H] f64 = zeros
    param b1: [H] f64 = zeros
    param w2: [H C] f64 = zeros
    param b2: [C] f64 = zeros

data Sample:
    pixels: [D] f64
    digit: [] Index[C]

# w1[i, j] = 0.1 sin(1 + 32 i + j), w2[i, j] = 0.1 cos(1 + 10 i + j)
fn begin(mut m: Net):
    m.w1 = 0.1 * sin(1 + 32 * broadcast(arange[D] as f64, [D H]) + broadcast(arange[H] as f64, [D H]))
    m.w2 = 0.1 * cos(1 + 10 * broadcast(arange[H] as f64, [H C]) + broadcast(arange[C] as f64, [H C]))

fn scores(m: Net, pixels: [b D] f64) -> [b C] f64:
    h = pixels @ m.w1 + m.b1
    return relu(h) @ m.w2 + m.b2

fn loss(m: Net, batch: [b] Sample) -> [] f64:
    return cross_entropy(scores(m, batch.pixels), batch.digit, over=C)

fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Sample) -> ([] f64, [] f64):
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, clip(g, norm=0.25))
    return l, norm(g)

fn right(m: Net, batch: [b] Sample) -> [] i64:
    return sum(argmax(scores(m, batch.pixels), over=C) == batch.digit, over=b)

fn weights(m: Net) -> ([] f64, [] f64):
    return sum(m.w1, over=[D H]), sum(square(m.w1), over=[D H])

fn measure(m: Net, part: str, samples: Dataset[Sample]):
    for batch in samples |> batches(len(samples)):
        oracle.note(part + " loss", loss(m, batch))
        oracle.note(part + " right", right(m, batch))

fn main(epochs: int = 5):
    train = oracle.load("train") as Dataset[Sample]
    test = oracle.load("test") as Dataset[Sample]
    m = Net(seed=0)
    begin(mut m)
    opt = sgd(m, lr=0.5)
    for epoch in 0..epochs:
        for batch in train |> batches(64):
            l, size = step(mut m, mut opt, batch)
            oracle.note("loss", l)
            oracle.note("norm", size)
    measure(m, "train", train)
    measure(m, "test", test)
    total, squares = weights(m)
    oracle.note("sum", total)
    oracle.note("squares", squares)
