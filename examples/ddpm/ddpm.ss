# A diffusion model (DDPM) of points in the plane: it learns to take noise away, and draws points from noise alone.

devices cpu

dim X = 2    # coordinates of a point
dim T = 100  # steps from a point to noise
dim K = 16   # frequencies that tell the step
dim H = 128  # features
dim L = 3    # layers

import nn
import python moons

model Denoiser:
    into:   nn.Linear[X H]
    time:   nn.Linear[2*K H]
    layers: [L] nn.Linear[H H]
    out:    nn.Linear[H X]

data Point:
    x: [X]

# a point, a step and the noise that is drawn for it, where all are given
data Drawn:
    x:     [X]
    t:     [] Index[T]
    noise: [X]

# what each step leaves of a point, and what is left of it after each
fn schedule() -> ([T] Prob, [T] Prob):
    one = (0.999 - 0.1 * (arange[T] as f32) / (T - 1)) as Prob
    return one, cumprod(one, over=T)

fn features(t: [b] Index[T]) -> [b 2*K]:
    angle = einsum(t as f32, exp(-log(1000.0) / K * (arange[K] as f32)): b, K -> b K)
    return concat(sin(angle), cos(angle), over=K)

fn noise_in(m: Denoiser, x: [b X], t: [b] Index[T]) -> [b X]:
    h = nn.linear(x, m.into) + nn.linear(features(t), m.time)
    for layer in m.layers:
        h = h + silu(nn.linear(h, layer))
    return h |> nn.linear(m.out)

fn missed(m: Denoiser, x: [b X], t: [b] Index[T], noise: [b X]) -> [] NonNeg:
    _, left = schedule()
    a = left[t]
    return mse(noise_in(m, sqrt(a) * x + sqrt(1 - a) * noise, t), noise)

fn loss(m: Denoiser, batch: [b] Point) -> [] NonNeg:
    return missed(m, batch.x, randint[b](T), normal[b X](std=1))

fn step(
    mut m: Denoiser,
    mut mean: Denoiser,
    mut opt: AdamW[Denoiser],
    batch: [b] Point,
) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    average(mut mean, m, keep=0.999)
    return l

# the same with steps and noise that are given: what another program's losses are compared with
fn loss_given(m: Denoiser, batch: [b] Drawn) -> [] NonNeg:
    return missed(m, batch.x, batch.t, batch.noise)

fn step_given(mut m: Denoiser, mut opt: AdamW[Denoiser], batch: [b] Drawn) -> [] NonNeg:
    l, g = value_and_grad(loss_given, m, batch)
    update(mut m, mut opt, g)
    return l

# points one step nearer to the data
fn before(m: Denoiser, x: [n X], t: [] Index[T]) -> [n X]:
    each, after = schedule()
    one = each[t]
    left = after[t]
    found = (x - (1 - one) / sqrt(1 - left) * noise_in(m, x, broadcast(t, [n]))) / sqrt(one)
    return where(t > 0, found + sqrt((1 - one) as NonNeg) * normal[n X](std=1), found)

fn start(n: int) -> [n X]:
    return normal[n X](std=1)

fn main(epochs: int = 400, count: int = 1000):
    train = moons.load(4000, 0) as Dataset[Point]
    m = Denoiser(seed=0)
    mean = copy(m)
    opt = adamw(m, lr=1e-3)
    for epoch in 0..epochs:
        for batch in train |> shuffle(seed=epoch) |> batches(250):
            l = step(mut m, mut mean, mut opt, batch)
            log("loss", l)
        if (epoch + 1) % 100 == 0:
            print("epoch", epoch + 1, "loss", l)
    x = start(count)
    for t in reversed(0..T):
        x = before(mean, x, t as [] Index[T])
    print("distance to true points", moons.distance(x, 2))
    print(
        "of true points to each other",
        moons.between_true_points(count),
        "of normal ones",
        moons.to_normal_points(count),
    )
    moons.draw(x, "points.png")
