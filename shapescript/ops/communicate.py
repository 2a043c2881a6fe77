"""What a graph laid out over several devices holds besides: the collectives, and operations on a device's own part.

`whole` stands in the logical graph too, where the program says `whole(x)`; all else is put in by `layout/`. Attributes:

- `whole` (x): x, needed whole along its batch axes
- `mask` (x): `dim`, `leaf`, `before`, `inner`, `count`, `value`; places of a leaf from `count` on become `value`
- `all_reduce` (x): `kind` (sum, max, min), `mesh_axis`, `launch`
- `all_gather`, `reduce_scatter`, `take_part` (x): `mesh_axis`, `atom`, `count`, `dim`, `before`, `inner`, `flat`,
  `padded`, `axes`; the part is along a leaf of axis `dim`, with `before` and `inner` places of that axis around it,
  or along the value laid `flat`; its whole length is `count` and its atom's name `atom`
- `all_to_all` (x): `mesh_axis`, `axes`, `padded`, and the same of two leaves, `joined_...` and `cut_...`
- `keep_first` (x): `mesh_axis`; x on the first device, zero on the others
- `part_best` (x): `over`, `kind`, `count`; the greatest or least of a device's part, which may be empty
- `part_gather` (x, index): `over`, `axes`, `first`, `own`, `count`; a lookup where x holds `own` places from `first`
  of `count` in all; else 0
- `part_scatter` (x, index): `over`, `axes`, `first`, `count`; what falls into the places of this device is added
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shapescript.ops.registry import WHOLE, Op, Roles, register, roles_by_name
from shapescript.ops.rules import Attributes, Operands, added, axes_attribute, count, find, one_axis, without
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node

FIRST = (frozenset({0}),)


def _same(operands: Operands, attributes: Attributes) -> Tensor:
    count("a collective", operands, 1)
    return operands[0]


def _to_axes(operands: Operands, attributes: Attributes) -> Tensor:
    count("a collective", operands, 1)
    return Tensor(axes_attribute(attributes), operands[0].element)


def _no_roles(node: Node) -> Roles:
    return ()


def _whole_roles(node: Node) -> Roles:
    return roles_by_name(node, [(axis, WHOLE) for axis in node.axes if axis.batch])


def _d_whole(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (dy,)


register(
    Op("whole", "whole(x)", _same, "x, whole on every device.", "whole(ones[n])", _whole_roles, FIRST, _d_whole),
)
register(Op("mask", "mask(x)", _same, "x with a value in the places that aren't real.", "ones[n]", roles_by_name))


def _collective(name: str, doc: str, rule: Callable[[Operands, Attributes], Tensor]) -> None:
    register(Op(name, f"{name}(x)", rule, doc, "ones[n]", _no_roles))


_collective("all_reduce", "x combined over the devices of a mesh axis.", _same)
_collective("all_gather", "The parts of all devices, joined.", _to_axes)
_collective("reduce_scatter", "The sum over the devices, of which each keeps its part.", _to_axes)
_collective("take_part", "This device's part of a whole value.", _to_axes)
_collective("all_to_all", "What lay split along one leaf, split along another.", _to_axes)
_collective("keep_first", "x on the first device, 0 on the others.", _same)


def _best_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("part_best", operands, 1)
    return Tensor(without(operands[0].axes, attributes), operands[0].element)


def _gather_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("part_gather", operands, 2)
    x = operands[0]
    axes = axes_attribute(attributes)
    find(x.axes, one_axis(attributes))
    return Tensor(axes, x.element)


def _scatter_rule(operands: Operands, attributes: Attributes) -> Tensor:
    count("part_scatter", operands, 2)
    x = operands[0]
    find(axes_attribute(attributes), one_axis(attributes))
    return Tensor(axes_attribute(attributes), added(x.element) if x.element.is_float else x.element.base)


register(Op("part_best", "part_best(x)", _best_rule, "The best of a part, which may be empty.", "ones[n]", _no_roles))
register(Op("part_gather", "part_gather(x, i)", _gather_rule, "A lookup in a part.", "ones[n]", _no_roles))
register(Op("part_scatter", "part_scatter(x, i)", _scatter_rule, "Rows added into a part.", "ones[n]", _no_roles))
