"""Placement: where each function runs, and what can't run or be split there.

Takes a checked program without errors of earlier stages (with some, it says what it can); gives `Placed`. How the
values lie on the devices is worked out later, on the compiled functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.placement.errors import placement_errors
from shapescript.placement.kinds import Placement, place_functions
from shapescript.placement.split_errors import split_errors
from shapescript.syntax import tree
from shapescript.types.typed import TypedProgram


@dataclass(frozen=True)
class Placed:
    """Where each function of a program and its imports runs, and the errors of this stage in their order."""

    kinds: dict[tree.Function, Placement]
    diagnostics: list[Diagnostic]


def place(typed: TypedProgram) -> Placed:
    """Works out where the functions of a program run."""
    kinds = place_functions(typed)
    found = [*placement_errors(typed, kinds), *split_errors(typed)]
    return Placed(kinds, sorted(found, key=lambda diagnostic: diagnostic.sort_key))
