"""The steps of a laid-out computation, before they become one device's graph.

A step is a logical node's operation at some layout, or a conversion of one value along one mesh axis. The layouter
(`lay_out.py`) makes them, `verify.py` checks them, `emit.py` turns them into a graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shapescript.ir.graph import Graph, Node
from shapescript.layout.laid import Resting
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import Policy
from shapescript.layout.words import Layout, Partial, Sharded, Split, Whole, Word
from shapescript.source import Span


@dataclass(frozen=True)
class Conversion:
    """Of what kind it is, along which mesh axis, and the words before and after."""

    kind: str
    mesh_axis: int
    before: Word
    after: Word


@dataclass
class Step:
    """One step: whose value it gives and how that lies; `span` is the line that is blamed for what it sends.

    `note` says why, where a value is gathered because an operation can't work on its parts.
    """

    value: Node
    operands: tuple[int, ...]
    layout: Layout
    conversion: Conversion | None = None
    span: Span | None = None
    launch: int = -1
    note: str = ""


@dataclass
class Steps:
    """All steps, in the order in which they run, and which of them are the outputs."""

    logical: Graph
    mesh: Mesh
    policy: Policy
    resting: Resting
    padded: bool
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    batches: tuple[str, ...] = ()
    labels: Mapping[int, str] = field(default_factory=dict)


KINDS: dict[tuple[type[Word], type[Word]], str] = {
    (Split, Whole): "all_gather",
    (Sharded, Whole): "all_gather",
    (Partial, Whole): "all_reduce",
    (Partial, Split): "reduce_scatter",
    (Partial, Sharded): "reduce_scatter",
    (Split, Split): "all_to_all",
    (Whole, Split): "take_part",
    (Whole, Sharded): "take_part",
    (Whole, Partial): "keep_first",
}
"""How a value gets from one word to another; what isn't here goes by way of `Whole`."""

SENT = {"all_gather", "all_reduce", "reduce_scatter", "all_to_all"}


def kind_of(before: Word, after: Word) -> str | None:
    """The kind of a conversion that can be done at once; None where it can't."""
    if isinstance(before, Partial) and before.kind != "sum" and not isinstance(after, Whole):
        return None
    if isinstance(after, Partial) and after.kind != "sum":
        return None
    if isinstance(before, Split) and isinstance(after, Split) and before.dim == after.dim:
        return None
    return KINDS.get((type(before), type(after)))


def live_steps(steps: Sequence[Step], outputs: Sequence[int]) -> list[bool]:
    """Which steps an output needs; inputs are kept."""
    live = [step.value.op is None and step.conversion is None for step in steps]
    for number in outputs:
        live[number] = True
    for number in range(len(steps) - 1, -1, -1):
        if live[number]:
            for operand in steps[number].operands:
                live[operand] = True
    return live


def reordered(laid: Steps, order: Sequence[int]) -> None:
    """The steps in another order, or some of them; `order` are the old numbers."""
    now = {old: new for new, old in enumerate(order)}
    steps = [laid.steps[old] for old in order]
    for step in steps:
        step.operands = tuple(now[operand] for operand in step.operands)
    laid.steps = steps
    laid.outputs = [now[number] for number in laid.outputs]
