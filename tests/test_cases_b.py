"""Training on several devices, case by case: what others got wrong, and the right answer, which is one device's.

The numbers of the tests are those of a list of public reports; the programs run on worker processes.
"""

from __future__ import annotations

import math

import pytest
import torch
from programs import Program, f64, tensors
from several import devices

COUNTS = (1, 2, 3)

LINEAR = """
dim D = 3
model Net:
    param w: [D] f64 = constant(0.5)
data Row:
    x: [D] f64
    y: [] f64
fn loss(m: Net, batch: [b] Row) -> [] f64:
    return mean((batch.x @ m.w - batch.y) * (batch.x @ m.w - batch.y), over=b)
fn make() -> Net:
    return Net(seed=0)
fn optimizer(m: Net) -> SGD[Net]:
    return sgd(m, lr=0.1)
fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Row) -> [] f64:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l
"""


def rows(count: int, seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, dtype=torch.float64, generator=random)
    return {"x": x, "y": torch.randn(count, dtype=torch.float64, generator=random)}


def close(a: torch.Tensor, b: torch.Tensor, within: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=within, atol=within)


# --- B1 B22 B24: the loss and the gradients are the whole batch's, weighted by the parts' sizes ---


@pytest.mark.parametrize("count", COUNTS)
def test_b1_parts_weigh_as_many_rows_as_they_have(count: int) -> None:
    text = """
dim D = 3
model Net:
    param w: [] f64 = ones
data Row:
    cost: [] f64
fn loss(m: Net, batch: [b] Row) -> [] f64:
    return mean(m.w * batch.cost, over=b)
fn make() -> Net:
    return Net(seed=0)
fn both(m: Net, batch: [b] Row) -> ([] f64, [] f64):
    l, g = value_and_grad(loss, m, batch)
    return l, g.w
"""
    program = Program(text, place=devices(count))
    costs = torch.cat([torch.full((n,), float(cost), dtype=torch.float64) for n, cost in ((22, 1), (21, 2), (21, 4))])
    loss, gradient = program.call("both", program.call("make"), {"cost": costs})
    assert float(loss) == pytest.approx(2.3125, abs=1e-12)
    close(gradient, torch.tensor(2.3125, dtype=torch.float64))


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_b22_a_printed_loss_is_the_whole_batchs(count: int) -> None:
    text = """
data Row:
    cost: [] f64
fn loss(batch: [b] Row) -> [] f64:
    return mean(batch.cost, over=b)
"""
    costs = f64(
        0.6624, 0.5854, 0.6905, 0.8236, 0.6402, 0.7526, 0.7012, 0.8615,
        1.0789, 0.6766, 0.6231, 0.6581, 0.8010, 0.6775, 0.7123, 0.6385,
    )  # fmt: skip
    found = Program(text, place=devices(count)).call("loss", {"cost": costs})
    assert float(found) == pytest.approx(0.7239625, abs=1e-12)


def trained(count: int, sizes: list[int]) -> tuple[list[float], torch.Tensor]:
    program = Program(LINEAR, place=devices(count))
    m = program.call("make")
    opt = program.call("optimizer", m)
    losses = [float(program.call("step", m, opt, rows(n, n))) for n in sizes]
    return losses, tensors(m)["w"]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_b24_nothing_changes_with_the_number_of_devices(count: int) -> None:
    sizes = [64, 64, 7, 2, 1]  # two examples over three devices, and one
    losses, w = trained(count, sizes)
    wanted, alone = trained(1, sizes)
    assert losses == pytest.approx(wanted, rel=1e-12)
    close(w, alone)


# --- B3: nobody waits for a device that has nothing ---


@pytest.mark.parametrize("count", COUNTS)
def test_b3_any_length_of_a_dataset_ends_by_itself(count: int) -> None:
    text = (
        LINEAR
        + """
fn steps(data: Dataset[Row]) -> int:
    m = Net(seed=0)
    opt = sgd(m, lr=0.1)
    done = 0
    for batch in data |> batches(4):
        step(mut m, mut opt, batch)
        done = done + 1
    return done
"""
    )
    from shapescript.controller.dataset_items import field_specs
    from shapescript.controller.datasets import Dataset
    from shapescript.controller.from_python import HostDataset

    program = Program(text, place=devices(count))
    kind = program.typed.functions["steps"].parameters[0].type
    info = program.typed.data_of[kind.data]  # type: ignore[union-attr]
    for length in range(1, 14):
        columns = torch.utils.data.TensorDataset(*rows(length).values())
        data = HostDataset(Dataset.of(columns, "Row", field_specs(info, {"D": 3})), kind)  # type: ignore[arg-type]
        assert program.call("steps", data) == math.ceil(length / 4)


# --- B5: a device all of whose labels are ignored ---

IGNORED = """
dim C = 4
model Net:
    param w: [C] f64 = constant(0.25)
data Row:
    x: [C] f64
    label: [] i64
fn loss(m: Net, batch: [b] Row) -> [] f64:
    return cross_entropy(batch.x * m.w, batch.label, over=C, ignore=-1)
fn make() -> Net:
    return Net(seed=0)
fn both(m: Net, batch: [b] Row) -> ([] f64, [C] f64):
    l, g = value_and_grad(loss, m, batch)
    return l, g.w
"""


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_b5_a_part_without_labels_has_no_weight(count: int) -> None:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(6, 4, dtype=torch.float64, generator=random)
    label = torch.tensor([-1, -1, 2, 0, -1, 3])
    program = Program(IGNORED, place=devices(count))
    loss, gradient = program.call("both", program.call("make"), {"x": x, "label": label})
    w = torch.full((4,), 0.25, dtype=torch.float64, requires_grad=True)
    wanted = torch.nn.functional.cross_entropy(x * w, label, ignore_index=-1)
    wanted.backward()
    close(loss, wanted.detach())
    close(gradient, w.grad)


# --- B8: results come back in the order of the rows ---


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_b8_rows_come_back_in_their_order(count: int) -> None:
    text = """
data Row:
    x: [] f64
fn twice(batch: [b] Row) -> [b] f64:
    return batch.x * 2
"""
    x = torch.arange(10, dtype=torch.float64)
    close(Program(text, place=devices(count)).call("twice", {"x": x}), x * 2, 0.0)


# --- B10 B21: the norm counts each parameter once, a tied one too ---


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shard", [False, True])
def test_b10_each_parameter_counts_once_in_the_norm(count: int, shard: bool) -> None:
    text = """
dim A = 1
dim B = 2
model Net:
    param a: [B] f64 = zeros
    param c: [A] f64 = zeros
data Row:
    x: [B] f64
    y: [A] f64
fn loss(m: Net, batch: [b] Row) -> [] f64:
    return mean(batch.x @ m.a, over=b) + mean(batch.y @ m.c, over=b)
fn make() -> Net:
    return Net(seed=0)
fn size(m: Net, batch: [b] Row) -> [] f64:
    l, g = value_and_grad(loss, m, batch)
    return norm(g)
"""
    program = Program(text, place=devices(count, shard=shard))
    x = f64(3.0, 4.0).expand(6, 2).contiguous()
    y = f64(12.0).expand(6, 1).contiguous()
    assert float(program.call("size", program.call("make"), {"x": x, "y": y})) == pytest.approx(13.0, abs=1e-12)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shard", [False, True])
def test_b21_a_tied_parameter_is_one(count: int, shard: bool) -> None:
    text = """
dim V = 7
dim D = 4
model Net:
    param e: [V D] f64 = normal(std=1.0)
data Row:
    token: [] Index[V]
    next: [] Index[V]
fn loss(m: Net, batch: [b] Row) -> [] f64:
    return cross_entropy(m.e[batch.token] @ rearrange(m.e: V D -> D V), batch.next, over=V)
fn make() -> Net:
    return Net(seed=4)
fn optimizer(m: Net) -> AdamW[Net]:
    return adamw(m, lr=0.01)
fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row) -> ([] f64, [] f64):
    l, g = value_and_grad(loss, m, batch)
    size = norm(g)
    update(mut m, mut opt, clip(g, norm=0.5))
    return l, size
"""
    program = Program(text, place=devices(count, shard=shard))
    m = program.call("make")
    opt = program.call("optimizer", m)
    e = tensors(m)["e"].clone().requires_grad_()
    adamw = torch.optim.AdamW([e], lr=0.01)
    random = torch.Generator().manual_seed(2)
    for _ in range(3):
        token, after = torch.randint(7, (2, 5), generator=random)
        loss, size = program.call("step", m, opt, {"token": token, "next": after})
        adamw.zero_grad()
        wanted = torch.nn.functional.cross_entropy(e[token] @ e.T, after)
        wanted.backward()
        norm = torch.nn.utils.clip_grad_norm_([e], 0.5)
        adamw.step()
        close(loss, wanted.detach(), 1e-9)
        close(size, norm, 1e-9)
    close(tensors(m)["e"], e.detach(), 1e-6)  # torch adds 1e-6 to the norm that it divides by


# --- B12 B13 B14: batch_norm over the whole batch ---

NORM = """
dim O = 3
model Net:
    bn: BatchNorm[O]
    param w: [O] f64 = constant(0.5)
data Row:
    x: [O] f64
fn loss(mut m: Net, batch: [b] Row) -> [] f64:
    return mean(batch_norm(batch.x * m.w, mut m.bn, over=b) * batch.x, over=[b O])
fn make() -> Net:
    return Net(seed=0)
fn both(mut m: Net, batch: [b] Row) -> ([] f64, [O] f64):
    l, g = value_and_grad(loss, mut m, batch)
    return l, g.w
"""


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [2, 3, 7])
def test_b12_b13_batch_norm_is_over_the_whole_batch(count: int, length: int) -> None:
    program = Program(NORM, place=devices(count))
    m = program.call("make")
    layer = torch.nn.BatchNorm1d(3, affine=False).double()
    w = torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True)
    random = torch.Generator().manual_seed(5)
    for _ in range(2):  # the second batch finds statistics that have moved
        x = torch.randn(length, 3, dtype=torch.float64, generator=random) + 10.0
        loss, gradient = program.call("both", m, {"x": x})
        w.grad = None
        wanted = (layer(x * w) * x).mean()
        wanted.backward()
        close(loss, wanted.detach(), 1e-9)
        close(gradient, w.grad, 1e-9)
    found = tensors(m)
    close(found["bn.mean"], layer.running_mean, 1e-9)
    close(found["bn.var"], layer.running_var, 1e-9)


def test_b14_a_batch_of_one_is_the_same_on_any_number_of_devices() -> None:
    x = f64(1.0, 2.0, 3.0).reshape(1, 3)
    found = []
    for count in COUNTS:
        program = Program(NORM, place=devices(count))
        m = program.call("make")
        loss, _ = program.call("both", m, {"x": x})
        found.append((loss, *tensors(m).values()))
    for values in found[1:]:
        for one, other in zip(found[0], values, strict=True):
            close(one, other)
    assert all(torch.isfinite(value).all() for value in found[0])


# --- B17: a contrastive loss has the whole batch's negatives ---


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_b17_a_contrastive_loss_over_the_whole_batch(count: int) -> None:
    text = """
dim E = 4
model Net:
    param scale: [] f64 = ones
    param turn: [E] f64 = ones
data Pair:
    image: [E] f64
    words: [E] f64
fn loss(m: Net, batch: [b] Pair) -> [] f64:
    i = batch.image * m.turn
    t = batch.words * m.turn
    scores = m.scale * einsum(i, whole(t): b E, c E -> b c)
    turned = m.scale * einsum(t, whole(i): b E, c E -> b c)
    one = cross_entropy(scores, arange[b], over=c)
    return (one + cross_entropy(turned, arange[b], over=c)) / 2
fn make() -> Net:
    return Net(seed=0)
fn both(m: Net, batch: [b] Pair) -> ([] f64, [E] f64, [] f64):
    l, g = value_and_grad(loss, m, batch)
    return l, g.turn, g.scale
"""
    program = Program(text, place=devices(count))
    pairs = torch.eye(4, dtype=torch.float64)
    loss, turned, scaled = program.call("both", program.call("make"), {"image": pairs, "words": pairs})
    assert float(loss) == pytest.approx(math.log(math.e + 3) - 1, abs=1e-12)
    turn = torch.ones(4, dtype=torch.float64, requires_grad=True)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    scores = scale * (pairs * turn) @ (pairs * turn).T
    torch.nn.functional.cross_entropy(scores, torch.arange(4)).backward()
    close(turned, turn.grad, 1e-12)
    close(scaled, scale.grad, 1e-12)


# --- B18: a balance loss over the whole batch ---


@pytest.mark.parametrize("count", [1, 2, 4])
def test_b18_a_balance_loss_sees_the_whole_batch(count: int) -> None:
    text = """
dim X = 2
data Row:
    chance: [X] f64
fn balance(batch: [b] Row) -> [] f64:
    taken = argmax(batch.chance, over=X)
    share = mean(one_hot(taken, over=X) as f64, over=b)
    return 2.0 * sum(share * mean(batch.chance, over=b), over=X)
"""
    chance = f64(*([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4))
    found = Program(text, place=devices(count)).call("balance", {"chance": chance})
    assert float(found) == pytest.approx(1.0, abs=1e-12)


# --- B19: a parameter that isn't used ---


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shard", [False, True])
def test_b19_an_unused_parameter_only_decays(count: int, shard: bool) -> None:
    text = """
dim D = 3
model Net:
    param w: [D] f64 = ones
    param unused: [D] f64 = ones
data Row:
    x: [D] f64
fn loss(m: Net, batch: [b] Row) -> [] f64:
    return mean(batch.x @ m.w, over=b)
fn make() -> Net:
    return Net(seed=0)
fn optimizer(m: Net) -> AdamW[Net]:
    return adamw(m, lr=0.1, weight_decay=0.5)
fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row) -> [] f64:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l
"""
    program = Program(text, place=devices(count, shard=shard))
    m = program.call("make")
    opt = program.call("optimizer", m)
    for n in (5, 2):
        program.call("step", m, opt, {"x": rows(n)["x"]})
    close(tensors(m)["unused"], torch.full((3,), 0.95**2, dtype=torch.float64))


# --- B23: the first values ---


@pytest.mark.parametrize("count", [2, 3])
def test_b23_the_first_values_depend_on_the_seed_alone(count: int) -> None:
    text = """
dim D = 5
model Net:
    param w: [D] = normal(std=1.0)
fn make() -> Net:
    return Net(seed=3)
fn twice(m: Net) -> [D]:
    return m.w * 2
"""
    found = Program(text, place=devices(count))
    alone = Program(text)
    m, n = found.call("make"), alone.call("make")
    assert torch.equal(tensors(m)["w"], tensors(n)["w"])
    assert torch.equal(found.call("twice", m), alone.call("twice", n))


# --- dropout: the same draws on any number of devices ---


@pytest.mark.parametrize("count", [2, 3, 5])
def test_draws_depend_on_the_examples_place_in_the_whole_batch(count: int) -> None:
    text = """
dim D = 6
model Net:
    param w: [D] = ones
data Row:
    x: [D]
fn loss(m: Net, batch: [b] Row) -> [] f32:
    return sum(dropout(batch.x * m.w, rate=0.5), over=[b D])
fn make() -> Net:
    return Net(seed=0)
fn both(m: Net, batch: [b] Row) -> ([] f32, [D]):
    l, g = value_and_grad(loss, m, batch)
    return l, g.w
"""
    x = torch.arange(42.0).reshape(7, 6) + 1
    results = []
    for place in (devices(1), devices(count)):
        program = Program(text, seed=9, place=place)
        m = program.call("make")
        results.append([program.call("both", m, {"x": x[:n]}) for n in (7, 7, 2)])
    for (one, gradient), (other, other_gradient) in zip(*results, strict=True):
        close(one, other, 1e-6)
        close(gradient, other_gradient, 1e-6)
    assert not torch.equal(results[0][0][0], results[0][1][0])  # each call draws anew
