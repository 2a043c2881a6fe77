"""Elementwise primitives in torch, with casts and constants.

Operands are lined up by their axes and torch broadcasts the rest. Division of whole numbers by zero is a
`ValueProblem`; `//` and `%` go downwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from shapescript.devices.dtypes import dtype_of
from shapescript.devices.reference.lowering import (
    Run,
    Shape,
    Step,
    ValueProblem,
    line_up,
    lowers,
)
from shapescript.ir.graph import Node
from shapescript.types.axes import Axis
from shapescript.types.element import Element

Function = Callable[..., torch.Tensor]


def looked_at() -> bool:
    """Whether values are there to be looked at: not while `torch.export` goes through the operations."""
    return not torch.compiler.is_exporting()


def _divide_whole(function: Function) -> Function:
    def divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not y.is_floating_point() and looked_at() and bool((y == 0).any()):
            raise ValueProblem("a whole number is divided by 0")
        return function(x, y)

    return divide


def _power(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point() and looked_at() and bool((y < 0).any()):
        raise ValueProblem("a whole number is raised to a negative power")
    return torch.pow(x, y)


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(x, x.new_zeros(()))


FUNCTIONS: dict[str, Function] = {
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": torch.true_divide,
    "floor_divide": _divide_whole(torch.floor_divide),
    "remainder": _divide_whole(torch.remainder),
    "power": _power,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "where": torch.where,
    "negate": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "square": torch.square,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "softplus": _softplus,
    "erf": torch.erf,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "sign": torch.sign,
    "is_nan": torch.isnan,
}


@lowers(*FUNCTIONS)
def elementwise(node: Node, static: Mapping[str, int]) -> Step:
    """Any elementwise operation: operands turned, then the function."""
    function = FUNCTIONS[node.name]
    turns = [line_up(operand.axes, node.axes) for operand in node.operands]
    dtype = dtype_of(node.element)

    def plain(run: Run, *operands: torch.Tensor) -> torch.Tensor:
        y = function(*operands)
        return y if y.dtype == dtype else y.to(dtype)

    def turned(run: Run, *operands: torch.Tensor) -> torch.Tensor:
        lined = (x if turn is None else turn(x) for turn, x in zip(turns, operands, strict=True))
        y = function(*lined)
        return y if y.dtype == dtype else y.to(dtype)

    return plain if all(turn is None for turn in turns) else turned


@lowers("cast")
def cast(node: Node, static: Mapping[str, int]) -> Step:
    """Another element, as torch converts it; an `Index` is checked as by `refine`."""
    dtype = dtype_of(node.element)
    check = index_check(node.element, static)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        y = x.to(dtype)
        check(run, y)
        return y

    return step


@lowers("refine")
def refine(node: Node, static: Mapping[str, int]) -> Step:
    """The same values; the range of an `Index` is checked, the sign of a float is the program's own claim."""
    known = node.operands[0].element == node.element
    check = _no_check if known else index_check(node.element, static)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        check(run, x)
        return x

    return step


def _no_check(run: Run, x: torch.Tensor) -> None:
    return None


def index_check(element: Element, static: Mapping[str, int]) -> Callable[[Run, torch.Tensor], None]:
    """What checks that whole numbers lie in the range of an `Index`."""
    if element.refinement != "Index" or element.bound is None:
        return _no_check
    bound = element.bound
    shape = Shape((bound,), static)

    def check(run: Run, x: torch.Tensor) -> None:
        check_range(x, shape.at(run)[0], f"Index[{bound}]")

    return check


def check_range(index: torch.Tensor, size: int, what: str) -> None:
    """Whether whole numbers are all in 0..size.

    Raises:
        ValueProblem: one isn't; it is named with the size.
    """
    if not looked_at() or index.numel() == 0:
        return
    low, high = torch.aminmax(index)
    wrong = int(low) if int(low) < 0 else int(high)
    if wrong < 0 or wrong >= size:
        raise ValueProblem(f"{wrong} is out of range for `{what}`, which holds 0..{size}")


@lowers("stop_gradient", "again")
def unchanged(node: Node, static: Mapping[str, int]) -> Step:
    """x itself."""
    return lambda run, x: x


@lowers("require_finite")
def require_finite(node: Node, static: Mapping[str, int]) -> Step:
    """x itself, looked at."""
    what = str(node.attributes["what"])

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        if looked_at() and not bool(torch.isfinite(x).all()):
            raise ValueProblem(f"{what} isn't finite: it holds {float(x.max())}")
        return x

    return step


@lowers("constant")
def constant(node: Node, static: Mapping[str, int]) -> Step:
    """A scalar."""
    value, dtype = node.attributes["value"], dtype_of(node.element)
    return lambda run: torch.tensor(value, dtype=dtype, device=run.device)


@lowers("iota")
def iota(node: Node, static: Mapping[str, int]) -> Step:
    """0, 1, 2 … along an axis."""
    shape, dtype = Shape([axis.size for axis in node.axes], static), dtype_of(node.element)
    return lambda run: torch.arange(shape.at(run)[0], dtype=dtype, device=run.device)


@lowers("size")
def size(node: Node, static: Mapping[str, int]) -> Step:
    """How long an axis is."""
    axis = node.attributes["over"]
    if not isinstance(axis, Axis):
        raise TypeError(f"`over` holds no axis: {axis!r}")
    shape, dtype = Shape([axis.size], static), dtype_of(node.element)
    return lambda run: torch.tensor(shape.at(run)[0], dtype=dtype, device=run.device)
