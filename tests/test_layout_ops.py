"""Each op at every layout that the verifier's table allows, put together again, is the op on one device.

The cases are those of the registry's tests; each value lies every way it can, on 2, 3 and 5 devices, so that parts
are uneven and some empty. Then each case is laid out by the layouter, exact and padded, with garbage in the padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from on_virtual_devices import OnVirtualDevices, Ways
from test_registry import CASES, COUNTS, INDEX_N, KEY, LONGER, SIZES, B, Case, D, M, N, value_of

from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.executor import Executor
from shapescript.devices.virtual import VirtualDevices, VirtualTransport
from shapescript.devices.workers.cutting import Lie
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.ir.verify import verify as verify_graph
from shapescript.layout.emit import emit
from shapescript.layout.laid import Resting
from shapescript.layout.masks import Unpadded
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import Policy, atom_of
from shapescript.layout.steps import Step, Steps
from shapescript.layout.verify import legal
from shapescript.layout.words import SHARDED, WHOLE_WORD, Partial, Split, Word, leaves_of
from shapescript.ops.registry import REGISTRY
from shapescript.types.axes import Axis
from shapescript.types.element import BOOL, F64, I64, Element
from shapescript.types.size import Size

MN, BN, NB = Axis.merged((M, N)), Axis.merged((B, N)), Axis.merged((N, B))
K, INDEX_B = Axis("k", N.size), Element.index(B.size)
MORE: dict[str, Case] = {
    "gather with the looked-up axis in the index": Case((((N, D), F64), ((N,), INDEX_N)), {"over": N}),
    "gather rows that are split": Case((((B, D), F64), ((M,), INDEX_B)), {"over": B}),
    "gather in a merged axis": Case((((BN, D), F64), ((M,), Element("i64"))), {"over": BN}),
    "gather of a scalar index": Case((((B, N), F64), ((), INDEX_N)), {"over": N}),
    "gather, index first": Case((((N, B), F64), ((B,), INDEX_N)), {"over": N}),
    "scatter_add with its axis in the index": Case((((N, D), F64), ((N,), INDEX_N)), {"over": N, "axes": (N, D)}),
    "scatter_add into rows that are split": Case((((M, D), F64), ((M,), INDEX_B)), {"over": B, "axes": (B, D)}),
    "scatter_add of split rows": Case((((B, D), F64), ((B,), INDEX_N)), {"over": N, "axes": (D, N)}),
    "scatter_add into a merged axis": Case((((M, D), F64), ((M,), Element("i64"))), {"over": BN, "axes": (BN, D)}),
    "contract a merged axis": Case((((B, MN), F64), ((MN, D), F64)), {"axes": (B, D)}),
    "contract three leaves": Case((((B, N, M), F64), ((M, B), F64)), {"axes": (N,)}),
    "contract what one operand has alone": Case((((B, N), F64), ((B, M), F64)), {"axes": (B, M)}),
    "contract whole numbers": Case((((B, N), I64), ((N, M), I64)), {"axes": (B, M)}),
    "contract outer": Case((((B,), F64), ((N,), F64)), {"axes": (N, B)}),
    "rearrange out of a merged axis": Case((((B, MN), F64),), {"axes": (M, B, N)}),
    "rearrange into merged axes": Case((((B, M, N), F64),), {"axes": (NB, M)}),
    "rearrange merged axes": Case((((BN, D), F64),), {"axes": (N, Axis.merged((D, B)))}),
    "relabel to another name": Case((((N, B), F64),), {"axes": (K, B)}),
    "relabel to parts": Case((((Axis("Q", MN.size), B), F64),), {"axes": (MN, B)}),
    "broadcast twice": Case((((N,), F64),), {"axes": (N, N)}),
    "broadcast a scalar": Case((((), F64),), {"axes": (B, NB)}),
    "sum a merged axis": Case((((B, MN), F64),), {"over": (MN,)}),
    "sum bools": Case((((B, N), BOOL),), {"over": (B,)}),
    "sum all": Case((((B, N), F64),), {"over": (B, N)}),
    "sum all of a parameter": Case((((N, M), F64),), {"over": (N, M)}),
    "sum rows and columns of a merged axis": Case((((BN, D), F64),), {"over": (BN,)}),
    "max all": Case((((B, N), F64),), {"over": (B, N)}),
    "max rows": Case((((B, N), F64),), {"over": (B,)}),
    "min whole numbers": Case((((B, N), I64),), {"over": (B,)}),
    "prod rows": Case((((B, N), F64),), {"over": (B,)}),
    "any rows": Case((((B, N), BOOL),), {"over": (B,)}),
    "all rows": Case((((B, N), BOOL),), {"over": (B,)}),
    "argmax rows": Case((((B, N), F64),), {"over": B}),
    "argmin rows": Case((((B, N), F64),), {"over": B}),
    "softmax rows": Case((((B, N), F64),), {"over": B}),
    "logsumexp rows": Case((((B, N), F64),), {"over": (B,)}),
    "cumsum rows": Case((((B, N), F64),), {"over": B}),
    "sort rows": Case((((B, N), F64),), {"over": B}),
    "iota of rows": Case((), {"over": B, "element": Element.index(B.size)}),
    "iota of a merged axis": Case((), {"over": BN, "element": I64}),
    "iota of a merged axis, split within": Case((), {"over": NB, "element": I64}),
    "pad with zeros": Case((((B, N), F64),), {"over": N, "before": Size.of(1), "after": Size.of(2), "value": 0.0,
                                              "result": LONGER}),
    "cast to less": Case((((B, N), F64),), {"element": Element("f32")}),
    "cast to more": Case((((B, N), Element("f32")),), {"element": F64}),
    "cast bools": Case((((B, N), BOOL),), {"element": F64}),
    "cast whole numbers": Case((((B, N), I64),), {"element": F64}),
    "refine an index": Case((((B, N), I64),), {"element": INDEX_N}),
    "divide whole numbers": Case((((B, N), I64), ((), Element("i64"))), {}),
    "divide by a scalar": Case((((B, N), F64), ((), F64)), {}),
    "multiply a scalar by an array": Case((((), F64), ((N, M), F64)), {}),
    "add scalars": Case((((), F64), ((), F64)), {}),
    "where between parameters": Case((((N, M), BOOL), ((N, M), F64), ((), F64)), {}),
    "where by a scalar": Case((((), BOOL), ((N, M), F64), ((N, M), F64)), {}),
    "random_uniform of a merged axis": Case(KEY, {"axes": (BN, D), "place": 7, "element": F64}),
    "random_normal, rows within": Case(KEY, {"axes": (D, NB, M), "place": 7, "element": F64}),
    "random_integers without rows": Case(KEY, {"axes": (N, D), "place": 7, "bound": Size.of(9)}),
    "whole merged": Case((((BN, D), F64),), {}),
}  # fmt: skip
EVERY = {name: case for name, case in CASES.items() if REGISTRY[name].primitive} | MORE
ALL = {**SIZES, **COUNTS}


def made(name: str) -> tuple[Graph, list[torch.Tensor], Node]:
    case, random = EVERY[name], torch.Generator().manual_seed(4)
    graph = Graph(sizes=dict(SIZES))
    inputs = [graph.input(f"x{i}", axes, element) for i, (axes, element) in enumerate(case.operands)]
    tensors = [value_of(axes, element, random) for axes, element in case.operands]
    if case.operands == KEY:
        tensors = [torch.tensor(5)]
    for place, (_, element) in enumerate(case.operands):
        if element.bound is not None:
            tensors[place] = tensors[place] % element.bound.evaluate(ALL)
        if name == "divide whole numbers":
            tensors[place] = tensors[place] + 1
    node = Builder(graph).emit(name.split()[0].rstrip(","), *inputs, **case.attributes)
    graph.outputs = [node]
    return graph, tensors, node


def words_of(node: Node) -> Iterator[Word]:
    yield WHOLE_WORD
    for dim, axis in enumerate(node.axes):
        for number, leaf in enumerate(leaves_of(axis)):
            atom = atom_of(leaf)
            if atom is not None:
                yield Split(atom, dim, number)
    if not node.element.is_bool:
        yield from (Partial("sum"), Partial("max"), Partial("min"))
    if node.axes and not any(axis.batch for axis in node.axes):
        yield SHARDED


def laid_parts(whole: torch.Tensor, lie: Lie, random: torch.Generator) -> list[torch.Tensor]:
    """What each device has of a value; a partial one in parts of which none is the value itself."""
    n, (word,) = lie.mesh.count, lie.layout
    if not isinstance(word, Partial) or n == 1:
        return [lie.cut(whole, device).contiguous() for device in range(n)]
    parts = [torch.randint(-3, 4, whole.shape, generator=random).to(whole.dtype) for _ in range(n)]
    if word.kind == "sum":
        parts[0] = whole - sum(parts[1:])
        return parts
    sign = -1 if word.kind == "max" else 1
    parts = [whole + sign * part.abs() for part in parts]
    parts[n - 1] = whole.clone()
    return parts


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_every_legal_layout(name: str, n: int) -> None:
    graph, tensors, node = made(name)
    random, mesh, key = torch.Generator().manual_seed(n), Mesh((n,)), RandomKey(3, 5)
    wanted = Executor(graph).run(tensors, COUNTS, key)[0]
    tried = 0
    for *words, result in itertools.product(*map(words_of, graph.inputs), words_of(node)):
        if not legal(node, words, result):
            continue
        tried += 1
        laid = Steps(graph, mesh, Policy(((),)), Resting(()), False, batches=("b",))
        laid.steps = [Step(x, (), (word,)) for x, word in zip(graph.inputs, words, strict=True)]
        laid.steps.append(Step(node, tuple(range(len(words))), (result,)))
        laid.outputs = [len(words)]
        local = emit(laid)
        verify_graph(local.graph)
        parts = [
            laid_parts(x, Lie.of_axes(input_node.axes, ALL, (word,), mesh), random)
            for x, input_node, word in zip(tensors, graph.inputs, words, strict=True)
        ]

        def work(device: int, transport: VirtualTransport) -> torch.Tensor:
            given = [part[device] for part in parts]  # noqa: B023 (called at once)
            counts = local.counts_for(device, COUNTS)  # noqa: B023
            return Executor(local.graph, transport=transport).run(given, counts, key)[0]  # noqa: B023

        end = Lie.of_axes(node.axes, ALL, (result,), mesh)
        found = VirtualDevices(mesh).run(work)
        whole = end.join({device: found[device] for device in end.devices()})
        assert torch.allclose(whole.double(), wanted.double(), rtol=1e-11, atol=1e-11), (words, result)
    assert tried, "not even whole values are allowed"


MESHES = {(3,): [["b"], ["n"], ["n", "b"], ["m", "D", "b"]], (2, 2): [["b", "n"]], (5,): [["b"]]}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("padded", [False, True])
def test_what_the_layouter_makes_of_it(name: str, padded: bool) -> None:
    for sizes, policies in MESHES.items():
        for atoms in policies:
            graph, tensors, node = made(name)
            wanted = Executor(graph).run(tensors, COUNTS, RandomKey(3, 5))[0]
            splits = tuple(atom for atom in atoms if atom != "b")
            tags = tuple("rows" if any(axis.batch for axis in x.axes) else "whole" for x in graph.inputs)
            ways = Ways(Mesh(sizes), splits, padded=padded, room=2)
            try:
                devices = OnVirtualDevices(graph, Resting(tags), ways)
            except Unpadded:
                assert padded and name in ("extern", "extern_gradient")
                continue
            found = devices.run(tensors, COUNTS, RandomKey(3, 5))[0]
            assert torch.allclose(found.double(), wanted.double(), rtol=1e-11, atol=1e-11, equal_nan=True), atoms
