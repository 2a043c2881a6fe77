# Softmax regression from zero, SGD, 30 epochs
devices cpu

dim D = 64
dim C = 10

import python oracle

model Linear:
    param w: [D C] f64 = zeros
    param b: [C] f64 = zeros

data Sample:
    pixels: [D] f64
    digit: [] Index[C]

fn scores(m: Linear, pixels: [b D] f64) -> [b C] f64:
    return pixels @ m.w + m.b

fn loss(m: Linear, batch: [b] Sample) -> [] f64:
    return cross_entropy(scores(m, batch.pixels), batch.digit, over=C)

fn step(mut m: Linear, mut opt: SGD[Linear], batch: [b] Sample) -> [] f64:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn right(m: Linear, batch: [b] Sample) -> [] i64:
    return sum(argmax(scores(m, batch.pixels), over=C) == batch.digit, over=b)

fn measure(m: Linear, part: str, samples: Dataset[Sample]):
    for batch in samples |> batches(len(samples)):
        oracle.note(part + " loss", loss(m, batch))
        oracle.note(part + " right", right(m, batch))

fn main(epochs: int = 30):
    train = oracle.load("train") as Dataset[Sample]
    test = oracle.load("test") as Dataset[Sample]
    m = Linear(seed=0)
    opt = sgd(m, lr=0.5)
    for epoch in 0..epochs:
        for batch in train |> batches(64):
            oracle.note("loss", step(mut m, mut opt, batch))
    measure(m, "train", train)
    measure(m, "test", test)
