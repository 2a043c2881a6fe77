"""Built-ins that aren't one tensor operation: training, datasets, printing, files, schedules, numbers.

Gives `BUILTINS`, by name: each checks one `Invocation`, keeps a `BuiltinUse` with its arguments by name, and gives
the result's type. What calls a function of the program (`value_and_grad`, `scan`, `remat`...) is `check_higher.py`'s.

`log` with a string first logs, else it is the logarithm; `norm`, `min`, `max`, `exp` and their like belong to the
tensor operations when a tensor is among their arguments: these give None, and the caller goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shapescript.diagnostics.suggest import nearest
from shapescript.syntax import tree
from shapescript.types.axes import Axis, same
from shapescript.types.check_calls import Invocation, check_mut
from shapescript.types.check_core import Core, literal_number
from shapescript.types.element import NONNEG
from shapescript.types.kinds import (
    BOOL_HOST,
    FLOAT,
    INT,
    NOTHING,
    PYTHON,
    STR,
    WRONG,
    Batch,
    Batches,
    Dataset,
    Gradients,
    Host,
    ModelList,
    ModelOf,
    Nothing,
    Optimizer,
    PythonValue,
    RangeOf,
    Tensor,
    TupleOf,
    Type,
    Wrong,
)
from shapescript.types.typed import BATCH_NORM
from shapescript.types.uses import BuiltinUse, HostUse

Given = dict[str, tree.Argument]
NUMBER = ("a number", lambda of: isinstance(of, Host) and of.name in ("int", "float"))
WHOLE = ("an int", lambda of: of == INT)
SWITCH = ("a bool", lambda of: of == BOOL_HOST)
TEXT = ("a string", lambda of: of == STR)
MODEL = ("a model", lambda of: isinstance(of, ModelOf))
ANY = ("a value", lambda of: not isinstance(of, Nothing))
SCALAR = ("a number", lambda of: NUMBER[1](of) or (isinstance(of, Tensor) and not of.axes))
PAIR = (
    "two numbers, `(0.9, 0.999)`",
    lambda of: isinstance(of, TupleOf) and len(of.items) == 2 and all(map(NUMBER[1], of.items)),
)
Wanted = tuple[str, Callable[[Type], bool]]


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
            similar = nearest(key, names)
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
            core.report("E0607", f"`{key}` of `{name}` is {words}, and this is {of}", argument.value, f"{of}")
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


def _simple(name: str, wanted: Mapping[str, Wanted], needed: int, result: Type, mut: Sequence[str] = ()) -> Builtin:
    signature = Signature(name, wanted, needed, frozenset(mut))

    def check(core: Core, call: Invocation) -> Type:
        given = take(core, call, signature)
        if given is None:
            return result if isinstance(result, (Nothing, Host)) else WRONG
        return keep(core, call, name, given, result)

    return check


# --- optimizers and gradients ----------------------------------------------------------------------------------------

COMMON: Mapping[str, Wanted] = {"weight_decay": NUMBER, "decay_axes": WHOLE}
OPTIMIZER_PARAMETERS: Mapping[str, tuple[str, Mapping[str, Wanted]]] = {
    "sgd": ("SGD", {"m": MODEL, "lr": NUMBER, "momentum": NUMBER, "nesterov": SWITCH, **COMMON}),
    "adam": ("Adam", {"m": MODEL, "lr": NUMBER, "betas": PAIR, "eps": NUMBER, **COMMON}),
    "adamw": ("AdamW", {"m": MODEL, "lr": NUMBER, "betas": PAIR, "eps": NUMBER, **COMMON}),
    "lion": ("Lion", {"m": MODEL, "lr": NUMBER, "betas": PAIR, **COMMON}),
}


def _optimizer(name: str) -> Builtin:
    kind, wanted = OPTIMIZER_PARAMETERS[name]
    signature = Signature(name, wanted, 2)

    def check(core: Core, call: Invocation) -> Type:
        given = take(core, call, signature)
        if given is None:
            return WRONG
        model = core.type_of(given["m"].value)
        assert isinstance(model, ModelOf)
        return keep(core, call, name, given, Optimizer(kind, model))

    return check


UPDATE = Signature(
    "update",
    {
        "m": ("a model", lambda of: isinstance(of, ModelOf)),
        "opt": ("an optimizer's state", lambda of: isinstance(of, Optimizer)),
        "g": ("the gradients of the model", lambda of: isinstance(of, Gradients)),
        "lr": SCALAR,
    },
    3,
    frozenset(("m", "opt")),
)


def _update(core: Core, call: Invocation) -> Type:
    given = take(core, call, UPDATE)
    if given is None:
        return NOTHING
    model = core.type_of(given["m"].value)
    for key in ("opt", "g"):
        of = core.type_of(given[key].value)
        if isinstance(of, (Optimizer, Gradients)) and core.accepts(model, of.model) is not None:
            core.report(
                "E0709",
                f"`update` changes a {model} here, and this is {of}",
                given[key].value,
                helps=("the optimizer's state and the gradients are those of the same model",),
            )
            return NOTHING
    return keep(core, call, "update", given, NOTHING)


GRADIENTS: Wanted = ("gradients", lambda of: isinstance(of, Gradients))
CLIP = Signature("clip", {"g": GRADIENTS, "norm": SCALAR}, 2)


def _clip(core: Core, call: Invocation) -> Type:
    given = take(core, call, CLIP)
    return WRONG if given is None else keep(core, call, "clip", given, core.type_of(given["g"].value))


def _norm(core: Core, call: Invocation) -> Type | None:
    kinds = [core.type_of(argument.value) for argument in call.arguments[:1]]
    if len(call.arguments) != 1 or not isinstance(kinds[0], Gradients):
        return None
    return keep(core, call, "norm", {"g": call.arguments[0]}, Tensor((), NONNEG))


def _copy(core: Core, call: Invocation) -> Type:
    signature = Signature(
        "copy", {"m": ("a model or an optimizer's state", lambda of: isinstance(of, (ModelOf, Optimizer)))}, 1
    )
    given = take(core, call, signature)
    return WRONG if given is None else keep(core, call, "copy", given, core.type_of(given["m"].value))


AVERAGE = Signature("average", {"ema": MODEL, "m": MODEL, "keep": SCALAR}, 3, frozenset(("ema",)))


def _average(core: Core, call: Invocation) -> Type:
    given = take(core, call, AVERAGE)
    if given is None:
        return NOTHING
    ema, model = core.type_of(given["ema"].value), core.type_of(given["m"].value)
    if core.accepts(ema, model) is not None:
        core.report("E0709", f"`average` takes two models of one kind, and these are {ema} and {model}", call.node)
    return keep(core, call, "average", given, NOTHING)


# --- layers that act by mode -----------------------------------------------------------------------------------------

A_TENSOR: Wanted = ("a tensor", lambda of: isinstance(of, Tensor))


def _dropout(core: Core, call: Invocation) -> Type:
    given = take(core, call, Signature("dropout", {"x": A_TENSOR, "rate": NUMBER}, 2))
    if given is None:
        return WRONG
    x = core.type_of(given["x"].value)
    assert isinstance(x, Tensor)
    if not x.element.is_float:
        core.report("E0552", f"`dropout` scales floats, and this is {x}", given["x"].value, helps=("write `x as f32`",))
        return WRONG
    rate = literal_number(given["rate"].value)
    if rate is not None and not 0 <= rate < 1:
        core.report("E0607", f"the rate of a dropout is in 0..1, and this is {rate}", given["rate"].value)
    kept = "NonNeg" if x.element.is_nonneg else None
    return keep(core, call, "dropout", given, Tensor(x.axes, x.element.refined(kept)))


def _batch_norm(core: Core, call: Invocation) -> Type:
    arguments = [argument for argument in call.arguments if argument.name != "over"]
    over = [argument for argument in call.arguments if argument.name == "over"]
    mut = {"bn"} if any(argument.mut for argument in arguments) else set()
    norm: Wanted = (
        "a `BatchNorm`",
        lambda of: isinstance(of, ModelOf) and of.declaration is BATCH_NORM.node,
    )
    wanted = {"x": A_TENSOR, "bn": norm, "momentum": NUMBER, "eps": NUMBER}
    inner = Invocation(call.node, call.function, arguments, call.pattern)
    given = take(core, inner, Signature("batch_norm", wanted, 2, frozenset(mut)))
    if given is None:
        return WRONG
    x, bn = core.type_of(given["x"].value), core.type_of(given["bn"].value)
    assert isinstance(x, Tensor) and isinstance(bn, ModelOf)
    if not over:
        rest = " ".join(str(axis) for axis in x.axes if not same(axis, bn.arguments[0]))
        core.report("E0601", "`batch_norm` also needs `over`", call.node, helps=(f"write `over=[{rest}]`",))
        return WRONG
    axes = _over(core, over[0].value, x)
    if axes is None:
        return WRONG
    left = [axis for axis in x.axes if not any(axis == each for each in axes)]
    if len(left) != 1 or not same(left[0], bn.arguments[0]):
        shown = " ".join(map(str, left))
        core.report(
            "E0305",
            f"`batch_norm` keeps one axis, `{bn.arguments[0]}`, and here [{shown}] is left",
            over[0].value,
            notes=(f"the value is {x}",),
        )
        return WRONG
    if not mut and core.info is not None:
        core.info.plain_batch_norms.append(call.node)
    values = {key: argument.value for key, argument in given.items()}
    result = Tensor(x.axes, x.element.base)
    core.use(
        call.node,
        BuiltinUse("batch_norm", {**values, **({"mut": given["bn"].value} if mut else {})}, over=axes, result=result),
    )
    return result


def _over(core: Core, expr: tree.Expr, x: Tensor) -> tuple[Axis, ...] | None:
    sizes = expr.sizes if isinstance(expr, tree.Axes) else [expr]
    axes: list[Axis] = []
    for size in sizes:
        axis = core.axis_of(size)
        if axis is None:
            return None
        found = [each for each in x.axes if same(axis, each)]
        if len(found) != 1:
            shown = " ".join(map(str, x.axes))
            core.report("E0305", f"`{axis}` isn't an axis of this value", size, notes=(f"its axes are [{shown}]",))
            return None
        axes.append(found[0])
    return tuple(axes)


# --- datasets --------------------------------------------------------------------------------------------------------

DATASET: Wanted = ("a dataset", lambda of: isinstance(of, Dataset))
EXAMPLES: Wanted = ("a dataset or its batches", lambda of: isinstance(of, (Dataset, Batches)))


def _dataset(name: str, wanted: Mapping[str, Wanted], needed: int) -> Builtin:
    signature = Signature(name, wanted, needed)

    def check(core: Core, call: Invocation) -> Type | None:
        first = core.type_of(call.arguments[0].value) if call.arguments else WRONG
        if isinstance(first, Tensor) and name == "split":
            return None
        if isinstance(first, PythonValue):
            core.report(
                "E0805",
                f"`{name}` takes a dataset, and this is a Python value",
                call.arguments[0].value,
                helps=(f"say which: `{core.source_text(call.arguments[0].value)} as Dataset[Example]`",),
            )
            return WRONG
        given = take(core, call, signature)
        if given is None:
            return WRONG
        of = core.type_of(given["data"].value)
        assert isinstance(of, (Dataset, Batches))
        if name == "batches":
            size = literal_number(given["n"].value)
            if size is not None and size < 1:
                core.report("E0805", f"a batch holds one example or more, and this is {size}", given["n"].value)
            return keep(core, call, name, given, Batches(of.data))
        return keep(core, call, name, given, TupleOf((of, of)) if name == "split" else of)

    return check


def _len(core: Core, call: Invocation) -> Type:
    measured = (Dataset, Batches, Batch, ModelList, TupleOf, RangeOf)
    signature = Signature(
        "len", {"x": ("a dataset, a batch or a string", lambda of: isinstance(of, measured) or of == STR)}, 1
    )
    if len(call.arguments) == 1 and isinstance(core.type_of(call.arguments[0].value), Tensor):
        kind = core.type_of(call.arguments[0].value)
        core.report(
            "E0607",
            f"`len` takes a dataset, a batch or a string, and this is {kind}",
            call.arguments[0].value,
            helps=("an axis's name is its length: write the name",),
        )
        return INT
    given = take(core, call, signature)
    return INT if given is None else keep(core, call, "len", given, INT)


# --- printing and files ----------------------------------------------------------------------------------------------


def _print(core: Core, call: Invocation) -> Type:
    values: list[tree.Expr] = []
    for argument in call.arguments:
        kind = core.type_of(argument.value)
        if argument.name is not None or argument.mut:
            core.report("E0602", "`print` takes values alone", argument)
        elif isinstance(kind, Nothing):
            core.report("E0609", "this gives no value to print", argument.value)
        else:
            values.append(argument.value)
    return keep(core, call, "print", {}, NOTHING, values)


LOG = Signature("log", {"name": TEXT, "value": SCALAR, "step": SCALAR}, 2)


def _log(core: Core, call: Invocation) -> Type | None:
    if not call.arguments or core.type_of(call.arguments[0].value) != STR:
        return _number("log", core, call)
    given = take(core, call, LOG)
    if given is None:
        return NOTHING
    return keep(core, call, "log", given, NOTHING)


def _show(core: Core, call: Invocation) -> Type:
    given = take(core, call, Signature("show", {"name": TEXT, "x": ANY}, 2))
    return NOTHING if given is None else keep(core, call, "show", given, NOTHING)


def _whole(core: Core, call: Invocation) -> Type:
    held: Wanted = ("a tensor or a batch", lambda of: isinstance(of, (Tensor, Batch)))
    given = take(core, call, Signature("whole", {"x": held}, 1))
    if given is None:
        return WRONG
    of = core.type_of(given["x"].value)
    return keep(core, call, "whole", given, of)


KEPT: Wanted = ("a model or an optimizer's state", lambda of: isinstance(of, (ModelOf, Optimizer, Gradients, Tensor)))
LOADED: Wanted = ("a model or an optimizer's state", lambda of: isinstance(of, (ModelOf, Optimizer)))


def _checkpoint(name: str) -> Builtin:
    loads = name == "load_checkpoint"

    def check(core: Core, call: Invocation) -> Type:
        if not call.arguments:
            core.report("E0601", f"`{name}` also needs `path`", call.node)
            return NOTHING
        path = core.type_of(call.arguments[0].value)
        if path != STR and not isinstance(path, (Wrong, PythonValue)):
            core.report("E0607", f"`path` of `{name}` is a string, and this is {path}", call.arguments[0].value)
        kept: dict[str, tree.Argument] = {"path": call.arguments[0]}
        for argument in call.arguments[1:]:
            kind = core.type_of(argument.value)
            key = argument.name or (argument.value.name if isinstance(argument.value, tree.Name) else None)
            if key is None or key in kept:
                core.report(
                    "E0602",
                    f"`{name}` keeps each value under its name, and this has none of its own",
                    argument,
                    helps=(f"write `name={core.source_text(argument.value)}`",),
                )
                return NOTHING
            if not isinstance(kind, (Wrong, ModelOf, Optimizer, Tensor, Host, PythonValue, Gradients)):
                core.report("E0607", f"a checkpoint doesn't hold {kind}", argument.value)
            check_mut(core, argument, loads, key, name)
            kept[key] = argument
        return keep(core, call, name, kept, NOTHING)

    return check


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


def _number(name: str, core: Core, call: Invocation) -> Type | None:
    """A function of host numbers; None where a tensor is among them."""
    kinds = [core.type_of(argument.value) for argument in call.arguments]
    if any(isinstance(kind, Tensor) for kind in kinds) or call.pattern is not None:
        return None
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


def _conversion(name: str) -> Builtin:
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


def _reversed(core: Core, call: Invocation) -> Type:
    visited: Wanted = ("a range or a list of models", lambda of: isinstance(of, (RangeOf, ModelList)))
    given = take(core, call, Signature("reversed", {"x": visited}, 1))
    return WRONG if given is None else keep(core, call, "reversed", given, core.type_of(given["x"].value))


SCHEDULE: Mapping[str, Wanted] = {"step": SCALAR, "peak": NUMBER}
BUILTINS: dict[str, Builtin] = {
    **{name: _optimizer(name) for name in OPTIMIZER_PARAMETERS},
    "update": _update,
    "clip": _clip,
    "norm": _norm,
    "copy": _copy,
    "average": _average,
    "dropout": _dropout,
    "batch_norm": _batch_norm,
    "shuffle": _dataset("shuffle", {"data": DATASET, "seed": WHOLE}, 1),
    "batches": _dataset("batches", {"data": DATASET, "n": WHOLE, "drop_last": SWITCH}, 2),
    "take": _dataset("take", {"data": EXAMPLES, "n": WHOLE}, 2),
    "skip": _dataset("skip", {"data": EXAMPLES, "n": WHOLE}, 2),
    "split": _dataset("split", {"data": DATASET, "part": NUMBER, "seed": WHOLE}, 2),
    "map": _dataset("map", {"data": DATASET, "function": ("a Python function", lambda of: False)}, 2),
    "len": _len,
    "print": _print,
    "log": _log,
    "show": _show,
    "whole": _whole,
    "save": _simple("save", {"thing": KEPT, "path": TEXT}, 2, NOTHING),
    "load": _simple("load", {"thing": LOADED, "path": TEXT}, 2, NOTHING, ("thing",)),
    "save_checkpoint": _checkpoint("save_checkpoint"),
    "load_checkpoint": _checkpoint("load_checkpoint"),
    "time": _simple("time", {}, 0, FLOAT),
    "warmup_cosine": _simple(
        "warmup_cosine", {**SCHEDULE, "warmup": NUMBER, "total": NUMBER, "floor": NUMBER}, 4, FLOAT
    ),
    "warmup_linear": _simple(
        "warmup_linear", {**SCHEDULE, "warmup": NUMBER, "total": NUMBER, "floor": NUMBER}, 4, FLOAT
    ),
    "cosine": _simple("cosine", {**SCHEDULE, "total": NUMBER, "floor": NUMBER}, 3, FLOAT),
    "exponential": _simple("exponential", {**SCHEDULE, "rate": NUMBER}, 3, FLOAT),
    "steps": _simple("steps", {**SCHEDULE, "every": NUMBER, "factor": NUMBER}, 4, FLOAT),
    "int": _conversion("int"),
    "float": _conversion("float"),
    "bool": _conversion("bool"),
    "str": _conversion("str"),
    "reversed": _reversed,
}


def _number_builtin(name: str) -> Builtin:
    return lambda core, call: _number(name, core, call)


BUILTINS.update({name: _number_builtin(name) for name in NUMBER_FUNCTIONS if name not in BUILTINS})
