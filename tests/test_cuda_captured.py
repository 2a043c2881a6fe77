"""The captured executor against the reference one, on a machine without a GPU: kernels through the shim.

Each case runs three times: as it comes, recorded and replayed, and replayed with another key.
"""

from __future__ import annotations

import pytest
import torch
from layout_programs import TEXTS, Text
from programs import Program, tensors
from shimmed_machine import ShimmedMachine
from test_registry import CASES, COUNTS, build

pytest.importorskip("shapescript._executor")

from shapescript.devices.captured.executor import CapturedExecutor  # noqa: E402
from shapescript.devices.random_key import RandomKey  # noqa: E402
from shapescript.devices.runner import Border, LocalRunner  # noqa: E402
from shapescript.ir.graph import Graph  # noqa: E402


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
    random = torch.Generator().manual_seed(3)
    m = program.call("make")
    opt = program.call("optimizer", m)
    found: list[torch.Tensor] = []
    for n in rows:
        result = program.call("step", m, opt, text.batch(n, random))
        assert isinstance(result, tuple)
        found.extend(result)
    found.extend(tensors(m).values())
    return found


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
