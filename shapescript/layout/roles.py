"""What becomes of a split leaf, by op: the ops' declared roles, leaf by leaf.

Takes a node; gives its `LeafRole`s: for each leaf of its index space the word of its role and where it stands. An axis
of which the rows of two operands can't be told apart (it stands twice in one value), or whose parts differ from
operand to operand, is needed whole. Also says in which groups of operands an op is linear, by its declaration and by
what this node's attributes and elements make of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shapescript.ir.graph import Node
from shapescript.layout.words import Partial, Split, Word, leaves_of
from shapescript.ops.registry import INDEX, MAP, MAX, MIN, SUM, WHOLE, Role, roles_by_name
from shapescript.ops.rules import places_over
from shapescript.types.axes import Axis, places, same
from shapescript.types.element import Element
from shapescript.types.kinds import Tensor

Place = tuple[int, int]
"""The number of an axis, and of a leaf within it."""

PARTIAL_KINDS = {SUM: "sum", INDEX: "sum", MAX: "max", MIN: "min"}
"""What a split leaf of that role leaves, where the result lacks it."""

MOVES = {"again", "relabel", "rearrange", "slice", "pad", "negate", "refine", "stop_gradient", "flip", "roll", "whole"}
"""Ops that only move or negate data: a partial value goes on through them, whatever they could be split along."""

EXTREMES: dict[str, Word] = {"maximum": Partial("max"), "minimum": Partial("min")}
"""Ops that may work on partial greatest or least values."""

REDUCED_SHARDS: dict[str, Word] = {"sum": Partial("sum"), "max": Partial("max"), "min": Partial("min")}
"""What a reduction over all axes of a sharded value gives."""

REDUCTIONS = {"sum": SUM, "max": MAX, "min": MIN}
BY_PLACE = {"relabel", "slice", "pad", "concat"}
"""Ops whose roles are of places, so that an axis that stands twice is known by where it stands."""

FLOAT_WIDTHS = {"bf16": 1, "f16": 1, "f32": 2, "f64": 3}


@dataclass(frozen=True)
class LeafRole:
    """One leaf of an op's index space: its axis, its word, and its place in each operand and in the result."""

    leaf: Axis
    word: str
    operands: tuple[Place | None, ...]
    result: Place | None

    def split(self, atom: str, place: Place | None) -> Split | None:
        """The word of a value that is split along this leaf."""
        return None if place is None else Split(atom, *place)


def leaf_roles(node: Node) -> tuple[LeafRole, ...]:
    """The roles of a node's leaves, without those that an op needs whole."""
    if node.op is None or node.op.roles is None:
        return ()
    if node.name == "rearrange":
        return _rearranged(node)
    if is_elementwise(node) and all(not x.axes or x.axes == node.axes for x in node.operands):
        # Of equal axes each lines up with its own place, though two of them be the same.
        roles = [
            Role(axis, MAP, tuple(at if x.axes else None for x in node.operands), at)
            for at, axis in enumerate(node.axes)
        ]
    elif node.name in REDUCTIONS:
        roles = _reduced(node)
    else:
        roles = [role for role in node.op.roles(node) if node.name in BY_PLACE or not _twice(node, role)]
    return tuple(leaf for role in roles if role.word != WHOLE for leaf in _leaves(node, role))


def _reduced(node: Node) -> list[Role]:
    """The roles of a reduction, by place."""
    axes = node.operands[0].axes
    gone = places_over(Tensor(axes), node.attributes)
    kept = [at for at in range(len(axes)) if at not in gone]
    return [
        Role(axis, REDUCTIONS[node.name] if at in gone else MAP, (at,), kept.index(at) if at in kept else None)
        for at, axis in enumerate(axes)
    ]


def _twice(node: Node, role: Role) -> bool:
    """Whether the axis stands twice in an operand or in the result."""
    values = [(operand.axes, place) for operand, place in zip(node.operands, role.operands, strict=True)]
    return any(
        place is not None and len(places(axes[place], axes)) > 1 for axes, place in [*values, (node.axes, role.result)]
    )


def _leaves(node: Node, role: Role) -> list[LeafRole]:
    held = [
        leaves_of(operand.axes[place])
        for operand, place in zip(node.operands, role.operands, strict=True)
        if place is not None
    ]
    if role.result is not None:
        held.append(leaves_of(node.axes[role.result]))
    if not held:
        return []
    most = max(held, key=len)
    for leaves in held:
        if len(leaves) != len(most) or any(a.size != b.size for a, b in zip(leaves, most, strict=True)):
            return []  # one names the parts that another has as one
    return [
        LeafRole(
            leaf,
            role.word,
            tuple(None if place is None else (place, number) for place in role.operands),
            None if role.result is None else (role.result, number),
        )
        for number, leaf in enumerate(most)
    ]


def _placed(axes: Sequence[Axis]) -> list[tuple[Axis, Place]]:
    return [(leaf, (dim, number)) for dim, axis in enumerate(axes) for number, leaf in enumerate(leaves_of(axis))]


def _rearranged(node: Node) -> tuple[LeafRole, ...]:
    """Leaves matched as the rearrangement itself matches them: by name, else the first that is the same."""
    left = _placed(node.operands[0].axes)
    found = []
    for leaf, place in _placed(node.axes):
        free = [other for other in left if same(other[0], leaf)]
        other = next((o for o in free if o[0].name == leaf.name), free[0])
        left.remove(other)
        found.append(LeafRole(leaf, MAP, (other[1],), place))
    return tuple(found)


def is_elementwise(node: Node) -> bool:
    """Whether each place of the result comes from one place of each operand, lined up by axis."""
    return node.op is not None and node.op.roles is roles_by_name and node.name != "mask"


def linear_groups(node: Node) -> tuple[frozenset[int], ...]:
    """The groups of operands in which this node is linear."""
    if node.op is None or not _linear(node):
        return ()
    return node.op.linear


def _linear(node: Node) -> bool:
    if node.name == "pad":
        return node.attributes["value"] == 0
    if node.name == "cast":
        return _widens(node.operands[0].element, node.element)
    if node.name == "refine":
        return node.element.refinement != "Index"
    if node.name == "divide":
        return node.element.is_float
    return not node.element.is_bool


def _widens(old: Element, new: Element) -> bool:
    before, after = FLOAT_WIDTHS.get(old.name), FLOAT_WIDTHS.get(new.name)
    return old.name == new.name or (before is not None and after is not None and after > before)
