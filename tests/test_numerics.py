"""Exact values where naive formulas fail: extreme logits, ignored labels, zeros under roots, ties, half floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from shapescript.devices.reference.executor import Executor
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.passes.pipeline import run_passes
from shapescript.types.axes import Axis
from shapescript.types.element import BOOL, F32, F64, I64, Element

B = Axis.named("b", batch=True)
C = Axis.named("C")
INF = math.inf
NAMES = {torch.float64: F64, torch.float32: F32, torch.float16: Element("f16"), torch.bfloat16: Element("bf16"),
         torch.int64: I64, torch.bool: BOOL}  # fmt: skip
Make = Callable[..., Node]


def values(*numbers: object, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


def run(make: Make, *tensors: torch.Tensor, element: Sequence[Element] = ()) -> list[torch.Tensor]:
    """What `make` gives for these tensors, over [C], [b C] or nothing; and the gradient of its sum by the first."""
    last = next(tensor for tensor in tensors if tensor.dim())
    graph = Graph(sizes={"C": last.shape[-1]})
    b = Builder(graph)
    axes = ((), (C,), (B, C))
    inputs = [
        graph.input(f"x{i}", axes[t.dim()], element[i] if i < len(element) else NAMES[t.dtype])
        for i, t in enumerate(tensors)
    ]
    result = make(b, *inputs)
    graph.outputs = [result]
    if result.element.is_float and tensors[0].is_floating_point():
        total = b.sum(result, over=result.axes) if result.axes else result
        graph.outputs.append(b.gradient(total, inputs[0]))
    counts = {"b": next((t.shape[0] for t in tensors if t.dim() == 2), 1)}
    return Executor(run_passes(graph, checked=True)).run(list(tensors), counts)


def loss(label: int, **attributes: Any) -> Make:
    def make(b: Builder, x: Node) -> Node:
        index = b.constant(label, Element.index(C.size))
        return b.emit("cross_entropy", x, index, over=C, keep=(), **attributes)

    return make


@pytest.mark.parametrize(
    ("logits", "wanted"),
    [((10, 0, -100), 110.0000454), ((50, 0, -120), 170.0), ((2, 1, 0.5), 1.9643687841)],
)
def test_cross_entropy_of_far_logits(logits: tuple[float, ...], wanted: float) -> None:
    got, slope = run(loss(2), values(*logits))
    assert float(got) == pytest.approx(wanted, rel=1e-9)
    assert slope.isfinite().all()


def test_log_softmax_is_finite_in_f32() -> None:
    got, slope = run(lambda b, x: b.log_softmax(x, C), values(1e4, 0, -1e4, dtype=torch.float32))
    assert got.tolist() == [0, -1e4, -2e4] and slope.isfinite().all()


def test_smoothing_puts_its_share_on_all_classes() -> None:
    got = run(loss(0, smoothing=0.1), values(2, 1, 0, -1, 0.5))[0]
    assert float(got) == pytest.approx(0.7244379396, abs=1e-9)
    assert float(run(loss(0), values(2, 1, 0, -1, 0.5))[0]) == pytest.approx(0.5744379396, abs=1e-9)


def test_all_labels_ignored_is_zero_without_a_gradient() -> None:
    got, slope = run(loss(1, ignore=1), values(2, 1, 0))
    assert float(got) == 0 and not slope.any()


def test_ignored_labels_dont_count() -> None:
    graph = Graph(sizes={"C": 3})
    b = Builder(graph)
    x, label = graph.input("x", (B, C), F64), graph.input("label", (B,), I64)
    graph.outputs = [b.emit("cross_entropy", x, label, over=C, keep=(), ignore=-1)]
    logits, labels = torch.randn(4, 3, dtype=torch.float64), torch.tensor([2, -1, 0, -1])
    got = Executor(run_passes(graph, checked=True)).run([logits, labels], {"b": 4})[0]
    assert torch.allclose(got, torch.nn.functional.cross_entropy(logits, labels, ignore_index=-1))


def test_a_dead_row_of_a_softmax_is_zero_and_leaves_the_others_alone() -> None:
    x = torch.tensor([[-INF, -INF, -INF], [1.0, 2.0, -INF]], dtype=torch.float64)
    got, slope = run(lambda b, x: b.square(b.softmax(x, C)), x)
    assert got[0].tolist() == [0, 0, 0] and slope.isfinite().all()
    assert torch.allclose(got[1], x[1].softmax(0).square())


def test_logsumexp_of_minus_infinity() -> None:
    got, slope = run(lambda b, x: b.logsumexp(x, C), values(-INF, -INF))
    assert float(got) == -INF and slope.tolist() == [0, 0]
    got, slope = run(lambda b, x: b.logsumexp(x, C), values(-INF, 1))
    assert float(got) == 1 and slope.tolist() == [0, 1]


def test_roots_are_flat_at_zero() -> None:
    got, slope = run(lambda b, x: b.emit("norm", x, over=(C,)), torch.tensor([[0, 0, 0], [1, 2, 2]]).double())
    assert got.tolist() == [0, 3] and torch.allclose(slope, torch.tensor([[0, 0, 0], [1, 2, 2]]).double() / 3)
    got, slope = run(lambda b, x: b.emit("std", x, over=(C,)), values(4, 4, 4))
    assert float(got) == 0 and not slope.any()


def test_a_cosine_of_zero_vectors_is_finite() -> None:
    def cosine(b: Builder, x: Node, y: Node) -> Node:
        below = b.multiply(b.emit("norm", x, over=(C,)), b.emit("norm", y, over=(C,)))
        return b.divide(b.sum(b.multiply(x, y), over=C), b.maximum(below, 1e-8))

    got, slope = run(cosine, values(0, 0, dtype=torch.float32), values(0, 0, dtype=torch.float32))
    assert float(got) == 0 and slope.isfinite().all()


@pytest.mark.parametrize(
    ("logit", "label", "wanted", "slope"),
    [
        (0, 0, 0.6931471806, 0.5),
        (-100, 0, 0, 0),
        (8e7, 0, 8e7, 1),
        (-100, 1, 100, -1),
        (-INF, 0, 0, 0),
        (-INF, 0.9, INF, None),
    ],
)
def test_binary_cross_entropy(logit: float, label: float, wanted: float, slope: float | None) -> None:
    def make(b: Builder, x: Node, y: Node) -> Node:
        return b.emit("binary_cross_entropy", x, y, keep=())

    got = run(make, values(logit), values(label))
    assert float(got[0]) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert slope is None or float(got[1]) == pytest.approx(slope, abs=1e-12)


def test_the_two_gelus() -> None:
    got, slope = run(lambda b, x: b.gelu(x), values(1, -1, 3))
    assert got.tolist() == pytest.approx([0.8413447461, -0.1586552539, 2.9959503059], abs=1e-9)
    assert float(slope[0]) == pytest.approx(1.0833154706, abs=1e-9)
    got = run(lambda b, x: b.gelu_tanh(x), values(1, -1, 3))[0]
    assert got.tolist() == pytest.approx([0.8411919906, -0.1588080094, 2.9963626079], abs=1e-9)


def test_half_floats_are_added_up_in_f32() -> None:
    def total(b: Builder, x: Node) -> Node:
        return b.sum(x, over=C)

    def mean(b: Builder, x: Node) -> Node:
        return b.emit("mean", x, over=(C,))

    assert float(run(total, torch.ones(70000, dtype=torch.bfloat16))[0]) == 70144
    assert float(run(mean, torch.ones(70000, dtype=torch.bfloat16))[0]) == 1
    assert float(run(total, torch.ones(4096, dtype=torch.float16))[0]) == 4096
    assert float(run(mean, torch.full((2048,), 100, dtype=torch.float16))[0]) == 100
    got = run(lambda b, x: b.softmax(x, C), torch.ones(512, dtype=torch.bfloat16))[0]
    assert (got == 1 / 512).all()


def test_half_floats_are_normalised_in_f32_backwards_too() -> None:
    x = torch.linspace(-300, 300, 64).half()
    got = run(lambda b, x: b.square(b.rms_norm(x, C)), x)[1]
    assert got.isfinite().all()


def test_ties() -> None:
    assert int(run(lambda b, x: b.argmax(x, C), values(0, 0, 0))[0]) == 0
    assert int(run(lambda b, x: b.argmax(x, C), values(0, 1, 1))[0]) == 1
    assert int(run(lambda b, x: b.argmax(x, C), values(-0.0, 0.0))[0]) == 0
    assert run(lambda b, x: b.max(x, C), values(2, 2, 1))[1].tolist() == [0.5, 0.5, 0]


def test_kl_is_a_mean_over_rows() -> None:
    prob = Element("f64", "Prob")
    p = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    q = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    got = run(lambda b, p, q: b.emit("kl", p, q, over=(C,), keep=()), p, q, element=(prob, prob))[0]
    assert float(got) == pytest.approx(0.2559526217, abs=1e-9)
    zero = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    got, slope = run(lambda b, p, q: b.emit("kl", p, q, over=(C,), keep=()), zero, zero, element=(prob, prob))
    assert float(got) == 0 and slope.isfinite().all()


def test_a_variance_takes_two_passes() -> None:
    x = (1000 + torch.randn(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).float()
    got = run(lambda b, x: b.emit("var", x, over=(C,)), x)[0]
    assert float(got) == pytest.approx(float(x.double().var()), rel=1e-5)


def test_products_with_zeros_have_their_gradients() -> None:
    for zeros in ((2, 0, 3), (0, 0, 3), (1, 2, 3)):
        for name in ("prod", "cumprod"):
            leaf = values(*zeros).requires_grad_(True)
            (wanted,) = torch.autograd.grad(leaf.prod() if name == "prod" else leaf.cumprod(0).sum(), leaf)
            over = (C,) if name == "prod" else C
            slope = run(lambda b, x, n=name, o=over: b.emit(n, x, over=o), values(*zeros))[1]
            assert torch.allclose(slope, wanted)


def test_a_power_of_zero_has_no_slope() -> None:
    got, slope = run(lambda b, x: b.power(x, b.full_like(x, 0)), values(0, 2))
    assert got.tolist() == [1, 1] and slope.tolist() == [0, 0]
