"""For the tests of workers: small graphs, laid out over devices, and pools to run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from shapescript.devices.reference.executor import Executor
from shapescript.devices.several import SeveralRunner
from shapescript.devices.workers.pool import WorkerPool
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.layout.laid import LaidGraph, Resting
from shapescript.layout.lay_out import lay_out
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import policy_for
from shapescript.source import Source
from shapescript.types.axes import Axis
from shapescript.types.element import F32, F64
from shapescript.types.size import Size

HERE = Path(__file__).resolve().parent
B = Axis.named("b", batch=True)
D = Axis("D", Size.atom("D"))
H = Axis("H", Size.atom("H"))
SIZES = {"D": 5, "H": 6}
TEXT = "devices cpu[0 1]\n\nfn step(x: [b]) -> [b]:\n    return code(x)\n"
SPAN = Source("program.ss", TEXT).span(TEXT.index("code"), TEXT.index("code") + 7)


def device_names(count: int) -> list[str]:
    return [f"cpu[{number}]" for number in range(count)]


def pool_of(count: int, **options: object) -> WorkerPool:
    return WorkerPool(device_names(count), folder=str(HERE), **options)  # type: ignore[arg-type]


def laid_out(
    graph: Graph, tags: Sequence[str], mesh: Mesh, splits: Sequence[str] = (), shard: bool = False
) -> LaidGraph:
    policy = policy_for(graph, mesh, tuple(splits), shard)
    return lay_out(graph, mesh, policy, Resting(tuple(tags), {}, ()), checked=True)


def graph_of(inputs: Sequence[tuple[Sequence[Axis], str]], make: Callable[..., Sequence[Node]]) -> Graph:
    """A graph whose outputs `make` gives of a builder and the inputs, which have these axes and elements."""
    graph = Graph(sizes=dict(SIZES))
    elements = {"f32": F32, "f64": F64}
    nodes = [graph.input(f"input{n}", axes, elements[element]) for n, (axes, element) in enumerate(inputs)]
    graph.outputs = list(make(Builder(graph), *nodes))
    return graph


def linear() -> Graph:
    """A batch times a matrix: the rows, their sum over the batch, the squares' mean, and the matrix's gradient."""

    def make(b: Builder, x: Node, w: Node) -> list[Node]:
        y = b.emit("contract", x, w, axes=(B, H))
        loss = b.sum(b.multiply(y, y), over=(B, H))
        gradient = b.emit("contract", x, y, axes=(D, H))
        return [y, b.sum(y, over=(B,)), loss, b.subtract(w, b.multiply(gradient, 0.01))]

    return graph_of([((B, D), "f64"), ((D, H), "f64")], make)


def calls(function: str) -> Graph:
    """Python on each row, whose results are summed over the batch and divided among all again."""

    def make(b: Builder, x: Node) -> list[Node]:
        y = b.emit("extern", x, span=SPAN, target=f"worker_code.{function}", place=0, axes=(B,), element=F32)
        return [b.sum(y, over=(B,)), y]

    return graph_of([((B,), "f32")], make)


def runner_of(pool: WorkerPool, graph: Graph, tags: Sequence[str], **options: object) -> SeveralRunner:
    return SeveralRunner(laid_out(graph, tags, pool.mesh, **options), pool)  # type: ignore[arg-type]


def on_one(graph: Graph, inputs: Sequence[torch.Tensor], counts: dict[str, int]) -> list[torch.Tensor]:
    return Executor(graph).run(inputs, counts)
