"""What a lowering is: how one primitive becomes a torch function over its operands.

Gives `LOWERINGS`, the table by name that the `lowering_*` modules fill, and what they share: run-time sizes and the
lining up of axes. A lowering is called once for a node and returns a step; the step is called at each run. What
doesn't depend on a batch's count is worked out by the lowering, so that a step does little but call torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from shapescript.devices.random_key import RandomKey
from shapescript.devices.transport import Transport
from shapescript.ir.graph import Node
from shapescript.ops.registry import over_axes, position_of
from shapescript.types.axes import Axis, same, same_axes
from shapescript.types.size import Size


class ValueProblem(Exception):
    """A value that an operation can't take; the executor adds the place in the program."""


class PythonProblem(Exception):
    """Python code that raised; its cause is the exception, and the executor adds the place in the program."""


class GradientProblem(Exception):
    """A value of Python code that can't be differentiated; the executor adds the place in the program."""


@dataclass(frozen=True)
class Run:
    """What is known of one run: the batch's counts, where it runs, the random key, and the end of the collectives.

    `version` differs where the counts do, so that what follows from them can be kept between runs. One device alone
    has no `transport`: its part of anything is the whole.
    """

    sizes: Mapping[str, int]
    device: torch.device
    key: RandomKey
    version: int
    transport: Transport | None = None


Step = Callable[..., torch.Tensor]
"""Takes the run and the operands' tensors."""

Lowering = Callable[[Node, Mapping[str, int]], Step]
"""Takes a node and the sizes of the static atoms."""

LOWERINGS: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Puts a lowering into the table, under each of these names."""

    def put(lowering: Lowering) -> Lowering:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"`{name}` is lowered twice")
            LOWERINGS[name] = lowering
        return lowering

    return put


# --- sizes ---------------------------------------------------------------------------------------------------------


class Shape:
    """The sizes of some axes as numbers; those that follow from a batch's count are worked out once a count."""

    def __init__(self, sizes: Sequence[Size], static: Mapping[str, int]) -> None:
        self.sizes = tuple(sizes)
        known = all(size.atoms <= static.keys() for size in self.sizes)
        self._static = tuple(size.evaluate(static) for size in self.sizes) if known else None
        self._version = -1
        self._last: tuple[int, ...] = ()

    def at(self, run: Run) -> tuple[int, ...]:
        """The numbers in a run."""
        if self._static is not None:
            return self._static
        if self._version != run.version:
            self._last = tuple(size.evaluate(run.sizes) for size in self.sizes)
            self._version = run.version
        return self._last


def shape_of(axes: Sequence[Axis], static: Mapping[str, int]) -> Shape:
    """The sizes of axes."""
    return Shape([axis.size for axis in axes], static)


def whole_number(value: object, run: Run) -> int:
    """An attribute that is a number or a size, which may be negative here."""
    if isinstance(value, Size):
        if value.constant is not None:
            return value.constant
        negative = all(coefficient < 0 for _, coefficient in value.terms)
        return -(-value).evaluate(run.sizes) if negative else value.evaluate(run.sizes)
    if isinstance(value, int):
        return value
    raise TypeError(f"{value!r} is no whole number")


# --- lining up -----------------------------------------------------------------------------------------------------


def line_up(axes: Sequence[Axis], wanted: Sequence[Axis]) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """How a tensor over `axes` is turned to broadcast against one over `wanted`; None where it does as it is."""
    if same_axes(axes, wanted) or not axes:
        return None
    at = positions_among(axes, wanted)
    order = sorted(range(len(axes)), key=lambda i: at[i])
    missing = [p for p in range(len(wanted)) if p not in at]
    first = min(at)
    inserted = [p for p in missing if p > first]
    permuted = order != list(range(len(axes)))

    def turn(x: torch.Tensor) -> torch.Tensor:
        if permuted:
            x = x.permute(order)
        for p in inserted:
            x = x.unsqueeze(p - first)
        return x

    return turn if permuted or inserted else None


def positions_among(axes: Sequence[Axis], wanted: Sequence[Axis]) -> list[int]:
    """Where each axis stands among `wanted`, a repeated one at the next place, from the right."""
    left = list(wanted)
    found: list[int] = [0] * len(axes)
    taken: set[int] = set()
    for i in reversed(range(len(axes))):
        places = [p for p, axis in enumerate(left) if p not in taken and same(axis, axes[i])]
        named = [p for p in places if left[p].name == axes[i].name]
        if not places:
            raise ValueError(f"`{axes[i]}` isn't among the axes it is lined up with")
        found[i] = (named or places)[-1]
        taken.add(found[i])
    return found


def over_positions(node: Node) -> list[int]:
    """Where the axes of `over` stand in the first operand, a repeated one at each of its places."""
    axes = node.operands[0].axes
    found: list[int] = []
    for axis in over_axes(node.attributes):
        free = [p for p, other in enumerate(axes) if p not in found and same(other, axis)]
        named = [p for p in free if axes[p].name == axis.name]
        if not free:
            raise ValueError(f"`{axis}` isn't an axis of {node.operands[0].type}")
        found.append((named or free)[0])
    return found


def over_position(node: Node) -> int:
    """Where the single axis of `over` stands in the first operand."""
    axis = over_axes(node.attributes)[0]
    at = position_of(node.operands[0].axes, axis)
    if at is None:
        raise ValueError(f"`{axis}` isn't an axis of {node.operands[0].type}")
    return at


def axes_of(node: Node, name: str = "axes") -> tuple[Axis, ...]:
    """An attribute that holds axes."""
    value = node.attributes[name]
    if not isinstance(value, tuple):
        raise TypeError(f"`{name}` holds no axes: {value!r}")
    return value


def half(x: torch.Tensor) -> bool:
    """Whether sums over x are kept in f32."""
    return x.dtype in (torch.float16, torch.bfloat16)
