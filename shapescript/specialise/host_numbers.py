"""Arithmetic, comparisons and functions of host values.

Takes Python numbers, bools and strings; gives the same. `/` of whole numbers is a float, `//` and `%` go downwards.
Where an operand is an open number (a scalar tensor in f64, while a function is specialised), the evaluator emits the
operation instead; `TENSOR_OPS` says which.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

OPERATORS: dict[str, Callable[..., object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

TENSOR_OPS: dict[str, str] = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "//": "floor_divide",
    "%": "remainder",
    "**": "power",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "min": "minimum",
    "max": "maximum",
    "minimum": "minimum",
    "maximum": "maximum",
}


def _relu(x: float) -> float:
    return max(x, type(x)(0))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sign(x: float) -> float:
    return type(x)((x > 0) - (x < 0))


FUNCTIONS: dict[str, Callable[..., object]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "minimum": min,
    "maximum": max,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "square": lambda x: x * x,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "sign": _sign,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "silu": lambda x: x * _sigmoid(x),
    "clamp": lambda x, low, high: min(max(x, low), high),
}


class HostProblem(Exception):
    """Host values that an operation can't take; `str(error)` says it."""


def compute(op: str, *operands: object) -> object:
    """The value of an operator or a function on host values.

    Raises:
        HostProblem: a division by zero, a root of a negative number, a number that is too large.
    """
    try:
        if len(operands) == 1 and op in ("-", "+"):
            return operator.neg(operands[0]) if op == "-" else operands[0]  # type: ignore[arg-type]
        if op in ("not", "!"):
            return not operands[0]
        function = OPERATORS.get(op) or FUNCTIONS[op]
        result = function(*operands)
    except ZeroDivisionError:
        raise HostProblem(f"division by zero: `{operands[0]} {op} {operands[-1]}`") from None
    except OverflowError:
        raise HostProblem(f"`{op}` of {', '.join(map(str, operands))} is too large a number") from None
    except ValueError:
        raise HostProblem(f"`{op}` of {', '.join(map(str, operands))} isn't a number") from None
    if isinstance(result, complex):
        raise HostProblem(f"`{operands[0]} {op} {operands[-1]}` isn't a real number")
    return result
