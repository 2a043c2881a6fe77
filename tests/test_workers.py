"""Worker processes: what they compute is one device's, they are told little, and they hold what they are given.

One pool for each kind of channel and transport, shared by all tests of this file that don't end it.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from worker_graphs import HERE, SIZES, calls, linear, on_one, pool_of, runner_of

from shapescript.devices.random_key import RandomKey
from shapescript.devices.several import SeveralRunner
from shapescript.devices.transport import Sent
from shapescript.devices.workers import pool as pool_module
from shapescript.devices.workers.commands import Fetch, Put, RunPlan, TakeRows, unpack
from shapescript.devices.workers.cutting import Lie
from shapescript.devices.workers.failure import UnknownDeadline
from shapescript.devices.workers.pool import WorkerPool
from shapescript.devices.workers.values import WorkerValue
from shapescript.ir.builder import Builder
from shapescript.ir.codec import decode_graph, encode_graph
from shapescript.ir.text import show_graph
from shapescript.ir.verify import verify
from shapescript.layout.laid import Resting
from shapescript.layout.lay_out import lay_out
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import policy_for
from shapescript.layout.words import SHARDED, SUMMED, WHOLE_WORD, Partial, Split

ROOT = HERE.parent


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with pool_of(3) as made:
        yield made


def inputs_for(rows: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(rows)
    return [torch.randn(rows, 5, dtype=torch.float64, generator=random), torch.randn(5, 6, dtype=torch.float64)]


def fetched(values: object) -> list[torch.Tensor]:
    assert isinstance(values, list) and all(isinstance(each, WorkerValue) for each in values)
    return [each.fetch() for each in values]


# --- the same results


@pytest.mark.parametrize("rows", [64, 3, 2, 1, 7])
def test_results_are_those_of_one_device(pool: WorkerPool, rows: int) -> None:
    graph = linear()
    given = inputs_for(rows)
    runner = runner_of(pool, graph, ["rows", "param"])
    for each, wanted in zip(
        fetched(runner.run(given, {"b": rows}, None)), on_one(graph, given, {"b": rows}), strict=True
    ):
        torch.testing.assert_close(each, wanted, rtol=1e-12, atol=1e-12)


def test_a_run_repeats_bit_for_bit(pool: WorkerPool) -> None:
    given = inputs_for(64)
    runner = runner_of(pool, linear(), ["rows", "param"])
    first = fetched(runner.run(given, {"b": 64}, None))
    for _ in range(5):
        again = fetched(runner.run(given, {"b": 64}, None))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_gloo_and_sockets_give_the_same_bits(tmp_path: Path, pool: WorkerPool) -> None:
    """Without the module in C++, commands go by sockets and values by gloo."""
    given = inputs_for(64)
    wanted = fetched(runner_of(pool, linear(), ["rows", "param"]).run(given, {"b": 64}, None))
    script = textwrap.dedent(
        """
        import torch
        from test_workers import inputs_for, fetched
        from worker_graphs import linear, pool_of, runner_of
        from shapescript.devices.workers.native import native
        assert native is None
        with pool_of(3) as pool:
            runner = runner_of(pool, linear(), ["rows", "param"])
            for _ in range(50):
                values = runner.run(torch.load("given.pt"), {"b": 64}, None)
            torch.save(fetched(values), "got.pt")
        """
    )
    torch.save(given, tmp_path / "given.pt")
    environment = {**os.environ, "SHAPESCRIPT_NATIVE": "0", "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    got = torch.load(tmp_path / "got.pt")
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


# --- values


def test_values_lie_as_they_are_told_and_come_back_whole(pool: WorkerPool) -> None:
    x = torch.arange(7 * 12, dtype=torch.float32).reshape(7, 12)
    for layout in (None, (Split("b", 0),), (Split("c", 1),), (SUMMED,), (Partial("max"),), (SHARDED,)):
        assert torch.equal(pool.put(x, layout).fetch(), x)
    for dtype in (torch.bfloat16, torch.bool, torch.int64, torch.uint8):
        assert torch.equal(pool.put(x.to(dtype), (Split("b", 0),)).fetch(), x.to(dtype))
    assert torch.equal(pool.put(torch.zeros(0, 3), (Split("b", 0),)).fetch(), torch.zeros(0, 3))


def test_a_split_part_of_a_merged_axis_is_joined_where_it_was() -> None:
    """`(3 H Dh)` split along H, on a mesh whose other axis splits the batch."""
    mesh = Mesh((2, 3))
    x = torch.arange(5 * 3 * 6 * 2).reshape(5, 36)
    lie = Lie(((5,), (3, 6, 2)), (Split("b", 0), Split("H", 1, 1)), mesh)
    parts = {device: lie.cut(x, device) for device in range(6)}
    assert parts[5].shape == lie.local_shape(5) == (2, 12)
    assert torch.equal(parts[5], x.reshape(5, 3, 6, 2)[3:, :, 4:].reshape(2, 12))
    assert torch.equal(lie.join(parts), x)


def test_a_large_value_and_many_small_ones_pass_through(pool: WorkerPool) -> None:
    """Longer than the staging memory is usually; and more at once than it holds."""
    large = torch.randn(20_000_000)
    assert torch.equal(pool.put(large, (Split("b", 0),)).fetch(), large)
    values = [pool.put(torch.full((1_000_000,), float(n))) for n in range(40)]
    assert all(float(value.fetch()[-1]) == n for n, value in enumerate(values))


def test_what_nobody_uses_is_let_go(pool: WorkerPool) -> None:
    def held() -> int:
        return max(int(each[0]) for each in pool.ask("memory"))  # type: ignore[index]

    runner = runner_of(pool, calls("sleeps"), ["rows"])
    gc.collect()
    x = pool.put(torch.zeros(300_000), (Split("b", 0),))
    for _ in range(3):
        runner.run([x], {"b": 300_000}, None)
    before = held()
    for _ in range(20):
        runner.run([x], {"b": 300_000}, None)
    assert held() <= before + 3 * 4 * 100_000


def test_what_is_given_up_is_written_over(pool: WorkerPool) -> None:
    """The new parameter takes the old one's memory, and the old one can't be looked at any more."""
    graph = linear()
    runner = SeveralRunner(
        lay_out(graph, pool.mesh, policy_for(graph, pool.mesh, (), False), Resting(("rows", "param"), {3: 1}, ())), pool
    )
    x, w = inputs_for(64)
    wanted, held = w, pool.put(w)
    for step in range(4):
        outputs = runner.run([x, held], {"b": 64}, None, (1,) if step else ())
        if step:
            with pytest.raises(ValueError, match="given up"):
                held.fetch()
        held = outputs[3]
        wanted = on_one(graph, [x, wanted], {"b": 64})[3]
        torch.testing.assert_close(held.fetch(), wanted, rtol=1e-9, atol=1e-9)


def test_a_loss_of_long_ago_can_be_looked_at(pool: WorkerPool) -> None:
    """Beyond the ring of scalars too."""
    graph = linear()
    given = inputs_for(9)
    runner = runner_of(pool, graph, ["rows", "param"])
    placed = [pool.put(given[0], (Split("b", 0),)), pool.put(given[1])]
    losses = [runner.run(placed, {"b": 9}, None)[2] for _ in range(600)]
    wanted = on_one(graph, given, {"b": 9})[2]
    for loss in losses[::50]:
        torch.testing.assert_close(loss.fetch(), wanted, rtol=1e-12, atol=1e-12)


def test_a_run_returns_before_it_is_done(pool: WorkerPool) -> None:
    runner = runner_of(pool, calls("sleeps"), ["rows"])
    value = runner.run([torch.tensor([0.3, 0.3, 0.3])], {"b": 3}, None)[0]
    assert not value.ready()
    torch.testing.assert_close(value.fetch(), torch.tensor(0.9))
    assert value.ready()


def test_rows_of_a_dataset_are_named_not_carried(pool: WorkerPool) -> None:
    columns = {"x": torch.randn(100, 5, dtype=torch.float64), "label": torch.arange(100)}
    dataset = pool.dataset(columns)
    indices = torch.randperm(100)[:64]
    rows = pool.rows(dataset, indices)
    assert all(torch.equal(rows[name].fetch(), column[indices]) for name, column in columns.items())
    assert all(torch.equal(pool.columns(dataset)[name], column) for name, column in columns.items())
    few = pool.rows(dataset, torch.tensor([7, 3]))
    assert torch.equal(few["label"].fetch(), torch.tensor([7, 3]))
    graph = linear()
    runner = runner_of(pool, graph, ["rows", "param"])
    w = torch.randn(5, 6, dtype=torch.float64)
    got = runner.run([rows["x"], w], {"b": 64}, None)[2].fetch()
    torch.testing.assert_close(got, on_one(graph, [columns["x"][indices], w], {"b": 64})[2], rtol=1e-12, atol=1e-12)
    pool.drop_dataset(dataset)
    pool.finish()


def test_a_value_that_lies_otherwise_is_laid_anew(pool: WorkerPool) -> None:
    graph = linear()
    given = inputs_for(10)
    whole = [pool.put(given[0]), pool.put(given[1], (Split("D", 0),))]
    got = fetched(runner_of(pool, graph, ["rows", "param"]).run(whole, {"b": 10}, None))
    for each, wanted in zip(got, on_one(graph, given, {"b": 10}), strict=True):
        torch.testing.assert_close(each, wanted, rtol=1e-12, atol=1e-12)


# --- what is sent, and what a worker is


def test_what_is_sent_is_what_the_layout_says(pool: WorkerPool) -> None:
    runner = runner_of(pool, linear(), ["rows", "param"])
    for _ in range(3):
        runner.run(inputs_for(64), {"b": 64}, None)
    sizes = {**SIZES, "b": 64}
    values = sum(each.values.evaluate(sizes) for each in runner.laid.communications)
    launches = len({each.launch for each in runner.laid.communications})
    assert values > 0
    assert pool.sent(runner.plan) == [Sent(3 * launches, 3 * values, 3 * 8 * values)] * 3


def test_a_worker_imports_neither_syntax_nor_checker(pool: WorkerPool) -> None:
    runner_of(pool, linear(), ["rows", "param"]).run(inputs_for(4), {"b": 4}, None)
    for modules in pool.ask("modules"):
        assert isinstance(modules, list)
        own = {name.removeprefix("shapescript.") for name in modules if name.startswith("shapescript.")}
        above = {"syntax", "names", "placement", "specialise", "controller", "session", "cli"}
        assert not own & above and not any(name.startswith("types.check") for name in own), own
    cores = len(os.sched_getaffinity(0))
    assert pool.ask("threads") == [max(1, cores // 3)] * 3


def test_a_graph_with_a_long_chain_is_sent() -> None:
    """No recursion: a chain of ten thousand nodes."""
    graph = linear()
    assert show_graph(decode_graph(encode_graph(graph))) == show_graph(graph)
    builder = Builder(graph)
    node = graph.outputs[0]
    for _ in range(10_000):
        node = builder.emit("negate", node)
    graph.outputs = [node]
    again = decode_graph(encode_graph(graph))
    verify(again)
    assert len(again.nodes) == len(graph.nodes) and again.outputs[0].number == node.number


def test_commands_are_the_same_after_packing() -> None:
    lie = Lie.of_shape((3, 4), (WHOLE_WORD,), Mesh((2,)))
    for command in (
        RunPlan(3, 1 << 40, (1, 2, 1 << 50), {"b": 64, "batch.1": 2}, RandomKey(2**64 - 1, 17), (9,)),
        RunPlan(2, 5, (1, 2, 3), {"b": 1}, RandomKey(3, 4, 5), (7, 8), (0, 2)),
        RunPlan(0, 0, (), {}, RandomKey()),
        TakeRows(1, 2, 3, 4, 0),
        Fetch(7, ((0, 8), (-1, 0))),
        Put(1, lie, "f32", 0, 48, b"x" * 48),
    ):
        assert unpack(command.pack()) == command
    assert unpack(RunPlan(0, 0, (), {}, RandomKey(-1)).pack()).key.seed == 2**64 - 1  # type: ignore[union-attr]


def test_a_deadline_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAPESCRIPT_DEADLINE", "2.5")
    assert pool_module.set_deadline(None) == 2.5 and pool_module.set_deadline(1.0) == 1.0
    for wrong in ("soon", "-1", "0", "nan"):
        monkeypatch.setenv("SHAPESCRIPT_DEADLINE", wrong)
        with pytest.raises(UnknownDeadline, match="SHAPESCRIPT_DEADLINE"):
            pool_module.set_deadline(None)


def test_a_mesh_of_two_axes(pool: WorkerPool) -> None:
    """Rows split over one axis, H over the other."""
    graph = linear()
    given = inputs_for(7)
    with WorkerPool([f"cpu[{n}]" for n in range(4)], mesh=Mesh((2, 2)), folder=str(HERE)) as square:
        runner = runner_of(square, graph, ["rows", "param"], splits=("H",))
        for each, wanted in zip(
            fetched(runner.run(given, {"b": 7}, None)), on_one(graph, given, {"b": 7}), strict=True
        ):
            torch.testing.assert_close(each, wanted, rtol=1e-12, atol=1e-12)


def test_a_value_repeated_along_an_axis_of_one_is_put_as_any_other(pool: WorkerPool) -> None:
    tensor = torch.zeros(()).expand(1)
    assert tensor.is_contiguous() and tensor.stride() == (0,)
    assert pool.put(tensor).fetch().tolist() == [0.0]
