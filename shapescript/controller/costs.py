"""What the functions of a program send and hold on its devices, before it runs.

Takes a checked program; gives a `Report` for each device function that can be foreseen, for as many devices as the
program names. The devices needn't be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shapescript.controller.foresee import foresee
from shapescript.controller.several_devices import laid_out
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
            found[name] = report(laid_out(seen.graph, seen.border, mesh, splits, shard, devices.dims), seen.counts)
    return found
