"""Every op of the registry: its words, its example, its rule against what runs, its gradient, and torch's function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.nn import functional

from shapescript.devices.dtypes import DTYPES
from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.executor import Executor
from shapescript.devices.reference.lowering import LOWERINGS
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.ops.registry import INDEX, MAP, MAX, MIN, NEW, OWN, REGISTRY, SUM, WHOLE
from shapescript.passes.pipeline import run_passes
from shapescript.source import Source
from shapescript.syntax.parse import parse
from shapescript.types.axes import Axis
from shapescript.types.checker import check_program
from shapescript.types.element import BOOL, F64, I64, Element
from shapescript.types.size import Size

B = Axis.named("b", batch=True)
N, M, D = (Axis.named(name) for name in "nmD")
SIZES, COUNTS = {"n": 4, "m": 3, "D": 5}, {"b": 3}
NONNEG, INDEX_N = Element("f64", "NonNeg"), Element.index(N.size)
SHORTER, LONGER, TWO = Axis.of(N.size - 1), Axis.of(N.size + 3), Axis.of(2)


@dataclass(frozen=True)
class Case:
    """Operands by axes and element, attributes, and the torch function of the same meaning, if there is one."""

    operands: tuple[tuple[tuple[Axis, ...], Element], ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    torch: Callable[..., torch.Tensor] | None = None
    differentiable: bool = True


def one(function: Callable[..., torch.Tensor] | None, of: Element = F64, **attributes: Any) -> Case:
    return Case((((B, N), of),), attributes, function, of.is_float)


def two(function: Callable[..., torch.Tensor], second: Element = F64, *, slope: bool = True) -> Case:
    return Case((((B, N), F64), ((N,), second)), {}, function, slope)


def whole_pair(function: Callable[..., torch.Tensor]) -> Case:
    return Case((((B, N), I64), ((N,), I64)), {}, function, False)


def normalised(x: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[-1:], eps=1e-5)


SOFT = functional.softmax
ALONG_N: dict[str, Any] = {"over": N}
OVER_N: dict[str, Any] = {"over": (N,)}
DRAW: dict[str, Any] = {"axes": (B, N), "place": 7, "element": F64}
KEY = (((), I64),)
PAIR = (((B, N), F64), ((B, N), F64))
PROBS = (((B, N), Element("f64", "Prob")), ((B, N), Element("f64", "Prob")))

EXTERN = {"target": "torch.neg", "axes": (B, N), "element": F64, "place": 0}

READ, MADE, LONG, SHORT = Axis.of(2), Axis.of(3), Axis.of(6), Axis.of(3)
MOVED: dict[str, Any] = {"spatial": (2,), "stride": (Size.of(2),), "before": (Size.of(1),)}
CONV = {**MOVED, "channel": 1, "dilation": (Size.of(1),), "groups": Size.of(1)}
POOL = {**MOVED, "window": (Size.of(3),)}
WIDE, NARROW, WEIGHTS = (B, READ, LONG), (B, MADE, SHORT), (MADE, READ, Axis.of(3))


HEADS = {"keys": M, "feature": D, "axes": (B, N, D)}


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v)


def weights_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.grad.conv1d_weight(x, (3, 2, 3), y, stride=2, padding=1)


def spread(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_(True)
    return torch.autograd.grad(functional.max_pool1d(x, 3, 2, 1), x, dy)[0]


def pick(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return z.gather(2, functional.max_pool1d(x, 3, 2, 1, return_indices=True)[1])


def even(dy: torch.Tensor) -> torch.Tensor:
    x = torch.zeros(3, 2, 6, dtype=dy.dtype, requires_grad=True)
    return torch.autograd.grad(functional.avg_pool1d(x, 3, 2, 1), x, dy)[0]


CASES: dict[str, Case] = {
    "attention": Case((((B, N, D), F64), ((B, M, D), F64), ((B, M, D), F64)), HEADS, attended),
    "conv": Case(((WIDE, F64), (WEIGHTS, F64)), {**CONV, "axes": NARROW},
                 lambda x, w: functional.conv1d(x, w, stride=2, padding=1)),
    "conv_transpose": Case(((NARROW, F64), (WEIGHTS, F64)), {**CONV, "axes": WIDE},
                           lambda y, w: functional.conv_transpose1d(y, w, stride=2, padding=1, output_padding=1)),
    "conv_weights": Case(((WIDE, F64), (NARROW, F64)), {**CONV, "axes": WEIGHTS}, weights_of),
    "max_pool": Case(((WIDE, F64),), {**POOL, "places": (SHORT,)}, lambda x: functional.max_pool1d(x, 3, 2, 1)),
    "max_pool_spread": Case(((WIDE, F64), ((B, READ, SHORT), F64)), POOL, spread),
    "max_pool_pick": Case(((WIDE, F64), (WIDE, F64)), {**POOL, "places": (SHORT,)}, pick),
    "avg_pool": Case(((WIDE, F64),), {**POOL, "places": (SHORT,)}, lambda x: functional.avg_pool1d(x, 3, 2, 1)),
    "avg_pool_spread": Case((((B, READ, SHORT), F64),), {**POOL, "places": (LONG,)}, even),
    "add": two(torch.add), "subtract": two(torch.subtract), "multiply": two(torch.multiply),
    "divide": two(torch.divide), "maximum": two(torch.maximum), "minimum": two(torch.minimum),
    "power": Case((((B, N), NONNEG), ((N,), F64)), {}, torch.pow),
    "floor_divide": two(torch.floor_divide, slope=False), "remainder": two(torch.remainder, slope=False),
    "equal": whole_pair(torch.eq), "not_equal": whole_pair(torch.ne), "less": two(torch.lt, slope=False),
    "less_equal": whole_pair(torch.le), "greater": two(torch.gt, slope=False), "greater_equal": whole_pair(torch.ge),
    "and": Case((((B, N), BOOL), ((N,), BOOL)), {}, torch.logical_and, False),
    "or": Case((((B, N), BOOL), ((N,), BOOL)), {}, torch.logical_or, False),
    "not": one(torch.logical_not, BOOL),
    "where": Case((((N,), BOOL), ((B, N), F64), ((N,), F64)), {}, torch.where),
    "negate": one(torch.neg), "abs": one(torch.abs), "exp": one(torch.exp), "expm1": one(torch.expm1),
    "log": one(torch.log, NONNEG), "log1p": one(torch.log1p, NONNEG), "sqrt": one(torch.sqrt, NONNEG),
    "rsqrt": one(torch.rsqrt, NONNEG), "square": one(torch.square), "sin": one(torch.sin), "cos": one(torch.cos),
    "tanh": one(torch.tanh), "sigmoid": one(torch.sigmoid), "relu": one(torch.relu), "gelu": one(functional.gelu),
    "gelu_tanh": one(lambda x: functional.gelu(x, approximate="tanh")), "silu": one(functional.silu),
    "softplus": one(functional.softplus), "erf": one(torch.erf), "floor": one(torch.floor), "ceil": one(torch.ceil),
    "round": one(torch.round), "sign": one(torch.sign),
    "is_nan": Case((((B, N), F64),), {}, torch.isnan, False),
    "cast": one(lambda x: x.double(), F64, element=F64),
    "refine": one(lambda x: x, F64, element=NONNEG),
    "stop_gradient": Case((((B, N), F64),), {}, lambda x: x, False),
    "whole": one(lambda x: x), "again": one(lambda x: x, place=0),
    "require_finite": one(lambda x: x, F64, what="a test"),
    "extern": Case((((B, N), F64),), EXTERN, torch.neg),
    "extern_gradient": Case((((B, N), F64), ((B, N), F64)), {**EXTERN, "of": 0}, lambda x, dy: -dy, False),
    "constant": Case((), {"value": 2.5, "element": F64}, lambda: torch.tensor(2.5, dtype=torch.float64), False),
    "iota": Case((), {"over": N, "element": INDEX_N}, lambda: torch.arange(4), False),
    "size": Case((), {"over": B, "element": F64}, lambda: torch.tensor(3.0, dtype=torch.float64), False),
    "random_key": Case((), {}, lambda: torch.tensor(0), False),
    "random_uniform": Case(KEY, DRAW, None, False), "random_normal": Case(KEY, DRAW, None, False),
    "random_integers": Case(KEY, {"axes": (B, N), "place": 7, "bound": Size.of(9)}, None, False),
    "broadcast": one(lambda x: x[:, None, :].expand(3, 5, 4), axes=(B, D, N)),
    "relabel": one(lambda x: x, axes=(B, Axis("m2", N.size))),
    "rearrange": one(lambda x: x.T.reshape(-1), axes=(Axis.merged((N, B)),)),
    "slice": one(lambda x: x[:, 1:], over=N, start=Size.of(1), stop=N.size, result=SHORTER),
    "pad": one(lambda x: functional.pad(x, (1, 2), value=0.5), over=N, before=Size.of(1), after=Size.of(2), value=0.5,
               result=LONGER),
    "concat": Case((((B, N), F64), ((B, M), F64)), {"over": Axis.of(N.size + M.size), "position": 1},
                   lambda x, y: torch.cat([x, y], 1)),
    "flip": one(lambda x: x.flip(1), over=N),
    "roll": one(lambda x: x.roll(1, 1), over=N, shift=Size.of(1)),
    "sum": one(lambda x: x.sum(1), over=(N,)), "max": one(lambda x: x.amax(1), over=(N,)),
    "min": one(lambda x: x.amin(1), over=(N,)), "prod": one(lambda x: x.prod(1), over=(N,)),
    "any": one(lambda x: x.any(1), BOOL, over=(N,)), "all": one(lambda x: x.all(1), BOOL, over=(N,)),
    "logsumexp": one(lambda x: x.logsumexp(1), over=(N,)),
    "argmax": Case((((B, N), F64),), ALONG_N, lambda x: x.argmax(1), False),
    "argmin": Case((((B, N), F64),), ALONG_N, lambda x: x.argmin(1), False),
    "softmax": one(lambda x: SOFT(x, 1), over=N), "log_softmax": one(lambda x: x.log_softmax(1), over=N),
    "layer_norm": one(lambda x: functional.layer_norm(x, (4,)), over=(N,), eps=1e-5),
    "rms_norm": one(normalised, over=(N,), eps=1e-5),
    "cumsum": one(lambda x: x.cumsum(1), over=N), "cumprod": one(lambda x: x.cumprod(1), over=N),
    "sort": one(lambda x: x.sort(1)[0], over=N),
    "argsort": Case((((B, N), F64),), ALONG_N, lambda x: x.argsort(1), False),
    "topk_values": one(lambda x: x.topk(2, 1)[0], over=N, k=TWO.size, result=TWO),
    "topk_indices": Case((((B, N), F64),), {"over": N, "k": TWO.size, "result": TWO}, lambda x: x.topk(2, 1)[1], False),
    "contract": Case((((B, N), F64), ((N, M), F64)), {"axes": (M, B)}, lambda x, y: (x @ y).T),
    "gather": Case((((B, N), F64), ((B, M), INDEX_N)), ALONG_N, lambda x, i: x.gather(1, i)),
    "scatter_add": Case((((B, M), F64), ((B, M), INDEX_N)), {"over": N, "axes": (B, N)},
                        lambda x, i: torch.zeros(3, 4, dtype=x.dtype).scatter_add(1, i, x)),
    "mean": one(lambda x: x.mean(1), over=(N,)), "var": one(lambda x: x.var(1), over=(N,)),
    "std": one(lambda x: x.std(1), over=(N,)), "norm": one(lambda x: x.norm(dim=1), over=(N,)),
    "cross_entropy": Case((((B, N), F64), ((B,), INDEX_N)), {"over": N, "keep": (), "smoothing": 0.1},
                          lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1)),
    "mse": Case(PAIR, {"keep": ()}, functional.mse_loss),
    "huber": Case(PAIR, {"keep": (), "delta": 1.0}, functional.huber_loss),
    "binary_cross_entropy": Case((((B, N), F64), ((B, N), F64)), {"keep": ()},
                                 functional.binary_cross_entropy_with_logits),
    "kl": Case(PROBS, {"over": (N,), "keep": ()}, lambda p, q: (p * (p / q).log()).sum(1).mean()),
}  # fmt: skip
COLLECTIVES = {
    "mask", "all_reduce", "all_gather", "reduce_scatter", "take_part", "all_to_all", "keep_first", "part_best",
    "part_gather", "part_scatter",
}  # fmt: skip
"""What a layout puts into a graph: the tests of layouts run them, on several devices."""

UNCASED = {"gradient"} | COLLECTIVES
"""What isn't run by itself: the differentiate pass replaces a gradient, and its tests are there."""


def value_of(axes: tuple[Axis, ...], element: Element, random: torch.Generator) -> torch.Tensor:
    shape = [axis.size.evaluate({**SIZES, **COUNTS}) for axis in axes]
    if element.is_bool:
        return torch.rand(shape, generator=random) > 0.5
    if element.is_whole:
        return torch.randint(0, 4, shape, generator=random)
    value = torch.randn(shape, generator=random, dtype=torch.float64)
    if element.is_prob:
        return value.softmax(-1)
    return value.abs() + 0.2 if element.is_nonneg else value


def build(name: str, differentiated: bool) -> tuple[Executor, list[torch.Tensor], Node]:
    """An executor that gives the op's result, or a scalar made of it with its gradients by the float operands."""
    case, random = CASES[name], torch.Generator().manual_seed(4)
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    inputs = [graph.input(f"x{i}", axes, element) for i, (axes, element) in enumerate(case.operands)]
    tensors = [value_of(axes, element, random) for axes, element in case.operands]
    if case.operands == KEY:
        tensors = [torch.tensor(0)]
    result = b.emit(name, *inputs, **case.attributes)
    graph.outputs = [result]
    if differentiated:
        loss = b.multiply(b.sin(result), result)
        loss = b.sum(loss, over=loss.axes) if loss.axes else loss
        graph.outputs = [loss, *(b.gradient(loss, x) for x in inputs if x.element.is_float)]
    return Executor(run_passes(graph, checked=True)), tensors, result


def test_every_op_has_a_case() -> None:
    assert set(CASES) | UNCASED == set(REGISTRY)


def test_every_primitive_is_lowered_and_no_composite_is() -> None:
    assert {name for name, op in REGISTRY.items() if op.primitive} - {"gradient"} == set(LOWERINGS)


@pytest.mark.parametrize("name", REGISTRY)
def test_words(name: str) -> None:
    op = REGISTRY[name]
    assert op.doc.endswith((".", ")")) and len(op.doc) > 5 and op.signature and op.example
    assert op.primitive == (op.roles is not None), "the layout needs the roles of each primitive, and of it alone"


@pytest.mark.parametrize("name", REGISTRY)
def test_the_example_checks(name: str) -> None:
    text = f"devices cpu\ndim C = 4\n\nfn f(x: [n m k C]):\n    y = {REGISTRY[name].example}\n"
    text = text.replace("arange[n] as Index[C]", "(arange[n] as i64) as Index[C]")
    source = Source("example.ss", text)
    errors = [d for d in check_program(source, parse(source), lambda module: None).errors]
    assert not errors, [error.message for error in errors]


@pytest.mark.parametrize("name", CASES)
def test_what_runs_is_what_the_rule_says(name: str) -> None:
    executor, tensors, node = build(name, False)
    result = executor.run(tensors, COUNTS, RandomKey(1, 0))[0]
    assert list(result.shape) == [axis.size.evaluate({**SIZES, **COUNTS}) for axis in node.axes]
    assert result.dtype == DTYPES[node.element.name]
    if node.element.is_nonneg and result.is_floating_point() and name != "refine":
        assert (result >= 0).all() and not (node.element.is_prob and (result > 1).any())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.torch is not None])
def test_it_is_torchs_function(name: str) -> None:
    executor, tensors, _ = build(name, False)
    function = CASES[name].torch
    assert function is not None
    result, wanted = executor.run(tensors, COUNTS, RandomKey(1, 0))[0], function(*tensors)
    assert torch.allclose(result, wanted.to(result.dtype), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.differentiable])
def test_gradients_meet_finite_differences(name: str) -> None:
    executor, tensors, _ = build(name, True)
    gradients = executor.run(tensors, COUNTS)[1:]
    floats = [i for i, tensor in enumerate(tensors) if tensor.is_floating_point()]
    for which, gradient in zip(floats, gradients, strict=True):
        for place in range(tensors[which].numel()):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [tensor.clone() for tensor in tensors]
                moved[which].view(-1)[place] += step
                sides.append(float(executor.run(moved, COUNTS)[0]))
            slope = (sides[0] - sides[1]) / 2e-6
            assert float(gradient.reshape(-1)[place]) == pytest.approx(slope, rel=1e-5, abs=1e-6)


WORDS = {MAP, SUM, MAX, MIN, INDEX, OWN, NEW, WHOLE}


@pytest.mark.parametrize("name", [name for name in CASES if REGISTRY[name].primitive])
def test_roles_point_at_axes_that_are_there(name: str) -> None:
    case = CASES[name]
    graph = Graph(sizes=dict(SIZES))
    inputs = [graph.input(f"x{i}", axes, element) for i, (axes, element) in enumerate(case.operands)]
    node = Builder(graph).emit(name, *inputs, **case.attributes)
    roles = REGISTRY[name].roles
    assert roles is not None
    for role in roles(node):
        assert role.word in WORDS and len(role.operands) == len(node.operands)
        assert role.result is None or role.result < len(node.axes)
        for place, operand in zip(role.operands, node.operands, strict=True):
            assert place is None or place < len(operand.axes)
