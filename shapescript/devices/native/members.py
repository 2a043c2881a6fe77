"""Which nodes become kernels on tiles, and through which nodes a value is only looked at otherwise.

Gives `kernel_of`, the kernel of a node that can stand in a tile's program, and `through`, the node whose value another
one shows, with how the axes correspond.
"""

from __future__ import annotations

from dataclasses import dataclass

from shapescript.devices.native.views import rearrangement
from shapescript.devices.reference.lowering import positions_among
from shapescript.ir.graph import Node

UNCHANGED = ("relabel", "refine", "stop_gradient", "require_finite", "whole", "again")
"""Operations that give their operand as it is."""

TO_BOOL = ("equal", "not_equal", "less", "less_equal", "is_nan", "any", "all")
SWAPPED = {"greater": "less", "greater_equal": "less_equal"}
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "logsumexp")
WHOLE_ROWS = ("argmax", "argmin", "logsumexp")
"""Reductions that can't be put together from parts of a row."""
ROW_OPERATIONS = ("softmax", "log_softmax", "layer_norm", "rms_norm", "cumsum", "cumprod")
NORMS = ("layer_norm", "rms_norm")


@dataclass(frozen=True)
class Kernel:
    """A node as a kernel: its name, whether its operands change places, and what it does along rows."""

    name: str
    swapped: bool = False
    shape: str = "each"  # or `reduce`, or `row`
    column: str | None = None  # the kernel that reduces along columns


def kernel_of(node: Node, known: dict[str, int]) -> Kernel | None:
    """The kernel of a node; None where there is none, and the reference executor's operation is called."""
    if node.op is None or not node.operands:
        return None
    name, of = SWAPPED.get(node.name, node.name), node.operands[-1].element.name
    if name == "cast":
        full = f"cast.{of}.{node.element.name}"
        return Kernel(full) if full in known else None
    full = f"{name}.{of}"
    if full not in known or node.element.name != result_name(name, of):
        return None
    if name in REDUCTIONS:
        column = f"column_{name}.{of}"
        return Kernel(full, shape="reduce", column=column if column in known else None)
    return Kernel(full, node.name in SWAPPED, "row" if name in ROW_OPERATIONS else "each")


def result_name(name: str, of: str) -> str:
    """The element of a kernel's result."""
    if name in TO_BOOL:
        return "bool"
    if name in ("argmax", "argmin") or (name == "sum" and of == "bool"):
        return "i64"
    return of


Mapping = tuple[int | None, ...]
"""For each axis, the axis of the source that it is, or None where the source is repeated along it."""


def through(node: Node, seen: dict[int, tuple[Node, Mapping]]) -> tuple[Node, Mapping]:
    """The node whose value this one shows without moving it, and the source's axis for each axis of this one."""
    found = seen.get(node.number)
    if found is None:
        found = seen[node.number] = _through(node, seen)
    return found


def _through(node: Node, seen: dict[int, tuple[Node, Mapping]]) -> tuple[Node, Mapping]:
    own = own_mapping(node)
    if own is None:
        return node, tuple(range(len(node.axes)))
    source, mapping = through(node.operands[0], seen)
    return source, tuple(None if at is None else mapping[at] for at in own)


def own_mapping(node: Node) -> Mapping | None:
    """The operand's axis for each axis of a node that only shows its operand; None for any other node."""
    if node.name in UNCHANGED:
        return tuple(range(len(node.axes)))
    if node.name == "broadcast":
        places = positions_among(node.operands[0].axes, node.axes)
        return tuple(places.index(at) if at in places else None for at in range(len(node.axes)))
    if node.name == "rearrange":
        how = rearrangement(node.operands[0].axes, node.axes)
        return how.order if how.whole_axes else None
    return None
