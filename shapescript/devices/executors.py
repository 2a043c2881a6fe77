"""Which executor runs a graph: the native one in C++, or the reference in torch.

`SHAPESCRIPT_EXECUTOR` says `native` or `reference`; without it the native one is taken for the CPU, where its module
was built.
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
    """`native` or `reference`.

    Raises:
        UnknownExecutor: the environment asks for something else, or for what wasn't built.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "native", "reference"):
        raise UnknownExecutor(f"{VARIABLE} is `{asked}`; it must be native or reference")
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
    if executor_name(device) == "reference":
        return Executor(graph, device, transport)
    from shapescript.devices.native.executor import NativeExecutor

    return NativeExecutor(graph, device, transport, replaces=replaces)
