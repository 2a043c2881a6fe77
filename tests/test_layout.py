"""Meshes and parts, the choice of layouts on programs, what is sent and shown, the verifier, and the cost of it all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from count_calls import calls_of
from hypothesis import given
from hypothesis import strategies as some
from layout_programs import TEXTS, Text, digits
from on_virtual_devices import OnVirtualDevices, VirtualPlace, Ways
from programs import Program

from shapescript.devices.reference.executor import Executor
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.layout.laid import LaidGraph, Resting
from shapescript.layout.lay_out import lay_out, lay_steps
from shapescript.layout.mesh import Mesh, first_of, parts
from shapescript.layout.policy import policy_for
from shapescript.layout.report import report, show_report
from shapescript.layout.steps import Steps, kind_of
from shapescript.layout.verify import WrongLayout, faults, legal, verify
from shapescript.layout.words import SHARDED, SUMMED, WHOLE_WORD, Layout, Partial, Split, Word, leaves_of, local_axes
from shapescript.passes.simplify import simplify
from shapescript.types.axes import Axis
from shapescript.types.element import F32, F64
from shapescript.types.size import Size

# --- meshes and parts ------------------------------------------------------------------------------------------------


def test_the_chapters_parts() -> None:
    assert parts(64, 3) == [22, 21, 21]
    assert parts(2, 3) == [1, 1, 0]


@given(some.integers(0, 10_000), some.integers(1, 64))
def test_parts_make_the_whole_in_order(count: int, n: int) -> None:
    widths = parts(count, n)
    assert sum(widths) == count and len(widths) == n
    assert widths == sorted(widths, reverse=True) and widths[0] - widths[-1] <= 1
    assert [first_of(count, n, place) for place in range(n)] == [sum(widths[:place]) for place in range(n)]


@given(some.lists(some.integers(1, 5), min_size=1, max_size=3))
def test_coordinates_go_both_ways(sizes: list[int]) -> None:
    mesh = Mesh(tuple(sizes))
    places = [mesh.coordinates(device) for device in range(mesh.count)]
    assert len(set(places)) == mesh.count
    assert [mesh.device(place) for place in places] == list(range(mesh.count))


B, H, T = Axis.named("b", batch=True), Axis.named("H"), Axis.named("T")


def test_local_axes() -> None:
    merged = Axis.merged((Axis.of(3), H, T))
    local = local_axes((B, merged), (Split("b", 0), Split("H", 1, 1)))
    assert [str(axis.size) for axis in local] == ["b.here", "3*H.here*T"]
    assert [leaf.name for leaf in leaves_of(local[1])] == [None, "H", "T"]
    (flat,) = local_axes((H, T), (SHARDED, Split("H", 0)))
    assert str(flat.size) == "flat0(H.here*T).here"


# --- the chapter's program --------------------------------------------------------------------------------------------

CHAPTER = Text(
    "the chapter's",
    """
dim D  = 784
dim Hd = 256
dim C  = 10

model Net:
    param w1: [D Hd] = normal(std=0.02)
    param w2: [Hd C] = normal(std=0.02)

data Digit:
    pixels: [D]
    digit:  [] Index[C]

fn loss(m: Net, batch: [b] Digit) -> [] NonNeg:
    return cross_entropy(batch.pixels @ m.w1 |> gelu |> matmul(m.w2), batch.digit, over=C)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Digit) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l
""",
    digits,
)


def run_once(text: Text, ways: Ways, rows: int, width: int | None = None) -> OnVirtualDevices:
    program = Program(text.program)
    place = VirtualPlace(ways)
    program.domain.specialiser.make_runner = place.runner
    m = program.call("make")
    random = torch.Generator().manual_seed(1)
    batch = text.batch(rows, random)
    if width is not None:
        batch["pixels"] = torch.randn(rows, width, generator=random)
    program.call("step", m, program.call("optimizer", m), batch)
    return place.made[0]


def test_the_chapters_figures_are_those_that_the_transport_counts() -> None:
    devices = run_once(CHAPTER, Ways(Mesh((3,))), 64, 784)
    found = report(devices.laid, {"b": 64})
    assert found.total.values == {"f32": 203_264} and found.total.bytes == 813_056 and found.total.launches == 1
    for sent in devices.sent:
        assert (sent.launches, sent.values, sent.bytes) == (1, 203_264, 813_056)
    shown = show_report(found, "step", "train.ss:20")
    assert (
        shown
        == """\
step  train.ss:20         mesh d=3, b split 22/21/21
 16 result  []  partial sum, added when looked at      0 B
 19 g.m.w1  [D Hd]  partial sum -> whole  all-reduce     200,704 f32      802,816 B ┐
 19 g.m.w2  [Hd C]  partial sum -> whole  all-reduce       2,560 f32       10,240 B ┘ 1 launch
    value_and_grad: 203,264 f32 values, 813,056 bytes per step (wire 1,084,075 B per device)
"""
    )


def test_a_sharded_model_takes_a_third_of_the_memory() -> None:
    whole = report(run_once(CHAPTER, Ways(Mesh((3,))), 64, 784).laid, {"b": 64})
    shared = report(run_once(CHAPTER, Ways(Mesh((3,)), shard=True), 64, 784).laid, {"b": 64})
    for device in range(3):
        for tag in ("param", "state"):
            share = shared.memory[device].resting[tag] / whole.memory[device].resting[tag]
            assert share == pytest.approx(1 / 3, rel=0.05)
        assert shared.memory[device].peak < whole.memory[device].peak


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.name)
@pytest.mark.parametrize("ways", [Ways(Mesh((3,))), Ways(Mesh((3,)), shard=True)], ids=["data", "shard"])
def test_what_is_shown_is_what_is_sent(text: Text, ways: Ways) -> None:
    devices = run_once(text, ways, 7)
    found = report(devices.laid, {"b": 7})
    sent = devices.sent[0]
    assert (sum(found.total.values.values()), found.total.bytes) == (sent.values, sent.bytes)
    assert found.total.launches == sent.launches
    assert show_report(found, "step", "x.ss:1")


def test_data_parallelism_sends_each_gradient_once() -> None:
    for text in TEXTS:
        if text.name in ("contrastive", "batch_norm", "extremes over the batch"):
            continue  # these send along the batch what the program asks for
        laid = run_once(text, Ways(Mesh((3,))), 7).laid
        labels = [each.label for each in laid.communications if each.values != Size.of(1)]
        assert len(labels) == len(set(labels)) and all(label.startswith("g.") for label in labels), (text.name, labels)


# --- the verifier -----------------------------------------------------------------------------------------------------


def logical(text: Text) -> tuple[Graph, Resting]:
    """The graph of a program's step and how it rests."""
    devices = run_once(text, Ways(Mesh((1,))), 3)
    return devices.logical, devices.laid.resting


def mutants(laid: Steps) -> list[str]:
    """Each conversion left out, each word changed, each mask left out: those that the verifier lets pass."""
    missed = []
    users: dict[int, list[int]] = {}
    for number, step in enumerate(laid.steps):
        for operand in step.operands:
            users.setdefault(operand, []).append(number)

    def tried(what: str, touched: list[int]) -> None:
        if not faults(laid, touched):
            missed.append(what)

    for number, step in enumerate(laid.steps):
        if step.conversion is not None or step.value.name == "mask":
            for user in users.get(number, ()):
                before = laid.steps[user].operands
                laid.steps[user].operands = tuple(step.operands[0] if at == number else at for at in before)
                tried(f"{laid.steps[user].value!r} without {step.conversion or 'its mask'}", [user])
                laid.steps[user].operands = before
        if number not in users and number not in laid.outputs:
            continue
        for mesh_axis, word in enumerate(step.layout):
            for other in other_words(step.value, word):
                layout = step.layout
                step.layout = (*layout[:mesh_axis], other, *layout[mesh_axis + 1 :])
                tried(f"{step.value!r} {word} said to be {other}", [number, *users.get(number, ())])
                step.layout = layout
    return missed


def other_words(node: Node, word: Word) -> list[Word]:
    words: list[Word] = [WHOLE_WORD, SUMMED, Partial("max"), SHARDED, Split("b", 0), Split("H", 0)]
    return [other for other in words if other != word]


@pytest.mark.parametrize("text", TEXTS[:6], ids=lambda text: text.name)
@pytest.mark.parametrize("ways", [Ways(Mesh((3,)), padded=True), Ways(Mesh((3,)), shard=True)], ids=["padded", "shard"])
def test_every_mutation_is_caught(text: Text, ways: Ways) -> None:
    graph, resting = logical(text)
    laid = lay_steps(graph, ways.mesh, policy_for(graph, ways.mesh, ways.splits, ways.shard), resting, ways.padded)
    verify(laid)
    assert mutants(laid) == []


def test_a_wrong_order_is_caught() -> None:
    graph, resting = logical(TEXTS[0])
    laid = lay_steps(graph, Mesh((3,)), policy_for(graph, Mesh((3,))), resting)
    last = laid.steps[-1]
    laid.steps[-1] = replace(last, operands=tuple(len(laid.steps) - 1 for _ in last.operands))
    with pytest.raises(WrongLayout, match="stand before"):
        verify(laid)


# --- the cost ---------------------------------------------------------------------------------------------------------


def chain(length: int) -> Graph:
    d = Axis.named("D")
    e = Axis("E", d.size)
    graph = Graph(sizes={"D": 8})
    b = Builder(graph)
    x, w = graph.input("x", (B, d), F32), graph.input("w", (d, e), F32)
    for number in range(length):
        y = b.gelu(b.contract(x, w, (B, e)))
        x = b.add(x, b.relabel(y, (B, d)))
        if number % 7 == 0:
            x = b.multiply(x, b.broadcast(b.sum(x, over=B), x.axes))
    graph.outputs = [b.sum(x, over=(B, d))]
    return simplify(graph)


def work_of_laying_out(length: int) -> tuple[int, int]:
    """How many calls laying out a chain of `length` links takes, and how many nodes come of it."""
    graph = chain(length)
    mesh = Mesh((3,))
    laid: list[LaidGraph] = []
    calls = calls_of(lambda: laid.append(lay_out(graph, mesh, policy_for(graph, mesh), Resting(("rows", "param")))))
    return calls, len(laid[0].graph.nodes)


def test_the_work_of_laying_out_grows_as_the_graph() -> None:
    half, few = work_of_laying_out(500)
    whole, many = work_of_laying_out(1000)
    assert many > 4000 and many > 1.9 * few
    assert whole < 2.2 * half, "the cost grows faster than the graph"


# --- rules that would be wrong ----------------------------------------------------------------------------------------


def test_what_is_not_linear_is_never_partial() -> None:
    graph = Graph(sizes={"D": 4})
    b = Builder(graph)
    d = Axis.named("D")
    x, y = graph.input("x", (d,), F32), graph.input("y", (d,), F32)
    refused: list[tuple[Node, list[Word]]] = [
        (b.exp(x), [SUMMED]),
        (b.multiply(x, y), [SUMMED, SUMMED]),
        (b.divide(x, y), [WHOLE_WORD, SUMMED]),
        (b.add(x, y), [SUMMED, WHOLE_WORD]),
        (b.greater(x, y), [SUMMED, SUMMED]),
        (b.pad(x, d, Size.of(1), Size.of(0), 0.5, Axis.of(d.size + 1)), [SUMMED]),
        (b.maximum(x, y), [SUMMED, SUMMED]),
    ]
    for node, words in refused:
        assert not legal(node, words, SUMMED), node
    assert legal(b.add(x, y), [SUMMED, SUMMED], SUMMED)
    assert legal(b.multiply(x, y), [WHOLE_WORD, SUMMED], SUMMED)
    assert kind_of(Partial("max"), SUMMED) is None


def test_layouts_are_shown_in_words() -> None:
    layout: Layout = (Split("b", 0), WHOLE_WORD, SUMMED, SHARDED)
    assert [str(word) for word in layout] == ["b split", "whole", "partial sum", "sharded"]


# --- along a split dim, and in shards ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "argmax", "argmin", "layer_norm", "rms_norm"])
def test_what_is_taken_apart_gives_the_same_on_strange_rows(name: str) -> None:
    d, rows = Axis.named("D"), Axis.named("b", batch=True)
    graph = Graph(sizes={"D": 4})
    b = Builder(graph)
    x = graph.input("x", (rows, d), F64)
    over = (d,) if name in ("logsumexp", "layer_norm", "rms_norm") else d
    attributes = {"eps": 1e-5} if name.endswith("norm") else {}
    graph.outputs = [b.emit(name, x, over=over, **attributes)]
    low, high = -float("inf"), float("inf")
    value = torch.tensor(
        [[low] * 4, [1.0, low, 2.0, 2.0], [1e308, -1e308, 0.0, 1.0], [3.0] * 4, [high, 1.0, 2.0, low]],
        dtype=torch.float64,
    )
    if name.startswith("arg"):
        value = torch.cat([value, torch.tensor([[1.0, float("nan"), high, float("nan")]], dtype=torch.float64)])
    if name.endswith("norm"):
        value = value[3:4]
    wanted = Executor(graph).run([value], {"b": len(value)})[0]
    devices = OnVirtualDevices(graph, Resting(("rows",)), Ways(Mesh((3,)), ("D",)))
    found = devices.run([value], {"b": len(value)})[0]
    assert torch.equal(found, wanted) or torch.allclose(found, wanted, rtol=1e-12, atol=0, equal_nan=True)


BLOCKS = Text(
    "twelve blocks",
    """
dim D = 32
dim L = 12

model Block:
    param w: [D D] f64 = normal(std=0.2)

model Net:
    blocks: [L] Block

data Sample:
    x: [D] f64

fn loss(m: Net, batch: [b] Sample) -> [] f64:
    x = batch.x
    for block in m.blocks:
        x = tanh(x @ block.w)
    return mean(square(x), over=[b D])

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Sample) -> [] f64:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l
""",
    lambda n, random: {"x": torch.randn(n, 32, generator=random, dtype=torch.float64)},
)


def test_a_sharded_model_of_equal_blocks_is_gathered_block_by_block() -> None:
    laid = run_once(BLOCKS, Ways(Mesh((3,)), shard=True), 6).laid
    kinds = [each.kind for each in laid.communications]
    assert 12 < kinds.count("all_gather") <= 24, "gathered for forward, and again for backward"
    assert kinds.count("reduce_scatter") == 12 and kinds.count("all_reduce") == 0
    shared = report(laid, {"b": 6}).memory
    whole = report(run_once(BLOCKS, Ways(Mesh((3,))), 6).laid, {"b": 6}).memory
    assert max(each.peak for each in shared) < 0.5 * max(each.peak for each in whole)
