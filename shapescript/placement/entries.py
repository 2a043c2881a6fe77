"""The device functions at which the controller enters the devices.

Takes a placed program; gives the names of those that a controller function calls, and of those that nothing calls. A
device function that only other device functions call is compiled as a part of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from shapescript.placement.kinds import Kind, Placement, body_nodes
from shapescript.syntax import tree
from shapescript.types.typed import FunctionInfo, TypedProgram
from shapescript.types.uses import CallUse, FunctionUse


def all_functions(program: TypedProgram) -> dict[str, FunctionInfo]:
    """The functions of a program by name, and those of the files that it imports, as `net.step`."""
    found = dict(program.functions)
    for name, info in program.imports.items():
        if info.program is not None:
            found.update((f"{name}.{each}", other) for each, other in all_functions(info.program).items())
    return found


def entry_functions(program: TypedProgram, kinds: Mapping[tree.Function, Placement]) -> list[str]:
    """Their names, in the order of the program; of an imported file those that controller functions call."""
    within: set[tree.Function] = set()
    entered: set[tree.Function] = set()
    functions = all_functions(program)
    for info in functions.values():
        if not isinstance(info.node, tree.Function) or info.node not in kinds:
            continue
        called = within if kinds[info.node].kind is Kind.DEVICE else entered
        for at in body_nodes(info):
            use = program.uses.get(at)
            if isinstance(use, (CallUse, FunctionUse)) and isinstance(use.function, tree.Function):
                called.add(use.function)
    return [
        name
        for name, info in functions.items()
        if isinstance(info.node, tree.Function)
        and info.node in kinds
        and kinds[info.node].kind is Kind.DEVICE
        and (info.node in entered or (info.node not in within and name in program.functions))
    ]
