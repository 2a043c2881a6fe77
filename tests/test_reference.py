"""The reference executor against torch itself, and its errors."""

from __future__ import annotations

import math

import pytest
import torch

from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.executor import Executor
from shapescript.devices.reference.lowering import LOWERINGS, ValueProblem
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.ir.verify import verify
from shapescript.ops.registry import REGISTRY
from shapescript.source import Source
from shapescript.types.axes import Axis
from shapescript.types.element import BOOL, F32, F64, I64, Element
from shapescript.types.size import Size

B = Axis.named("b", batch=True)
N, M, D, H = (Axis.named(name) for name in "nmDH")
SIZES = {"n": 4, "m": 3, "D": 6, "H": 2}


class Bench:
    """A graph under construction, with random inputs."""

    def __init__(self) -> None:
        self.graph = Graph(sizes=dict(SIZES))
        self.b = Builder(self.graph)
        self.tensors: list[torch.Tensor] = []
        self.random = torch.Generator().manual_seed(3)

    def input(self, *axes: Axis, element: Element = F64, value: torch.Tensor | None = None) -> Node:
        if value is None:
            shape = [axis.size.evaluate({**SIZES, "b": 5}) for axis in axes]
            value = torch.randn(shape, generator=self.random, dtype=torch.float64)
        self.tensors.append(value)
        return self.graph.input(f"x{len(self.tensors)}", axes, element)

    def run(
        self, *outputs: Node, counts: dict[str, int] | None = None, key: RandomKey | None = None
    ) -> list[torch.Tensor]:
        self.graph.outputs = list(outputs)
        verify(self.graph)
        return Executor(self.graph).run(self.tensors, counts or {"b": 5}, key)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_primitive_has_a_lowering() -> None:
    primitives = {name for name, op in REGISTRY.items() if op.primitive} - {"gradient"}
    assert primitives == set(LOWERINGS)


def test_operands_line_up_by_axis(bench: Bench) -> None:
    x, y = bench.input(B, N, D), bench.input(N)
    got = bench.run(bench.b.add(x, y))[0]
    assert torch.equal(got, bench.tensors[0] + bench.tensors[1][None, :, None])


def test_where_lines_up_three(bench: Bench) -> None:
    mask = bench.input(N, element=BOOL, value=torch.tensor([True, False, True, False]))
    x = bench.input(N, D)
    got = bench.run(bench.b.where(mask, x, -1.0))[0]
    assert torch.equal(got, torch.where(bench.tensors[0][:, None], bench.tensors[1], -1.0))


def test_a_weight_with_one_axis_twice_goes_by_place(bench: Bench) -> None:
    w, v = bench.input(D, D), bench.input(D, D)
    got = bench.run(bench.b.multiply(w, v), bench.b.sum(bench.b.multiply(w, v), over=(D, D)))
    assert torch.equal(got[0], bench.tensors[0] * bench.tensors[1])
    assert torch.allclose(got[1], (bench.tensors[0] * bench.tensors[1]).sum())


def test_contract_is_einsum(bench: Bench) -> None:
    q, k = bench.input(B, H, N, D), bench.input(B, H, M, D)
    got = bench.run(bench.b.contract(q, k, (B, H, N, M)), bench.b.contract(q, k, (N, M, B)))
    assert torch.allclose(got[0], torch.einsum("bhnd,bhmd->bhnm", *bench.tensors))
    assert torch.allclose(got[1], torch.einsum("bhnd,bhmd->nmb", *bench.tensors))


def test_contract_of_a_matrix(bench: Bench) -> None:
    x, w = bench.input(B, N, D), bench.input(D, H)
    got = bench.run(bench.b.contract(x, w, (B, N, H)))[0]
    assert torch.allclose(got, bench.tensors[0] @ bench.tensors[1])


def test_rearrange_splits_and_merges(bench: Bench) -> None:
    merged = Axis.merged((H, M))
    x = bench.input(B, merged)
    back = bench.b.rearrange(x, (H, B, M))
    again = bench.b.rearrange(back, (B, merged))
    got = bench.run(back, again)
    assert torch.equal(got[0], bench.tensors[0].reshape(5, 2, 3).permute(1, 0, 2))
    assert torch.equal(got[1], bench.tensors[0])


def test_slice_pad_concat_flip_roll(bench: Bench) -> None:
    x = bench.input(N, D)
    t = bench.tensors[0]
    b = bench.b
    shorter = Axis.of(Size.atom("n") - 1)
    longer = Axis.of(Size.atom("n") + 3)
    cut = b.slice(x, N, Size.of(1), Size.atom("n"), shorter)
    padded = b.pad(x, N, Size.of(1), Size.of(2), 7.0, longer)
    joined = b.concat([x, cut], Axis.of(Size.atom("n") * 2 - 1), 0)
    got = bench.run(cut, padded, joined, b.flip(x, D), b.roll(x, N, Size.of(-1)))
    assert torch.equal(got[0], t[1:])
    assert torch.equal(got[1], torch.nn.functional.pad(t, (0, 0, 1, 2), value=7.0))
    assert torch.equal(got[2], torch.cat([t, t[1:]]))
    assert torch.equal(got[3], t.flip(1))
    assert torch.equal(got[4], t.roll(-1, 0))


def test_gather_beside_shared_axes(bench: Bench) -> None:
    x = bench.input(B, N, D)
    shared = bench.input(B, element=Element.index(N.size), value=torch.tensor([0, 3, 1, 2, 0]))
    apart = bench.input(M, H, element=Element.index(N.size), value=torch.tensor([[0, 1], [2, 3], [3, 0]]))
    mixed = bench.input(B, M, element=Element.index(N.size), value=torch.arange(15).reshape(5, 3) % 4)
    own = bench.input(B, N, M, element=Element.index(N.size), value=torch.arange(60).reshape(5, 4, 3) % 4)
    b, t = bench.b, bench.tensors
    got = bench.run(*(b.gather(x, index, N) for index in (shared, apart, mixed, own)))
    rows = torch.arange(5)
    assert torch.equal(got[0], t[0][rows, t[1]])
    assert torch.equal(got[1], t[0][:, t[2]])
    assert torch.equal(got[2], t[0][rows[:, None], t[3]])
    assert torch.equal(got[3], t[0][rows[:, None, None], t[4]])


def test_scatter_add_is_the_converse(bench: Bench) -> None:
    x = bench.input(B, M, D)
    index = bench.input(B, M, element=Element.index(N.size), value=torch.arange(15).reshape(5, 3) % 4)
    got = bench.run(bench.b.scatter_add(x, index, N, (B, N, D)), bench.b.scatter_add(x, index, N, (N, D)))
    kept, summed = torch.zeros(5, 4, 6, dtype=torch.float64), torch.zeros(4, 6, dtype=torch.float64)
    for i in range(5):
        for j in range(3):
            kept[i, bench.tensors[1][i, j]] += bench.tensors[0][i, j]
            summed[bench.tensors[1][i, j]] += bench.tensors[0][i, j]
    assert torch.allclose(got[0], kept)
    assert torch.allclose(got[1], summed)


def test_softmax_over_nothing_but_minus_infinity_is_zero(bench: Bench) -> None:
    value = torch.randn(4, 6, dtype=torch.float64)
    value[1] = -math.inf
    x = bench.input(N, D, value=value)
    got = bench.run(bench.b.softmax(x, D), bench.b.logsumexp(x, D))
    assert torch.equal(got[0][1], torch.zeros(6, dtype=torch.float64))
    assert torch.allclose(got[0][0], torch.softmax(value[0], 0))
    assert got[1][1] == -math.inf


def test_half_sums_are_kept_in_f32(bench: Bench) -> None:
    x = bench.input(D, N, element=Element("bf16"), value=torch.full((6, 4), 1.0, dtype=torch.bfloat16))
    y = bench.input(N, element=Element("i8"), value=torch.full((4,), 100, dtype=torch.int8))
    got = bench.run(bench.b.sum(x, over=(D, N)), bench.b.sum(y, over=N))
    assert got[0].dtype == torch.bfloat16 and float(got[0]) == 24.0
    assert int(got[1]) == (400 if got[1].dtype == torch.int64 else -112)


def test_whole_division_goes_downwards(bench: Bench) -> None:
    x = bench.input(N, element=I64, value=torch.tensor([7, -7, 6, -1]))
    got = bench.run(bench.b.floor_divide(x, 2), bench.b.remainder(x, 3))
    assert got[0].tolist() == [3, -4, 3, -1]
    assert got[1].tolist() == [1, 2, 0, 2]


def test_ties_take_the_first(bench: Bench) -> None:
    x = bench.input(D, value=torch.tensor([1.0, 5.0, 5.0, 0.0, 5.0, 0.0], dtype=torch.float64))
    k = Axis.of(3)
    got = bench.run(
        bench.b.argmax(x, D),
        bench.b.argmin(x, D),
        bench.b.topk_indices(x, D, Size.of(3), k),
        bench.b.topk_values(x, D, Size.of(3), k),
    )
    assert int(got[0]) == 1 and int(got[1]) == 3
    assert got[2].tolist() == [1, 2, 4] and got[3].tolist() == [5.0, 5.0, 5.0]


def test_one_executor_serves_every_count() -> None:
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    x = graph.input("x", (B, D), F32)
    mean = b.divide(b.sum(x, over=(B, D)), b.multiply(b.size(B), b.size(D)))
    graph.outputs = [mean, b.broadcast(b.constant(2.0), (B,))]
    executor = Executor(graph)
    for count in (5, 2, 5):
        value = torch.randn(count, 6)
        got = executor.run([value], {"b": count})
        assert torch.allclose(got[0], value.mean())
        assert got[1].tolist() == [2.0] * count


def test_draws_depend_on_seed_call_and_place_alone() -> None:
    def draw(key: RandomKey, count: int = 5, place: int = 0) -> list[torch.Tensor]:
        graph = Graph(sizes=dict(SIZES))
        b = Builder(graph)
        graph.outputs = [
            b.random_uniform((B, D), place),
            b.random_normal((D, B), place, F64),
            b.random_integers((B, D), place, Size.of(9)),
        ]
        return Executor(verify(graph)).run([], {"b": count}, key)

    first = draw(RandomKey(1, 2))
    for again, same in zip(draw(RandomKey(1, 2)), first, strict=True):
        assert torch.equal(again, same)
    assert torch.equal(draw(RandomKey(1, 2), count=3)[0], first[0][:3])
    assert torch.equal(draw(RandomKey(1, 2), count=3)[1], first[1][:, :3])
    assert torch.equal(draw(RandomKey(1, 2, first_row=2), count=3)[0], first[0][2:])
    for other in (RandomKey(2, 2), RandomKey(1, 3)):
        assert not torch.equal(draw(other)[0], first[0])
    assert not torch.equal(draw(RandomKey(1, 2), place=1)[0], first[0])
    assert first[2].min() >= 0 and first[2].max() < 9


def test_draws_are_distributed_as_they_say() -> None:
    graph = Graph(sizes={"n": 40_000})
    b = Builder(graph)
    graph.outputs = [b.random_uniform((N,), 0), b.random_normal((N,), 1), b.random_integers((N,), 2, Size.of(4))]
    uniform, normal, whole = Executor(graph).run([], {}, RandomKey(7))
    assert abs(float(uniform.mean()) - 0.5) < 0.01 and abs(float(uniform.var()) - 1 / 12) < 0.005
    assert abs(float(normal.mean())) < 0.02 and abs(float(normal.var()) - 1) < 0.03
    assert all(abs(int((whole == i).sum()) - 10_000) < 400 for i in range(4))


def test_an_index_out_of_range_names_value_and_size(bench: Bench) -> None:
    x = bench.input(N, D)
    index = bench.input(B, element=I64, value=torch.tensor([0, 1, 9, 2, 3]))
    with bench.b.at(Source("look.ss", "x[n=i]").span(0, 6)):
        y = bench.b.gather(x, bench.b.refine(index, Element.index(N.size)), N)
    with pytest.raises(ProgramError) as caught:
        bench.run(y)
    assert caught.value.diagnostic.code == "E2101"
    assert "9" in str(caught.value) and "4" in str(caught.value)
    assert caught.value.diagnostic.primary.span.text == "x[n=i]"


def test_the_greatest_of_nothing_names_the_axis(bench: Bench) -> None:
    x = bench.input(B, D)
    y = bench.b.max(x, over=B)
    bench.tensors[0] = torch.zeros(0, 6, dtype=torch.float64)
    with pytest.raises(ValueProblem, match="`b`"):
        bench.run(y, counts={"b": 0})


def test_division_of_whole_numbers_by_zero_is_an_error(bench: Bench) -> None:
    x = bench.input(N, element=I64, value=torch.tensor([1, 2, 3, 4]))
    with pytest.raises(ValueProblem, match="divided by 0"):
        bench.run(bench.b.floor_divide(x, bench.b.subtract(x, x)))


def test_outputs_share_no_memory(bench: Bench) -> None:
    x = bench.input(N, D)
    b = bench.b
    part = b.slice(x, N, Size.of(0), Size.of(2), Axis.of(2))
    zero = b.constant(0.0)
    got = bench.run(x, part, zero, zero, b.broadcast(zero, (N,)))
    before = [tensor.clone() for tensor in got]
    for number, tensor in enumerate(got):
        tensor.add_(1.0)
        assert all(torch.equal(got[other], before[other]) for other in range(number + 1, len(got)))
    assert torch.equal(bench.tensors[0], before[0])
    assert torch.equal(Executor(bench.graph).run(bench.tensors)[2], torch.zeros(()))


def test_what_follows_from_counts_is_made_once_for_each() -> None:
    graph = Graph(sizes=dict(SIZES))
    b = Builder(graph)
    x = graph.input("x", (B,), F64)
    mask = b.less(b.iota(B), 2)
    graph.outputs = [b.where(mask, x, 0.0), b.iota(B)]
    executor = Executor(graph)
    for count in (3, 5, 3, 1, 2, 4, 6, 3):
        value = torch.arange(1.0, count + 1, dtype=torch.float64)
        kept, places = executor.run([value], {"b": count})
        assert torch.equal(kept, torch.where(torch.arange(count) < 2, value, 0.0))
        assert torch.equal(places, torch.arange(count))
        places.zero_()


def test_an_axis_without_a_name_is_not_the_other_of_its_size(bench: Bench) -> None:
    plain, other = Axis.of(N.size + 1), Axis("k", N.size + 1)
    q, k = bench.input(B, plain, D), bench.input(B, other, D)
    scores = bench.b.contract(q, k, (B, plain, other))
    mixed = bench.b.contract(scores, k, (B, plain, D))
    got = bench.run(scores, mixed)
    wanted = torch.einsum("bqd,bkd->bqk", *bench.tensors)
    assert torch.allclose(got[0], wanted)
    assert torch.allclose(got[1], torch.einsum("bqk,bkd->bqd", wanted, bench.tensors[1]))


def test_a_merged_axis_meets_the_dim_of_its_size(bench: Bench) -> None:
    x, w = bench.input(B, Axis.merged((H, M))), bench.input(Axis.of(Size.atom("H") * Size.atom("m")), D)
    got = bench.run(bench.b.contract(x, w, (B, D)))[0]
    assert torch.allclose(got, bench.tensors[0] @ bench.tensors[1])
