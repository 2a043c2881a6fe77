"""The passes as one visible list.

Takes a graph as the specialiser made it; gives the one that an executor runs. With `checked` every pass's result is
verified, as under test; the environment variable `SHAPESCRIPT_VERIFY` asks for the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from shapescript.ir.graph import Graph
from shapescript.ir.verify import verify
from shapescript.passes.differentiate import differentiate
from shapescript.passes.simplify import simplify

PASSES: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
    ("differentiate", differentiate),
    ("simplify", simplify),
)


def run_passes(graph: Graph, checked: bool | None = None) -> Graph:
    """The graph after all passes."""
    if checked is None:
        checked = bool(os.environ.get("SHAPESCRIPT_VERIFY"))
    if checked:
        verify(graph)
    for _, one in PASSES:
        graph = one(graph)
        if checked:
            verify(graph)
    return graph
