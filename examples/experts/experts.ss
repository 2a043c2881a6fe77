# A mixture of experts: each point goes to the two of four experts that a gate chooses, and a second loss keeps them
# equally busy. That one is a product of two means over the whole batch, so it isn't a mean of losses of its parts:
# on several devices it is still the whole batch's.

devices cpu

dim X = 2   # coordinates of a point
dim E = 4   # experts
dim H = 32  # features of an expert
dim C = 3   # rings

chosen = 2  # experts that a point goes to

import nn
import python rings

model Experts:
    gate: nn.Linear[X E]
    param w:   [E X H] = normal(std=0.7)
    param b:   [E H]   = zeros
    param out: [E H C] = normal(std=0.2)

data Sample:
    point: [X]
    ring:  [] Index[C]

fn best(share: [b E] Prob, k: int) -> [b k] Prob:
    values, _ = topk(share, k, over=E)
    return values

# how much of each point each expert gets: the gate's share for the k best, made to add up to one
fn split_up(share: [b E] Prob, k: int) -> [b E]:
    most = best(share, k)
    kept = where(share >= broadcast(min(most, over=k), [b E]), share, 0)
    return kept / sum(most, over=k)

fn shares(m: Experts, point: [b X]) -> ([b E] Prob, [b E]):
    share = point |> nn.linear(m.gate) |> softmax(over=E)
    return share, split_up(share, chosen)

fn scores(m: Experts, point: [b X]) -> ([b C], [b E] Prob, [b E]):
    share, given = shares(m, point)
    h = relu(einsum(point, m.w: b X, E X H -> b E H) + m.b)
    each = einsum(h, m.out: b E H, E H C -> b E C)
    return einsum(given, each: b E, b E C -> b C), share, given

fn loss(m: Experts, batch: [b] Sample) -> []:
    z, share, given = scores(m, batch.point)
    busy = mean((given > 0) as f32, over=b)
    balance = E / chosen * sum(busy * mean(share, over=b), over=E)
    return cross_entropy(z, batch.ring, over=C) + 0.2 * balance

fn step(mut m: Experts, mut opt: AdamW[Experts], batch: [b] Sample) -> []:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn right(m: Experts, batch: [b] Sample) -> [] i64:
    z, _, _ = scores(m, batch.point)
    return sum(argmax(z, over=C) == batch.ring, over=b)

fn busy(m: Experts, batch: [b] Sample) -> [E]:
    _, given = shares(m, batch.point)
    return mean((given > 0) as f32, over=b)

fn expert(m: Experts, point: [n X]) -> [n] Index[E]:
    _, given = shares(m, point)
    return argmax(given, over=E)

fn main(epochs: int = 120):
    train = rings.load(4000, 0) as Dataset[Sample]
    test = rings.load(1000, 1) as Dataset[Sample]
    m = Experts(seed=0)
    opt = adamw(m, lr=5e-3)
    for epoch in 0..epochs:
        for batch in train |> shuffle(seed=epoch) |> batches(100):
            log("loss", step(mut m, mut opt, batch))
        if (epoch + 1) % 20 == 0:
            for batch in test |> batches(1000):
                print(
                    "epoch",
                    epoch + 1,
                    "test accuracy",
                    int(right(m, batch)) / len(batch),
                    "busy",
                    busy(m, batch),
                )
    print("logistic regression has", rings.floor())
    points = rings.given_points() as [1000 X]
    rings.draw(points, expert(m, points), "experts.png")
