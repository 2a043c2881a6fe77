"""The native executor against the reference one: every op, random graphs, errors, memory, counts that change."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_registry import CASES, COUNTS, build

_executor = pytest.importorskip("shapescript._executor")

from shapescript.cli.main import main  # noqa: E402
from shapescript.devices.executors import UnknownExecutor, executor_name  # noqa: E402
from shapescript.devices.native.executor import NativeExecutor  # noqa: E402
from shapescript.devices.random_key import RandomKey  # noqa: E402
from shapescript.devices.reference.executor import Executor  # noqa: E402
from shapescript.devices.reference.lowering import ValueProblem  # noqa: E402
from shapescript.diagnostics.diagnostic import ProgramError  # noqa: E402
from shapescript.ir.builder import Builder  # noqa: E402
from shapescript.ir.graph import Graph, Node  # noqa: E402
from shapescript.passes.pipeline import run_passes  # noqa: E402
from shapescript.source import Source  # noqa: E402
from shapescript.types.axes import Axis  # noqa: E402
from shapescript.types.element import BOOL, F32, F64, I64, Element  # noqa: E402
from shapescript.types.size import Size  # noqa: E402

B = Axis.named("b", batch=True)
N, M, D, H = (Axis.named(name) for name in "nmDH")
SIZES = {"n": 12, "m": 5, "D": 33, "H": 4}
INSTRUCTIONS = [name for name in ("baseline", "avx2", "avx512") if _executor.has_kernels(name)]
KERNELS = """
add subtract multiply divide maximum minimum power floor_divide remainder equal not_equal less less_equal greater
greater_equal and or not where negate abs exp expm1 log log1p sqrt rsqrt square sin cos tanh sigmoid relu gelu gelu_tanh
silu softplus erf floor ceil round sign is_nan cast refine stop_gradient require_finite constant iota size random_key
random_uniform random_normal random_integers broadcast relabel rearrange slice pad concat flip sum max min prod any all
logsumexp argmax argmin softmax log_softmax layer_norm rms_norm cumsum cumprod contract gather scatter_add mean var std
norm cross_entropy mse huber binary_cross_entropy kl
"""
"""What must have kernels, its gradient too; the rest runs as calls of the reference executor's operations."""


def close(got: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-12) -> bool:
    """Whether two tensors are of one dtype and equal but for rounding."""
    return got.dtype == wanted.dtype and torch.allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_op_is_the_reference_executors(name: str, differentiated: bool) -> None:
    if differentiated and not CASES[name].differentiable:
        pytest.skip("it has no gradient")
    reference, tensors, _ = build(name, differentiated)
    native = NativeExecutor(reference.graph)
    for number in (1, 2):
        key = RandomKey(7, number, 3)
        wanted, got = reference.run(tensors, COUNTS, key), native.run(tensors, COUNTS, key)
        assert all(close(x, y) for x, y in zip(got, wanted, strict=True))


def test_what_must_be_fast_is_not_called() -> None:
    for name in KERNELS.split():
        for differentiated in (False, CASES[name].differentiable):
            assert NativeExecutor(build(name, differentiated)[0].graph).fallbacks == [], name


class Bench:
    """A graph under construction, with inputs."""

    def __init__(self, **counts: int) -> None:
        self.graph = Graph(sizes=dict(SIZES))
        self.b = Builder(self.graph)
        self.tensors: list[torch.Tensor] = []
        self.counts = counts or {"b": 7}
        self.random = torch.Generator().manual_seed(5)

    def input(self, *axes: Axis, element: Element = F32, value: torch.Tensor | None = None) -> Node:
        if value is None:
            shape = [axis.size.evaluate({**SIZES, **self.counts}) for axis in axes]
            value = torch.randn(shape, generator=self.random, dtype=torch.float64)
            value = value.float() if element.name == "f32" else value
        self.tensors.append(value)
        return self.graph.input(f"x{len(self.tensors)}", axes, element)

    def finish(self, *outputs: Node) -> Graph:
        self.graph.outputs = list(outputs)
        self.graph = run_passes(self.graph, checked=True)
        return self.graph

    def agree(self, *outputs: Node, tolerance: float = 2e-5, **options: Any) -> list[torch.Tensor]:
        graph = self.finish(*outputs)
        wanted = Executor(graph).run(self.tensors, self.counts)
        got = NativeExecutor(graph, **options).run(self.tensors, self.counts)
        for x, y in zip(got, wanted, strict=True):
            assert x.shape == y.shape and close(x, y, tolerance)
        return got


# --- random graphs -------------------------------------------------------------------------------------------------

UNARY = "negate abs exp tanh sigmoid relu gelu gelu_tanh silu softplus erf square sin floor sign".split()
BINARY = "add subtract multiply divide maximum minimum".split()


@st.composite
def recipes(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """Steps: what is done, to which values, and along what."""
    kinds = ["unary", "binary", "where", "sum", "max", "softmax", "norm", "product", "turn", "merge", "cut", "spread"]
    count = draw(st.integers(3, 25))
    return [(draw(st.sampled_from(kinds)), *(draw(st.integers(0, 10**6)) for _ in range(3))) for _ in range(count)]


def grown(bench: Bench, recipe: list[tuple[str, int, int, int]]) -> list[Node]:
    """The values that a recipe makes, from four inputs of different axes; each stays of modest size."""
    b = bench.b
    values = [bench.input(B, N), bench.input(N), bench.input(B, N, H), bench.input(B), bench.input()]
    for kind, one, other, third in recipe:
        x = values[one % len(values)]
        y = values[other % len(values)]
        axis = x.axes[third % len(x.axes)] if x.axes else None
        made: Node | None = None
        if kind == "unary":
            made = b.emit(UNARY[third % len(UNARY)], b.tanh(x))
        elif kind == "binary" and fits(x, y):
            made = b.emit(BINARY[third % len(BINARY)], x, b.add(b.square(y), 1.0) if third % 2 else y)
        elif kind == "where" and fits(x, y):
            made = b.where(b.greater(x, 0.0), x, y)
        elif kind == "sum" and axis is not None:
            over = x.axes if third % 5 == 0 else (axis,)
            made = b.multiply(b.sum(x, over=over), 0.1)
        elif kind == "max" and axis is not None:
            made = b.max(x, over=axis)
        elif kind == "softmax" and axis is not None:
            made = b.softmax(x, axis) if third % 2 else b.log_softmax(x, axis)
        elif kind == "norm" and axis is not None:
            made = b.emit("layer_norm", x, over=(axis,), eps=1e-5)
        elif kind == "product" and set(x.axes) & set(y.axes):
            shared = [a for a in x.axes if a in y.axes]
            rest = [a for a in (*x.axes, *y.axes) if a != shared[third % len(shared)]]
            kept = list(dict.fromkeys(rest))
            made = b.multiply(b.contract(x, y, kept[:: -1 if third % 3 == 0 else 1]), 0.1)
        elif kind == "turn" and len(x.axes) > 1:
            made = b.rearrange(x, (*x.axes[1:], x.axes[0]))
        elif kind == "merge" and len(x.axes) > 1:
            merged = Axis.merged(x.axes[:2])
            flat = b.tanh(b.rearrange(x, (merged, *x.axes[2:])))
            made = b.rearrange(flat, x.axes)
        elif kind == "cut" and axis is not None and axis.name == "n":
            shorter = Axis.of(N.size - 4)
            part = b.square(b.slice(x, N, Size.of(1), N.size - 3, shorter))
            made = b.pad(part, shorter, Size.of(2), Size.of(2), 0.5, N)
        elif kind == "spread":
            missing = [a for a in (B, N, H) if a not in x.axes]
            made = b.broadcast(x, (*missing[:1], *x.axes)) if missing else None
        if made is not None:
            values.append(made)
    return values


def fits(x: Node, y: Node) -> bool:
    """Whether the axes of one value are among the other's, in its order."""
    few, many = sorted((x.axes, y.axes), key=len)
    return [axis for axis in many if axis in few] == list(few)


@settings(max_examples=120)
@given(recipes(), st.integers(0, 3))
def test_random_graphs_agree(recipe: list[tuple[str, int, int, int]], seed: int) -> None:
    bench = Bench()
    bench.random.manual_seed(seed)
    values = grown(bench, recipe)
    bench.agree(*values[-6:], tolerance=2e-4)


@settings(max_examples=50)
@given(recipes())
def test_gradients_of_random_graphs_agree(recipe: list[tuple[str, int, int, int]]) -> None:
    bench = Bench()
    values = grown(bench, recipe)
    b = bench.b
    smooth = b.tanh(values[-1])
    loss = b.sum(smooth, over=smooth.axes) if smooth.axes else smooth
    gradients = [b.gradient(loss, x) for x in values[:5]]
    graph = bench.finish(loss, *gradients)
    wanted = Executor(graph).run(bench.tensors, bench.counts)
    got = NativeExecutor(graph).run(bench.tensors, bench.counts)
    for x, y in zip(got, wanted, strict=True):
        scale = max(1.0, float(y.abs().max()))
        assert torch.allclose(x, y, rtol=1e-3, atol=1e-3 * scale, equal_nan=True)


# --- kernels -------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float, float]] = {
    # the function in f64, the range, and how many units in the last place an f32 may be off
    "exp": (torch.exp, -87.0, 88.0, 1.5),
    "log": (torch.log, 1e-30, 1e30, 1.5),
    "tanh": (torch.tanh, -12.0, 12.0, 2.0),
    "erf": (torch.erf, -5.0, 5.0, 2.0),
    "sigmoid": (torch.sigmoid, -80.0, 80.0, 3.0),
    "silu": (torch.nn.functional.silu, -60.0, 60.0, 4.0),
}


def points(low: float, high: float) -> torch.Tensor:
    """f32 numbers all over a range, densely near 0, with its special values."""
    random = torch.Generator().manual_seed(1)
    wide = low + (high - low) * torch.rand(20000, generator=random, dtype=torch.float64)
    small = torch.exp(torch.rand(5000, generator=random, dtype=torch.float64) * 40 - 40)
    near = small if low > 0 else torch.cat([small, -small])
    return torch.cat([wide, near[(near > low) & (near < high)]]).float()


def one_op(name: str, x: torch.Tensor, kernels: str = "") -> torch.Tensor:
    """An elementwise operation on an f32 vector."""
    graph = Graph(sizes={"n": len(x)})
    b = Builder(graph)
    node = graph.input("x", (N,), F32.refined("NonNeg") if name in ("log", "sqrt", "rsqrt") else F32)
    graph.outputs = [b.emit(name, node)]
    return NativeExecutor(graph, kernels=kernels).run([x])[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_right_to_the_last_places(name: str) -> None:
    function, low, high, most = FUNCTIONS[name]
    x = points(low, high)
    got, exact = one_op(name, x), function(x.double())
    unit = torch.nextafter(exact.abs().float(), torch.tensor(math.inf)) - exact.abs().float()
    off = ((got.double() - exact).abs() / unit.double().clamp(min=2.0**-149))[exact.abs() > 1e-37]
    assert float(off.max()) <= most


def test_special_values() -> None:
    inf, nan = math.inf, math.nan
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, 200.0, -200.0, 1e-45])
    for name in ("exp", "tanh", "erf", "sigmoid", "softplus", "relu", "sign", "abs", "floor", "log1p", "expm1"):
        graph = Graph(sizes={"n": len(x)})
        b = Builder(graph)
        graph.outputs = [b.emit(name, graph.input("x", (N,), F32))]
        got, wanted = NativeExecutor(graph).run([x])[0], Executor(graph).run([x])[0]
        assert close(got, wanted, 1e-6), (name, got, wanted)
    got = one_op("log", torch.tensor([0.0, inf, nan, 1.0, 1e-40]))
    assert got[0] == -inf and got[1] == inf and got[2].isnan() and got[3] == 0
    assert float(got[4]) == pytest.approx(math.log(1e-40), rel=1e-4)


@pytest.mark.parametrize(
    "name", ["exp", "log", "tanh", "erf", "gelu", "gelu_tanh", "silu", "sigmoid", "rsqrt", "softplus"]
)
def test_every_instruction_set_gives_the_same_bits(name: str) -> None:
    x = points(1e-20, 50.0) if name in ("log", "rsqrt") else points(-30.0, 30.0)
    first, *others = (one_op(name, x, kernels).view(torch.int32) for kernels in INSTRUCTIONS)
    assert all(torch.equal(first, other) for other in others)


def test_sums_and_rows_have_the_same_bits_too() -> None:
    def run(kernels: str) -> list[torch.Tensor]:
        bench = Bench(b=97)
        x = bench.input(B, D)
        b = bench.b
        outputs = [b.sum(x, over=D), b.sum(x, over=B), b.sum(x, over=(B, D)), b.softmax(x, D), b.log_softmax(x, D),
                   b.emit("layer_norm", x, over=(D,), eps=1e-5), b.logsumexp(x, over=D), b.max(x, over=D)]  # fmt: skip
        return NativeExecutor(bench.finish(*outputs), kernels=kernels).run(bench.tensors, bench.counts)

    first, *others = map(run, INSTRUCTIONS)
    assert all(torch.equal(x, y) for other in others for x, y in zip(first, other, strict=True))


def test_gradients_of_gelu_and_softmax_are_one_kernel_each_with_the_same_bits() -> None:
    """Of the chains' own operations, too: a result between them that is wanted keeps the chain apart."""

    def run(kernels: str, apart: bool) -> tuple[list[torch.Tensor], set[int]]:
        bench = Bench(b=97)
        b, x, w = bench.b, bench.input(B, D), bench.input(D, N)
        scores = b.multiply(b.contract(b.gelu(x), w, (B, N)), 0.5)
        weights = b.softmax(scores, N)
        loss = b.sum(b.multiply(b.square(weights), bench.input(B, N)), over=(B, N))
        gradients = [b.gradient(loss, wanted) for wanted in (scores, x, w)]
        graph = bench.finish(*gradients)
        if apart:
            graph.outputs += [node for node in graph.nodes if node.name in ("exp", "subtract", "erf")]
        executor = NativeExecutor(graph, kernels=kernels)
        tiles = [i.arguments[-1] for i in executor.lowered.instructions if i.method == "tiles"]
        used = {kernel for operations in tiles for kernel, *_ in operations}
        return executor.run(bench.tensors, bench.counts)[:3], used

    both = {_executor.kernel_numbers()[f"{name}.f32"] for name in ("gelu_gradient", "softmax_gradient")}
    first, used = run("", False)
    assert both <= used
    split, used = run("", True)
    assert not both & used
    for other in [split, *(run(kernels, False)[0] for kernels in INSTRUCTIONS)]:
        assert all(torch.equal(x, y) for x, y in zip(first, other, strict=True))


def test_long_sums_are_exact_enough() -> None:
    for axis, shape in ((N, (1 << 20,)), (B, (1 << 16,))):
        graph = Graph(sizes={"n": 1 << 20})
        b = Builder(graph)
        graph.outputs = [b.sum(graph.input("x", (axis,), F32), over=axis)]
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        got = NativeExecutor(graph).run([x], {"b": 1 << 16})[0]
        assert float(got) == pytest.approx(float(x.double().sum()), rel=5e-7)


# --- threads, counts, memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_work(threads: int) -> None:
    bench = Bench(b=1500)
    x, w = bench.input(B, D), bench.input(D, N)
    b = bench.b
    h = b.gelu(b.contract(b.multiply(b.add(x, 0.5), 2.0), w, (B, N)))
    g = b.contract(b.softmax(h, N), h, (B,))
    bench.agree(h, g, b.contract(x, h, (D, N)), threads=threads, tolerance=1e-3)


def test_one_plan_serves_every_count() -> None:
    bench = Bench()
    x, w = bench.input(B, N), bench.input(N, D)
    b = bench.b
    y = b.log_softmax(b.contract(x, w, (B, D)), D)
    graph = bench.finish(b.divide(b.sum(y, over=(B, D)), b.size(B)), y)
    native, reference = NativeExecutor(graph), Executor(graph)
    for count in (64, 64, 17, 1, 64, 300, 2, 5, 17, 0):
        x_value = torch.randn(count, 12, generator=bench.random)
        got = native.run([x_value, bench.tensors[1]], {"b": count})
        wanted = reference.run([x_value, bench.tensors[1]], {"b": count})
        assert all(close(p, q, 1e-5) for p, q in zip(got, wanted, strict=True))


def test_outputs_are_nobody_elses_memory() -> None:
    bench = Bench(b=400)
    x = bench.input(B, N)
    graph = bench.finish(bench.b.exp(x), bench.b.multiply(x, 2.0), bench.b.relabel(x, (B, Axis("k", N.size))))
    native = NativeExecutor(graph)
    before = bench.tensors[0].clone()
    first = native.run(bench.tensors, bench.counts)
    kept = [tensor.clone() for tensor in first]
    view = first[0][:1]
    del first[1]
    for _ in range(4):
        later = native.run([bench.tensors[0] + 1], bench.counts)
        later[0].zero_()
    assert torch.equal(first[0], kept[0]) and torch.equal(view, kept[0][:1]) and torch.equal(first[1], kept[2])
    assert torch.equal(bench.tensors[0], before)


def moved(steps: int, give_up: bool) -> tuple[list[torch.Tensor], set[int]]:
    """A weight and its moment after some steps, and where the weight lay."""
    bench = Bench(b=64)
    w, v = bench.input(D, N), bench.input(D, N)
    b = bench.b
    x = bench.input(B, D)
    g = b.contract(x, b.tanh(b.contract(x, w, (B, N))), (D, N))
    velocity = b.add(b.multiply(v, 0.9), g)
    graph = bench.finish(b.subtract(w, b.multiply(velocity, 0.01)), velocity)
    native = NativeExecutor(graph, replaces={0: 0, 1: 1})
    state, places = bench.tensors[:2], set()
    for _ in range(steps):
        state = native.run([*state, bench.tensors[2]], bench.counts, None, (0, 1) if give_up else ())
        places.add(state[0].data_ptr())
    return state, places


def test_what_is_given_up_is_written_over_with_the_same_results() -> None:
    (kept, _), (given, places) = moved(5, False), moved(5, True)
    assert all(torch.equal(x, y) for x, y in zip(kept, given, strict=True))
    assert len(places) == 1


def test_memory_that_came_from_python_is_never_written_over() -> None:
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    w = graph.input("w", (N, D), F32)
    graph.outputs = [b.multiply(w, 2.0)]
    native = NativeExecutor(graph, replaces={0: 0})
    mine = torch.ones(12, 33)
    made = native.run([mine], None, None, (0,))[0]
    assert torch.equal(mine, torch.ones(12, 33)) and torch.equal(made, 2 * mine)
    part = made[:2]
    again = native.run([made], None, None, (0,))[0]
    assert torch.equal(part, 2 * mine[:2]) and torch.equal(again, 4 * mine)


def test_an_input_that_is_read_later_is_not_written_over() -> None:
    bench = Bench(b=64)
    w, x = bench.input(D, N), bench.input(B, D)
    b = bench.b
    new = b.multiply(w, 0.5)
    graph = bench.finish(new, b.contract(b.contract(x, new, (B, N)), w, (B, D)))
    assert NativeExecutor(graph, replaces={0: 0}).lowered.replaced == {}


# --- errors --------------------------------------------------------------------------------------------------------


def problem(make: Callable[[Builder, Node], Node], element: Element, value: torch.Tensor) -> tuple[str, str]:
    """What both executors say of a value that can't be."""
    source = Source("program.ss", "a line of text\n")
    words = []
    for executor in (NativeExecutor, Executor):
        graph = Graph(sizes=dict(SIZES))
        b = Builder(graph)
        x = graph.input("x", (N,), element)
        with b.at(source.span(2, 6)):
            graph.outputs = [make(b, x)]
        with pytest.raises(ProgramError) as caught:
            executor(graph).run([value])
        words.append(f"{caught.value.diagnostic.code} {caught.value.diagnostic.message}")
    return words[0], words[1]


def indices(*numbers: int) -> torch.Tensor:
    return torch.tensor([*numbers, *[0] * (12 - len(numbers))])


def test_errors_are_the_reference_executors() -> None:
    def looked_up(b: Builder, x: Node) -> Node:
        return b.gather(b.iota(M), b.refine(x, I64), over=M)

    cases: list[tuple[Callable[[Builder, Node], Node], Element, torch.Tensor]] = [
        (lambda b, x: b.refine(x, Element.index(M.size)), I64, indices(1, 5)),
        (lambda b, x: b.refine(x, Element.index(M.size)), I64, indices(-1, 5)),
        (lambda b, x: b.cast(x, Element.index(M.size)), F64, indices(7).double()),
        (looked_up, I64, indices(6)),
        (lambda b, x: b.emit("require_finite", x, what="a gradient"), F32, indices(1).float() / 0),
        (lambda b, x: b.emit("require_finite", x, what="a gradient"), F64, torch.full((12,), math.inf).double()),
        (lambda b, x: b.emit("floor_divide", x, x), I64, indices(1)),
    ]
    for make, element, value in cases:
        got, wanted = problem(make, element, value)
        assert got == wanted and got.startswith("E2101")


def test_an_executor_goes_on_after_an_error() -> None:
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    x = graph.input("x", (N,), I64)
    graph.outputs = [b.add(b.refine(x, Element.index(N.size)), 1)]
    native = NativeExecutor(graph)
    with pytest.raises(ValueProblem):
        native.run([indices(99)])
    assert native.run([indices(3)])[0][0] == 4


def test_bools_and_whole_numbers() -> None:
    bench = Bench()
    x = bench.input(B, N, element=I64, value=torch.arange(84).reshape(7, 12) % 5)
    p = bench.input(N, element=BOOL, value=torch.arange(12) % 3 == 0)
    b = bench.b
    both = b.emit("and", b.equal(x, 2), p)
    bench.agree(both, b.sum(x, over=B), b.sum(both, over=(B, N)), b.any(both, over=N), b.where(p, x, 0),
                b.cast(both, F32), b.max(x, over=N), b.argmax(x, over=N), tolerance=0)  # fmt: skip


def test_half_floats_are_called() -> None:
    bench = Bench()
    half = Element("bf16")
    x = bench.input(B, N, element=half, value=torch.randn(7, 12).bfloat16())
    w = bench.input(N, D, element=half, value=torch.randn(12, 33).bfloat16())
    b = bench.b
    bench.agree(b.gelu(b.contract(x, w, (B, D))), b.sum(x, over=N), b.cast(x, F32), tolerance=0)


# --- in a program --------------------------------------------------------------------------------------------------

PROGRAM = """devices cpu

dim N = 40
dim D = 30
dim K = 8

model Line:
    param w: [N D] = kaiming

fn loss(m: Line, x: [K N]) -> [] f32:
    return mean(square(x @ m.w), over=[K D])

fn step(mut m: Line, mut opt: AdamW[Line], x: [K N], lr: float) -> [] f32:
    l, g = value_and_grad(loss, m, x)
    update(mut m, mut opt, g, lr=lr)
    return l

fn main():
    m = Line(seed=1)
    opt = adamw(m, lr=0.1)
    x = full[K N](0.5)
    old = m.w
    for i in 0..6:
        if i == 3:
            old = m.w
        print(step(mut m, mut opt, x, 0.1), sum(old, over=[N D]), sum(m.w, over=[N D]))
"""


def test_a_program_gives_the_same_and_old_values_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "line.ss"
    path.write_text(PROGRAM)
    given_up: list[int] = []
    run = NativeExecutor.run

    def watched(self: NativeExecutor, *arguments: Any) -> list[torch.Tensor]:
        given_up.append(len(arguments[3]))
        return run(self, *arguments)

    monkeypatch.setattr(NativeExecutor, "run", watched)
    printed = []
    for executor in ("native", "reference"):
        monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", executor)
        assert main(["run", str(path)]) == 0
        printed.append([float(word) for word in capsys.readouterr().out.split()])
    assert printed[0] == pytest.approx(printed[1], rel=1e-5)
    # the weight, both moments and the step; without the weight where the program still holds the old one
    assert given_up == [3, 4, 4, 3, 4, 4]


def test_the_variable_takes_known_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", "fast")
    with pytest.raises(UnknownExecutor, match="it must be native, captured or reference"):
        executor_name(torch.device("cpu"))
    monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", "reference")
    assert executor_name(torch.device("cpu")) == "reference"
    monkeypatch.delenv("SHAPESCRIPT_EXECUTOR")
    built = find_spec("shapescript._cuda") is not None
    assert executor_name(torch.device("cpu")) == "native"
    assert executor_name(torch.device("cuda", 0)) == ("captured" if built else "reference")
    assert executor_name(torch.device("mps")) == "reference"


def test_a_profile_says_where_the_time_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", "native")
    Path("line.ss").write_text(PROGRAM)
    assert main(["run", "--profile", "line.ss"]) == 0
    table = capsys.readouterr().err
    assert "6 runs" in table and "products" in table and "optimizer" in table
    assert "line.ss:11" in table and "return mean(square(x @ m.w), over=[K D])" in table
    events = json.loads(Path("line.trace.json").read_text())["traceEvents"]
    runs = [event for event in events if event["name"] == "run"]
    assert len(runs) == 6
    inside = [event for event in events if event["cat"] != "run" and runs[2]["ts"] <= event["ts"] < runs[3]["ts"]]
    assert {event["cat"] for event in inside} >= {"products", "optimizer"}


@pytest.mark.parametrize("from_input", [False, True], ids=["from the sizes alone", "from an input"])
def test_ctrl_c_ends_one_instruction_that_takes_hours(from_input: bool) -> None:
    """What follows from the sizes alone is worked out once, before the first run."""
    n = Axis("N", Size.atom("N"))
    graph = Graph(sizes={"N": 10**13})
    b = Builder(graph)
    start = graph.input("x", (), F32) if from_input else b.constant(0.5, F32)
    graph.outputs = [b.sum(b.emit("sin", b.emit("exp", b.emit("broadcast", start, axes=(n,)))), over=(n,))]
    executor = NativeExecutor(graph, threads=2)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            executor.run([torch.tensor(0.5)] * from_input)
    finally:
        signal.signal(signal.SIGINT, before)


def test_several_threads_may_run_executors_at_once() -> None:
    bench = Bench(b=3000)
    x, w = bench.input(B, D), bench.input(D, N)
    graph = bench.finish(bench.b.gelu(bench.b.contract(x, w, (B, N))))
    shared = NativeExecutor(graph, threads=2)
    wanted = shared.run(bench.tensors, bench.counts)[0].clone()
    executors = [shared, shared, NativeExecutor(graph, threads=2), NativeExecutor(graph, threads=2)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda each: each.run(bench.tensors, bench.counts)[0], executors))
            assert all(torch.equal(one, wanted) for one in found)
