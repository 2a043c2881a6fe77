# Pictures of digits and what is said of them come to lie side by side (CLIP): each pair against all others of the batch.
# On several devices too: `whole` gathers the other side, so every picture is compared with every sentence.

devices cpu

dim P = 64  # pixels
dim V = captions.vocabulary()
dim S = 4    # words of a sentence
dim H = 128  # features
dim D = 32   # what pictures and sentences have in common
dim C = 10   # digits

import nn
import python captions

model Clip:
    pixels: nn.Linear[P H]
    seen:   nn.Linear[H D]
    words:  nn.Embedding[V H]
    said:   nn.Linear[H D]
    param sharpness: [] = constant(2.0)

data Pair:
    picture: [P]
    words:   [S] Index[V]
    digit:   [] Index[C]

fn unit(x: [.. D]) -> [.. D]:
    return x / norm(x, over=D)

fn of_picture(m: Clip, picture: [b P]) -> [b D]:
    return picture |> nn.linear(m.pixels) |> relu |> nn.linear(m.seen) |> unit

fn of_words(m: Clip, words: [b S] Index[V]) -> [b D]:
    return words |> nn.embed(m.words) |> mean(over=S) |> nn.linear(m.said) |> unit

# c is the batch's axis by another name: the softmax over it is over all of the batch, wherever it lies
fn loss(m: Clip, batch: [b] Pair) -> []:
    k = exp(m.sharpness)
    pictures = of_picture(m, batch.picture)
    sentences = of_words(m, batch.words)
    right = k * sum(pictures * sentences, over=D)
    by_picture = k * einsum(pictures, whole(sentences): b D, c D -> b c)
    by_sentence = k * einsum(sentences, whole(pictures): b D, c D -> b c)
    missed = logsumexp(by_picture, over=c) + logsumexp(by_sentence, over=c) - 2 * right
    return mean(missed, over=b) / 2

fn step(mut m: Clip, mut opt: AdamW[Clip], batch: [b] Pair) -> []:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn right(m: Clip, batch: [b] Pair, names: [C S] Index[V]) -> [] i64:
    near = einsum(of_picture(m, batch.picture), of_words(m, names): b D, C D -> b C)
    return sum(argmax(near, over=C) == batch.digit, over=b)

fn accuracy(m: Clip, test: Dataset[Pair]) -> float:
    names = captions.prompts() as [C S] Index[V]
    total = 0
    for batch in test |> batches(360):
        total = total + int(right(m, batch, names))
    return total / len(test)

fn main(epochs: int = 30):
    train = captions.load("train") as Dataset[Pair]
    test = captions.load("test") as Dataset[Pair]
    m = Clip(seed=0)
    opt = adamw(m, lr=2e-3)
    curve = captions.Curve()
    for epoch in 0..epochs:
        for batch in train |> shuffle(seed=epoch) |> batches(48, drop_last=true):
            log("loss", step(mut m, mut opt, batch))
        reached = accuracy(m, test)
        curve.add(reached)
        if (epoch + 1) % 5 == 0:
            print("epoch", epoch + 1, "test accuracy by the nearest name", reached)
    curve.draw("accuracy.png")
