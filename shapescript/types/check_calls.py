"""Calls of what the program declares: functions, extern functions, models, data; and of Python.

Takes a `Core` and an `Invocation` (a call, or a pipe into one); gives the result's type and keeps its use. A call gets
one message. Built-ins are `check_builtins.py`'s and the tensor operations'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shapescript.diagnostics.diagnostic import Fix, Label
from shapescript.diagnostics.fixes import put_in, replaced
from shapescript.diagnostics.suggest import nearest
from shapescript.names import name_span
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.check_core import Core, met, root_of
from shapescript.types.check_types import model_with
from shapescript.types.kinds import (
    PYTHON,
    WRONG,
    Batch,
    Gradients,
    Host,
    ModelList,
    ModelOf,
    Nothing,
    Optimizer,
    PythonValue,
    Tensor,
    TupleOf,
    Type,
    Wrong,
)
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import FunctionInfo
from shapescript.types.unify import Mismatch, match
from shapescript.types.uses import BuiltinUse, CallUse, DataUse, Default, ExternUse, ModelUse


@dataclass(frozen=True)
class Invocation:
    """A call as the checks see it: `x |> f(a)` has `x` as its first argument, and the pipe as its node."""

    node: tree.Expr
    function: tree.Expr
    arguments: Sequence[tree.Argument]
    pattern: tree.Pattern | None


# --- mut -------------------------------------------------------------------------------------------------------------


def is_mutable(core: Core, name: str) -> bool:
    """Whether the local may be changed."""
    local = core.locals.get(name)
    return local is None or local.mutable


def not_mutable(core: Core, root: tree.Name, node: tree.Node) -> None:
    """E0605: what is to be changed is a parameter without `mut`."""
    local = core.locals.get(root.name)
    labels = (Label(local.span, "this parameter"),) if local is not None and local.parameter else ()
    core.report(
        "E0605",
        f"`{root.name}` isn't `mut` here, so it can't be changed",
        node,
        secondary=labels,
        helps=(f"write `mut {root.name}` in the signature, and at each call",),
    )


def check_mut(core: Core, argument: tree.Argument, wanted: bool, name: str, callee: str) -> bool:
    """Whether an argument has `mut` exactly where its parameter does."""
    text = core.source_text(argument.value)
    if wanted and not argument.mut:
        core.report(
            "E0606",
            f"`{callee}` changes its `{name}`, so the call says `mut`",
            argument,
            helps=(f"write `mut {text}`",),
            fixes=(put_in(core.here.source, argument.value.start, "mut "),),
        )
        return False
    if argument.mut and not wanted:
        core.report(
            "E0606",
            f"`{callee}` doesn't change its `{name}`",
            argument,
            helps=(f"write `{text}` without `mut`, or `mut {name}` in the signature of `{callee}`",),
            fixes=(without_mut(core, argument),),
        )
        return False
    if not wanted:
        return True
    root = root_of(argument.value)
    if root is None or core.locals.get(root.name) is None:
        core.report("E0605", "only a name or a part of what a name holds can be changed", argument.value)
        return False
    if not is_mutable(core, root.name):
        not_mutable(core, root, argument)
        return False
    return True


def without_mut(core: Core, argument: tree.Argument) -> Fix:
    """The argument without its `mut`."""
    head = core.source_text(argument)[: argument.value.start - argument.start]
    start = argument.start + head.rindex("mut")
    return replaced(core.here.source.span(start, argument.value.start), "", title="leave `mut` out")


# --- mismatches ------------------------------------------------------------------------------------------------------

MISMATCH_CODES = {"element": "E0551", "type": "E0607"}


def say_mismatch(core: Core, mismatch: Mismatch, node: tree.Node, what: str, labels: Sequence[Label] = ()) -> None:
    """One message about a value that isn't of the type asked for; `what` names the place, as in "`x` of `f`"."""
    wanted, found = mismatch.wanted, mismatch.found
    code = MISMATCH_CODES.get(mismatch.kind, "E0351")
    notes: list[str] = []
    helps: list[str] = []
    if mismatch.kind == "two axes" and mismatch.variable is not None:
        message = (
            f"`{mismatch.variable}` would be two axes in this call: `{mismatch.bound}` and `{mismatch.found_axis}`"
        )
        code = "E0352"
        notes.append(f"{what} is {wanted}, and this is {found}")
    elif mismatch.kind == "infer":
        message = f"`{mismatch.variable}` can't be worked out from this call"
        code = "E0353"
        notes.append(f"{what} is {wanted}, and this is {found}")
    else:
        message = f"{what} is {wanted}, and this is {found}"
        if mismatch.kind in ("axis", "size") and mismatch.axis is not None and mismatch.found_axis is not None:
            notes.append(f"axis `{mismatch.axis}` isn't axis `{mismatch.found_axis}`{_sizes(core, mismatch)}")
        elif mismatch.kind == "spread":
            notes.append("`..` stands for the same axes everywhere in a signature")
        helps.extend(_advice(core, mismatch, node))
    core.report(code, message, node, f"{found}", labels, notes, helps)


def _sizes(core: Core, mismatch: Mismatch) -> str:
    assert mismatch.axis is not None and mismatch.found_axis is not None
    wanted, found = core.length_of(mismatch.axis), core.length_of(mismatch.found_axis)
    if wanted is None or found is None:
        return ""
    return f": their sizes are {wanted} and {found}" if wanted != found else f", though both are {wanted} long"


def taken_apart(of: TupleOf) -> str:
    """What to write where a tuple is given and one of its values is meant."""
    names = ["l", "g"] if any(isinstance(item, Gradients) for item in of.items) and len(of.items) == 2 else None
    names = names or [f"{letter}" for letter in "abcdefgh"[: len(of.items)]]
    return f"it is a tuple of {len(of.items)}: take it apart first, `{', '.join(names)} = ...`"


def _advice(core: Core, mismatch: Mismatch, node: tree.Node) -> list[str]:
    wanted, found = mismatch.wanted, mismatch.found
    text = core.source_text(node)
    if isinstance(found, TupleOf) and not isinstance(wanted, TupleOf):
        return [taken_apart(found)]
    shown = f"({text})" if isinstance(node, (tree.Binary, tree.Unary, tree.Pipe, tree.As)) else text
    if isinstance(found, PythonValue):
        return [f"say what Python gives: `{shown} as {wanted}`"]
    if isinstance(wanted, Tensor) and isinstance(found, Tensor):
        if isinstance(node, tree.Binary) and node.op == "/" and wanted.element.is_whole:
            left, right = core.source_text(node.left), core.source_text(node.right)
            return [f"`/` gives f32, and `//` divides whole numbers: `{left} // {right}`"]
        if mismatch.kind == "element" and wanted.element.refinement != "Index":
            return [f"write `{shown} as {wanted.element}` if that is so"]
        if mismatch.kind == "element" and found.element.is_whole:
            return [f"write `{shown} as {wanted}`, which is checked when it runs"]
        return []
    if isinstance(wanted, Host) and isinstance(found, Tensor) and not found.axes:
        return [f"look at the tensor: `{wanted.name}({text})`"]
    if isinstance(wanted, Tensor) and isinstance(found, Host) and not wanted.axes:
        return [f"write `{shown} as {wanted}`"]
    return []


# --- functions -------------------------------------------------------------------------------------------------------


def call_function(core: Core, call: Invocation, info: FunctionInfo) -> Type:
    """A call of a declared function."""
    bound = bind(core, call, info)
    if bound is None:
        return WRONG if not isinstance(info.result, Nothing) else info.result
    use, result = match_call(core, call.node, info, bound)
    if use is None:
        return WRONG if not isinstance(info.result, Nothing) else info.result
    core.use(call.node, use)
    return result


def bind(core: Core, call: Invocation, info: FunctionInfo) -> list[tree.Expr | Default] | None:
    """The arguments in the order of the parameters, with `mut` where it belongs; None after a message."""
    if call.pattern is not None:
        core.report("E0601", f"`{info.name}` takes no pattern", call.pattern)
        return None
    for argument in call.arguments:
        core.type_of(argument.value)
    placed: dict[str, tree.Argument] = {}
    names = [parameter.name for parameter in info.parameters]
    for place, argument in enumerate(call.arguments):
        name = argument.name
        if name is None:
            if place >= len(names):
                _count(core, call, info, argument)
                return None
            name = names[place]
        if name not in names:
            similar = nearest(name, names)
            helps = (f"did you mean `{similar}`?",) if similar else (f"its parameters are {_listed(names)}",)
            core.report("E0602", f"`{info.name}` has no parameter `{name}`", argument, helps=helps)
            return None
        if name in placed:
            core.report("E0602", f"`{name}` is given twice", argument, secondary=(Label(core.span(placed[name])),))
            return None
        placed[name] = argument
    bound: list[tree.Expr | Default] = []
    for parameter in info.parameters:
        given = placed.get(parameter.name)
        if given is not None:
            if not check_mut(core, given, parameter.mut, parameter.name, info.name):
                return None
            bound.append(given.value)
        elif parameter.default is not None:
            bound.append(Default(parameter.default))
        else:
            _count(core, call, info, None, parameter.name)
            return None
    return bound


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _count(core: Core, call: Invocation, info: FunctionInfo, extra: tree.Argument | None, missing: str = "") -> None:
    label = Label(name_span(info.source, info.node), "declared here")
    if extra is not None:
        count = len(info.parameters)
        takes = "nothing" if count == 0 else "one argument" if count == 1 else f"{count} arguments"
        core.report("E0601", f"`{info.name}` takes {takes}, and this is one more", extra, secondary=(label,))
    else:
        core.report("E0601", f"`{info.name}` also needs `{missing}`", call.node, secondary=(label,))


def match_call(
    core: Core,
    node: tree.Expr,
    info: FunctionInfo,
    arguments: Sequence[tree.Expr | Default],
    kinds: Sequence[Type] | None = None,
) -> tuple[CallUse | ExternUse | None, Type]:
    """Unifies the arguments with the signature; `kinds` stand in for types of arguments that aren't their own."""
    given: list[Type] = []
    wanted: list[Type] = []
    places: list[tree.Expr] = []
    known: dict[str, Axis] = {}
    for place, (parameter, argument) in enumerate(zip(info.parameters, arguments, strict=True)):
        if parameter.name in info.axes and parameter.type == Host("int"):
            known[parameter.name] = axis_of_argument(core, argument, parameter.name)
        if isinstance(argument, Default):
            continue
        kind = core.type_of(argument) if kinds is None else kinds[place]
        if isinstance(kind, Wrong) or isinstance(parameter.type, Wrong):
            kind = WRONG
        wanted.append(parameter.type)
        given.append(met(parameter.type, kind))
        places.append(argument)
    if _any_wrong(given):
        remember(core, info, node)
        return None, WRONG
    outcome = match(wanted, given, list(info.axes), known)
    if isinstance(outcome, Mismatch):
        at = places[outcome.argument]
        parameter = next(p for p, a in zip(info.parameters, arguments, strict=True) if a is at)
        labels = [
            Label(info.source.span(parameter.node.start, parameter.node.end), f"`{parameter.name}` of `{info.name}`")
        ]
        if outcome.first is not None and outcome.first != outcome.argument:
            labels.append(Label(core.span(places[outcome.first]), f"here `{outcome.variable}` is `{outcome.bound}`"))
        say_mismatch(core, outcome, at, f"`{parameter.name}` of `{info.name}`", labels)
        return None, WRONG
    try:
        result = outcome.apply(info.result)
    except SizeError as error:
        label = Label(name_span(info.source, info.node), f"it gives {info.result}")
        core.report("E0307", f"what `{info.name}` gives has no size here: {error}", node, secondary=(label,))
        return None, WRONG
    remember(core, info, node)
    axes = {**outcome.axes}
    if isinstance(info.node, tree.Extern):
        return ExternUse(info.node, tuple(arguments), axes, result), result
    return CallUse(info.node, tuple(arguments), axes, outcome.spread), result


def _any_wrong(kinds: Sequence[Type]) -> bool:
    return any(isinstance(kind, Wrong) for kind in kinds)


def remember(core: Core, info: FunctionInfo, node: tree.Node, *, trained: bool = True) -> None:
    """Keeps that this function calls another, for what needs all bodies."""
    if core.info is not None and isinstance(info.node, tree.Function):
        core.info.calls.setdefault(info.node, node)
        if trained:
            core.info.trained_calls.setdefault(info.node, node)


def axis_of_argument(core: Core, argument: tree.Expr | Default, name: str) -> Axis:
    """The axis that an `int` argument makes: a dim's, a number's, or one known only when it runs."""
    expr = argument.value if isinstance(argument, Default) else argument
    if isinstance(expr, tree.Name) and core.locals.get(expr.name) is None:
        axis = core.axis_named(expr.name)
        if axis is not None:
            return axis
    size: Size | None = core.size_of(expr)
    if size is None:
        return core.fresh_axis(name)
    return Axis.named(expr.name) if isinstance(expr, tree.Name) and size == Size.atom(expr.name) else Axis.of(size)


# --- models and data -------------------------------------------------------------------------------------------------


def make_model(core: Core, call: Invocation, model: tree.Model, sizes: Sequence[tree.Expr]) -> Type:
    """`Classifier(seed=0)`, `Linear[D Hd](seed=0)`."""
    of = model_with(core, model, sizes, call.function)
    seed: tree.Expr | None = None
    for place, argument in enumerate(call.arguments):
        kind = core.type_of(argument.value)
        if argument.name not in (None, "seed") or place > 0 or argument.mut or call.pattern is not None:
            core.report(
                "E0708",
                f"`{model.name}` is made with a seed alone",
                argument,
                helps=(f"write `{model.name}(seed=0)`, and assign to its fields after that",),
            )
            return WRONG
        if not isinstance(kind, (Wrong, PythonValue)) and kind != Host("int"):
            core.report("E0607", f"a seed is an int, and this is {kind}", argument.value)
            return WRONG
        seed = argument.value
    if isinstance(of, ModelOf):
        core.use(call.node, ModelUse(model, of.arguments, seed))
    return of


def make_data(core: Core, call: Invocation, data: tree.Data) -> Type:
    """`Example(pixels=x, digit=y)`: every field by name, all with the same first axis."""
    info = core.program.data_of[data]
    given: dict[str, tree.Expr] = {}
    for place, argument in enumerate(call.arguments):
        core.type_of(argument.value)
        names = list(info.fields)
        name = argument.name or (names[place] if place < len(names) else None)
        if name not in info.fields or name in given or argument.mut:
            core.report(
                "E0804",
                f"`{data.name}` has no field `{name}`"
                if name not in given and name
                else "this is one more than its fields",
                argument,
                helps=(f"its fields are {_listed(names)}",),
            )
            return WRONG
        given[name] = argument.value
    missing = [name for name in info.fields if name not in given]
    if missing:
        core.report("E0804", f"`{data.name}` also needs {_listed(missing)}", call.node)
        return WRONG
    kinds = [core.type_of(value) for value in given.values()]
    if _any_wrong(kinds) or any(isinstance(field.type, Wrong) for field in info.fields.values()):
        return WRONG
    rows = Axis.named("b", batch=True)
    wanted: list[Type] = []
    for name in given:
        kind = info.fields[name].type
        assert isinstance(kind, Tensor)
        wanted.append(Tensor((rows, *kind.axes), kind.element))
    outcome = match(wanted, kinds, ["b"])
    if isinstance(outcome, Mismatch):
        name = list(given)[outcome.argument]
        say_mismatch(core, outcome, given[name], f"`{name}` of a batch of `{data.name}`")
        return WRONG
    core.use(call.node, DataUse(data, {name: given[name] for name in info.fields}))
    axis = outcome.axes.get("b", rows)
    return Batch(data, Axis(axis.name, axis.size, axis.parts, batch=True))


# --- Python ----------------------------------------------------------------------------------------------------------


def call_python(core: Core, call: Invocation) -> Type:
    """A call of a Python value, `arguments[""]` of its use: the arguments may be anything that has a value."""
    if call.pattern is not None:
        core.report("E0601", "a Python function takes no pattern", call.pattern)
        return PYTHON
    by_name: dict[str, tree.Expr] = {}
    rest: list[tree.Expr] = []
    for argument in call.arguments:
        kind = core.type_of(argument.value)
        if isinstance(kind, Nothing):
            core.report("E0609", "this gives no value to hand to Python", argument.value)
        elif isinstance(kind, (Optimizer, Gradients, ModelList)):
            core.report("E0905", f"{kind} can't be handed to Python", argument.value)
        if argument.mut:
            core.report("E0606", "Python is handed values, never `mut`", argument)
        if argument.name is None:
            rest.append(argument.value)
        else:
            by_name[argument.name] = argument.value
    core.use(call.node, BuiltinUse("python", {"": call.function, **by_name}, tuple(rest), result=PYTHON))
    return PYTHON
