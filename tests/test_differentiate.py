"""Gradients of composed graphs against finite differences in f64 and against torch's autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from shapescript.devices.reference.executor import Executor
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.ops.registry import Op
from shapescript.passes.differentiate import NoGradient, differentiate
from shapescript.passes.pipeline import run_passes
from shapescript.source import Source
from shapescript.types.axes import Axis
from shapescript.types.element import F64, I64, Element
from shapescript.types.size import Size

B = Axis.named("b", batch=True)
N, M, D, H, C = (Axis.named(name) for name in "nmDHC")
SIZES = {"n": 4, "m": 3, "D": 6, "H": 2, "C": 5}
COUNTS = {"b": 3}
Loss = Callable[[Builder, list[Node]], Node]


def made(loss: Loss, axes: list[tuple[Axis, ...]], *, positive: bool = False) -> tuple[Executor, list[torch.Tensor]]:
    """An executor that gives the loss and its gradients, and values for the inputs."""
    random = torch.Generator().manual_seed(11)
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    inputs, tensors = [], []
    for number, ones in enumerate(axes):
        inputs.append(graph.input(f"x{number}", ones, F64))
        shape = [axis.size.evaluate({**SIZES, **COUNTS}) for axis in ones]
        value = torch.randn(shape, generator=random, dtype=torch.float64)
        tensors.append(value.abs() + 0.5 if positive else value)
    value_of_loss = loss(b, list(inputs))
    graph.outputs = [value_of_loss, *(b.gradient(value_of_loss, x) for x in inputs)]
    return Executor(run_passes(graph, checked=True)), tensors


def finite_differences(executor: Executor, tensors: list[torch.Tensor], which: int) -> torch.Tensor:
    result = torch.zeros_like(tensors[which])
    step = 1e-6
    for place in range(result.numel()):
        sides = []
        for sign in (1, -1):
            moved = [tensor.clone() for tensor in tensors]
            moved[which].view(-1)[place] += sign * step
            sides.append(float(executor.run(moved, COUNTS)[0]))
        result.view(-1)[place] = (sides[0] - sides[1]) / (2 * step)
    return result


def total(b: Builder, x: Node) -> Node:
    """A scalar in which every place counts differently."""
    y = b.multiply(b.sin(x), x)
    return b.sum(y, over=y.axes) if y.axes else y


def index(b: Builder, over: Axis, *axes: Axis) -> Node:
    """Some lookup that repeats itself."""
    whole = b.iota(axes[0])
    scaled = b.remainder(b.add(b.multiply(whole, 3), 1), b.size(over, I64))
    return b.broadcast(b.refine(scaled, Element.index(over.size)), axes)


CASES: dict[str, tuple[Loss, list[tuple[Axis, ...]]]] = {
    "line up": (lambda b, x: total(b, b.multiply(b.add(x[0], x[1]), x[2])), [(B, N, D), (D,), (N,)]),
    "scalar": (lambda b, x: total(b, b.multiply(x[0], x[1])), [(B, N), ()]),
    "divide": (lambda b, x: total(b, b.divide(x[0], b.add(b.square(x[1]), 1.0))), [(B, N), (N,)]),
    "contract": (lambda b, x: total(b, b.contract(x[0], x[1], (B, H, N, M))), [(B, H, N, D), (B, H, M, D)]),
    "matrix": (lambda b, x: total(b, b.contract(x[0], x[1], (B, N, C))), [(B, N, D), (D, C)]),
    "softmax": (lambda b, x: total(b, b.softmax(x[0], N)), [(B, N, D)]),
    "log_softmax": (lambda b, x: total(b, b.log_softmax(x[0], D)), [(B, D)]),
    "logsumexp": (lambda b, x: total(b, b.logsumexp(x[0], (N, D))), [(B, N, D)]),
    "layer_norm": (lambda b, x: total(b, b.layer_norm(x[0], D)), [(B, D)]),
    "rms_norm": (lambda b, x: total(b, b.rms_norm(x[0], D)), [(B, D)]),
    "max": (lambda b, x: total(b, b.max(x[0], N)), [(B, N, D)]),
    "prod": (lambda b, x: total(b, b.prod(x[0], N)), [(B, N)]),
    "cumsum": (lambda b, x: total(b, b.cumsum(x[0], N)), [(B, N, D)]),
    "cumprod": (lambda b, x: total(b, b.cumprod(x[0], N)), [(B, N)]),
    "activations": (
        lambda b, x: total(b, b.add(b.add(b.gelu(x[0]), b.silu(x[0])), b.add(b.tanh(x[0]), b.gelu_tanh(x[0])))),
        [(B, N)],
    ),
    "sigmoids": (lambda b, x: total(b, b.multiply(b.sigmoid(x[0]), b.softplus(x[0]))), [(B, N)]),
    "exps": (lambda b, x: total(b, b.add(b.exp(x[0]), b.multiply(b.expm1(x[0]), b.erf(x[0])))), [(B, N)]),
    "rearrange": (
        lambda b, x: total(b, b.multiply(b.rearrange(x[0], (Axis.merged((H, N)), B)), x[1])),
        [(B, H, N), (Axis.merged((H, N)),)],
    ),
    "slice": (
        lambda b, x: total(b, b.slice(x[0], N, Size.of(1), N.size, Axis.of(N.size - 1))),
        [(B, N)],
    ),
    "pad": (
        lambda b, x: total(b, b.pad(x[0], N, Size.of(2), Size.of(1), 1.0, Axis.of(N.size + 3))),
        [(B, N)],
    ),
    "concat": (lambda b, x: total(b, b.concat([x[0], x[1]], Axis.of(N.size + M.size), 1)), [(B, N, D), (B, M, D)]),
    "flip roll": (lambda b, x: total(b, b.roll(b.flip(x[0], N), N, Size.of(-1))), [(B, N)]),
    "gather": (lambda b, x: total(b, b.gather(x[0], index(b, D, M, H), D)), [(B, D)]),
    "gather beside": (lambda b, x: total(b, b.gather(x[0], index(b, D, N), D)), [(B, N, D)]),
    "gather mixed": (lambda b, x: total(b, b.gather(x[0], index(b, D, N, M), D)), [(B, N, D)]),
    "gather own": (lambda b, x: total(b, b.gather(x[0], index(b, N, N, M), N)), [(B, N, D)]),
    "scatter": (
        lambda b, x: total(b, b.scatter_add(x[0], index(b, C, N, B), C, (C, D))),
        [(N, B, D)],
    ),
    "where": (lambda b, x: total(b, b.where(b.less(x[0], x[1]), x[0], b.square(x[1]))), [(B, N), (N,)]),
    "sort": (lambda b, x: total(b, b.multiply(b.sort(x[0], N), x[1])), [(B, N), (N,)]),
    "topk": (lambda b, x: total(b, b.topk_values(x[0], N, Size.of(2), Axis.of(2))), [(B, N)]),
    "square weight": (
        lambda b, x: total(b, b.contract(x[0], b.relabel(x[1], (D, Axis("D2", D.size))), (B, Axis("D2", D.size)))),
        [(B, D), (D, D)],
    ),
    "used often": (lambda b, x: total(b, b.add(b.multiply(x[0], x[0]), b.add(x[0], x[0]))), [(B, N)]),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_meet_finite_differences(name: str) -> None:
    loss, axes = CASES[name]
    executor, tensors = made(loss, axes)
    gradients = executor.run(tensors, COUNTS)[1:]
    for which, gradient in enumerate(gradients):
        assert torch.allclose(gradient, finite_differences(executor, tensors, which), rtol=1e-5, atol=1e-6), which


@pytest.mark.parametrize("name", ["log", "log1p", "sqrt", "rsqrt", "power"])
def test_gradients_of_what_wants_positive_numbers(name: str) -> None:
    def loss(b: Builder, x: list[Node]) -> Node:
        positive = b.refine(x[0], Element("f64", "NonNeg"))
        return total(b, b.power(positive, 1.7) if name == "power" else b.emit(name, positive))

    executor, tensors = made(loss, [(B, N)], positive=True)
    assert torch.allclose(executor.run(tensors, COUNTS)[1], finite_differences(executor, tensors, 0), rtol=1e-5)


def test_a_network_meets_autograd() -> None:
    label = torch.tensor([1, 4, 0])
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    random = torch.Generator().manual_seed(5)
    tensors = [
        torch.randn(*shape, generator=random, dtype=torch.float64) for shape in ((3, 4, 6), (6, 2), (2,), (2, 5))
    ]
    x, w1, b1, w2 = (
        graph.input(name, axes, F64) for name, axes in (("x", (B, N, D)), ("w1", (D, H)), ("b1", (H,)), ("w2", (H, C)))
    )
    y = graph.input("label", (B,), Element.index(C.size))
    h = b.gelu(b.add(b.contract(b.layer_norm(x, D), w1, (B, N, H)), b1))
    logits = b.contract(b.divide(b.sum(h, over=N), b.size(N, F64)), w2, (B, C))
    loss = b.negate(b.divide(b.sum(b.gather(b.log_softmax(logits, C), y, C), over=B), b.size(B, F64)))
    graph.outputs = [loss, *(b.gradient(loss, w) for w in (w1, b1, w2))]
    got = Executor(run_passes(graph, checked=True)).run([*tensors, label], COUNTS)
    tx, *weights = (tensor.clone().requires_grad_(True) for tensor in tensors)
    th = functional.gelu(functional.layer_norm(tx, (6,)) @ weights[0] + weights[1])
    expected = functional.cross_entropy(th.mean(1) @ weights[2], label)
    assert torch.allclose(got[0], expected)
    for gradient, wanted in zip(got[1:], torch.autograd.grad(expected, weights), strict=True):
        assert torch.allclose(gradient, wanted)


def test_gradient_of_a_gradient() -> None:
    def loss(b: Builder, x: list[Node]) -> Node:
        inner = b.sum(b.power(b.square(b.contract(x[0], x[1], (B, N))), 2.0), over=(B, N))
        return b.sum(b.square(b.gradient(inner, x[1])), over=(D, N))

    executor, tensors = made(loss, [(B, D), (D, N)])
    gradients = executor.run(tensors, COUNTS)[1:]
    for which in (0, 1):
        wanted = finite_differences(executor, tensors, which)
        assert torch.allclose(gradients[which], wanted, rtol=1e-5, atol=1e-3 * float(wanted.abs().max()))


def test_unused_and_stopped_give_zero() -> None:
    executor, tensors = made(lambda b, x: total(b, b.stop_gradient(x[1])), [(B, N), (N,), (D, D)])
    gradients = executor.run(tensors, COUNTS)[1:]
    assert [tuple(g.shape) for g in gradients] == [(3, 4), (4,), (6, 6)]
    assert all(not g.any() for g in gradients)


def test_gradients_of_one_loss_share_a_sweep() -> None:
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    x, y = graph.input("x", (N,), F64), graph.input("y", (N,), F64)
    loss = total(b, b.tanh(b.multiply(x, y)))
    graph.outputs = [b.gradient(loss, x)]
    one = len(differentiate(graph).nodes)
    graph.outputs.append(b.gradient(loss, y))
    assert len(differentiate(graph).nodes) - one <= 4


def test_the_gradient_of_a_middle_value() -> None:
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    x = graph.input("x", (N,), F64)
    middle = b.square(x)
    loss = b.sum(b.square(middle), over=N)
    graph.outputs = [b.gradient(loss, middle), b.gradient(loss, x)]
    value = torch.arange(4, dtype=torch.float64)
    got = Executor(run_passes(graph, checked=True)).run([value])
    assert torch.allclose(got[0], 2 * value**2) and torch.allclose(got[1], 4 * value**3)


def test_square_roots_are_flat_at_zero() -> None:
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    x = graph.input("x", (N,), F64)
    loss = b.sum(b.sqrt(b.square(x)), over=N)
    graph.outputs = [b.gradient(loss, x)]
    got = Executor(run_passes(graph, checked=True)).run([torch.zeros(4, dtype=torch.float64)])[0]
    assert torch.equal(got, torch.zeros(4, dtype=torch.float64))


def test_no_gradient_is_said() -> None:
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    x = graph.input("x", (N,), F64)
    without = Op("flat", "flat(x)", lambda types, attributes: types[0], "A test.", "")
    with b.at(Source("flat.ss", "flat(x)").span(0, 7)):
        flat = graph.append(Node(without, (x,), {}, (N,), F64, b.span))
    graph.outputs = [b.gradient(b.sum(flat, over=N), x)]
    with pytest.raises(NoGradient, match="`flat` has no gradient") as caught:
        differentiate(graph)
    assert caught.value.node.span is not None and caught.value.node.span.text == "flat(x)"
