"""Which executor runs a graph: the native one in C++, the captured one of a GPU, or the reference in torch.

`SHAPESCRIPT_EXECUTOR` says `native`, `captured` or `reference`; without it the native one is taken for the CPU and the
captured one for `cuda`, where their modules were built. `mps` has the reference executor.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

import torch

from shapescript.devices.reference.executor import Executor
from shapescript.devices.runner import Executes
from shapescript.devices.transport import Transport
from shapescript.ir.graph import Graph

VARIABLE = "SHAPESCRIPT_EXECUTOR"


class UnknownExecutor(Exception):
    """An executor that isn't there."""


def executor_name(device: torch.device) -> str:
    """`native`, `captured` or `reference`.

    Raises:
        UnknownExecutor: the environment asks for something else, or for what wasn't built.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "native", "captured", "reference"):
        raise UnknownExecutor(f"{VARIABLE} is `{asked}`; it must be native, captured or reference")
    if asked == "captured" and device.type != "cuda":
        raise UnknownExecutor(f"{VARIABLE} is captured, which is for `cuda`, and the device is `{device.type}`")
    if asked != "reference" and device.type == "cuda":
        if find_spec("shapescript._cuda") is not None and find_spec("shapescript._executor") is not None:
            return "captured"
        if asked == "captured":
            raise UnknownExecutor(f"{VARIABLE} is captured, and the module for GPUs wasn't built")
    if asked == "reference" or device.type != "cpu":
        return "reference"
    if find_spec("shapescript._executor") is None:
        if asked == "native":
            raise UnknownExecutor(f"{VARIABLE} is native, and the module in C++ wasn't built")
        return "reference"
    return "native"


def make_executor(
    graph: Graph,
    device: torch.device | str = "cpu",
    transport: Transport | None = None,
    replaces: Mapping[int, int] | None = None,
) -> Executes:
    """The executor of a graph; `replaces` are outputs that may take the memory of an input, once it isn't used."""
    device = torch.device(device)
    name = executor_name(device)
    if name == "reference":
        return Executor(graph, device, transport)
    if name == "captured":
        from shapescript.devices.captured.executor import CapturedExecutor

        return CapturedExecutor(graph, device, transport, replaces=replaces)
    from shapescript.devices.native.executor import NativeExecutor

    return NativeExecutor(graph, device, transport, replaces=replaces)
