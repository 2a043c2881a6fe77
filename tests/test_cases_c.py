"""Numbers that people found wrong elsewhere, as programs: area C of the cases, one test or more a row.

C21 is about products on a GPU, and C7, C22 and C23 hold on the CPU here; `docs/gpu.md` has the checks for a GPU. More
of the formulas behind these are in `test_numerics.py`, and fifty steps of each optimizer in `test_optimizers.py`.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from programs import Program, f64

INF = math.inf


def call(text: str, *arguments: object) -> object:
    return Program(text).call("f", *arguments)


def slope_of(body: str, start: torch.Tensor, *more: object, parameters: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """The value of an expression of `m.x`, a param over [C], and its gradient."""
    text = (
        f"dim C = {start.numel()}\nmodel M:\n    param x: [C] {element(start)} = zeros\n"
        f"fn value(m: M{parameters}) -> [] {element(start)}:\n    return {body}\n"
        f"fn f(x: [C] {element(start)}{parameters}) -> ([] {element(start)}, [C] {element(start)}):\n"
        "    m = M(seed=0)\n    m.x = x\n    return slope(m" + "".join(f", {n}" for n in names(parameters)) + ")\n"
        f"fn slope(m: M{parameters}) -> ([] {element(start)}, [C] {element(start)}):\n"
        "    l, g = value_and_grad(value, m" + "".join(f", {n}" for n in names(parameters)) + ")\n    return l, g.x\n"
    )
    value, slope = call(text, start, *more)
    return value, slope


def names(parameters: str) -> list[str]:
    return [each.split(":")[0].strip() for each in parameters.split(",") if ":" in each]


def element(x: torch.Tensor) -> str:
    return {torch.float64: "f64", torch.float32: "f32"}[x.dtype]


@pytest.mark.parametrize(
    ("logits", "wanted"), [((10, 0, -100), 110.0000454), ((50, 0, -120), 170.0), ((2, 1, 0.5), 1.9643687841)]
)
def test_c2_cross_entropy_of_far_logits(logits: tuple[float, ...], wanted: float) -> None:
    value, slope = slope_of("cross_entropy(m.x, 2 as [] Index[C], over=C)", f64(*logits))
    assert float(value) == pytest.approx(wanted, rel=1e-9) and slope.isfinite().all()


def test_c2_log_softmax_in_f32() -> None:
    got = call("dim C = 3\nfn f(x: [C]) -> [C]:\n    return log_softmax(x, over=C)\n", torch.tensor([1e4, 0, -1e4]))
    assert got.tolist() == [0, -1e4, -2e4]


def test_c3_smoothing() -> None:
    x = f64(2, 1, 0, -1, 0.5)
    smoothed, _ = slope_of("cross_entropy(m.x, 0 as [] Index[C], over=C, smoothing=0.1)", x)
    assert float(smoothed) == pytest.approx(0.7244379396, abs=1e-9)
    plain, _ = slope_of("cross_entropy(m.x, 0 as [] Index[C], over=C)", x)
    assert float(plain) == pytest.approx(0.5744379396, abs=1e-9)


IGNORED = """
dim D = 2
dim C = 3
model Net:
    param w: [D C] f64 = normal(std=1)
data Row:
    x: [D] f64
    y: [] i64
fn loss(m: Net, batch: [b] Row) -> [] f64:
    return cross_entropy(batch.x @ m.w, batch.y, over=C, ignore=-100)
fn total(m: Net, batch: [b] Row) -> [] f64:
    return sum(cross_entropy(batch.x @ m.w, batch.y, over=C, ignore=-100, keep=b), over=b)
fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Row) -> [] f64:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l
fn f(x: [n D] f64, y: [n] i64) -> ([] f64, [] f64, [D C] f64, [D C] f64):
    m = Net(seed=3)
    before = copy(m)
    opt = sgd(m, lr=1.0)
    batch = Row(x=x, y=y)
    l = step(mut m, mut opt, batch)
    return l, total(m, batch), before.w, m.w
"""


def test_c4_all_labels_ignored() -> None:
    loss, total, before, after = call(IGNORED, torch.randn(4, 2).double(), torch.full((4,), -100))
    assert loss == 0 and total == 0 and torch.equal(before, after) and after.isfinite().all()


ATTENTION = """
dim T = 3
dim S = 3
dim D = 2
model M:
    param q: [T D] f64 = normal(std=1)
    param k: [S D] f64 = normal(std=1)
    param v: [S D] f64 = normal(std=1)
fn loss(m: M, mask: [T S] bool) -> ([] f64, [T D] f64):
    scores = einsum(m.q, m.k: T D, S D -> T S) |> masked_fill(!mask, -inf)
    y = softmax(scores, over=S) @ m.v
    return sum(y * y, over=[T D]), y
fn step(m: M, mask: [T S] bool) -> ([T D] f64, [T D] f64, [S D] f64, [S D] f64):
    (l, y), g = value_and_grad(loss, m, mask)
    return y, g.q, g.k, g.v
fn f(mask: [T S] bool) -> ([T D] f64, [T D] f64, [S D] f64, [S D] f64):
    return step(M(seed=0), mask)
"""


def test_c5_a_row_that_attends_to_nothing() -> None:
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    y, *slopes = call(ATTENTION, mask)
    assert y[1].tolist() == [0, 0] and y.isfinite().all() and y[0].any() and y[2].any()
    assert all(slope.isfinite().all() for slope in slopes)


def test_c6_logsumexp_of_minus_infinity() -> None:
    value, slope = slope_of("logsumexp(m.x, over=C)", f64(-INF, -INF))
    assert float(value) == -INF and slope.tolist() == [0, 0]
    value, slope = slope_of("logsumexp(m.x, over=C)", f64(-INF, 1))
    assert float(value) == 1 and slope.tolist() == [0, 1]


def test_c7_softmax_of_infinities() -> None:
    text = "dim C = {}\nfn f(x: [C] f64) -> [C] f64:\n    return softmax(x, over=C)\n"
    assert call(text.format(3), f64(-INF, 0, -INF)).tolist() == [0, 1, 0]
    got = call(text.format(2), f64(0, INF))
    assert got.isnan().all() or got.tolist() == [0, 1]


def test_c9_roots_at_zero() -> None:
    value, slope = slope_of("norm(m.x, over=C)", f64(0, 0, 0))
    assert value == 0 and not slope.any()
    value, slope = slope_of("norm(m.x, over=C)", f64(1, 2, 2))
    assert value == 3 and torch.allclose(slope, f64(1, 2, 2) / 3)
    value, slope = slope_of("std(m.x, over=C)", f64(4, 4, 4))
    assert value == 0 and not slope.any()
    value, slope = slope_of("sqrt(sum(square(m.x), over=C))", f64(0, 0, 0))
    assert value == 0 and slope.isfinite().all()


CLIPPED = """
dim C = {count}
model M:
    param x: [C]{element} = {start}
fn loss(m: M) -> []{element}:
    return {loss}
fn step(mut m: M, mut opt: SGD[M]) -> ([]{element}, []{element}, [C]{element}):
    l, g = value_and_grad(loss, m)
    small = clip(g, norm=1.0)
    update(mut m, mut opt, small)
    return norm(g), norm(small), small.x
fn f() -> ([]{element}, []{element}, [C]{element}, [C]{element}):
    m = M(seed=0)
    opt = sgd(m, lr=1.0)
    a, b, c = step(mut m, mut opt)
    return a, b, c, m.x
"""


def test_c10_clipping_no_gradient() -> None:
    before, after, slope, x = call(CLIPPED.format(count=3, element=" f64", start="zeros", loss="sum(0 * m.x, over=C)"))
    assert before == 0 and after == 0 and not slope.any() and not x.any()


def test_c18_an_infinite_gradient_names_its_parameter() -> None:
    with pytest.raises(Exception, match="`x`"):
        call(CLIPPED.format(count=3, element="", start="ones", loss="sum(m.x * inf, over=C)"))


def test_c18_a_huge_gradient_is_clipped() -> None:
    before, after, _, x = call(CLIPPED.format(count=100, element="", start="zeros", loss="sum(1e20 * m.x, over=C)"))
    assert float(before) == pytest.approx(1e21, rel=1e-6) and float(after) == pytest.approx(1, rel=1e-6)
    assert x.isfinite().all()


def test_c11_a_cosine_of_zeros() -> None:
    text = "sum(m.x * m.x, over=C) / maximum(norm(m.x, over=C) * norm(m.x, over=C), 1e-8)"
    value, slope = slope_of(text, torch.zeros(3))
    assert value == 0 and slope.isfinite().all()


@pytest.mark.parametrize(
    ("logit", "label", "wanted", "slope"),
    [
        (0.0, 0.0, 0.6931471806, 0.5),
        (-100.0, 0.0, 3.72e-44, 0),
        (8e7, 0.0, 8e7, 1),
        (-100.0, 1.0, 100, -1),
        (-INF, 0.0, 0, 0),
        (-INF, 0.9, INF, None),
    ],
)
def test_c12_yes_or_no_from_logits(logit: float, label: float, wanted: float, slope: float | None) -> None:
    y = torch.tensor([label], dtype=torch.float64)
    value, found = slope_of("binary_cross_entropy(m.x, y)", f64(logit), y, parameters=", y: [C] f64")
    assert float(value) == pytest.approx(wanted, rel=1e-2 if wanted and wanted < 1e-40 else 1e-9)
    assert slope is None or float(found) == pytest.approx(slope, abs=1e-12)


def test_c13_the_two_gelus() -> None:
    text = "dim C = 3\nfn f(x: [C] f64) -> ([C] f64, [C] f64):\n    return gelu(x), gelu(x, approximate=true)\n"
    exact, near = call(text, f64(1, -1, 3))
    assert exact.tolist() == pytest.approx([0.8413447461, -0.1586552539, 2.9959503059], abs=1e-9)
    assert near.tolist() == pytest.approx([0.8411919906, -0.1588080094, 2.9963626079], abs=1e-9)
    assert float(slope_of("sum(gelu(m.x), over=C)", f64(1))[1]) == pytest.approx(1.0833154706, abs=1e-9)
    places = torch.linspace(-5, 5, 100001, dtype=torch.float64)
    many = "fn f(x: [n] f64) -> ([n] f64, [n] f64):\n    return gelu(x), gelu(x, approximate=true)\n"
    exact, near = call(many, places)
    gap = (exact - near).abs()
    assert float(gap.max()) == pytest.approx(4.73e-4, abs=1e-6)
    assert abs(float(places[gap.argmax()])) == pytest.approx(2.70, abs=0.02)


STEPS = """
model M:
    param p: [] f64 = {start}
fn loss(m: M, slope: [] f64) -> [] f64:
    return m.p * slope
fn step(mut m: M, mut opt: {kind}[M], slope: [] f64, lr: float):
    g = grad(loss, m, slope)
    update(mut m, mut opt, g, lr=lr)
fn f(slopes: [n] f64, rates: [n] f64) -> ([] f64, [] f64, [] f64):
    m = M(seed=0)
    opt = {optimizer}
    step(mut m, mut opt, slopes[n=0], float(rates[n=0]))
    first = m.p
    step(mut m, mut opt, slopes[n=1], float(rates[n=1]))
    second = m.p
    step(mut m, mut opt, slopes[n=2], float(rates[n=2]))
    return first, second, m.p
"""


def steps(kind: str, optimizer: str, start: str, slopes: torch.Tensor, rates: torch.Tensor) -> list[float]:
    found = call(STEPS.format(kind=kind, optimizer=optimizer, start=start), slopes, rates)
    assert isinstance(found, tuple)
    return [float(each) for each in found]


def test_c14_decay_of_its_own_and_in_the_gradient() -> None:
    ones = f64(0.1, 0.1, 0.1)
    decoupled = steps("AdamW", "adamw(m, lr=0.1, weight_decay=0.1)", "ones", ones, ones)
    assert decoupled[0] == pytest.approx(0.89, abs=1e-7)
    with_l2 = steps("Adam", "adam(m, lr=0.1, weight_decay=0.1)", "ones", ones, ones)
    assert with_l2[0] == pytest.approx(0.90, abs=1e-7)


def test_c16_the_correction_of_the_bias() -> None:
    found = steps("Adam", "adam(m, lr=0.1)", "zeros", f64(1, 2, 3), f64(0.1, 0.1, 0.1))
    assert found == pytest.approx([-0.1, -0.1965182010, -0.2923183223], abs=1e-8)
    for size in (1e-3, 1e3):
        first = steps("Adam", "adam(m, lr=0.1)", "zeros", f64(size, 0, 0), f64(0.1, 0.1, 0.1))[0]
        assert first == pytest.approx(-0.1, rel=1e-4)


def test_c17_decay_goes_by_the_rate_of_the_step() -> None:
    found = steps("AdamW", "adamw(m, lr=0.1, weight_decay=0.1)", "ones", f64(0, 0, 0), f64(0.1, 0.05, 0.0))
    assert found == pytest.approx([0.99, 0.98505, 0.98505], abs=1e-12)


NORMED = """
dim R = 4
dim O = 1
model Net:
    bn: BatchNorm[O]
    param gain: [O] f64 = ones
data Row:
    x: [R O] f64
fn loss(mut m: Net, batch: [b] Row) -> ([] f64, [b R O] f64):
    y = batch_norm(batch.x, mut m.bn, over=[b R]) * m.gain
    return mean(y, over=[b R O]), y
fn step(mut m: Net, batch: [b] Row) -> [b R O] f64:
    (l, y), g = value_and_grad(loss, mut m, batch)
    return y
fn f(x: [n R O] f64) -> ([n R O] f64, [O] f64, [O] f64):
    m = Net(seed=0)
    y = step(mut m, Row(x=x))
    return y, m.bn.mean, m.bn.var
"""


def test_c19_batch_norm_keeps_the_unbiased_variance() -> None:
    x = torch.stack([torch.arange(4) + i for i in (1, 2, 3, 4)]).double()
    y, mean, var = call(NORMED, x.reshape(4, 4, 1))
    assert float(y[0, 0, 0]) == pytest.approx(-1.8973628, abs=1e-5)
    assert float(var) == pytest.approx(1.1666667, abs=1e-7) and float(mean) == pytest.approx(0.4, abs=1e-12)


def test_c20_half_floats_are_added_up_in_f32() -> None:
    def over(name: str, kind: str, result: str) -> str:
        return f"fn f(x: [n] {kind}) -> {result} {kind}:\n    return {name}(x, over=n)\n"

    assert float(call(over("sum", "bf16", "[]"), torch.ones(70000, dtype=torch.bfloat16))) == 70144
    assert float(call(over("mean", "bf16", "[]"), torch.ones(70000, dtype=torch.bfloat16))) == 1
    assert float(call(over("sum", "f16", "[]"), torch.ones(4096, dtype=torch.float16))) == 4096
    assert float(call(over("mean", "f16", "[]"), torch.full((2048,), 100, dtype=torch.float16))) == 100
    assert (call(over("softmax", "bf16", "[n]"), torch.ones(512, dtype=torch.bfloat16)) == 1 / 512).all()


@pytest.mark.parametrize(("values", "first"), [((0, 0, 0), 0), ((0, 1, 1), 1), ((-0.0, 0.0, -1.0), 0)])
def test_c22_the_first_of_equals(values: tuple[float, ...], first: int) -> None:
    text = "dim C = 3\nfn f(x: [C] f64) -> [] Index[C]:\n    return argmax(x, over=C)\n"
    assert call(text, f64(*values)) == first


def test_c23_equals_share_the_slope_of_a_maximum() -> None:
    assert slope_of("max(m.x, over=C)", f64(2, 2, 1))[1].tolist() == [0.5, 0.5, 0]


DROPPED = """
model M:
    param x: [{count}] f64 = ones
fn loss(m: M, rate: float) -> ([] f64, [{count}] f64):
    y = dropout(m.x, rate)
    return sum(y, over={count}), y
fn step(m: M, rate: float) -> ([{count}] f64, [{count}] f64):
    (l, y), g = value_and_grad(loss, m, rate)
    return y, g.x
fn f(rate: float) -> ([{count}] f64, [{count}] f64):
    m = M(seed=0)
    return step(m, rate)
fn g() -> [{count}] f64:
    m = M(seed=0)
    return loss(m, 0.5)[1]
"""


def test_c24_dropout_at_every_rate() -> None:
    program = Program(DROPPED.format(count=1000))
    y, slope = program.call("f", 0.5)
    assert set(y.tolist()) == {0.0, 2.0} and torch.equal(y, slope)
    y, slope = program.call("f", 0.0)
    assert (y == 1).all() and (slope == 1).all()
    y, slope = program.call("f", 1.0)
    assert not y.any() and not slope.any()
    known = Program(DROPPED.format(count=1000).replace(", rate)\n    return sum", ", 1.0)\n    return sum"))
    y, slope = known.call("f", 0.5)
    assert not y.any() and not slope.any()
    y, _ = program.call("f", 0.3)
    assert sorted(set(y.tolist())) == pytest.approx([0, 1 / 0.7])


def test_c25_dropout_does_nothing_in_evaluation() -> None:
    text = "fn f(x: [n] f64) -> [n] f64:\n    return dropout(x, 0.5)\n"
    x = torch.randn(100, dtype=torch.float64)
    assert torch.equal(call(text, x), x)


def test_c26_kl_is_a_mean_over_rows() -> None:
    text = "dim C = 2\nfn f(a: [b C] f64, c: [b C] f64) -> [] f64:\n    return kl(abs(a), abs(c), over=C)\n"
    p, q = f64([0.5, 0.5], [0.9, 0.1]), f64([0.25, 0.75], [0.5, 0.5])
    assert float(call(text, p, q)) == pytest.approx(0.2559526217, abs=1e-9)


VAE = """
dim P = 5
dim Z = 2
data Row:
    logits: [P] f64
    pixels: [P] f64
    mean: [Z] f64
    log_var: [Z] f64
fn loss(batch: [b] Row) -> [] f64:
    recon = sum(binary_cross_entropy(batch.logits, batch.pixels, keep=[b P]), over=P)
    kl = -0.5 * sum(1 + batch.log_var - square(batch.mean) - exp(batch.log_var), over=Z)
    return mean(recon + kl, over=b)
fn f(logits: [n P] f64, pixels: [n P] f64, mean: [n Z] f64, log_var: [n Z] f64) -> [] f64:
    return loss(Row(logits=logits, pixels=pixels, mean=mean, log_var=log_var))
"""


def test_c27_the_two_terms_of_a_vae() -> None:
    program = Program(VAE)
    torch.manual_seed(0)
    logits, mean, log_var = torch.randn(7, 5).double(), torch.randn(7, 2).double(), torch.randn(7, 2).double()
    pixels = torch.rand(7, 5).double()

    def part(rows: slice) -> float:
        return float(program.call("f", logits[rows], pixels[rows], mean[rows], log_var[rows]))

    recon = F.binary_cross_entropy_with_logits(logits, pixels, reduction="sum")
    kl = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum()
    assert part(slice(None)) == pytest.approx(float(recon + kl) / 7)
    assert (part(slice(0, 3)) * 3 + part(slice(3, 7)) * 4) / 7 == pytest.approx(part(slice(None)))


def test_c28_class_weights_divide_by_the_weights() -> None:
    text = (
        "dim C = 2\nfn f(x: [b C] f64, y: [b] Index[C], w: [C] f64) -> [] f64:\n"
        "    return cross_entropy(x, y, over=C, weight=w)\n"
    )
    # logits whose losses are 0.5 for class 0 and 2 for class 1
    x = f64([0, math.log(math.exp(0.5) - 1)], [math.log(math.exp(2) - 1), 0])
    assert float(call(text, x, torch.tensor([0, 1]), f64(1, 3))) == pytest.approx(1.625)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("ignore", [None, 2])
def test_c28_class_weights_as_torch_has_them(smoothing: float, ignore: int | None) -> None:
    option = "" if ignore is None else f", ignore={ignore}"
    text = (
        "dim C = 4\nfn f(x: [b C] f64, y: [b] Index[C], w: [C] f64) -> ([] f64, [b] f64):\n"
        f"    return cross_entropy(x, y, over=C, weight=w, smoothing={smoothing}{option}), "
        f"cross_entropy(x, y, over=C, weight=w, smoothing={smoothing}{option}, keep=b)\n"
    )
    torch.manual_seed(1)
    x, y, w = torch.randn(6, 4).double(), torch.tensor([0, 1, 2, 3, 1, 2]), f64(1, 2, 0.5, 0)
    mean, each = call(text, x, y, w)
    options = {"weight": w, "label_smoothing": smoothing, "ignore_index": -100 if ignore is None else ignore}
    assert torch.allclose(mean, F.cross_entropy(x, y, **options), rtol=1e-12)
    assert torch.allclose(each, F.cross_entropy(x, y, reduction="none", **options), rtol=1e-12)


def test_c28_class_weights_of_probabilities() -> None:
    text = (
        "dim C = 4\nfn f(x: [b C] f64, y: [b C] f64, w: [C] f64) -> [] f64:\n"
        "    return cross_entropy(x, y, over=C, weight=w)\n"
    )
    x, y, w = torch.randn(6, 4).double(), torch.rand(6, 4).double().softmax(1), f64(1, 2, 0.5, 0)
    assert torch.allclose(call(text, x, y, w), F.cross_entropy(x, y, weight=w), rtol=1e-12)
