"""The arguments of built-ins: by name, each of the kind asked for.

Gives `Signature` and `take`, which reports once where a call doesn't fit, and `keep`, which keeps the use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shapescript.diagnostics.of_pytorch import PARAMETERS
from shapescript.diagnostics.suggest import nearest
from shapescript.syntax import tree
from shapescript.types.check_calls import Invocation, check_mut, taken_apart
from shapescript.types.check_core import Core
from shapescript.types.kinds import (
    BOOL_HOST,
    INT,
    STR,
    WRONG,
    Host,
    ModelList,
    ModelOf,
    Nothing,
    PythonValue,
    Tensor,
    TupleOf,
    Type,
    Wrong,
)
from shapescript.types.uses import BuiltinUse

Given = dict[str, tree.Argument]
Wanted = tuple[str, Callable[[Type], bool]]
NUMBER = ("a number", lambda of: isinstance(of, Host) and of.name in ("int", "float"))
WHOLE = ("an int", lambda of: of == INT)
SWITCH = ("a bool", lambda of: of == BOOL_HOST)
TEXT = ("a string", lambda of: of == STR)
MODEL = ("a model", lambda of: isinstance(of, (ModelOf, ModelList)))
ANY = ("a value", lambda of: not isinstance(of, Nothing))
A_TENSOR: Wanted = ("a tensor", lambda of: isinstance(of, Tensor))
SCALAR = ("a number", lambda of: NUMBER[1](of) or (isinstance(of, Tensor) and not of.axes))
PAIR = (
    "two numbers, `(0.9, 0.999)`",
    lambda of: isinstance(of, TupleOf) and len(of.items) == 2 and all(map(NUMBER[1], of.items)),
)


@dataclass(frozen=True)
class Signature:
    """The parameters of a built-in in order, those that a call must give, and those that are `mut`."""

    name: str
    wanted: Mapping[str, Wanted]
    needed: int
    mut: frozenset[str] = frozenset()


def take(core: Core, call: Invocation, signature: Signature) -> Given | None:
    """The arguments by name, each of the type asked for; None after a message, or where one is wrong already."""
    name = signature.name
    names = list(signature.wanted)
    given: Given = {}
    wrong = False
    if call.pattern is not None:
        core.report("E0601", f"`{name}` takes no pattern", call.pattern)
        return None
    for place, argument in enumerate(call.arguments):
        key = argument.name or (names[place] if place < len(names) else None)
        if key is None:
            takes = "one argument" if len(names) == 1 else f"{len(names)} arguments at most"
            core.report("E0601", f"`{name}` takes {takes}, and this is one more", argument)
            return None
        if key not in signature.wanted or key in given:
            similar = PARAMETERS[key] if PARAMETERS.get(key) in names else nearest(key, names)
            helps = (f"did you mean `{similar}`?",) if similar else (f"it takes {', '.join(f'`{n}`' for n in names)}",)
            message = f"`{key}` is given twice" if key in given else f"`{name}` has no parameter `{key}`"
            core.report("E0602", message, argument, helps=helps)
            return None
        given[key] = argument
        wrong = isinstance(core.type_of(argument.value), Wrong) or wrong
    missing = [key for key in names[: signature.needed] if key not in given]
    if missing:
        core.report("E0601", f"`{name}` also needs `{missing[0]}`", call.node)
        return None
    if wrong:
        return None
    for key, argument in given.items():
        words, test = signature.wanted[key]
        of = core.type_of(argument.value)
        if not test(of) and not (isinstance(of, PythonValue) and key not in signature.mut and words != MODEL[0]):
            apart = [taken_apart(of)] if isinstance(of, TupleOf) else []
            message = f"`{key}` of `{name}` is {words}, and this is {of}"
            core.report("E0607", message, argument.value, f"{of}", helps=apart)
            return None
        if not check_mut(core, argument, key in signature.mut, key, name):
            return None
    return given


def keep(core: Core, call: Invocation, name: str, given: Given, result: Type, rest: Sequence[tree.Expr] = ()) -> Type:
    """Keeps the use of a built-in."""
    values = {key: argument.value for key, argument in given.items()}
    core.use(call.node, BuiltinUse(name, values, tuple(rest), result=result))
    return result


Builtin = Callable[[Core, Invocation], "Type | None"]


def simple(name: str, wanted: Mapping[str, Wanted], needed: int, result: Type, mut: Sequence[str] = ()) -> Builtin:
    signature = Signature(name, wanted, needed, frozenset(mut))

    def check(core: Core, call: Invocation) -> Type:
        given = take(core, call, signature)
        if given is None:
            return result if isinstance(result, (Nothing, Host)) else WRONG
        return keep(core, call, name, given, result)

    return check
