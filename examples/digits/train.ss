# Reads handwritten digits. From this project's folder: python -m shapescript examples/digits/train.ss 3

devices cpu

dim Y = 8   # rows of a picture
dim X = 8   # pixels of a row
dim H = 96  # features
dim C = 10  # digits

import python digits

model Reader:
    param into:  [Y*X H] = kaiming
    param shift: [H]     = zeros
    param out:   [H C]   = xavier

data Sample:
    picture: [Y X]
    digit:   [] Index[C]

fn scores(m: Reader, picture: [b Y X], rate: float = 0.0) -> [b C]:
    features = rearrange(picture: b Y X -> b (Y X)) @ m.into + m.shift |> relu
    return dropout(features, rate) @ m.out

fn loss(m: Reader, batch: [b] Sample) -> [] NonNeg:
    return cross_entropy(scores(m, batch.picture, rate=0.1), batch.digit, over=C)

fn step(mut m: Reader, mut opt: AdamW[Reader], batch: [b] Sample, lr: float) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, clip(g, norm=1.0), lr=lr)
    return l

fn right(m: Reader, batch: [b] Sample) -> [] i64:
    return sum(argmax(scores(m, batch.picture), over=C) == batch.digit, over=b)

fn accuracy(m: Reader, samples: Dataset[Sample]) -> float:
    total = 0
    for batch in samples |> batches(360):
        total = total + int(right(m, batch))
    return total / len(samples)

fn main(epochs: int = 10, lr: float = 0.004):
    train = digits.load("train") as Dataset[Sample]
    test = digits.load("test") as Dataset[Sample]
    m = Reader(seed=0)
    opt = adamw(m, lr=lr)
    for epoch in 0..epochs:
        rate = lr * (1 - epoch / epochs)
        for batch in train |> shuffle(seed=epoch) |> batches(32):
            log("loss", step(mut m, mut opt, batch, rate))
        print("epoch", epoch + 1, "test accuracy", accuracy(m, test))
    save(m, "digits.safetensors")
