# A vision transformer (ViT): a picture of a digit is read as 16 patches of 2 x 2 pixels.

devices cpu

dim Y = 8  # rows of a picture
dim X = 8  # pixels of a row
dim P = 2  # rows of a patch
dim Q = 2  # pixels of a patch's row
dim N = (Y / P) * (X / Q)
dim D = 32  # features
dim H = 4   # heads
dim L = 2   # blocks
dim C = 10  # digits

import nn
import python patches

model Block:
    before:    nn.LayerNorm[D]
    attention: nn.Attention[D H]
    between:   nn.LayerNorm[D]
    layers:    nn.FeedForward[D 4*D]

model Vit:
    patch: nn.Linear[P*Q D]
    param first:  [D]     = normal(std=0.02)
    param places: [N+1 D] = normal(std=0.02)
    blocks: [L] Block
    last:   nn.LayerNorm[D]
    out:    nn.Linear[D C]

data Sample:
    picture: [Y X]
    digit:   [] Index[C]

fn scores(m: Vit, picture: [b Y X]) -> [b C]:
    p = rearrange(picture: b (row P) (column Q) -> b (row column) (P Q)) |> nn.linear(m.patch)
    h = concat(repeat(m.first: D -> b 1 D), p) + m.places
    for block in m.blocks:
        h = h + (h |> nn.layer_normed(block.before) |> nn.attend(block.attention))
        h = h + (h |> nn.layer_normed(block.between) |> nn.feed_forward(block.layers))
    return h[N+1=0] |> nn.layer_normed(m.last) |> nn.linear(m.out)

fn loss(m: Vit, batch: [b] Sample) -> [] NonNeg:
    return cross_entropy(scores(m, batch.picture), batch.digit, over=C)

fn step(mut m: Vit, mut opt: AdamW[Vit], batch: [b] Sample, lr: float) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g, lr=lr)
    return l

fn right(m: Vit, batch: [b] Sample) -> [] i64:
    return sum(argmax(scores(m, batch.picture), over=C) == batch.digit, over=b)

fn accuracy(m: Vit, test: Dataset[Sample]) -> float:
    total = 0
    for batch in test |> batches(360):
        total = total + int(right(m, batch))
    return total / len(test)

fn main(epochs: int = 60):
    train = patches.load("train") as Dataset[Sample]
    test = patches.load("test") as Dataset[Sample]
    m = Vit(seed=0)
    opt = adamw(m, lr=2e-3)
    curve = patches.Curve()
    for epoch in 0..epochs:
        rate = 2e-3 * (1 - epoch / epochs)
        for batch in train |> shuffle(seed=epoch) |> batches(32):
            log("loss", step(mut m, mut opt, batch, rate))
        reached = accuracy(m, test)
        curve.add(reached)
        if (epoch + 1) % 10 == 0:
            print("epoch", epoch + 1, "test accuracy", reached)
    curve.draw("accuracy.png")
