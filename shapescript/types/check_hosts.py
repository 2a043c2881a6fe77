"""Names, host arithmetic, attributes, indexing of host values, and `as` from Python.

Takes a `Core` and an expression with no tensor among its operands; gives its type and keeps its use. Whatever has a
tensor in it is the tensor operations'.
"""

from __future__ import annotations

from collections.abc import Sequence

from shapescript.diagnostics.diagnostic import Label
from shapescript.diagnostics.of_pytorch import METHODS, NAMES, OF_MODELS, OVER_AN_AXIS, PLAIN
from shapescript.diagnostics.suggest import nearest
from shapescript.names import describe
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.check_calls import say_mismatch
from shapescript.types.check_core import Core, literal_number
from shapescript.types.check_declarations import dotted, substitute_field
from shapescript.types.check_dims import NUMBERS
from shapescript.types.check_types import type_of_tree
from shapescript.types.element import F32
from shapescript.types.kinds import (
    BOOL_HOST,
    FLOAT,
    INT,
    PYTHON,
    STR,
    WRONG,
    Batch,
    Gradients,
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
from shapescript.types.typed import ConstantValue, DataInfo, ModelInfo
from shapescript.types.uses import (
    CastUse,
    ConstantUse,
    CountUse,
    DimUse,
    FieldUse,
    FunctionUse,
    HostIndexUse,
    HostUse,
    LocalUse,
    PythonUse,
)

# --- names -----------------------------------------------------------------------------------------------------------


def check_name(core: Core, expr: tree.Name, builtins: Sequence[str]) -> Type:
    """A name where a value stands: a local, then what the file declares, then an axis, then `inf nan pi`."""
    name = expr.name
    local = core.locals.get(name)
    if local is not None and not local.maybe:
        core.use(expr, LocalUse(name))
        return local.type
    if name == "_":
        core.report("E0201", "`_` discards a value, so it can't be read", expr, helps=("give the value a name",))
        return WRONG
    for loop in reversed(core.loops):
        if name in loop.known:
            core.use(expr, LocalUse(name))
            return loop.known[name].type
    if local is not None:
        core.report(
            "E0204",
            f"`{name}` has a value only if a branch or a loop was gone through",
            expr,
            secondary=(Label(local.span, "given here"),),
            helps=(f"give `{name}` a value before it",),
        )
        return WRONG
    if core.loops and name in _assigned_later(core) and not core.loops[0].tried:
        core.loops[0].missed = True
        return WRONG
    found = _declared(core, expr, name)
    if found is not None:
        return found
    axis = core.axes.get(name)
    if axis is not None:
        return _count(core, expr, axis)
    if name in NUMBERS:
        core.use(expr, ConstantUse(NUMBERS[name]))
        return FLOAT
    if name in builtins:
        core.report("E0615", f"`{name}` is a built-in function, not a value", expr, helps=(f"call it: `{name}(...)`",))
        return WRONG
    what = "dim" if name[:1].isupper() else "name"
    here = core.here.names
    candidates = here.capitals() if what == "dim" else [*core.locals.visible(), *core.axes, *here.smalls()]
    return core.unknown(name, expr, what, candidates)


def _assigned_later(core: Core) -> frozenset[str]:
    """Names that the function assigns anywhere."""
    if core.info is None or not isinstance(core.info.node, tree.Function):
        return frozenset()
    if core.assigned is None:
        core.assigned = frozenset(
            node.name
            for statement in core.info.node.body
            for each in statement.walk()
            if isinstance(each, tree.Assign)
            for node in each.target.walk()
            if isinstance(node, tree.Name)
        )
    return core.assigned


def _count(core: Core, expr: tree.Expr, axis: Axis) -> Type:
    core.use(expr, CountUse(axis))
    return Tensor((), F32) if axis.batch else INT


def constant_type(value: ConstantValue) -> Type:
    """The type of a constant's value."""
    return {bool: BOOL_HOST, int: INT, float: FLOAT, str: STR}[type(value)]


def _declared(core: Core, expr: tree.Expr, name: str) -> Type | None:
    program = core.program
    constant = program.constants.get(name)
    if constant is not None:
        core.use(expr, ConstantUse(constant.value))
        return constant_type(constant.value)
    dim = program.dims.get(name)
    if dim is not None:
        core.use(expr, DimUse(dim.axis.size))
        return INT
    if core.is_lost(name):
        return WRONG
    node = core.here.names.declared.get(name)
    if isinstance(node, tree.Import):
        if not node.python:
            core.report("E0902", f"`{name}` is a file, not a value", expr, helps=(f"write `{name}.thing`",))
            return WRONG
        core.use(expr, PythonUse(node.module))
        return PYTHON
    if node is None:
        return None
    if isinstance(node, (tree.Function, tree.Extern)):
        core.use(expr, FunctionUse(node))
    core.report("E0615", f"`{name}` is {describe(node)}, not a value", expr, helps=(f"call it: `{name}(...)`",))
    return WRONG


# --- attributes ------------------------------------------------------------------------------------------------------


def module_of(core: Core, expr: tree.Expr) -> tree.Import | None:
    """The import that `nets` or `a.b` names, unless a local hides it."""
    name = dotted(expr)
    if name is None or core.locals.get(name.split(".")[0]) is not None:
        return None
    return core.here.names.imports.get(name)


def check_attribute(core: Core, expr: tree.Attribute) -> Type:
    """`batch.pixels`, `m.w1`, `g.head`, `digits.load`, `nets.rate`."""
    module = module_of(core, expr.of)
    if module is not None:
        return _of_module(core, expr, module)
    if isinstance(expr.of, (tree.Name, tree.Attribute)) and _leads_to_module(core, expr):
        return PYTHON
    of = core.type_of(expr.of)
    span = core.here.source.span(expr.name_start, expr.name_start + len(expr.name))
    match of:
        case Wrong():
            return WRONG
        case PythonValue():
            core.use(expr, FieldUse(expr.name))
            return PYTHON
        case Batch():
            data = core.program.data_of[of.data]
            kind = data.fields[expr.name].type if expr.name in data.fields else None
            found = _batch_field(of, kind) if kind is not None else None
            return _field(core, expr, found, data)
        case ModelOf():
            model = core.program.model_of[of.declaration]
            return _field(core, expr, _model_field(core, model, of, expr.name), model)
        case Gradients(model=ModelOf() as trained):
            model = core.program.model_of[trained.declaration]
            if expr.name in model.fields and model.fields[expr.name].word == "state":
                message = f"there is no gradient of `{expr.name}`, a `state`: it isn't trained"
                core.report("E0616", message, core.here.source.span(expr.name_start, expr.end))
                return WRONG
            return _field(core, expr, _gradient_field(_model_field(core, model, trained, expr.name)), model)
        case _:
            core.report("E0616", f"{of} has no fields", span, helps=_instead_of_a_method(core, expr, of))
            return WRONG


def _instead_of_a_method(core: Core, expr: tree.Attribute, of: Type) -> tuple[str, ...]:
    """What to write for `x.relu()`, `x.T` or `opt.step()`."""
    name, value = expr.name, core.source_text(expr.of)
    if not isinstance(of, Tensor):
        return (OF_MODELS[name],) if name in OF_MODELS else ()
    if name in METHODS:
        return (METHODS[name],)
    if name in OVER_AN_AXIS:
        axis = of.axes[-1] if of.axes else "D"
        return (f"there are no methods: write `{name}({value}, over={axis})`, with the axis that is meant",)
    if name in PLAIN:
        return (f"there are no methods: write `{name}({value})` or `{value} |> {name}`",)
    if name in NAMES:
        return (NAMES[name],)
    return ("a tensor has no methods: functions take it, as in `relu(x)` or `x |> relu`",)


def _leads_to_module(core: Core, expr: tree.Attribute) -> bool:
    """Whether this is the first part of a dotted module's name, whose last part the text goes on with."""
    name = dotted(expr)
    first = name.split(".")[0] if name else ""
    if name is None or core.locals.get(first) is not None:
        return False
    return any(other.startswith(name + ".") for other in core.here.names.imports)


def _of_module(core: Core, expr: tree.Attribute, module: tree.Import) -> Type:
    if module.python:
        core.use(expr, PythonUse(module.module, expr.name))
        return PYTHON
    program = core.here.imported(module.name)
    if program is None:
        return WRONG
    constant = program.constants.get(expr.name)
    if constant is not None:
        core.use(expr, ConstantUse(constant.value))
        return constant_type(constant.value)
    dim = program.dims.get(expr.name)
    if dim is not None:
        core.use(expr, DimUse(dim.axis.size))
        return INT
    if expr.name in program.functions or expr.name in program.models or expr.name in program.datas:
        shown = core.source_text(expr)
        core.report("E0615", f"`{shown}` isn't a value", expr, helps=(f"call it: `{shown}(...)`",))
        return WRONG
    names = [*program.constants, *program.functions, *program.externs, *program.dims, *program.models, *program.datas]
    similar = core.similar(expr.name, names)
    helps = (f"did you mean `{module.name}.{similar}`?",) if similar else ()
    span = core.here.source.span(expr.name_start, expr.name_start + len(expr.name))
    core.report("E0201", f"`{module.name}` declares no `{expr.name}`", span, helps=helps)
    return WRONG


def _batch_field(batch: Batch, kind: Type) -> Type:
    return Tensor((batch.axis, *kind.axes), kind.element) if isinstance(kind, Tensor) else WRONG


def _model_field(core: Core, info: ModelInfo, of: ModelOf, name: str) -> Type | None:
    field = info.fields.get(name)
    if field is None:
        return None
    return substitute_field(field.type, dict(zip(info.dims, of.arguments, strict=False)))


def _gradient_field(kind: Type | None) -> Type | None:
    return Gradients(kind) if isinstance(kind, (ModelOf, ModelList)) else kind


def _field(core: Core, expr: tree.Attribute, kind: Type | None, info: ModelInfo | DataInfo) -> Type:
    if kind is None:
        names = list(info.fields)
        similar = nearest(expr.name, names)
        listed = ", ".join(f"`{name}`" for name in names) or "none"
        span = core.here.source.span(expr.name_start, expr.name_start + len(expr.name))
        helps = (f"did you mean `{similar}`?",) if similar else (f"its fields are {listed}",)
        if expr.name in OF_MODELS and isinstance(info, ModelInfo):
            helps = (OF_MODELS[expr.name],)
        core.report("E0616", f"`{info.name}` has no field `{expr.name}`", span, helps=helps)
        return WRONG
    core.use(expr, FieldUse(expr.name))
    return kind


# --- operators -------------------------------------------------------------------------------------------------------

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def host_binary(core: Core, expr: tree.Binary, left: Type, right: Type) -> Type:
    """An operator on host values; tensors are elsewhere."""
    found = _binary_type(expr, left, right)
    if found is not None:
        core.use(expr, HostUse(expr.op))
        return found
    if expr.op in ("and", "or"):
        wrong, kind = (expr.left, left) if left not in (BOOL_HOST, PYTHON) else (expr.right, right)
        core.report("E0610", f"`{expr.op}` joins bools, and this is {kind}", wrong)
        return BOOL_HOST
    helps: Sequence[str] = ()
    if expr.op == "+" and STR in (left, right):
        other = expr.right if left == STR else expr.left
        helps = (f"write `str({core.source_text(other)})`",)
    elif any(isinstance(kind, Gradients) for kind in (left, right)):
        helps = ("an optimizer's state changes a model: `update(mut m, mut opt, g)`; one gradient is a tensor, `g.w`",)
    elif expr.op == "%" and left == STR:
        helps = ("give `print` several values, or join strings with `+` and `str(x)`",)
    words = f"`{expr.op}` doesn't go with {left} and {right}"
    labels = (Label(core.span(expr.left), f"{left}"), Label(core.span(expr.right), f"{right}"))
    core.report("E0610", words, expr, "", labels, helps=helps)
    return BOOL_HOST if expr.op in COMPARISONS else WRONG


def _binary_type(expr: tree.Binary, left: Type, right: Type) -> Type | None:
    op = expr.op
    if isinstance(left, Nothing) or isinstance(right, Nothing):
        return None
    if isinstance(left, PythonValue) or isinstance(right, PythonValue):
        return STR if op == "+" and STR in (left, right) else PYTHON
    if isinstance(left, Gradients) or isinstance(right, Gradients):
        return _gradients(op, left, right)
    if not isinstance(left, Host) or not isinstance(right, Host):
        return None
    numbers = all(side in (INT, FLOAT) for side in (left, right))
    if op in ("and", "or"):
        return BOOL_HOST if left == right == BOOL_HOST else None
    if op in COMPARISONS:
        if numbers or left == right == STR:
            return BOOL_HOST
        return BOOL_HOST if left == right and op in ("==", "!=") else None
    if op == "+" and left == right == STR:
        return STR
    if not numbers or op == "@":
        return None
    if op == "/":
        return FLOAT
    if op == "**":
        power = literal_number(expr.right)
        return INT if left == right == INT and power is not None and power >= 0 else FLOAT
    return INT if left == right == INT else FLOAT


def _gradients(op: str, left: Type, right: Type) -> Type | None:
    if isinstance(left, Gradients) and isinstance(right, Gradients):
        return left if op in ("+", "-") and left == right else None
    scalar = right if isinstance(left, Gradients) else left
    gradients = left if isinstance(left, Gradients) else right
    number = scalar in (INT, FLOAT) or (isinstance(scalar, Tensor) and not scalar.axes)
    if op == "*" and number:
        return gradients
    return gradients if op == "/" and number and isinstance(left, Gradients) else None


def host_unary(core: Core, expr: tree.Unary, kind: Type) -> Type:
    """`-`, `not`, `!` on a host value."""
    if isinstance(kind, PythonValue):
        core.use(expr, HostUse(expr.op))
        return BOOL_HOST if expr.op == "not" else PYTHON
    if expr.op == "-" and kind in (INT, FLOAT) or (expr.op == "-" and isinstance(kind, Gradients)):
        core.use(expr, HostUse(expr.op))
        return kind
    if expr.op in ("not", "!") and kind == BOOL_HOST:
        core.use(expr, HostUse("not"))
        return kind
    core.report("E0610", f"`{expr.op}` doesn't go with {kind}", expr)
    return WRONG


# --- indexing and casts ----------------------------------------------------------------------------------------------


def host_index(core: Core, expr: tree.Index, of: Type) -> Type:
    """`m.blocks[i]`, `t[0]`, `python_value[i]`."""
    for item in expr.items:
        if item.axis is not None:
            core.report("E0617", f"{of} has no axes to index by", item.axis)
            return WRONG
    if isinstance(of, PythonValue):
        for item in expr.items:
            core.type_of(item.value)
        core.use(expr, HostIndexUse())
        return PYTHON
    kind = core.type_of(expr.items[0].value)
    if isinstance(kind, Wrong):
        return WRONG
    models = of.model if isinstance(of, Gradients) else of
    if len(expr.items) != 1 or not isinstance(models, (ModelList, TupleOf)):
        core.report("E0617", f"{of} can't be indexed", expr)
        return WRONG
    if kind != INT:
        core.report("E0617", f"an index into {of} is an int, and this is {kind}", expr.items[0].value)
        return WRONG
    core.use(expr, HostIndexUse())
    place = literal_number(expr.items[0].value)
    if isinstance(models, ModelList):
        length = core.length_of(models.length)
        if isinstance(place, int) and length is not None and not -length <= place < length:
            core.report("E0617", f"{of} holds {length} models, and this asks for number {place}", expr)
            return WRONG
        return Gradients(models.model) if isinstance(of, Gradients) else models.model
    assert isinstance(of, TupleOf)
    if not isinstance(place, int):
        core.report("E0617", f"which item of {of} this is isn't known", expr.items[0].value, helps=("write a number",))
        return WRONG
    if not -len(of.items) <= place < len(of.items):
        core.report("E0617", f"{of} holds {len(of.items)} values, and this asks for number {place}", expr)
        return WRONG
    return of.items[place]


class CastScope(Core):
    """A type after `as`: a small name that isn't known yet names an axis whose size Python gives."""

    def __init__(self, core: Core) -> None:
        self.__dict__.update(core.__dict__)

    def new_axis(self, name: str) -> Axis | None:
        axis = Axis.named(name)
        self.declare_axis(name, axis)
        return axis


def host_cast(core: Core, expr: tree.As, kind: Type, keep_on: tree.As | None = None) -> Type:
    """`x as type` where x isn't a tensor; the use is kept on `keep_on`, `expr` itself unless given."""
    kept = expr if keep_on is None else keep_on
    scope = CastScope(core) if isinstance(kind, PythonValue) else core
    of = type_of_tree(scope, expr.type)
    if isinstance(of, Wrong) or isinstance(kind, Wrong):
        return WRONG if isinstance(of, Wrong) else of
    if isinstance(kind, PythonValue):
        core.use(kept, CastUse(of))
        return of
    if isinstance(kind, Host) and isinstance(of, Tensor):
        if of.axes:
            shown = core.source_text(expr.value)
            core.report(
                "E0354",
                f"{kind} is one number, and {of} has axes",
                expr,
                helps=(f"write `broadcast({shown} as [], {core.source_text(expr.type)})`, or `full` with axes",),
            )
            return WRONG
        if kind == STR or (kind == FLOAT and not of.element.is_float):
            core.report("E0554", f"{kind} isn't {of.element}", expr, helps=("write `int(x)` first",))
            return WRONG
        core.use(kept, CastUse(of))
        return of
    mismatch = core.accepts(of, kind)
    if mismatch is None:
        core.use(kept, CastUse(of))
        return of
    say_mismatch(core, mismatch, expr.value, "what `as` asks for")
    return WRONG
