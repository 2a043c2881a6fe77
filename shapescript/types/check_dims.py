"""Devices, constants and dims.

Takes the `Declarations` of a file; fills `devices`, `constants` and `dims`. A dim made of others is resolved after
them, by a walk that doesn't recurse; its value is known now where those of its atoms are. Python gives a dim's
value when the program runs: the call is kept as data, and nothing is called here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shapescript.diagnostics.diagnostic import Label
from shapescript.diagnostics.suggest import nearest
from shapescript.names import name_span
from shapescript.syntax import tree
from shapescript.types import check_types
from shapescript.types.axes import Axis
from shapescript.types.check_declarations import Declarations, dotted
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import ConstantInfo, ConstantValue, DevicesInfo, DimInfo, PythonDim

DEVICE_KINDS = ("cpu", "cuda", "mps")
NUMBERS: Mapping[str, float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}


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
    by = next((option.by for option in node.options if option.by is not None), None)
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
                helps=("the options are `shard params`, `split H` and `split H by 2`, where H is a dim",),
            )
    here.program.devices = DevicesInfo(spec.kind, tuple(numbers), shard, tuple(dict.fromkeys(split)), node, by)


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
    """`split H`: H is a dim (E1904) that the number of parts divides (E1903); the parts are as `by` says (E1007)."""
    if devices is None or devices.node is None:
        return
    options = [option for option in devices.node.options if option.word == "split"]
    if not _check_parts(here, devices, options):
        return
    for option in options:
        info = here.program.dims.get(option.name)
        if info is None:
            if not here.is_lost(option.name):
                _no_dim(here, option)
        elif info.value is not None and info.value % devices.mesh[-1]:
            _not_divided(here, devices, option, info, info.value)
    found = [here.program.dims.get(name) for name in devices.split]
    sizes = tuple(info.axis.size for info in found if info is not None)
    if len(sizes) == len(found):
        here.program.devices = replace(devices, split_sizes=sizes)


def _check_parts(here: Declarations, devices: DevicesInfo, options: Sequence[tree.DeviceOption]) -> bool:
    """Whether all `split` lines make as many parts, and the devices fill the grid."""
    by, count = devices.by, devices.count
    if by is None or count == 1:
        return True
    first = next(option for option in options if option.by is not None)
    for option in options:
        if option.by != by:
            said = "doesn't say how many parts" if option.by is None else f"makes {option.by} parts"
            here.report(
                "E1007",
                f"`split {option.name}` {said}, and `split {first.name} by {by}` makes {by}",
                option,
                secondary=(Label(here.source.span(first.start, first.end), f"{by} parts here"),),
                notes=("the devices stand in one grid: one way the batch is split, the other way all these dims",),
                helps=(f"write `split {option.name} by {by}`",),
            )
            return False
    if count % by:
        fitting = [n for n in range(2, count + 1) if count % n == 0]
        here.report(
            "E1007",
            f"`by {by}` can't be of {count} devices: {count} isn't a multiple of {by}",
            first,
            notes=(
                f"`split {first.name} by {by}` makes groups of {by} devices, and the batch is split over the groups",
            ),
            helps=(f"write `by {choice(fitting)}`, or use a number of devices that is a multiple of {by}",),
        )
        return False
    return True


def _no_dim(here: Declarations, option: tree.DeviceOption) -> None:
    similar = nearest(option.name, list(here.program.dims))
    here.report(
        "E1904",
        f"`split {option.name}` names no dim of this program",
        here.source.span(option.name_start, option.name_start + len(option.name)),
        helps=(f"did you mean `{similar}`?",)
        if similar
        else (f"declare `dim {option.name} = ...`, or take the option out",),
    )


def _not_divided(
    here: Declarations, devices: DevicesInfo, option: tree.DeviceOption, info: DimInfo, value: int
) -> None:
    """E1903, with the numbers that would do: of devices, or with `by` of parts."""
    parts = devices.mesh[-1]
    message, help = not_divided(devices, option.name, value)
    here.report(
        "E1903",
        message,
        here.source.span(option.name_start, option.name_start + len(option.name)),
        f"{value} isn't a multiple of {parts}",
        (Label(name_span(here.source, info.node), f"`{option.name}` is {value}"),),
        notes=(f"with `split {option.name}` each device holds an equal part of every axis `{option.name}`",),
        helps=(help,),
    )


def not_divided(devices: DevicesInfo, name: str, value: int) -> tuple[str, str]:
    """That the devices, or the parts of `by`, don't divide a split dim's value; and what would do."""
    parts, many = devices.mesh[-1], len(devices.mesh) > 1
    fitting = [n for n in range(1, value + 1) if value % n == 0 and (devices.count % n == 0 or not many)]
    instead = f"write `by {choice(fitting)}`" if many else f"use {choice(fitting)} device{'s' if value > 1 else ''}"
    return (
        f"`{name}` is {value}, which {parts} {'parts' if many else 'devices'} don't divide",
        f"{instead}, or make `{name}` a multiple of {parts}, such as {(value // parts + 1) * parts}",
    )


def choice(numbers: Sequence[int]) -> str:
    """`1, 2, 4 or 8`; of many the first few and the last."""
    shown = [str(each) for each in numbers] if len(numbers) < 8 else [*map(str, numbers[:5]), "..", str(numbers[-1])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}".replace(", .. or", " .. or")


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
    here.sizes = here.program.known_sizes()
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


def keep_dim(here: Declarations, info: DimInfo) -> None:
    """Keeps what a dim is, and its value for those that are made of it."""
    here.program.dims[info.name] = info
    if info.is_atom and info.value is not None and info.axis.name is not None:
        here.sizes[info.axis.name] = info.value


def _resolve_dim(here: Declarations, node: tree.Dim, override: int | None) -> None:
    name = here.prefix + node.name
    if override is not None or node.value is None:
        if override is not None and override < 1:
            here.report("E0372", f"`{node.name}` is given as {override}, and a dim is 1 or more", node)
        keep_dim(here, DimInfo(node.name, Axis.named(name), override, node))
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
    keep_dim(here, DimInfo(node.name, plain, number, node))


def _only_dims(here: Declarations, value: tree.Expr) -> bool:
    return all(not isinstance(inner, tree.Name) or inner.name in here.names.dims for inner in value.walk())


def _dim_value(here: Declarations, node: tree.Dim, size: Size) -> int | None:
    known = here.sizes
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
