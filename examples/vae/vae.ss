# A variational autoencoder of handwritten digits: pictures from few normal numbers.

devices cpu

dim P = 64   # pixels
dim H = 128  # features
dim Z = 8    # numbers behind a picture

import nn
import python pictures

model Vae:
    into:   nn.Linear[P H]
    mean:   nn.Linear[H Z]
    spread: nn.Linear[H Z]
    back:   nn.Linear[Z H]
    out:    nn.Linear[H P]

data Picture:
    picture: [P]

# a picture and the noise that is drawn for it, where both are given
data Drawn:
    picture: [P]
    noise:   [Z]

fn decoded(z: [b Z], m: Vae) -> [b P]:
    return z |> nn.linear(m.back) |> relu |> nn.linear(m.out)

# the negative evidence lower bound of a picture, in nats: what is lost in the pixels, and what z tells beyond noise
fn bound(m: Vae, picture: [b P], noise: [b Z]) -> ([], []):
    h = picture |> nn.linear(m.into) |> relu
    mu = h |> nn.linear(m.mean)
    log_variance = h |> nn.linear(m.spread)
    z = mu + exp(0.5 * log_variance) * noise
    pixels = sum(binary_cross_entropy(decoded(z, m), picture, keep=[b P]), over=P)
    told = 0.5 * sum(square(mu) + exp(log_variance) - 1 - log_variance, over=Z)
    return mean(pixels, over=b), mean(told, over=b)

fn loss(m: Vae, batch: [b] Picture) -> []:
    pixels, told = bound(m, batch.picture, normal[b Z](std=1))
    return pixels + told

fn step(mut m: Vae, mut opt: Adam[Vae], batch: [b] Picture) -> []:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

# the same with noise that is given: what another program's losses are compared with
fn loss_given(m: Vae, batch: [b] Drawn) -> []:
    pixels, told = bound(m, batch.picture, batch.noise)
    return pixels + told

fn step_given(mut m: Vae, mut opt: Adam[Vae], batch: [b] Drawn) -> []:
    l, g = value_and_grad(loss_given, m, batch)
    update(mut m, mut opt, g)
    return l

fn drawn(m: Vae, n: int) -> [n P] Prob:
    return sigmoid(decoded(normal[n Z](std=1), m))

fn held_out(m: Vae, held: Dataset[Picture]) -> float:
    total = 0.0
    for batch in held |> batches(360):
        total = total + float(loss(m, batch)) * len(batch)
    return total / len(held)

fn main(epochs: int = 60):
    train = pictures.load("train") as Dataset[Picture]
    held = pictures.load("held") as Dataset[Picture]
    m = Vae(seed=0)
    opt = adam(m, lr=2e-3)
    for epoch in 0..epochs:
        for batch in train |> shuffle(seed=epoch) |> batches(64):
            log("loss", step(mut m, mut opt, batch))
        if (epoch + 1) % 10 == 0:
            print("epoch", epoch + 1, "held out", held_out(m, held))
    print("pixels by themselves would have", pictures.floor())
    pictures.draw(drawn(m, 64), "drawn.png")
