"""The captured executor against the reference one, on a machine without a GPU: kernels through the shim.

Each case runs three times: as it comes, recorded and replayed, and replayed with another key.
"""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from layout_programs import TEXTS, Text, gone_through
from programs import Program, tensors
from shimmed_machine import ShimmedMachine
from test_registry import CASES, COUNTS, build

pytest.importorskip("shapescript._executor")

from shapescript.controller.datasets import permutation  # noqa: E402
from shapescript.devices.captured.executor import CapturedExecutor  # noqa: E402
from shapescript.devices.captured.hang import Hang  # noqa: E402
from shapescript.devices.captured.kept import Kept  # noqa: E402
from shapescript.devices.captured.runner import CapturedRunner, Recorder  # noqa: E402
from shapescript.devices.captured.shown import ShownScalar  # noqa: E402
from shapescript.devices.random_key import RandomKey  # noqa: E402
from shapescript.devices.reference.executor import Executor  # noqa: E402
from shapescript.devices.runner import Border, LocalRunner  # noqa: E402
from shapescript.diagnostics.diagnostic import ProgramError  # noqa: E402
from shapescript.ir.builder import Builder  # noqa: E402
from shapescript.ir.graph import Graph  # noqa: E402
from shapescript.source import Source, Span  # noqa: E402
from shapescript.types.axes import Axis  # noqa: E402
from shapescript.types.element import F64, I64  # noqa: E402


def captured(graph: Graph, **options: object) -> CapturedExecutor:
    return CapturedExecutor(graph, "cpu", machine=ShimmedMachine(), **options)  # type: ignore[arg-type]


def close(got: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return got.dtype == wanted.dtype and torch.allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_op_is_the_reference_executors(name: str, differentiated: bool) -> None:
    if differentiated and not CASES[name].differentiable:
        pytest.skip("it has no gradient")
    reference, tensors, _ = build(name, differentiated)
    executor = captured(reference.graph)
    for number in (1, 2, 3):
        key = RandomKey(7, number, 0)
        wanted, got = reference.run(tensors, COUNTS, key), executor.run(tensors, COUNTS, key)
        executor.finish()
        assert all(close(x, y) for x, y in zip(got, wanted, strict=True)), (number, executor.describe())


# --- whole programs ---------------------------------------------------------------------------------------------------


class CapturedPlace:
    """In the place of a program's device."""

    def __init__(self) -> None:
        self.made: list[CapturedExecutor] = []

    def runner(self, graph: Graph, border: Border) -> LocalRunner:
        self.made.append(captured(graph, replaces=border.replaces))
        return LocalRunner(self.made[-1])


def trained(text: Text, rows: tuple[int, ...], place: CapturedPlace | None) -> list[torch.Tensor]:
    program = Program(text.program)
    if place is not None:
        program.domain.specialiser.make_runner = place.runner
    return gone_through(program, text, rows)


@pytest.mark.parametrize("text", [pytest.param(text, id=text.name) for text in TEXTS])
def test_programs_train_as_by_the_reference(text: Text) -> None:
    """Every batch, the short ones too, is served by one recording."""
    rows = (7, 7, 2, 7, 1)
    place = CapturedPlace()
    found, wanted = trained(text, rows, place), trained(text, rows, None)
    for number, (got, good) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == good.shape
        assert torch.allclose(got, good, rtol=1e-9, atol=1e-10), (number, (got - good).abs().max())
    steps = [executor for executor in place.made if executor.batches]
    assert steps
    for executor in steps:
        assert executor.reason is None
        assert len(executor._steps) == 1, "a batch asked for memory of its own"
        events = executor.machine.events  # type: ignore[attr-defined]
        assert events.count("record") <= 1 + 2 * len(next(iter(executor._steps.values())).unrecorded)


# --- what a recording may and may not do ------------------------------------------------------------------------------

N, M = Axis.named("n"), Axis.named("m")


def test_it_is_recorded_once_in_the_second_run_and_closed_after_waiting() -> None:
    graph = Graph(sizes={"n": 4})
    b = Builder(graph)
    graph.outputs = [b.exp(graph.input("x", (N,), F64))]
    executor = captured(graph)
    events = executor.machine.events  # type: ignore[attr-defined]
    seen = []
    for scale in (1.0, 2.0, 3.0):
        x = torch.arange(4.0, dtype=torch.float64) * scale
        (found,) = executor.run([x])
        assert close(found, x.exp())
        seen.append(list(events))
    assert seen == [[], ["record", "replay"], ["record", "replay", "replay"]]
    executor.close()
    assert events[3:] == ["synchronize", "close"]
    assert executor.finished_steps() == 0


def test_an_index_out_of_range_is_an_error_at_the_next_look_and_the_rest_goes_on() -> None:
    graph = Graph(sizes={"n": 4, "m": 3})
    b = Builder(graph)
    line = Source("a.ss", "gather it\n")
    with b.at(Span(line, 0, 6)):
        graph.outputs = [b.gather(graph.input("x", (N,), F64), graph.input("i", (M,), I64), N)]
    executor = captured(graph)
    x = torch.arange(4.0, dtype=torch.float64)
    for _ in range(2):
        executor.run([x, torch.tensor([0, 1, 3])])
    executor.run([x, torch.tensor([0, -7, 3])])
    with pytest.raises(ProgramError) as found:
        executor.finish()
    assert found.value.diagnostic.code == "E2101"
    assert "-7 is out of range for `n`, which holds 0..4" in found.value.diagnostic.message
    (again,) = executor.run([x, torch.tensor([2, 1, 0])])
    executor.finish()
    assert again.tolist() == [2.0, 1.0, 0.0]


def test_an_output_takes_its_inputs_memory_only_where_that_is_given_up() -> None:
    graph = Graph(sizes={"n": 4})
    b = Builder(graph)
    w, lr = graph.input("w", (N,), F64), graph.input("lr", (), F64)
    graph.outputs = [b.subtract(w, b.broadcast(lr, (N,)))]
    executor = captured(graph, replaces={0: 0})
    first = torch.zeros(4, dtype=torch.float64)
    (second,) = executor.run([first, torch.tensor(1.0, dtype=torch.float64)], given_up=[0])
    assert first.tolist() == [0] * 4, "what came from elsewhere isn't ours to write to"
    place = second.data_ptr()
    (third,) = executor.run([second, torch.tensor(0.5, dtype=torch.float64)], given_up=[0])
    assert third.data_ptr() == place and third.tolist() == [-1.5] * 4
    (fourth,) = executor.run([third, torch.tensor(0.25, dtype=torch.float64)])
    assert third.tolist() == [-1.5] * 4 and fourth.tolist() == [-1.75] * 4


def test_python_stands_between_two_recordings() -> None:
    reference, given, _ = build("extern", False)
    graph = Graph(sizes=dict(reference.graph.sizes))
    b = Builder(graph)
    x = graph.input("x", (N, M), F64)
    called = b.emit("extern", b.exp(x), target="torch.neg", axes=(N, M), element=F64, place=0)
    graph.outputs = [b.square(called)]
    executor = captured(graph)
    for _ in range(3):
        tensor = torch.randn(4, 3, dtype=torch.float64)
        (found,) = executor.run([tensor])
        assert close(found, tensor.exp().square())
    assert executor.describe() == "recorded in parts, around extern"
    (step,) = executor._steps.values()
    assert step.recordings == 2


def test_the_steps_of_all_parameters_are_one_launch() -> None:
    graph = Graph(sizes={"n": 4, "m": 3})
    b = Builder(graph)
    inputs = [graph.input(name, axes, F64) for name, axes in (("a", (N,)), ("b", (M, N)), ("c", (M,)))]
    graph.outputs = [b.subtract(x, b.multiply(x, 0.1)) for x in inputs]
    executor = captured(graph, replaces={0: 0, 1: 1, 2: 2})
    executor.run([torch.ones(4, dtype=torch.float64), torch.ones(3, 4, dtype=torch.float64), torch.ones(3).double()])
    (step,) = executor._steps.values()
    assert [len(item.instructions) for item in step.items] == [3]


def test_recordings_are_kept_for_a_few_widths_only() -> None:
    executor = captured(build("exp", False)[0].graph)
    for b in range(1, 9):
        executor.run([torch.randn(b, 4, dtype=torch.float64)], {"b": b})
    assert len(executor._steps) <= 4


def test_recordings_of_all_graphs_together_are_bounded() -> None:
    machine = ShimmedMachine()
    machine.kept = Kept(3)
    x = torch.zeros(4, dtype=torch.float64)
    executors = []
    for number in range(7):
        graph = Graph(sizes={"n": 4})
        b = Builder(graph)
        graph.outputs = [b.add(graph.input("x", (N,), F64), float(number))]
        executors.append(CapturedExecutor(graph, "cpu", machine=machine))
        for _ in range(3):
            executors[0].run([x])
            assert float(executors[-1].run([x])[0][0]) == number
    assert len(machine.kept) == 3 and [len(each._steps) for each in executors] == [1, 0, 0, 0, 0, 1, 1]
    assert machine.events.count("close") == 4
    assert [float(each.run([x])[0][0]) for each in executors] == list(range(7))
    executors[-1].run([x])  # recorded now
    before = machine.events.count("close")
    made = weakref.ref(executors.pop())
    gc.collect()
    assert made() is None and machine.events.count("close") == before + 1


def test_what_cuda_refuses_to_record_runs_as_it_comes() -> None:
    graph = Graph(sizes={"n": 4})
    b = Builder(graph)
    graph.outputs = [b.exp(graph.input("x", (N,), F64))]
    executor = captured(graph)

    def refused(work: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    executor.machine.record = refused  # type: ignore[assignment, method-assign]
    x = torch.ones(4, dtype=torch.float64)
    executor.run([x])
    with pytest.warns(UserWarning, match="without a CUDA graph, slower: operation not permitted when"):
        executor.run([x])
    assert close(executor.run([2 * x])[0], (2 * x).exp()) and executor.finished_steps() == 3


def test_a_step_that_never_ends_is_noticed() -> None:
    graph = Graph(sizes={"n": 4})
    b = Builder(graph)
    graph.outputs = [b.exp(graph.input("x", (N,), F64))]
    executor = captured(graph)
    x = torch.zeros(4, dtype=torch.float64)
    for _ in range(3):
        executor.run([x])
    executor.finish()
    (step,) = executor._steps.values()
    (recording,) = step._parts or ()
    recording.works = recording.works[:-1]  # type: ignore[union-attr]
    executor.longest_step = 0.05
    executor.run([x])
    with pytest.raises(Hang, match="hasn't finished a step for 0.05 s"):
        executor.finish()


def test_two_models_that_one_function_trains_in_turn_keep_their_own_numbers() -> None:
    text = next(each for each in TEXTS if each.name == "mlp")
    found: list[list[torch.Tensor]] = []
    for place in (CapturedPlace(), None):
        program = Program(text.program)
        if place is not None:
            program.domain.specialiser.make_runner = place.runner
        random = torch.Generator().manual_seed(3)
        models = [program.call("make"), program.call("make")]
        states = [program.call("optimizer", m) for m in models]
        for turn in (0, 1, 0, 0, 1):
            program.call("step", models[turn], states[turn], text.batch(5, random))
        found.append([each for m in models for each in tensors(m).values()])
    for got, wanted in zip(*found, strict=True):
        assert torch.allclose(got, wanted, rtol=1e-9, atol=1e-10)


def test_inputs_that_change_places_are_read_before_they_are_written() -> None:
    graph = Graph(sizes={"n": 4})
    b = Builder(graph)
    x, y = graph.input("x", (N,), F64), graph.input("y", (N,), F64)
    graph.outputs = [b.multiply(x, 2.0), b.multiply(y, 3.0)]
    executor = captured(graph, replaces={0: 0, 1: 1})
    x_now, y_now = torch.ones(4).double(), torch.full((4,), 10.0).double()
    for _ in range(3):
        x_now, y_now = executor.run([x_now, y_now], given_up=[0, 1])
    assert (x_now[0], y_now[0]) == (8, 270)
    x_now, y_now = executor.run([y_now, x_now], given_up=[0, 1])
    assert (x_now[0], y_now[0]) == (540, 24)


def test_a_batch_within_a_merged_axis_is_padded_and_cut_there() -> None:
    """The rows of an axis (n b) stand apart from one another."""
    graph = Graph(sizes={"n": 3})
    b = Builder(graph)
    batch, n = Axis.named("b", batch=True), Axis.named("n")
    merged = Axis(None, n.size * batch.size, (n, batch))
    given = graph.input("x", (merged,), F64)
    opened = b.emit("rearrange", b.exp(given), axes=(n, batch))
    graph.outputs = [b.emit("rearrange", b.square(opened), axes=(merged,)), b.sum(opened, over=(batch,))]
    executor, reference = captured(graph), Executor(graph)
    for count in (4, 4, 2, 4, 1):
        x = torch.randn(3 * count, dtype=torch.float64)
        for got, wanted in zip(executor.run([x], {"b": count}), reference.run([x], {"b": count}), strict=True):
            assert close(got, wanted)
    assert executor.describe() == "recorded whole" and len(executor._steps) == 1


def test_an_epoch_of_a_dataset_needs_the_host_at_its_ends_only() -> None:
    """The step takes the rows by an order in the device's memory, and moves its place and its call on by itself."""
    text = next(each for each in TEXTS if each.name == "clip, dropout and accumulation")
    program, wanted = Program(text.program), Program(text.program)
    machine = ShimmedMachine()
    recorder = Recorder(machine.device, machine)
    made: list[CapturedRunner] = []

    def runner(graph: Graph, border: Border) -> CapturedRunner:
        made.append(recorder.runner(graph, border))
        return made[-1]

    program.domain.specialiser.make_runner = runner
    columns = text.batch(30, torch.Generator().manual_seed(1))
    states = [(each, each.call("make")) for each in (program, wanted)]
    (own, other), n = ((each, m, each.call("optimizer", m)) for each, m in states), 4
    tellings, given = [], []
    for epoch in range(2):
        order = permutation(30, epoch)
        for begin in range(0, 30, n):
            rows = recorder.rows(columns, order, begin, min(begin + n, 30))
            given.extend(rows.values())
            loss, norm = own[0].call("step", own[1], own[2], rows)  # type: ignore[misc]
            numbers = torch.from_numpy(order[begin : begin + n])
            batch = {name: column[numbers] for name, column in columns.items()}
            good, good_norm = other[0].call("step", other[1], other[2], batch)  # type: ignore[misc]
            assert close(loss, good, 1e-9) and close(norm, good_norm, 1e-9)
        (step,) = [each.captured for each in made if each.captured.batches]
        tellings.append(step.tellings)
    # where an epoch begins and at its last, short batch, and no more
    assert tellings == [2, 4]
    assert all(rows._taken is None for rows in given), "rows were taken out beforehand"


def test_losses_are_looked_at_late_and_in_any_order() -> None:
    graph = Graph(sizes={"n": 4})
    b = Builder(graph)
    x = graph.input("x", (N,), F64)
    with b.at(Span(Source("a.ss", "sum it\n"), 0, 3)):
        graph.outputs = [b.sum(x, over=(N,)), b.exp(x)]
    machine = ShimmedMachine()
    runner = Recorder(machine.device, machine).runner(graph, Border(("value",), ("x",), {}))
    sums = [runner.run([torch.full((4,), float(k)).double()], {}, None)[0] for k in range(150)]
    assert all(isinstance(each, ShownScalar) and each.ready() for each in sums)
    assert [float(each.fetch()) for each in reversed(sums)] == [4.0 * k for k in reversed(range(150))]
    (twice,) = [runner.run([sums[3].tensor.expand(4)], {}, None)[0]]  # type: ignore[union-attr]
    assert float(twice.fetch()) == 48.0


def test_memory_that_is_full_names_the_device_and_the_largest_values(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(sizes={"n": 4, "m": 3})
    b = Builder(graph)
    with b.at(Span(Source("a.ss", "x * y\n"), 0, 5)):
        graph.outputs = [b.exp(b.broadcast(graph.input("x", (N,), F64), (M, N)))]
    executor = captured(graph)

    def full(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("shapescript.devices.captured.step.Step._allocate", full)
    with pytest.raises(ProgramError) as found:
        executor.run([torch.zeros(4, dtype=torch.float64)])
    diagnostic = found.value.diagnostic
    assert diagnostic.code == "E2103"
    assert diagnostic.message.startswith("the memory of `cpu` is full; the largest values of the step are ")
    assert "of [m n] with 96 bytes" in diagnostic.message
