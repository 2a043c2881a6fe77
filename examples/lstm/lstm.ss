# A recurrent net (LSTM) that reads Shakespeare's plays character by character, and writes on.

devices cpu

import nn
import python shakespeare

dim V = shakespeare.vocabulary()
dim T = 32   # characters of a window
dim E = 32   # features of a character
dim H = 128  # features that are hidden

model Net:
    characters: nn.Embedding[V E]
    layer:      nn.Lstm[E H]
    out:        nn.Linear[H V]

data Window:
    x: [T] Index[V]
    y: [T] Index[V]

fn scores(m: Net, x: [b n] Index[V], carry: ([b H], [b H])) -> ([b n V], ([b H], [b H])):
    hidden, carry = x |> nn.embed(m.characters) |> nn.lstm(m.layer, carry)
    return hidden |> nn.linear(m.out), carry

fn loss(m: Net, batch: [b] Window) -> [] NonNeg:
    z, _ = scores(m, batch.x, (zeros[b H], zeros[b H]))
    return cross_entropy(z, batch.y, over=V)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Window) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn next(
    m: Net,
    x: [n] Index[V],
    carry: ([n H], [n H]),
    temperature: float,
) -> ([n] Index[V], ([n H], [n H])):
    z, carry = scores(m, repeat(x: n -> n 1), carry)
    return categorical(z[1=0] / temperature, over=V), carry

fn written(m: Net, count: int, temperature: float) -> str:
    x = shakespeare.newline() as [1] Index[V]
    carry = (zeros[1 H], zeros[1 H])
    text = ""
    for place in 0..count:
        x, carry = next(m, x, carry, temperature)
        text = text + str(shakespeare.letter(x))
    return text

fn held_out(m: Net, held: Dataset[Window]) -> float:
    total = 0.0
    for batch in held |> batches(250):
        total = total + float(loss(m, batch)) * len(batch)
    return total / len(held)

fn main(steps: int = 2000):
    train = shakespeare.windows("train", T) as Dataset[Window]
    held = shakespeare.windows("held", T) as Dataset[Window] |> shuffle(seed=0) |> take(2000)
    m = Net(seed=0)
    opt = adamw(m, lr=4e-3)
    curve = shakespeare.Curve()
    count = 0
    for batch in train |> shuffle(seed=0) |> batches(32) |> take(steps):
        l = step(mut m, mut opt, batch)
        log("loss", l)
        curve.add(l)
        count = count + 1
        if count % 250 == 0:
            reached = held_out(m, held)
            curve.held_out(reached)
            print("step", count, "held out", reached)
    print("bigrams would have", shakespeare.bigram_loss())
    print(written(m, 300, 0.7))
    curve.draw("loss.png")
