"""What an expression means: the dispatch over the kinds of node, and what a call calls.

Takes a `Core` and an expression, gives its type: tensors go to the tensor operations, host values to `check_hosts`,
calls to `check_calls`, `check_builtins` and `check_higher`. Long chains of operators and pipes are walked without
recursion. One's own names hide the built-ins.
"""

from __future__ import annotations

import itertools

from shapescript.diagnostics.diagnostic import Label
from shapescript.diagnostics.fixes import replaced
from shapescript.diagnostics.suggest import nearest
from shapescript.syntax import tree
from shapescript.types import check_hosts
from shapescript.types.check_builtins import BUILTINS
from shapescript.types.check_calls import Invocation, call_function, call_python, make_data, make_model
from shapescript.types.check_core import Core
from shapescript.types.check_higher import HIGHER, check_higher
from shapescript.types.check_index import check_index
from shapescript.types.check_makers import MAKERS, check_cast, check_maker
from shapescript.types.check_numbers import NUMBER_FUNCTIONS
from shapescript.types.check_operators import check_binary, check_unary
from shapescript.types.check_types import element_of, type_of_tree
from shapescript.types.element import ELEMENT_NAMES
from shapescript.types.kinds import (
    BOOL_HOST,
    FLOAT,
    INT,
    PYTHON,
    STR,
    WRONG,
    Dataset,
    Gradients,
    Host,
    Nothing,
    PythonValue,
    RangeOf,
    Tensor,
    TupleOf,
    Type,
    Wrong,
)
from shapescript.types.operations import OPERATIONS
from shapescript.types.uses import BuiltinUse, ConstantUse, HostUse

ELEMENT_WORDS = (*ELEMENT_NAMES, "Index", "NonNeg", "Prob")


def check_expression(core: Core, expr: tree.Expr) -> Type:
    """What an expression is; `Core.type_of` keeps it."""
    match expr:
        case tree.Name():
            return check_hosts.check_name(core, expr, BUILTIN_NAMES)
        case tree.Number():
            core.use(expr, ConstantUse(expr.value))
            return INT if isinstance(expr.value, int) else FLOAT
        case tree.String():
            core.use(expr, ConstantUse(expr.value))
            return STR
        case tree.Bool():
            core.use(expr, ConstantUse(expr.value))
            return BOOL_HOST
        case tree.Group():
            return core.type_of(expr.inner)
        case tree.Tuple():
            return TupleOf(tuple(core.type_of(item) for item in expr.items))
        case tree.Attribute():
            return check_hosts.check_attribute(core, expr)
        case tree.Call():
            return check_call(core, Invocation(expr, expr.function, expr.arguments, expr.pattern))
        case tree.Pipe():
            return _pipes(core, expr)
        case tree.Binary():
            return _binaries(core, expr)
        case tree.Unary():
            return _unary(core, expr)
        case tree.Range():
            return _range(core, expr)
        case tree.Index():
            return _index(core, expr)
        case tree.WithAxes():
            return _with_axes(core, expr)
        case tree.As():
            return _as(core, expr)
        case tree.Axes():
            core.report(
                "E0617",
                "axes in brackets aren't a value",
                expr,
                helps=_instead_of_a_list(core, expr),
            )
        case tree.Slice():
            core.report("E0617", "a range without both ends stands only in an index", expr)
        case tree.Merged() | tree.AnyAxes():
            core.report("E0617", "this stands only between axes", expr)
    return WRONG


def _instead_of_a_list(core: Core, expr: tree.Axes) -> tuple[str, ...]:
    if not expr.sizes:
        return (
            'there are no lists: `log("loss", l)` keeps what a loop gathers, and lists are Python\'s, one call away',
        )
    items = ", ".join(core.source_text(size) for size in expr.sizes)
    items = f"({items},)" if len(expr.sizes) == 1 else f"({items})"
    return (f"there are no list literals: write the tuple `{items}`; `zeros[n D]` makes a tensor",)


def _binaries(core: Core, expr: tree.Binary) -> Type:
    """A chain of operators, from its left end, without recursion."""
    chain = [expr]
    while isinstance(chain[-1].left, tree.Binary) and chain[-1].left not in core.program.types:
        chain.append(chain[-1].left)
    for node in reversed(chain[1:]):
        core.set_type(node, _binary(core, node))
    return _binary(core, expr)


def _binary(core: Core, expr: tree.Binary) -> Type:
    left, right = core.type_of(expr.left), core.type_of(expr.right)
    if isinstance(left, Wrong) or isinstance(right, Wrong):
        return BOOL_HOST if expr.op in ("and", "or") and Wrong() not in (left,) and left == BOOL_HOST else WRONG
    tensors = [side for side in (left, right) if isinstance(side, Tensor)]
    if tensors and not isinstance(left, Gradients) and not isinstance(right, Gradients):
        for side, kind, other in ((expr.left, left, right), (expr.right, right, left)):
            if isinstance(kind, PythonValue):
                core.report(
                    "E0905",
                    "a Python value meets a tensor, and has no type yet",
                    side,
                    secondary=(Label(core.span(expr.right if side is expr.left else expr.left), f"{other}"),),
                    helps=(f"say what Python gives: `({core.source_text(side)} as {other})`",),
                )
                return WRONG
            if not isinstance(kind, (Tensor, Host)):
                core.report("E0610", f"`{expr.op}` doesn't go with {left} and {right}", expr)
                return WRONG
        return check_binary(core, expr)
    return check_hosts.host_binary(core, expr, left, right)


def _unary(core: Core, expr: tree.Unary) -> Type:
    kind = core.type_of(expr.operand)
    if isinstance(kind, Wrong):
        return WRONG
    return check_unary(core, expr) if isinstance(kind, Tensor) else check_hosts.host_unary(core, expr, kind)


def _range(core: Core, expr: tree.Range) -> Type:
    for end in (expr.first, expr.last):
        kind = core.type_of(end)
        if not isinstance(kind, (Wrong, PythonValue)) and kind != INT:
            helps = (f"write `int({core.source_text(end)})`",) if isinstance(kind, (Tensor, Host)) else ()
            core.report("E0610", f"a range runs between ints, and this is {kind}", end, helps=helps)
    core.use(expr, HostUse(".."))
    return RangeOf()


def _as(core: Core, expr: tree.As) -> Type:
    kind = core.type_of(expr.value)
    if isinstance(kind, Wrong):
        of = type_of_tree(check_hosts.CastScope(core), expr.type) if not _element_word(core, expr.type) else WRONG
        return of if isinstance(of, Dataset) else WRONG
    if isinstance(kind, Tensor) and _element_word(core, expr.type):
        assert isinstance(expr.type, tree.NamedType)
        element = element_of(core, expr.type)
        return check_cast(core, expr, element, None) if element is not None else WRONG
    if isinstance(kind, Tensor):
        of = type_of_tree(core, expr.type)
        if isinstance(of, Tensor):
            return check_cast(core, expr, of.element, of.axes)
        if isinstance(of, Host):
            core.report(
                "E0555",
                f"`as` gives a tensor another element, and {of} is a host value",
                expr.type,
                helps=(f"look at it: `{of.name}({core.source_text(expr.value)})`",),
            )
        elif not isinstance(of, Wrong):
            core.report("E0555", f"{kind} can't be {of}", expr)
        return WRONG
    if isinstance(kind, Host) and _element_word(core, expr.type):
        assert isinstance(expr.type, tree.NamedType)
        scalar = tree.TensorType(expr.type.start, expr.type.end, tree.Axes(expr.start, expr.start, []), expr.type)
        return check_hosts.host_cast(core, tree_as(expr, scalar), kind, keep_on=expr)
    return check_hosts.host_cast(core, expr, kind)


def tree_as(expr: tree.As, type_node: tree.TypeExpr) -> tree.As:
    """The same cast to another type as written."""
    return tree.As(expr.start, expr.end, expr.value, type_node)


def _element_word(core: Core, node: tree.TypeExpr) -> bool:
    """Whether a type is an element alone: `f32`, `Index[V]`."""
    if not isinstance(node, tree.NamedType) or node.module is not None or node.name not in ELEMENT_WORDS:
        return False
    return core.model_named(None, node.name) is None and core.data_named(None, node.name) is None


def _maker_name(core: Core, expr: tree.Expr) -> str | None:
    """The maker that a name means, unless something of the program's hides it."""
    if not isinstance(expr, tree.Name) or expr.name not in MAKERS:
        return None
    hidden = core.locals.get(expr.name) is not None or expr.name in core.here.names.declared
    return None if hidden else expr.name


def _index(core: Core, expr: tree.Index) -> Type:
    maker = _maker_name(core, expr.of)
    if maker is not None:
        _no_commas(core, expr)
        return check_maker(core, expr, maker, [item.value for item in expr.items], None)
    if _model_of(core, expr.of) is not None:
        shown = core.source_text(expr)
        core.report("E0615", f"`{shown}` is a model, not a value", expr, helps=(f"make one: `{shown}(seed=0)`",))
        return WRONG
    of = core.type_of(expr.of)
    if isinstance(of, Wrong):
        return WRONG
    return check_index(core, expr) if isinstance(of, Tensor) else check_hosts.host_index(core, expr, of)


def _no_commas(core: Core, expr: tree.Index) -> None:
    """`zeros[3, 4]`, read as `zeros[3 4]`."""
    for one, two in itertools.pairwise(expr.items):
        between = core.here.source.text[one.end : two.start]
        comma = one.end + between.index(",")
        span = core.here.source.span(comma, comma + 1)
        blank = "" if two.start > comma + 1 else " "
        fix = replaced(span, blank, safe=True, title="leave `,` out")
        message = "axes are separated by spaces, not by commas"
        core.report("E0116", message, span, helps=("leave the comma out",), fixes=(fix,))


def _with_axes(core: Core, expr: tree.WithAxes) -> Type:
    maker = _maker_name(core, expr.of)
    if maker is not None:
        return check_maker(core, expr, maker, expr.sizes, None)
    shown = core.source_text(expr.of)
    if _model_of(core, expr.of) is not None:
        whole = core.source_text(expr)
        core.report("E0615", f"`{whole}` is a model, not a value", expr, helps=(f"make one: `{whole}(seed=0)`",))
        return WRONG
    if isinstance(core.type_of(expr.of), Wrong):
        return WRONG
    core.report(
        "E0617",
        f"`{shown}` isn't made with axes",
        expr,
        helps=(f"an index names its axes, with commas: `{shown}[n=0, m=1]`",),
    )
    return WRONG


# --- calls -----------------------------------------------------------------------------------------------------------


def _pipes(core: Core, expr: tree.Pipe) -> Type:
    """A chain of pipes, from its first value, without recursion."""
    chain = [expr]
    while isinstance(chain[-1].value, tree.Pipe) and chain[-1].value not in core.program.types:
        chain.append(chain[-1].value)
    for node in reversed(chain[1:]):
        core.set_type(node, _pipe(core, node))
    return _pipe(core, expr)


def _pipe(core: Core, expr: tree.Pipe) -> Type:
    first = tree.Argument(expr.value.start, expr.value.end, None, False, expr.value)
    if isinstance(core.type_of(expr.value), Nothing):
        core.report("E0609", "this gives no value to hand on", expr.value)
        return WRONG
    target = expr.target
    if isinstance(target, tree.Call):
        return check_call(core, Invocation(expr, target.function, [first, *target.arguments], target.pattern))
    return check_call(core, Invocation(expr, target, [first], None))


def _model_of(core: Core, expr: tree.Expr) -> tree.Model | None:
    """The model that `Linear` or `nets.Linear` names."""
    if isinstance(expr, tree.Name) and core.locals.get(expr.name) is None:
        return core.model_named(None, expr.name)
    if isinstance(expr, tree.Attribute) and isinstance(expr.of, tree.Name) and core.locals.get(expr.of.name) is None:
        return core.model_named(expr.of.name, expr.name)
    return None


def check_call(core: Core, call: Invocation) -> Type:
    """A call of anything."""
    function = call.function
    match function:
        case tree.Group():
            return check_call(core, Invocation(call.node, function.inner, call.arguments, call.pattern))
        case tree.Name():
            return _call_name(core, call, function)
        case tree.Attribute():
            return _call_attribute(core, call, function)
        case tree.WithAxes() | tree.Index():
            sizes = function.sizes if isinstance(function, tree.WithAxes) else [i.value for i in function.items]
            maker = _maker_name(core, function.of)
            if maker is not None:
                return check_maker(core, call.node, maker, sizes, plain_arguments(core, call, maker))
            model = _model_of(core, function.of)
            if model is not None:
                return make_model(core, call, model, sizes)
    return _call_value(core, call, core.type_of(function))


def plain_arguments(core: Core, call: Invocation, name: str) -> list[tuple[str | None, tree.Expr]]:
    """The arguments of a tensor operation, none of which is `mut`."""
    for argument in call.arguments:
        if argument.mut:
            core.report("E0606", f"`{name}` changes none of its arguments", argument, helps=("take `mut` out",))
    return [(argument.name, argument.value) for argument in call.arguments]


def _call_value(core: Core, call: Invocation, of: Type) -> Type:
    if isinstance(of, PythonValue):
        return call_python(core, call)
    _look_at(core, call)
    if not isinstance(of, Wrong):
        core.report("E0615", f"this is {of}, which can't be called", call.function)
    return WRONG


def _look_at(core: Core, call: Invocation) -> None:
    """Checks the arguments of a call that can't be checked as one; what a lone name means there isn't known."""
    for argument in call.arguments:
        value = argument.value
        if not isinstance(value, tree.Name) or core.locals.get(value.name) is not None:
            core.type_of(value)


def _call_name(core: Core, call: Invocation, function: tree.Name) -> Type:
    name = function.name
    here = core.here.names
    local = core.locals.get(name)
    hides_value = local is not None and not (local.type != PYTHON and (name in here.functions or name in BUILTIN_NAMES))
    if hides_value:
        return _call_value(core, call, core.type_of(function))
    program = core.program
    if name in program.functions:
        return call_function(core, call, program.functions[name])
    if name in program.externs:
        return call_function(core, call, program.externs[name])
    model, data = core.model_named(None, name), core.data_named(None, name)
    if model is not None:
        return make_model(core, call, model, [])
    if data is not None:
        return make_data(core, call, data)
    if name in here.declared:
        return _call_value(core, call, core.type_of(function))
    if core.is_lost(name):
        _look_at(core, call)
        return WRONG
    return _call_builtin(core, call, function)


def _call_builtin(core: Core, call: Invocation, function: tree.Name) -> Type:
    name = function.name
    if name in HIGHER:
        return check_higher(core, name, call)
    if name == "map" and name in BUILTINS:
        return _map(core, call)
    if name in BUILTINS:
        found = BUILTINS[name](core, call)
        if found is not None:
            return found
    if name in OPERATIONS:
        return OPERATIONS[name](core, call.node, call.pattern, plain_arguments(core, call, name))
    if name in MAKERS:
        given = " ".join(core.source_text(each.value) for each in call.arguments if each.name is None)
        plain = bool(given) and all(isinstance(each.value, (tree.Name, tree.Number)) for each in call.arguments)
        helps = (f"write `{name}[{given if plain else 'n D'}]`",)
        core.report("E0615", f"`{name}` is made with axes", call.node, helps=helps)
        return WRONG
    axis = core.axes.get(name) if core.locals.get(name) is None else None
    if axis is not None:
        core.report("E0615", f"`{name}` is an axis, which can't be called", function)
        return WRONG
    _look_at(core, call)
    candidates = [*core.here.names.smalls(), *core.here.names.capitals(), *BUILTIN_NAMES]
    return core.unknown(name, function, "function", candidates)


def _map(core: Core, call: Invocation) -> Type:
    """`data |> map(python function)`."""
    kinds = [core.type_of(argument.value) for argument in call.arguments]
    if any(isinstance(kind, Wrong) for kind in kinds):
        return WRONG
    if len(kinds) != 2 or not isinstance(kinds[0], Dataset) or not isinstance(kinds[1], PythonValue):
        core.report(
            "E0805",
            "`map` takes a dataset and a Python function, which it calls on each example",
            call.node,
            helps=("write `data |> map(augment.flip)`",),
        )
        return WRONG
    values = {"data": call.arguments[0].value, "function": call.arguments[1].value}
    core.use(call.node, BuiltinUse("map", values, result=kinds[0]))
    return kinds[0]


def _call_attribute(core: Core, call: Invocation, function: tree.Attribute) -> Type:
    module = check_hosts.module_of(core, function.of)
    if module is None or module.python:
        return _call_value(core, call, core.type_of(function))
    program = core.here.imported(module.name)
    if program is None:
        _look_at(core, call)
        return WRONG
    info = program.functions.get(function.name) or program.externs.get(function.name)
    if info is not None:
        return call_function(core, call, info)
    if function.name in program.models:
        return make_model(core, call, program.models[function.name].node, [])
    if function.name in program.datas:
        return make_data(core, call, program.datas[function.name].node)
    _look_at(core, call)
    names = [*program.functions, *program.externs, *program.models, *program.datas]
    similar = nearest(function.name, names)
    helps = (f"did you mean `{module.name}.{similar}`?",) if similar else ()
    span = core.here.source.span(function.name_start, function.name_start + len(function.name))
    core.report("E0201", f"`{module.name}` declares no `{function.name}`", span, helps=helps)
    return WRONG


BUILTIN_NAMES = tuple(dict.fromkeys([*BUILTINS, *NUMBER_FUNCTIONS, *HIGHER, *OPERATIONS, *MAKERS]))
