"""The registry of operations: what one op is, and the table of them all.

Takes nothing but types; the files beside this one fill it, a family a file, by `register(...)`. The checker, the IR
and the differentiator all read an op from here. The torch code of a primitive is in `devices/reference/`, by name.

The primitives, their operands and their attributes, on which the families and the lowerings agree:

- elementwise, operands line up by `axes.same`, no attributes: `add subtract multiply divide floor_divide remainder
  power maximum minimum` (x, y); `equal not_equal less less_equal greater greater_equal` (x, y) to bool; `and or` (x,
  y), `not` (x) on bools; `where` (condition, x, y); one operand: `negate abs exp expm1 log log1p sqrt rsqrt square
  sin cos tanh sigmoid relu gelu gelu_tanh silu softplus erf floor ceil round sign is_nan`; `cast`, `refine` with
  `element: Element`
- `extern` (x, ...): `target: str`, `axes`, `element`, `place: int`; Python, called at each run
- `extern_gradient` (x, ..., dy): as `extern`, and `of: int`; what torch sends back to operand `of`
- `require_finite` (x): `what: str`, for the error's words
- `constant` (): `value`, `element`, a scalar; `iota` (): `over: Axis`, `element`; `size` (): `over: Axis`, `element`,
  a scalar
- `broadcast` (x): `axes`, the result's; it holds x's axes in any order
- `sum max min prod any all logsumexp` (x): `over: tuple[Axis, ...]`; `argmax argmin` (x): `over: Axis`, to
  `Index[size]`
- `softmax log_softmax` (x): `over: Axis`; `layer_norm rms_norm` (x): `over: tuple[Axis, ...]`, `eps: float`
- `cumsum cumprod sort argsort flip` (x): `over: Axis`; `roll` (x): `over: Axis`, `shift: Size`
- `contract` (a, b): `axes`, the result's; an axis of a and b that the result lacks is summed. Within one operand no
  two axes may be the same: relabel first
- `relabel` (x): `axes`, one for each axis of x in order, of equal size
- `rearrange` (x): `axes`; the leaf parts of x's axes, in another order and grouping; leaves of size 1 come and go
- `slice` (x): `over: Axis`, `start: Size`, `stop: Size`, `result: Axis`
- `pad` (x): `over: Axis`, `before: Size`, `after: Size`, `value`, `result: Axis`
- `concat` (x, ...): `over: Axis`, the result's joined axis, `position: int`, where it stands in every operand
- `gather` (x, index): `over: Axis`, which leaves x. The index's axes that x has too, `over` apart, line up; its
  others stand where `over` stood
- `scatter_add` (x, index): `over: Axis`, `axes`, the result's. x has all axes of the index; an axis of the index that
  the result has too, `over` apart, lines up, and the others are summed into `over`
- `topk_values topk_indices` (x): `over: Axis`, `k: Size`, `result: Axis`
- `random_key` (): the number of the controller's call, an i64 scalar; `random_uniform random_normal` (key): `axes`,
  `place: int`, `element`, in 0..1 or standard normal; `random_integers` (key): `axes`, `place: int`, `bound: Size`,
  to `Index[bound]`
- `again` (x): `place: int`; x, from which things are computed a second time
- `stop_gradient` (x); `gradient` (loss, w): w's axes and element; the differentiate pass replaces it

Imports of the IR's classes are for the type checker alone: the IR stands on this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shapescript.types.axes import Axis, places, same
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node

# What becomes of an axis that is split over devices, by op: the words of a role.
MAP = "map"  # the result is split the same way
SUM = "sum"  # the parts' results add up
MAX = "max"  # the greatest of the parts' results
MIN = "min"  # the least of the parts' results
INDEX = "index"  # the axis that is looked up in
OWN = "own"  # the axis that is scattered into: each device keeps what is its own
NEW = "new"  # an axis that the op makes, from an offset and a width
WHOLE = "whole"  # the op needs the axis unsplit


@dataclass(frozen=True)
class Role:
    """One axis of an op's index space: its word, and where it stands in each operand and in the result."""

    axis: Axis
    word: str
    operands: tuple[int | None, ...]
    result: int | None


Roles = tuple[Role, ...]


class RuleError(Exception):
    """Operands that an op can't take; the checker turns it into a diagnostic, the verifier into a failure.

    `operand` is the number of the operand that is to blame, if one is.
    """

    def __init__(
        self,
        code: str,
        message: str,
        operand: int | None = None,
        notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.operand = operand
        self.notes = tuple(notes)
        self.helps = tuple(helps)


@dataclass(frozen=True)
class Op:
    """An operation. With `expand` it is a composite, made of others; without, a primitive that an IR node holds.

    `linear` are groups of operands in which the op is linear, each group jointly. `gradient` takes the builder, the
    node and the gradient of its result, and gives one of each operand, None where nothing flows.
    """

    name: str
    signature: str
    rule: Callable[[Sequence[Tensor], Mapping[str, object]], Tensor]
    doc: str
    example: str
    roles: Callable[[Node], Roles] | None = None
    linear: tuple[frozenset[int], ...] = ()
    gradient: Callable[[Builder, Node, Node], Sequence[Node | None]] | None = None
    expand: Callable[[Builder, Sequence[Node], Mapping[str, object]], Node] | None = None

    @property
    def primitive(self) -> bool:
        """Whether an IR node may hold it."""
        return self.expand is None


REGISTRY: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Puts an op into the registry, under its name, once."""
    if op.name in REGISTRY:
        raise ValueError(f"the op `{op.name}` is registered twice")
    REGISTRY[op.name] = op
    return op


def over_axes(attributes: Mapping[str, object]) -> tuple[Axis, ...]:
    """The attribute `over` as a tuple, whether one axis or several stand there."""
    over = attributes["over"]
    axes = over if isinstance(over, tuple) else (over,)
    if not all(isinstance(axis, Axis) for axis in axes):
        raise TypeError(f"`over` holds something that isn't an axis: {over!r}")
    return axes


def position_of(axes: Sequence[Axis], wanted: Axis) -> int | None:
    """Where `wanted` stands among `axes`: by name where one of its name is there, else by `same`; None if nowhere."""
    return next(iter(places(wanted, axes)), None)


def roles_by_name(node: Node, words: Sequence[tuple[Axis, str]] = (), otherwise: str = MAP) -> Roles:
    """The roles of an op whose operands and result line up by axis: `words` for some axes, `otherwise` for the rest."""
    found: list[Axis] = []
    for axes in (node.axes, *(operand.axes for operand in node.operands)):
        found.extend(axis for axis in axes if position_of(found, axis) is None)
    return tuple(
        Role(
            axis,
            next((word for other, word in words if same(other, axis)), otherwise),
            tuple(position_of(operand.axes, axis) for operand in node.operands),
            position_of(node.axes, axis),
        )
        for axis in found
    )
