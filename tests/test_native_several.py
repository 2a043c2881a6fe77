"""The native executor among several devices: in step with the reference one, and with parts that are empty."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytest.importorskip("shapescript._executor")
pytest.importorskip("shapescript._transport")

from test_transport import Devices  # noqa: E402
from worker_graphs import B, D, H, graph_of, laid_out  # noqa: E402

from shapescript.devices.native.executor import NativeExecutor  # noqa: E402
from shapescript.devices.random_key import RandomKey  # noqa: E402
from shapescript.devices.reference.executor import Executor  # noqa: E402
from shapescript.devices.transport import Sent  # noqa: E402
from shapescript.devices.workers.cutting import Lie  # noqa: E402
from shapescript.ir.builder import Builder  # noqa: E402
from shapescript.ir.graph import Graph, Node  # noqa: E402
from shapescript.layout.mesh import Mesh  # noqa: E402
from shapescript.types.element import F64  # noqa: E402


def network(greatest: bool = True) -> Graph:
    """Two layers with noise, a loss, both gradients, the greatest of the activations and a mean over the batch."""

    def make(b: Builder, x: Node, w: Node, v: Node) -> list[Node]:
        noise = b.emit("random_uniform", b.emit("random_key"), place=3, axes=(B, H), element=F64)
        y = b.emit("contract", x, w, axes=(B, H))
        kept = b.multiply(b.emit("tanh", y), b.emit("cast", b.emit("less", noise, b.constant(0.5, F64)), element=F64))
        out = b.emit("contract", kept, v, axes=(B,))
        loss = b.divide(b.sum(b.multiply(out, out), over=(B,)), b.size(B, F64))
        back = b.emit("broadcast", out, axes=(B, H))
        grad_v = b.emit("contract", kept, out, axes=(H,))
        grad_w = b.emit("contract", x, b.multiply(back, kept), axes=(D, H))
        norm = b.add(b.sum(b.multiply(grad_w, grad_w), over=(D, H)), b.sum(b.multiply(grad_v, grad_v), over=(H,)))
        scaled = b.divide(b.subtract(w, grad_w), b.emit("exp", b.multiply(norm, -0.01)))
        centred = b.subtract(kept, b.divide(b.sum(kept, over=(B,)), b.size(B, F64)))
        best = [b.emit("max", kept, over=B)] if greatest else []
        return [loss, scaled, b.subtract(v, grad_v), centred, *best]

    return graph_of([((B, D), "f64"), ((D, H), "f64"), ((H,), "f64")], make)


@pytest.mark.parametrize("rows", [7, 3, 2, 1])
@pytest.mark.parametrize("natives", [(0, 1, 2), (0,), (1, 2)])
def test_devices_agree_whatever_runs_them(natives: tuple[int, ...], rows: int) -> None:
    graph, mesh, key = network(), Mesh((3,)), RandomKey(5, 2)
    laid = laid_out(graph, ["rows", "param", "param"], mesh)
    counts = {"b": rows}
    random = torch.Generator().manual_seed(rows)
    shapes = [(rows, 5), (5, 6), (6,)]
    given = [torch.randn(shape, dtype=torch.float64, generator=random) for shape in shapes]
    sizes = {**laid.graph.sizes, **counts}
    lies = [
        Lie.of_axes(node.axes, sizes, layout, mesh)
        for node, layout in zip(laid.logical_inputs, laid.inputs, strict=True)
    ]
    ends = [
        Lie.of_axes(node.axes, sizes, layout, mesh)
        for node, layout in zip(laid.logical_outputs, laid.outputs, strict=True)
    ]
    devices = Devices(mesh)

    def work(device: int) -> list[torch.Tensor]:
        own = [lie.cut(tensor, device).contiguous() for lie, tensor in zip(lies, given, strict=True)]
        end = devices.ends[device]
        native = device in natives
        executor = (NativeExecutor if native else Executor)(laid.graph, transport=end)
        return [executor.run(own, laid.counts_for(device, counts), key) for _ in range(2)][1]

    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(work, device) for device in range(3)]
        made = [future.result(timeout=60) for future in futures]
    wanted = Executor(graph).run(given, counts, key)
    for number, (lie, whole) in enumerate(zip(ends, wanted, strict=True)):
        got = lie.join({device: made[device][number] for device in lie.devices()})
        torch.testing.assert_close(got, whole, rtol=1e-12, atol=1e-12)
    assert devices.ends[0].sent == devices.ends[2].sent != Sent()


def test_what_goes_over_no_places_is_the_reference_executors() -> None:
    """An empty part: sums are 0, products are 0, and the greatest of nothing is an error as ever."""
    graph = network(greatest=False)
    given = [torch.zeros(0, 5, dtype=torch.float64), torch.ones(5, 6, dtype=torch.float64), torch.ones(6).double()]
    for got, wanted in zip(
        NativeExecutor(graph).run(given, {"b": 0}), Executor(graph).run(given, {"b": 0}), strict=True
    ):
        torch.testing.assert_close(got, wanted, equal_nan=True)

    def greatest(b: Builder, x: Node) -> list[Node]:
        return [b.emit("max", x, over=B), x]

    nothing = graph_of([((B, D), "f64")], greatest)
    for executor in (Executor(nothing), NativeExecutor(nothing)):
        with pytest.raises(Exception, match="there is nothing to choose from"):
            executor.run(given[:1], {"b": 0})


def test_collectives_stay_in_the_programs_order() -> None:
    """One that is ready sooner still waits for those before it."""
    laid = laid_out(network(), ["rows", "param", "param"], Mesh((3,)))
    names = [node.number for node in laid.graph.nodes if node.name == "all_reduce"]
    found = [
        node.number
        for instruction in NativeExecutor(laid.graph).lowered.instructions
        for node in instruction.nodes
        if node.name == "all_reduce"
    ]
    assert len(names) > 3 and found == names
