"""The captured executor on a GPU: every op and whole training programs against the CPU, and what a replay may touch."""

from __future__ import annotations

import pytest
import torch
from layout_programs import TEXTS, Text
from programs import Program, tensors
from test_registry import CASES, COUNTS, build

from shapescript.devices.captured.executor import CapturedExecutor
from shapescript.devices.random_key import RandomKey
from shapescript.devices.runner import Border, LocalRunner
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph
from shapescript.source import Source, Span
from shapescript.types.axes import Axis
from shapescript.types.element import F32, I64

GPU = torch.device("cuda", 0)
NEAR = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 2e-2}


def on_cpu(found: list[torch.Tensor]) -> list[torch.Tensor]:
    return [each.cpu() for each in found]


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_op_is_the_cpus(name: str, differentiated: bool) -> None:
    if differentiated and not CASES[name].differentiable:
        pytest.skip("it has no gradient")
    reference, given, _ = build(name, differentiated)
    executor = CapturedExecutor(reference.graph, GPU)
    for number in (1, 2, 3):
        key = RandomKey(7, number, 0)
        wanted = reference.run(given, COUNTS, key)
        got = executor.run([each.to(GPU) for each in given], COUNTS, key)
        executor.finish()
        for x, y in zip(on_cpu(got), wanted, strict=True):
            assert x.dtype == y.dtype
            near = NEAR.get(x.dtype, 0.0)
            assert torch.allclose(x, y, rtol=near, atol=near, equal_nan=True), (number, executor.describe())
    executor.close()


def trained(text: Text, made: list[CapturedExecutor] | None) -> list[torch.Tensor]:
    program = Program(text.program)
    if made is not None:

        def runner(graph: Graph, border: Border) -> LocalRunner:
            made.append(CapturedExecutor(graph, GPU, replaces=border.replaces))
            return LocalRunner(made[-1])

        program.domain.specialiser.make_runner = runner
    random = torch.Generator().manual_seed(3)
    m = program.call("make")
    opt = program.call("optimizer", m)
    found: list[torch.Tensor] = []
    for n in (7, 7, 2, 7, 1):
        result = program.call("step", m, opt, text.batch(n, random))
        assert isinstance(result, tuple)
        found.extend(result)
    found.extend(tensors(m).values())
    return on_cpu(found)


@pytest.mark.parametrize("text", [pytest.param(text, id=text.name) for text in TEXTS])
def test_programs_train_as_on_the_cpu(text: Text) -> None:
    made: list[CapturedExecutor] = []
    for got, wanted in zip(trained(text, made), trained(text, None), strict=True):
        assert torch.allclose(got, wanted, rtol=1e-9, atol=1e-9)
    for executor in made:
        executor.close()


def test_an_index_out_of_range_is_an_error_and_the_context_stays_whole() -> None:
    graph = Graph(sizes={"n": 4, "m": 3})
    n, m = Axis.named("n"), Axis.named("m")
    b = Builder(graph)
    x, index = graph.input("x", (n,), F32), graph.input("index", (m,), I64)
    with b.at(Span(Source("a.ss", "gather it\n"), 0, 6)):
        graph.outputs = [b.gather(x, index, n)]
    executor = CapturedExecutor(graph, GPU)
    values = torch.arange(4.0, device=GPU)
    for _ in range(3):
        executor.run([values, torch.tensor([0, 1, 3], device=GPU)])
    executor.run([values, torch.tensor([0, 9, 3], device=GPU)])
    with pytest.raises(ProgramError) as wrong:
        executor.finish()
    assert "9 is out of range for `n`, which holds 0..4" in wrong.value.diagnostic.message
    (found,) = executor.run([values, torch.tensor([2, 1, 0], device=GPU)])
    executor.finish()
    assert found.tolist() == [2.0, 1.0, 0.0]


def test_products_are_in_full_f32() -> None:
    """TF32 would give 9.8 something else than 3.14 squared."""
    graph = Graph(sizes={"n": 2})
    n, m = Axis.named("n"), Axis.of(2)
    b = Builder(graph)
    z, eye = graph.input("z", (n,), F32), graph.input("eye", (n, m), F32)
    graph.outputs = [b.contract(z, eye, (m,))]
    executor = CapturedExecutor(graph, GPU)
    for _ in range(3):
        (found,) = executor.run([torch.tensor([0, 3.14159], device=GPU), torch.eye(2, device=GPU)])
    assert found.tolist()[1] == pytest.approx(3.14159, abs=1e-6)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU only")
def test_the_second_gpu_leaves_the_first_alone() -> None:
    free, _ = torch.cuda.mem_get_info(0)
    graph = Graph(sizes={"n": 1 << 20})
    n = Axis.named("n")
    b = Builder(graph)
    graph.outputs = [b.exp(graph.input("x", (n,), F32))]
    executor = CapturedExecutor(graph, "cuda:1")
    for _ in range(3):
        executor.run([torch.ones(1 << 20, device="cuda:1")])
    executor.finish()
    assert abs(torch.cuda.mem_get_info(0)[0] - free) < 1 << 20
