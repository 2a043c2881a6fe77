"""Devices, dims, constants, models and data: what a file declares but functions.

Takes the `Names` of a file; fills a `TypedProgram`. Gives `Declarations`, the state that the checks of one file share:
it reports, and answers what a name, a type or a field means. An imported file's dims are named `module.D`.
Initialisers' arguments are kept as expressions, which `check_functions.py` types once everything is declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.diagnostics.suggest import nearest
from shapescript.names import Names, case_problem, declared_twice, describe, name_span
from shapescript.source import Span
from shapescript.syntax import tree
from shapescript.types import check_types
from shapescript.types.axes import Axis
from shapescript.types.kinds import Batch, ModelList, ModelOf, Tensor, Type, Wrong
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import (
    BATCH_NORM,
    ConstantInfo,
    ConstantValue,
    DataInfo,
    DevicesInfo,
    DimInfo,
    FieldInfo,
    Initialiser,
    ModelInfo,
    PythonDim,
    TypedProgram,
)
from shapescript.types.unify import substitute_type

DEVICE_KINDS = ("cpu", "cuda", "mps")
INITIALISERS: Mapping[str, tuple[str, ...]] = {
    "zeros": (),
    "ones": (),
    "constant": ("value",),
    "normal": ("std", "mean"),
    "uniform": ("low", "high"),
    "xavier": ("gain",),
    "kaiming": (),
    "orthogonal": ("gain",),
}
NEEDED = {"constant": 1, "normal": 1, "uniform": 2}
NUMBERS: Mapping[str, float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}


class Declarations:
    """One file being checked; a `check_types.Scope` for what stands at the left margin."""

    def __init__(self, names: Names, program: TypedProgram, prefix: str = "") -> None:
        self.names = names
        self.program = program
        self.prefix = prefix
        self.source = names.source
        self.diagnostics: list[Diagnostic] = list(names.diagnostics)
        self.model_dims_here: frozenset[str] = frozenset()
        self.wrong_dims: set[str] = set()

    # --- reporting

    def span(self, node: tree.Node) -> Span:
        return self.source.span(node.start, node.end)

    def report(
        self,
        code: str,
        message: str,
        node: tree.Node | Span,
        words: str = "",
        secondary: Sequence[Label] = (),
        notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:
        span = node if isinstance(node, Span) else self.span(node)
        self.diagnostics.append(
            Diagnostic(code, message, Label(span, words), tuple(secondary), tuple(notes), tuple(helps))
        )

    # --- what names mean (check_types.Scope)

    def axis_named(self, name: str) -> Axis | None:
        if name in self.model_dims_here:
            return Axis.named(name)
        info = self.program.dims.get(name)
        return info.axis if info is not None else None

    def new_axis(self, name: str) -> Axis | None:
        return None

    def any_axes(self) -> bool:
        return False

    def imported(self, module: str) -> TypedProgram | None:
        """The program of an imported `.ss` file."""
        info = self.program.imports.get(module)
        return info.program if info is not None else None

    def model_named(self, module: str | None, name: str) -> tree.Model | None:
        if module is None:
            return self.names.models.get(name)
        program = self.imported(module)
        info = program.models.get(name) if program is not None else None
        return info.node if info is not None else None

    def data_named(self, module: str | None, name: str) -> tree.Data | None:
        if module is None:
            return self.names.datas.get(name)
        program = self.imported(module)
        info = program.datas.get(name) if program is not None else None
        return info.node if info is not None else None

    def model_dims(self, model: tree.Model) -> int:
        return len(model.dims)

    def module_dim(self, module: str, name: str) -> DimInfo | None:
        program = self.imported(module)
        return program.dims.get(name) if program is not None else None

    def known_capitals(self) -> Sequence[str]:
        return self.names.capitals()

    def known_axes(self) -> Sequence[str]:
        return [*self.names.dims, *self.model_dims_here]

    def is_lost(self, name: str) -> bool:
        return name in self.names.lost or name in self.wrong_dims

    def fields_of(self, of: ModelOf) -> dict[str, Type]:
        """The fields of a model with its own dims replaced."""
        info = self.program.model_of[of.declaration]
        bound = dict(zip(info.dims, of.arguments, strict=True))
        return {name: substitute_field(field.type, bound) for name, field in info.fields.items()}


def substitute_field(of: Type, bound: Mapping[str, Axis]) -> Type:
    """A field's type with the model's dims replaced."""
    return substitute_type(of, bound) if bound else of


# --- devices ---------------------------------------------------------------------------------------------------------


def check_devices(here: Declarations) -> None:
    """The `devices` line without its options' dims, which `check_split` looks at."""
    node = here.names.devices
    if node is None:
        return
    spec = node.spec
    if spec.kind not in DEVICE_KINDS:
        similar = nearest(spec.kind, list(DEVICE_KINDS))
        here.report(
            "E1004",
            f"there is no kind of device `{spec.kind}`",
            spec,
            helps=(f"did you mean `{similar}`?" if similar else "write `cpu`, `cuda[0]` or `mps`",),
        )
        return
    numbers = _device_numbers(here, spec)
    if spec.kind == "mps" and spec.numbers:
        here.report("E1006", "there is one `mps` device, so it has no numbers", spec, helps=("write `devices mps`",))
    shard, split = False, []
    for option in node.options:
        if option.word == "shard" and option.name == "params":
            shard = True
        elif option.word == "split":
            split.append(option.name)
        else:
            here.report(
                "E1005",
                f"`{option.word} {option.name}` isn't an option of devices",
                option,
                helps=("the options are `shard params` and `split H`, where H is a dim",),
            )
    here.program.devices = DevicesInfo(spec.kind, tuple(numbers), shard, tuple(split), node)


def _device_numbers(here: Declarations, spec: tree.DeviceSpec) -> list[int]:
    numbers: list[int] = []
    for part in spec.numbers:
        span = [part.first] if part.last is None else range(part.first, min(part.last, part.first + 4096))
        if not span:
            here.report("E1006", f"`{part.first}..{part.last}` holds no device", part)
        for number in span:
            if number in numbers:
                here.report("E1006", f"device {number} is named twice", part, helps=("name each device once",))
                return numbers
            numbers.append(number)
    return numbers


def check_split(here: Declarations, devices: DevicesInfo | None) -> None:
    """`split H`: H is a dim (E1904) that the number of devices divides (E1903)."""
    if devices is None or devices.node is None:
        return
    for option in devices.node.options:
        if option.word != "split":
            continue
        span = here.source.span(option.name_start, option.name_start + len(option.name))
        info = here.program.dims.get(option.name)
        if info is None:
            if here.is_lost(option.name):
                continue
            similar = nearest(option.name, list(here.program.dims))
            here.report(
                "E1904",
                f"`split {option.name}` names no dim of this program",
                span,
                helps=(f"did you mean `{similar}`?",)
                if similar
                else (f"declare `dim {option.name} = ...`, or take the option out",),
            )
        elif info.value is not None and info.value % devices.count:
            count = devices.count
            here.report(
                "E1903",
                f"`{option.name}` is {info.value}, which {count} devices don't divide",
                span,
                f"{info.value} isn't a multiple of {count}",
                (Label(name_span(here.source, info.node), f"`{option.name}` is {info.value}"),),
                notes=(f"with `split {option.name}` each device holds an equal part of every axis `{option.name}`",),
                helps=(
                    f"make `{option.name}` a multiple of {count}, such as "
                    f"{(info.value // count + 1) * count}, or use a number of devices that divides {info.value}",
                ),
            )


# --- constants -------------------------------------------------------------------------------------------------------


def check_constants(here: Declarations) -> None:
    """Constants are numbers, strings and bools, and arithmetic on them."""
    for name, node in here.names.constants.items():
        value = constant_value(here, node.value)
        if value is None:
            here.report(
                "E0215",
                f"the value of `{name}` isn't known before the program runs",
                node.value,
                notes=("at the left margin stand numbers, strings, bools, earlier constants and arithmetic on them",),
                helps=("move it into the function that uses it",),
            )
            here.names.lost.add(name)
        else:
            here.program.constants[name] = ConstantInfo(name, value, node)


def constant_value(here: Declarations, expr: tree.Expr) -> ConstantValue | None:
    """The value of an expression of literals and constants; None if it isn't one."""
    match expr:
        case tree.Number() | tree.String() | tree.Bool():
            return expr.value
        case tree.Group():
            return constant_value(here, expr.inner)
        case tree.Name():
            info = here.program.constants.get(expr.name)
            return info.value if info is not None else NUMBERS.get(expr.name)
        case tree.Unary(op="-"):
            value = constant_value(here, expr.operand)
            return -value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        case tree.Binary():
            left, right = constant_value(here, expr.left), constant_value(here, expr.right)
            if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
                return None
            return _arithmetic(expr.op, left, right)
    return None


def _arithmetic(op: str, left: int | float, right: int | float) -> int | float | None:
    calculate: dict[str, Callable[[], int | float]] = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left / right,
        "//": lambda: left // right,
        "%": lambda: left % right,
        "**": lambda: math.pow(left, right),
    }
    if op not in calculate:
        return None
    try:
        return calculate[op]()
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


# --- dims ------------------------------------------------------------------------------------------------------------


def check_dims(here: Declarations, overrides: Mapping[str, int]) -> None:
    """Resolves each dim after those that it is made of; a circle is E0212."""
    state: dict[str, int] = {}
    for start in here.names.dims:
        stack = [start]
        while stack:
            name = stack[-1]
            if state.get(name) == 2:
                stack.pop()
                continue
            node = here.names.dims[name]
            inner = [] if name in overrides else _dims_in(here, node)
            waiting = [other for other in inner if state.get(other) != 2]
            if state.get(name) is None and waiting:
                state[name] = 1
                circle = [other for other in waiting if state.get(other) == 1]
                if not circle:
                    stack.extend(waiting)
                    continue
                _circle(here, node, circle[0])
                state[name] = 2
                continue
            if waiting:
                _circle(here, node, waiting[0])
            elif not any(other in here.wrong_dims for other in inner):
                _resolve_dim(here, node, overrides.get(name))
            else:
                here.wrong_dims.add(name)
            state[name] = 2
            stack.pop()


def _dims_in(here: Declarations, node: tree.Dim) -> list[str]:
    if node.value is None:
        return []
    return [inner.name for inner in node.value.walk() if isinstance(inner, tree.Name) and inner.name in here.names.dims]


def _circle(here: Declarations, node: tree.Dim, other: str) -> None:
    here.wrong_dims.add(node.name)
    message = f"`dim {node.name}` is defined by itself"
    if other != node.name:
        message += f", by way of `{other}`"
    here.report("E0212", message, node.value or node, helps=("give one of them a number",))


def _resolve_dim(here: Declarations, node: tree.Dim, override: int | None) -> None:
    name = here.prefix + node.name
    if override is not None or node.value is None:
        if override is not None and override < 1:
            here.report("E0372", f"`{node.name}` is given as {override}, and a dim is 1 or more", node)
        here.program.dims[node.name] = DimInfo(node.name, Axis.named(name), override, node)
        return
    value = node.value
    if _python_call(here, value):
        _python_dim(here, node, value)
        return
    before = len(here.diagnostics)
    axis = check_types.axis_of(here, value)
    if axis is None:
        here.wrong_dims.add(node.name)
        if len(here.diagnostics) > before and not _only_dims(here, value):
            here.names.lost.add(node.name)
        return
    number = _dim_value(here, node, axis.size)
    if axis.size.atoms:
        plain = axis if isinstance(value, (tree.Name, tree.Attribute)) else Axis(name, axis.size)
    else:
        plain = Axis.named(name)
    here.program.dims[node.name] = DimInfo(node.name, plain, number, node)


def _only_dims(here: Declarations, value: tree.Expr) -> bool:
    return all(not isinstance(inner, tree.Name) or inner.name in here.names.dims for inner in value.walk())


def _dim_value(here: Declarations, node: tree.Dim, size: Size) -> int | None:
    known = here.program.known_sizes()
    if any(atom not in known for atom in size.atoms):
        return None
    try:
        number = size.evaluate(known)
    except SizeError as error:
        here.report(
            "E0371",
            f"`dim {node.name}` isn't a whole number: {error}",
            node.value or node,
            helps=("sizes divide exactly: choose numbers that do",),
        )
        return None
    if number < 1:
        here.report("E0372", f"`dim {node.name}` is {number}, and a dim is 1 or more", node.value or node)
    return number


def _python_call(here: Declarations, value: tree.Expr) -> bool:
    return isinstance(value, tree.Call)


def _python_dim(here: Declarations, node: tree.Dim, call: tree.Expr) -> None:
    assert isinstance(call, tree.Call)
    function = call.function
    module = here.names.imports.get(dotted(function.of) or "") if isinstance(function, tree.Attribute) else None
    here.program.dims[node.name] = DimInfo(node.name, Axis.named(here.prefix + node.name), None, node)
    if module is None or not module.python or not isinstance(function, tree.Attribute):
        if isinstance(function, tree.Attribute) and here.is_lost(dotted(function.of) or ""):
            return
        here.report(
            "E0903",
            "a dim's value comes from a number, from other dims, or from a function of a Python module",
            call,
            helps=("write `import python chars` and `dim V = chars.vocabulary()`",),
        )
        return
    arguments: list[tuple[str | None, ConstantValue | Size]] = []
    for argument in call.arguments:
        value = constant_value(here, argument.value)
        if value is not None:
            arguments.append((argument.name, value))
            continue
        axis = check_types.axis_of(here, argument.value)
        if axis is None:
            return
        arguments.append((argument.name, axis.size))
    python = PythonDim(module.module, function.name, tuple(arguments), call)
    here.program.dims[node.name] = DimInfo(node.name, Axis.named(here.prefix + node.name), None, node, python)


def dotted(expr: tree.Expr) -> str | None:
    """`a.b.c` as text; None if it is something else."""
    parts: list[str] = []
    while isinstance(expr, tree.Attribute):
        parts.append(expr.name)
        expr = expr.of
    if not isinstance(expr, tree.Name):
        return None
    return ".".join([expr.name, *reversed(parts)])


# --- models and data -------------------------------------------------------------------------------------------------


def check_models(here: Declarations) -> None:
    """The fields of each model, and that none contains itself."""
    here.program.model_of[BATCH_NORM.node] = BATCH_NORM
    for name, node in here.names.models.items():
        dims = _own_dims(here, node)
        here.model_dims_here = frozenset(dims)
        fields = {
            member.name: _model_field(here, member, node) for member in _members(here, node.members, f" in `{name}`")
        }
        here.model_dims_here = frozenset()
        info = ModelInfo(name, tuple(dim.name for dim in node.dims), fields, node, here.source)
        here.program.models[name] = info
        here.program.model_of[node] = info
    _check_containment(here)


def _own_dims(here: Declarations, node: tree.Model) -> list[str]:
    names: list[str] = []
    for dim in node.dims:
        if dim.name in names:
            here.report("E0202", f"`{dim.name}` is declared twice in `{node.name}`", dim)
        elif not dim.name[:1].isupper():
            here.report(
                "E0203",
                f"the name of a model's dim begins with a capital letter, and `{dim.name}` doesn't",
                dim,
                helps=(f"call it `{dim.name[:1].upper()}{dim.name[1:]}`",),
            )
        names.append(dim.name)
    return names


def _members(here: Declarations, members: Sequence[tree.Field], where: str) -> list[tree.Field]:
    seen: dict[str, tree.Field] = {}
    for member in members:
        if member.name in seen:
            here.diagnostics.append(declared_twice(here.source, member.name, member, seen[member.name], where))
            continue
        seen[member.name] = member
        problem = case_problem(here.source, member, "a field", "small")
        if problem is not None:
            here.diagnostics.append(problem)
    return list(seen.values())


def _model_field(here: Declarations, member: tree.Field, model: tree.Model) -> FieldInfo:
    of = check_types.type_of_tree(here, member.type)
    if member.word is None:
        if not isinstance(of, (ModelOf, ModelList, Wrong)):
            here.report(
                "E0701",
                f"`{member.name}` doesn't say whether it is trained",
                name_span(here.source, member),
                helps=(
                    f"write `param {member.name}` if it is trained, or `state {member.name}` if it is only kept",
                ),
            )
        elif member.value is not None:
            here.report("E0703", "a field that is a model has no initialiser: its own fields do", member.value)
        return FieldInfo(member.name, None, of, None, member)
    if not isinstance(of, (Tensor, Wrong)):
        here.report("E0701", f"a `{member.word}` is a tensor, and `{member.name}` is {of}", member.type)
        return FieldInfo(member.name, member.word, Wrong(), None, member)
    if member.word == "param" and isinstance(of, Tensor) and not of.element.is_float:
        here.report(
            "E0704",
            f"`{member.name}` is trained, so it holds floats, and this is {of.element}",
            member.type,
            helps=(f"write `state {member.name}` for what isn't trained",),
        )
    return FieldInfo(member.name, member.word, of, _initialiser(here, member), member)


def _initialiser(here: Declarations, member: tree.Field) -> Initialiser | None:
    value = member.value
    if value is None:
        here.report(
            "E0703",
            f"`{member.name}` has no initialiser",
            name_span(here.source, member),
            helps=("write how it begins: `= zeros`, `= normal(std=0.02)`, `= xavier`",),
        )
        return None
    name = value.function if isinstance(value, tree.Call) else value
    given = value.arguments if isinstance(value, tree.Call) else []
    if not isinstance(name, tree.Name) or name.name not in INITIALISERS:
        similar = nearest(name.name, list(INITIALISERS)) if isinstance(name, tree.Name) else None
        if isinstance(name, tree.Number):
            similar = f"constant({here.span(name).text})"
        here.report(
            "E0703",
            "this isn't an initialiser",
            value,
            notes=("the initialisers are " + ", ".join(f"`{known}`" for known in INITIALISERS),),
            helps=(f"did you mean `{similar}`?",) if similar else (),
        )
        return None
    wanted = INITIALISERS[name.name]
    arguments: dict[str, tree.Expr] = {}
    for place, argument in enumerate(given):
        key = argument.name or (wanted[place] if place < len(wanted) else None)
        if key is None or key not in wanted or key in arguments or argument.mut:
            takes = ", ".join(f"`{each}`" for each in wanted) or "nothing"
            here.report("E0703", f"`{name.name}` takes {takes}", argument)
            return None
        arguments[key] = argument.value
    if len(arguments) < NEEDED.get(name.name, 0):
        missing = [each for each in wanted[: NEEDED[name.name]] if each not in arguments]
        shown = ", ".join(f"{each}=0.02" for each in missing)
        here.report("E0703", f"`{name.name}` needs `{missing[0]}`", value, helps=(f"write `{name.name}({shown})`",))
    return Initialiser(name.name, arguments)


def _check_containment(here: Declarations) -> None:
    """E0705: a model that contains itself."""
    inner: dict[tree.Model, list[tree.Model]] = {}
    for info in here.program.models.values():
        kinds = [field.type for field in info.fields.values()]
        models = [kind.model if isinstance(kind, ModelList) else kind for kind in kinds]
        inner[info.node] = [kind.declaration for kind in models if isinstance(kind, ModelOf)]
    done: set[tree.Model] = set()
    for start in inner:
        path: list[tuple[tree.Model, int]] = [(start, 0)]
        open_models = {start}
        while path:
            model, place = path.pop()
            below = inner.get(model, [])
            if model in done or place >= len(below):
                done.add(model)
                open_models.discard(model)
                continue
            path.append((model, place + 1))
            if below[place] in open_models:
                here.report(
                    "E0705",
                    f"`{model.name}` contains itself, by its field of `{below[place].name}`",
                    name_span(here.source, model),
                )
                done.add(model)
                continue
            if below[place] not in done:
                open_models.add(below[place])
                path.append((below[place], 0))


def check_datas(here: Declarations) -> None:
    """The fields of each data: tensors of one example."""
    for name, node in here.names.datas.items():
        fields: dict[str, FieldInfo] = {}
        for member in _members(here, node.members, f" in `{name}`"):
            of = check_types.type_of_tree(here, member.type)
            if not isinstance(of, (Tensor, Wrong)):
                what = "a batch" if isinstance(of, Batch) else str(of)
                here.report("E0803", f"a field of a data is a tensor, and `{member.name}` is {what}", member.type)
                of = Wrong()
            if member.word is not None or member.value is not None:
                here.report("E0803", "a field of a data is a name and a type", member)
            fields[member.name] = FieldInfo(member.name, None, of, None, member)
        info = DataInfo(name, fields, node, here.source)
        here.program.datas[name] = info
        here.program.data_of[node] = info


def what_is(here: Declarations, name: str) -> str | None:
    """What a declared name is, in words."""
    node = here.names.declared.get(name)
    return describe(node) if node is not None else None
