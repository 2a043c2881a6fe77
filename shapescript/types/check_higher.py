"""Built-ins that call a function of the program: `value_and_grad`, `grad`, `remat`, `scan`, `autocast`, `training`,
`evaluating`.

Takes an `Invocation` whose first argument names the function; gives the result's type and keeps a `BuiltinUse` with
the call's binding in `call`. `rest` holds the arguments for the function in order; `over` the axis of a `scan`, and
`result` the type of what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence

from shapescript.diagnostics.diagnostic import Label
from shapescript.diagnostics.suggest import nearest
from shapescript.names import name_span
from shapescript.syntax import tree
from shapescript.types.axes import Axis, same
from shapescript.types.check_calls import Invocation, bind, check_mut, match_call, remember, say_mismatch
from shapescript.types.check_core import Core
from shapescript.types.element import element_named
from shapescript.types.kinds import NOTHING, WRONG, Gradients, ModelOf, Nothing, Tensor, TupleOf, Type, Wrong
from shapescript.types.typed import FunctionInfo
from shapescript.types.uses import BuiltinUse, CallUse, FunctionUse

HIGHER = ("value_and_grad", "grad", "remat", "scan", "autocast", "training", "evaluating")


def check_higher(core: Core, name: str, call: Invocation) -> Type:
    """One of `HIGHER`."""
    own = {"scan": ("over",), "autocast": ("to",)}.get(name, ())
    options = {a.name: a.value for a in call.arguments if a.name in own and a.name is not None}
    arguments = [argument for argument in call.arguments if argument.name not in own]
    for option in own:
        if option not in options:
            example = "over=n" if option == "over" else "to=bf16"
            core.report("E0601", f"`{name}` also needs `{option}`", call.node, helps=(f"write `{example}`",))
            return WRONG
    info = _function(core, name, call, arguments)
    if info is None:
        for argument in arguments[1:]:
            core.type_of(argument.value)
        return WRONG
    inner = Invocation(call.node, arguments[0].value, arguments[1:], call.pattern)
    if name in ("value_and_grad", "grad"):
        return _gradient(core, name, inner, info)
    if name == "scan":
        return _scan(core, inner, info, options["over"])
    return _again(core, name, inner, info, options.get("to"))


def _function(core: Core, name: str, call: Invocation, arguments: Sequence[tree.Argument]) -> FunctionInfo | None:
    """The declared function that the first argument names."""
    if not arguments:
        core.report("E0601", f"`{name}` also needs the function to call", call.node)
        return None
    expr = arguments[0].value
    info: FunctionInfo | None = None
    if isinstance(expr, tree.Name) and core.locals.get(expr.name) is None:
        info = core.program.functions.get(expr.name)
        if info is None and core.is_lost(expr.name):
            return None
        if info is None and expr.name not in core.here.names.declared:
            core.unknown(expr.name, expr, "function", list(core.program.functions))
            return None
    elif isinstance(expr, tree.Attribute) and isinstance(expr.of, tree.Name):
        program = core.here.imported(expr.of.name)
        info = program.functions.get(expr.name) if program is not None else None
    if info is None or not isinstance(info.node, tree.Function):
        core.report(
            "E0614",
            f"the first argument of `{name}` is a function of the program",
            expr,
            helps=(f"write its name alone: `{name}(loss, m, batch)`",),
        )
        return None
    core.use(expr, FunctionUse(info.node))
    return info


def _bound(core: Core, call: Invocation, info: FunctionInfo) -> tuple[CallUse | None, Type]:
    bound = bind(core, call, info)
    if bound is None:
        return None, WRONG
    use, result = match_call(core, call.node, info, bound)
    return (use, result) if isinstance(use, CallUse) else (None, WRONG)


def _rest(call: Invocation) -> tuple[tree.Expr, ...]:
    return tuple(argument.value for argument in call.arguments)


def _gradient(core: Core, name: str, call: Invocation, info: FunctionInfo) -> Type:
    if core.info is not None:
        assert isinstance(info.node, tree.Function)
        core.info.differentiated.append((info.node, call.node))
    use, result = _bound(core, call, info)
    model: Type = core.type_of(call.arguments[0].value) if call.arguments else WRONG
    declared = info.parameters[0].type if info.parameters else NOTHING
    if not isinstance(declared, (ModelOf, Wrong)):
        core.report(
            "E0710",
            f"`{name}` differentiates the first parameter of `{info.name}`, which isn't a model",
            call.function,
            secondary=(Label(name_span(info.source, info.node), "declared here"),),
            helps=("put the model first: `fn loss(m: Net, batch: [b] Example) -> [] NonNeg`",),
        )
        return WRONG
    value = info.result
    first = value.items[0] if isinstance(value, TupleOf) and value.items else value
    if not isinstance(first, Wrong) and not (isinstance(first, Tensor) and not first.axes and first.element.is_float):
        core.report(
            "E0711",
            f"what is differentiated is one float, and `{info.name}` gives {value}",
            call.function,
            secondary=(Label(name_span(info.source, info.node), "declared here"),),
            helps=("reduce it: `mean(x, over=b)`; a tuple may follow the loss: `-> ([] NonNeg, [b C])`",),
        )
        return WRONG
    if use is None or not isinstance(model, ModelOf):
        if isinstance(declared, ModelOf) and not declared.arguments and not isinstance(value, Wrong):
            gradients = Gradients(declared)
            shape = TupleOf(tuple(WRONG for _ in value.items)) if isinstance(value, TupleOf) else WRONG
            return gradients if name == "grad" else TupleOf((shape, gradients))
        return WRONG
    gives: Type = Gradients(model) if name == "grad" else TupleOf((result, Gradients(model)))
    core.use(call.node, BuiltinUse(name, {}, _rest(call), use, result=gives))
    return gives


def _again(core: Core, name: str, call: Invocation, info: FunctionInfo, to: tree.Expr | None) -> Type:
    """`remat`, `autocast`, `training`, `evaluating`: the call itself, in another manner."""
    if to is not None:
        element = element_named(to.name) if isinstance(to, tree.Name) else None
        if element is None or element.name not in ("bf16", "f16"):
            similar = nearest(to.name, ["bf16", "f16"]) if isinstance(to, tree.Name) else None
            core.report(
                "E0553", "`to` of `autocast` is `bf16` or `f16`", to, helps=(f"write `to={similar or 'bf16'}`",)
            )
            return WRONG
    before = set(core.info.trained_calls) if core.info is not None else set()
    use, result = _bound(core, call, info)
    if (
        name == "evaluating"
        and core.info is not None
        and info.node not in before
        and isinstance(info.node, tree.Function)
    ):
        core.info.trained_calls.pop(info.node, None)
    if use is None:
        return WRONG if not isinstance(info.result, Nothing) else NOTHING
    core.use(call.node, BuiltinUse(name, {"to": to} if to is not None else {}, _rest(call), use, result=result))
    return result


# --- scan ------------------------------------------------------------------------------------------------------------


def _scan(core: Core, call: Invocation, info: FunctionInfo, over: tree.Expr) -> Type:
    """`scan(f, args..., carry, xs, over=n)`: f takes a carry and the part of xs at one place of n."""
    arguments = call.arguments
    kinds = [core.type_of(argument.value) for argument in arguments]
    if len(arguments) != len(info.parameters) or len(arguments) < 2 or any(a.name is not None for a in arguments):
        core.report(
            "E0601",
            f"`scan` calls `{info.name}` with {len(info.parameters)} arguments, and {len(arguments)} are given",
            call.node,
            secondary=(Label(name_span(info.source, info.node), "declared here"),),
            helps=("write `scan(f, args..., carry, xs, over=n)`: f ends with the carry and one place of xs",),
        )
        return WRONG
    for argument, parameter in zip(arguments, info.parameters, strict=True):
        if not check_mut(core, argument, parameter.mut, parameter.name, info.name):
            return WRONG
    axis = core.axis_of(over)
    if axis is None or any(isinstance(kind, Wrong) for kind in kinds):
        return WRONG
    place = _place(kinds[-1], axis)
    part = _without(kinds[-1], axis)
    if part is None:
        core.report("E0305", f"`{axis}` isn't an axis of what is scanned", over, notes=(f"that is {kinds[-1]}",))
        return WRONG
    use, result = match_call(core, call.node, info, [a.value for a in arguments], [*kinds[:-1], part])
    if not isinstance(use, CallUse):
        return WRONG
    carry = kinds[-2]
    alone = core.accepts(carry, result) is None
    if not alone and not (isinstance(result, TupleOf) and len(result.items) == 2):
        what = f"what `{info.name}` gives, the next carry,"
        mismatch = core.accepts(carry, result)
        if mismatch is not None:
            say_mismatch(core, mismatch, call.function, what)
        return WRONG
    gives: Type = TupleOf((result, NOTHING))
    if not alone and isinstance(result, TupleOf):
        mismatch = core.accepts(carry, result.items[0])
        if mismatch is not None:
            say_mismatch(core, mismatch, call.function, f"the carry that `{info.name}` gives")
            return WRONG
        gives = TupleOf((result.items[0], _with(result.items[1], axis, place)))
    remember(core, info, call.node)
    core.use(call.node, BuiltinUse("scan", {}, _rest(call), use, (axis,), gives))
    return gives


def _place(of: Type, axis: Axis) -> int:
    if isinstance(of, TupleOf) and of.items:
        return _place(of.items[0], axis)
    if isinstance(of, Tensor):
        return next((place for place, each in enumerate(of.axes) if same(each, axis)), 0)
    return 0


def _without(of: Type, axis: Axis) -> Type | None:
    if isinstance(of, TupleOf):
        items = [_without(item, axis) for item in of.items]
        known = [item for item in items if item is not None]
        return TupleOf(tuple(known)) if len(known) == len(items) else None
    if isinstance(of, Tensor) and any(same(each, axis) for each in of.axes):
        return Tensor(tuple(each for each in of.axes if not same(each, axis)), of.element)
    return None


def _with(of: Type, axis: Axis, place: int) -> Type:
    if isinstance(of, TupleOf):
        return TupleOf(tuple(_with(item, axis, place) for item in of.items))
    if isinstance(of, Tensor):
        return Tensor((*of.axes[:place], axis, *of.axes[place:]), of.element)
    return of
