"""What the functions of a program send and hold on its devices, before it runs.

Takes a checked program; gives a `Report` for each device function that can be foreseen, for as many devices as the
program names, with the operations that have no kernel. The devices needn't be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from shapescript.controller.errors import Error
from shapescript.controller.foresee import foresee
from shapescript.controller.several_devices import laid_out
from shapescript.devices.executors import UnknownExecutor, executor_name
from shapescript.devices.runner import Border
from shapescript.ir.graph import Graph, Node
from shapescript.layout.masks import Unpadded
from shapescript.layout.mesh import Mesh
from shapescript.layout.report import Report, report
from shapescript.placement.kinds import Placement
from shapescript.syntax import tree
from shapescript.types.typed import DevicesInfo, TypedProgram


def costs(
    program: TypedProgram, kinds: Mapping[tree.Function, Placement], path: Path, names: Sequence[str]
) -> dict[str, Report | str]:
    """For each of these functions its report, or why there is none.

    Raises:
        Error, ProgramError: a dim has no value.
    """
    devices = program.devices or DevicesInfo("cpu")
    mesh, splits, shard = Mesh(devices.mesh), devices.split, devices.shard_params
    found: dict[str, Report | str] = {}
    for name, seen in foresee(program, kinds, path, names).items():
        if isinstance(seen, str):
            found[name] = seen
        else:
            laid = laid_out(seen.graph, seen.border, mesh, splits, shard, devices.dims)
            calls = without_kernel(laid.graph) if devices.kind == "cpu" else ()
            recorded = recording(seen.graph, seen.border, devices) if devices.kind == "cuda" else ""
            found[name] = replace(report(laid, seen.counts), without_kernel=calls, recorded=recorded)
    return found


def without_kernel(graph: Graph) -> list[Node]:
    """The operations of a graph that the native executor leaves to torch; none where another executor runs it.

    What devices do together is the transport's, and an `extern fn` is Python's.
    """
    try:
        if executor_name(torch.device("cpu")) != "native":
            return []
    except UnknownExecutor as error:
        raise Error(str(error)) from None
    from shapescript.devices.native.clusters import COLLECTIVES
    from shapescript.devices.native.lower import lower

    nodes = [node for called in lower(graph, combines=True).calls.values() for node in called.nodes]
    return [node for node in nodes if node.name not in (*COLLECTIVES, "extern")]


def recording(graph: Graph, border: Border, devices: DevicesInfo) -> str:
    """What of a graph becomes a CUDA graph; nothing where another executor runs it, or its module wasn't built."""
    try:
        if executor_name(torch.device("cuda")) != "captured":
            return ""
    except UnknownExecutor as error:
        raise Error(str(error)) from None
    from shapescript.devices.captured.executor import foreseen

    if devices.count == 1:
        return foreseen(graph, None, None)
    how = Mesh(devices.mesh), devices.split, devices.shard_params, devices.dims
    try:
        return foreseen(graph, laid_out(graph, border, *how, padded=True), None)
    except Unpadded as problem:
        return foreseen(graph, laid_out(graph, border, *how), str(problem))
