# word2vec: vectors of words, such that a word's tells which words stand near it. For each pair of words that stand
# together five others are drawn, and the model learns to tell the one from the five.

devices cpu

dim V = 2000     # words
dim D = 64       # features of a word
dim K = 5        # words drawn for a pair
dim T = 100_000  # places of the table they are drawn from

import python words

model Words:
    param word: [V D] = uniform(-0.05, 0.05)
    param near: [V D] = zeros

data Pair:
    centre: [] Index[V]
    near:   [] Index[V]

data Drawn:
    centre: [] Index[V]
    near:   [] Index[V]
    other:  [K] Index[V]

# how far two vectors agree is the log of the odds that the words stand together
fn loss(m: Words, batch: [b] Drawn) -> [] NonNeg:
    word = m.word[batch.centre]
    real = einsum(word, m.near[batch.near]: b D, b D -> b)
    made = einsum(word, m.near[batch.other]: b D, b K D -> b K)
    return mean(softplus(-real) + sum(softplus(made), over=K), over=b)

fn with_others(batch: [b] Pair, table: [T] Index[V]) -> [b] Drawn:
    return Drawn(centre=batch.centre, near=batch.near, other=table[randint[b K](T)])

fn step_given(mut m: Words, mut opt: AdamW[Words], batch: [b] Drawn) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn step(mut m: Words, mut opt: AdamW[Words], batch: [b] Pair, table: [T] Index[V]) -> [] NonNeg:
    return step_given(mut m, mut opt, with_others(batch, table))

fn loss_of(m: Words, batch: [b] Pair, table: [T] Index[V]) -> [] NonNeg:
    return loss(m, with_others(batch, table))

fn main(epochs: int = 3):
    train = words.load("train") as Dataset[Pair]
    held = words.load("held") as Dataset[Pair]
    table = words.table() as [T] Index[V]
    m = Words(seed=0)
    opt = adamw(m, lr=2e-3)
    for epoch in 0..epochs:
        for batch in train |> shuffle(seed=epoch) |> batches(1024):
            log("loss", step(mut m, mut opt, batch, table))
        total = 0.0
        for batch in held |> batches(4096):
            total = total + float(loss_of(m, batch, table)) * len(batch)
        print("epoch", epoch + 1, "held-out loss", total / len(held))
    print("knowing only how frequent words are has", words.floor())
    print(str(words.neighbours(m.word, "king love sword father three")))
    words.draw(m.word, "words.png")
