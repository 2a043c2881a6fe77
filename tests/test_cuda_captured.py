"""The captured executor against the reference one, on a machine without a GPU: kernels through the shim.

Each case runs three times: as it comes, recorded and replayed, and replayed with another key.
"""

from __future__ import annotations

import pytest
import torch
from shimmed_machine import ShimmedMachine
from test_registry import CASES, COUNTS, build

pytest.importorskip("shapescript._executor")

from shapescript.devices.captured.executor import CapturedExecutor  # noqa: E402
from shapescript.devices.random_key import RandomKey  # noqa: E402
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
