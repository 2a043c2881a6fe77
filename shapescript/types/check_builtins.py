"""Built-ins that aren't one tensor operation: training, datasets, printing, files, schedules, numbers.

Gives `BUILTINS`, by name: each checks one `Invocation`, keeps a `BuiltinUse` with its arguments by name, and gives
the result's type. What calls a function of the program (`value_and_grad`, `scan`, `remat`...) is `check_higher.py`'s.

`log` with a string first logs, else it is the logarithm; `norm`, `min`, `max`, `exp` and their like belong to the
tensor operations when a tensor is among their arguments: these give None, and the caller goes on there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.check_arguments import (
    ANY,
    MODEL,
    NUMBER,
    PAIR,
    SCALAR,
    SWITCH,
    TEXT,
    WHOLE,
    Builtin,
    Signature,
    Wanted,
    keep,
    simple,
    take,
)
from shapescript.types.check_calls import Invocation, check_mut
from shapescript.types.check_core import Core, literal_number
from shapescript.types.check_modes import batch_norm, dropout
from shapescript.types.check_numbers import NUMBER_FUNCTIONS, check_reversed, conversion, number
from shapescript.types.element import Element
from shapescript.types.kinds import (
    FLOAT,
    INT,
    NOTHING,
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
        assert isinstance(model, (ModelOf, ModelList))
        return keep(core, call, name, given, Optimizer(kind, model))

    return check


UPDATE = Signature(
    "update",
    {
        "m": MODEL,
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
                f"`update` changes {model} here, and this is {of}",
                given[key].value,
                secondary=_declared(core, given[key].value),
                helps=("the optimizer's state and the gradients are those of the same model",),
            )
            return NOTHING
    return keep(core, call, "update", given, NOTHING)


def _declared(core: Core, expr: tree.Expr) -> tuple[Label, ...]:
    """Where a parameter of this function got its type."""
    parameters = core.info.parameters if core.info is not None else ()
    found = [each.node for each in parameters if isinstance(expr, tree.Name) and each.name == expr.name]
    return tuple(Label(core.span(node), "its type") for node in found)


GRADIENTS: Wanted = ("gradients", lambda of: isinstance(of, Gradients))
CLIP = Signature("clip", {"g": GRADIENTS, "norm": SCALAR}, 2)


def _clip(core: Core, call: Invocation) -> Type:
    given = take(core, call, CLIP)
    return WRONG if given is None else keep(core, call, "clip", given, core.type_of(given["g"].value))


def _norm(core: Core, call: Invocation) -> Type | None:
    kinds = [core.type_of(argument.value) for argument in call.arguments[:1]]
    if len(call.arguments) != 1 or not isinstance(kinds[0], Gradients):
        return None
    element = "f64" if set(_floats(core, kinds[0].model)) == {"f64"} else "f32"
    return keep(core, call, "norm", {"g": call.arguments[0]}, Tensor((), Element(element, "NonNeg")))


def _floats(core: Core, model: ModelOf | ModelList) -> Iterator[str]:
    """The elements of all parameters of a model: a norm is f64 where each of them is."""
    model = model.model if isinstance(model, ModelList) else model
    for member in core.program.model_of[model.declaration].fields.values():
        match member.type:
            case Tensor() if member.word == "param":
                yield member.type.element.name
            case ModelOf():
                yield from _floats(core, member.type)
            case ModelList():
                yield from _floats(core, member.type.model)


def _copy(core: Core, call: Invocation) -> Type:
    copied: Wanted = ("a model or an optimizer's state", lambda of: isinstance(of, (ModelOf, ModelList, Optimizer)))
    signature = Signature("copy", {"m": copied}, 1)
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


# --- datasets --------------------------------------------------------------------------------------------------------

DATASET: Wanted = ("a dataset", lambda of: isinstance(of, Dataset))
EXAMPLES: Wanted = ("a dataset or its batches", lambda of: isinstance(of, (Dataset, Batches)))


def _of_batches(core: Core, call: Invocation, name: str, of: Batches) -> None:
    """Reports what is done to examples, and is given batches."""
    doing = {"shuffle": "shuffle", "split": "split", "map": "map", "filter": "filter", "batches": "put in batches"}[
        name
    ]
    core.report(
        "E0607",
        f"`{name}` takes a dataset, and this is {of}",
        call.arguments[0].value,
        f"{of}",
        helps=(
            "leave the second `batches` out"
            if name == "batches"
            else f"{doing} the examples before they are put in batches: `data |> {name}(...) |> batches(n)`",
        ),
    )


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
        if isinstance(first, Batches) and signature.wanted["data"] is DATASET:
            _of_batches(core, call, name, first)
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
        return number("log", core, call)
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
            if argument.name == "keep" and not loads:  # an option, which a file doesn't hold
                if kind != INT and not isinstance(kind, (Wrong, PythonValue)):
                    core.report("E0607", f"`keep` of `{name}` is an int, and this is {kind}", argument.value)
                kept["keep"] = argument
                continue
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


SCHEDULE: Mapping[str, Wanted] = {"step": SCALAR, "peak": NUMBER}
BUILTINS: dict[str, Builtin] = {
    **{name: _optimizer(name) for name in OPTIMIZER_PARAMETERS},
    "update": _update,
    "clip": _clip,
    "norm": _norm,
    "copy": _copy,
    "average": _average,
    "dropout": dropout,
    "batch_norm": batch_norm,
    "shuffle": _dataset("shuffle", {"data": DATASET, "seed": WHOLE}, 1),
    "batches": _dataset("batches", {"data": DATASET, "n": WHOLE, "drop_last": SWITCH, "workers": WHOLE}, 2),
    "take": _dataset("take", {"data": EXAMPLES, "n": WHOLE}, 2),
    "skip": _dataset("skip", {"data": EXAMPLES, "n": WHOLE}, 2),
    "split": _dataset("split", {"data": DATASET, "part": NUMBER, "seed": WHOLE}, 2),
    "map": _dataset("map", {"data": DATASET, "function": ("a Python function", lambda of: False)}, 2),
    "filter": _dataset("filter", {"data": DATASET, "function": ("a Python function", lambda of: False)}, 2),
    "len": _len,
    "print": _print,
    "log": _log,
    "show": _show,
    "whole": _whole,
    "save": simple("save", {"thing": KEPT, "path": TEXT}, 2, NOTHING),
    "load": simple("load", {"thing": LOADED, "path": TEXT}, 2, NOTHING, ("thing",)),
    "save_checkpoint": _checkpoint("save_checkpoint"),
    "load_checkpoint": _checkpoint("load_checkpoint"),
    "time": simple("time", {}, 0, FLOAT),
    "warmup_cosine": simple(
        "warmup_cosine", {**SCHEDULE, "warmup": NUMBER, "total": NUMBER, "floor": NUMBER}, 4, FLOAT
    ),
    "warmup_linear": simple(
        "warmup_linear", {**SCHEDULE, "warmup": NUMBER, "total": NUMBER, "floor": NUMBER}, 4, FLOAT
    ),
    "cosine": simple("cosine", {**SCHEDULE, "total": NUMBER, "floor": NUMBER}, 3, FLOAT),
    "exponential": simple("exponential", {**SCHEDULE, "rate": NUMBER}, 3, FLOAT),
    "steps": simple("steps", {**SCHEDULE, "every": NUMBER, "factor": NUMBER}, 4, FLOAT),
    "int": conversion("int"),
    "float": conversion("float"),
    "bool": conversion("bool"),
    "str": conversion("str"),
    "reversed": check_reversed,
}


def _number_builtin(name: str) -> Builtin:
    return lambda core, call: number(name, core, call)


BUILTINS.update({name: _number_builtin(name) for name in NUMBER_FUNCTIONS if name not in BUILTINS})
