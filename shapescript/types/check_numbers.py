"""Functions of host numbers, and `int`, `float`, `bool` and `str`.

`number` gives None where a tensor is among the arguments: the tensor operation of that name is meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from shapescript.types.check_arguments import (
    ANY,
    NUMBER,
    Builtin,
    Signature,
    Wanted,
    keep,
    take,
)
from shapescript.types.check_calls import Invocation
from shapescript.types.check_core import Core
from shapescript.types.kinds import (
    FLOAT,
    INT,
    PYTHON,
    WRONG,
    Host,
    ModelList,
    PythonValue,
    RangeOf,
    Tensor,
    Type,
    Wrong,
)
from shapescript.types.uses import HostUse

# --- numbers ---------------------------------------------------------------------------------------------------------

NUMBER_FUNCTIONS: Mapping[str, tuple[int, int | None, str | None]] = {
    "min": (2, None, None),
    "max": (2, None, None),
    "abs": (1, 1, None),
    "exp": (1, 1, "float"),
    "log": (1, 1, "float"),
    "sqrt": (1, 1, "float"),
    "sin": (1, 1, "float"),
    "cos": (1, 1, "float"),
    "tanh": (1, 1, "float"),
    "square": (1, 1, None),
    "floor": (1, 1, "int"),
    "ceil": (1, 1, "int"),
    "round": (1, 1, "int"),
}
"""How many numbers each takes, at least and at most, and what it gives (None: what it is given)."""


def number(name: str, core: Core, call: Invocation) -> Type | None:
    """A function of host numbers; None where a tensor is among them."""
    # What has a name may be no value at all: the axes after `over=`.
    values = [core.type_of(argument.value) for argument in call.arguments if argument.name is None]
    if any(isinstance(kind, Tensor) for kind in values) or call.pattern is not None:
        return None
    kinds = [core.type_of(argument.value) for argument in call.arguments]
    if any(isinstance(kind, Wrong) for kind in kinds):
        return WRONG
    least, most, gives = NUMBER_FUNCTIONS[name]
    if len(kinds) < least or (most is not None and len(kinds) > most):
        takes = "one number" if most == 1 else "two numbers or more"
        core.report("E0601", f"`{name}` takes {takes}, or a tensor", call.node)
        return WRONG
    for argument, kind in zip(call.arguments, kinds, strict=True):
        if argument.name is not None or argument.mut:
            core.report("E0602", f"`{name}` of numbers has no parameter `{argument.name or 'mut'}`", argument)
            return WRONG
        if not NUMBER[1](kind) and not isinstance(kind, PythonValue):
            core.report("E0607", f"`{name}` takes numbers or a tensor, and this is {kind}", argument.value)
            return WRONG
    core.use(call.node, HostUse(name))
    if any(isinstance(kind, PythonValue) for kind in kinds) and gives is None:
        return PYTHON
    return Host(gives) if gives is not None else FLOAT if FLOAT in kinds else INT


def conversion(name: str) -> Builtin:
    def check(core: Core, call: Invocation) -> Type:
        given = take(core, call, Signature(name, {"x": ANY}, 1))
        if given is None:
            return Host(name)
        kind = core.type_of(given["x"].value)
        value = given["x"].value
        if isinstance(kind, Tensor) and kind.axes and name != "str":
            core.report(
                "E0607",
                f"`{name}` looks at one number, and this is {kind}",
                value,
                helps=("take one place of it, `x[n=0]`, or reduce it: `sum(x, over=n)`",),
            )
        elif not isinstance(kind, (Tensor, Host, PythonValue)) and name != "str":
            core.report("E0607", f"`{name}` takes a number, a string or a scalar tensor, and this is {kind}", value)
        return keep(core, call, name, given, Host(name))

    return check


def check_reversed(core: Core, call: Invocation) -> Type:
    visited: Wanted = ("a range or a list of models", lambda of: isinstance(of, (RangeOf, ModelList)))
    given = take(core, call, Signature("reversed", {"x": visited}, 1))
    return WRONG if given is None else keep(core, call, "reversed", given, core.type_of(given["x"].value))
