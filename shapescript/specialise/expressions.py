"""What an expression's value is, read from its use.

Takes the evaluator, a frame and an expression; gives a value. Operations on tensors go to the domain with their axes
bound; built-ins are looked up in the domain's table. Works nothing out that the checker worked out before.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from shapescript.ops.registry import RuleError
from shapescript.specialise.domain import problem
from shapescript.specialise.frame import TENSORS, Frame, field_type, relabelled
from shapescript.specialise.host_numbers import TENSOR_OPS, HostProblem, compute
from shapescript.specialise.values import (
    BatchValue,
    GradientsValue,
    ModelValue,
    TensorValue,
    Value,
    is_tensor,
    map_tensors,
)
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import F64, I64, Element
from shapescript.types.kinds import ModelList, ModelOf, Tensor, Type
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import ModelInfo
from shapescript.types.uses import (
    BuiltinUse,
    CallUse,
    CastUse,
    ConstantUse,
    CountUse,
    DataUse,
    Default,
    DimUse,
    ExternUse,
    FieldUse,
    Fixed,
    FunctionUse,
    HostIndexUse,
    HostOperand,
    HostUse,
    LocalUse,
    ModelUse,
    Operand,
    OpUse,
    PythonUse,
    StaticArgument,
)

if TYPE_CHECKING:
    from shapescript.specialise.evaluator import Evaluator

SIZES = frozenset(("start", "stop", "shift", "before", "after", "bound"))
"""The attributes that are sizes: a number there becomes one."""

PLACES = frozenset(("position", "channel", "spatial"))
"""The attributes that are places among the first operand's axes."""

Memo = dict[int, Value]


def evaluate(ev: Evaluator, frame: Frame, expr: tree.Expr) -> Value:
    """The value of an expression."""
    use = ev.program.uses.get(expr)
    if use is None:
        return _plain(ev, frame, expr)
    match use:
        case OpUse():
            return operation(ev, frame, use, expr, {})
        case LocalUse():
            return local(frame, use.name, expr)
        case FieldUse():
            assert isinstance(expr, tree.Attribute)
            return field_of(ev, frame, evaluate(ev, frame, expr.of), use.name, expr)
        case CallUse():
            return frame.conform(ev.call(frame, use), ev.program.types.get(expr))
        case HostUse(op=".."):
            return _plain(ev, frame, expr)
        case HostUse():
            return host(ev, frame, use.op, expr)
        case ConstantUse():
            return use.value
        case DimUse():
            return dim(ev, frame, use.size, expr)
        case CountUse():
            return count(ev, frame, use.axis, expr)
        case CastUse():
            assert isinstance(expr, tree.As)
            return cast(ev, frame, evaluate(ev, frame, expr.value), use.type, expr)
        case HostIndexUse():
            return host_index(ev, frame, expr)
        case FunctionUse():
            return use.function
        case BuiltinUse():
            return builtin(ev, frame, use, expr)
        case DataUse():
            return make_batch(ev, frame, use, expr)
        case ModelUse() | ExternUse():
            name = "model" if isinstance(use, ModelUse) else "extern"
            return builtin(ev, frame, BuiltinUse(name, {}), expr)
        case PythonUse():
            return python_value(frame, use, expr)
    raise TypeError(f"no value of a {type(use).__name__}")


def _plain(ev: Evaluator, frame: Frame, expr: tree.Expr) -> Value:
    """An expression that means what it says."""
    match expr:
        case tree.Number() | tree.String() | tree.Bool():
            return expr.value
        case tree.Group():
            return evaluate(ev, frame, expr.inner)
        case tree.Name():
            return local(frame, expr.name, expr)
        case tree.Tuple():
            return tuple(evaluate(ev, frame, item) for item in expr.items)
        case tree.Range():
            first = known(ev, frame, expr.first)
            last = known(ev, frame, expr.last)
            if not isinstance(first, int) or not isinstance(last, int):
                raise problem("E2111", "a range goes from one whole number to another", frame.span(expr))
            return range(first, last)
        case tree.Attribute():
            return field_of(ev, frame, evaluate(ev, frame, expr.of), expr.name, expr)
        case tree.Binary() | tree.Unary():
            return host(ev, frame, expr.op, expr)
        case tree.As():
            return cast(ev, frame, evaluate(ev, frame, expr.value), ev.program.types[expr], expr)
    raise problem("E2111", f"`{frame.span(expr).text}` has no value here", frame.span(expr))


def local(frame: Frame, name: str, expr: tree.Expr) -> Value:
    """A local by its name."""
    if name not in frame.locals:
        raise problem("E2111", f"`{name}` has no value yet: no path to this line gave it one", frame.span(expr))
    return frame.locals[name]


def known(ev: Evaluator, frame: Frame, expr: tree.Expr) -> Value:
    """The value of an expression, looked at if it is a scalar tensor."""
    value = evaluate(ev, frame, expr)
    return ev.domain.number(value, frame.span(expr)) if isinstance(value, TENSORS) else value


def truth(ev: Evaluator, frame: Frame, expr: tree.Expr) -> bool:
    """Whether a test holds."""
    return bool(known(ev, frame, expr))


# --- tensor operations -----------------------------------------------------------------------------------------------


def operation(ev: Evaluator, frame: Frame, use: OpUse, expr: tree.Expr, memo: Memo) -> Value:
    """A tensor operation's value; `memo` keeps what stands more than once in the use."""
    if id(use) in memo:
        return memo[id(use)]
    if use.parts:
        return tuple(operation(ev, frame, part, expr, memo) for part in use.parts)
    operands = [operand(ev, frame, each, expr, memo) for each in use.operands]
    attributes = {key: attribute(ev, frame, key, value) for key, value in use.attributes.items()}
    for key in PLACES & attributes.keys():
        attributes[key] = from_the_front(attributes[key], len(operands[0].axes))
    try:
        result = ev.domain.emit(use.op, operands, attributes, frame.span(expr))
    except (RuleError, SizeError) as error:
        raise problem("E2111", f"`{use.op}`: {error}", frame.span(expr)) from error
    memo[id(use)] = result
    return result


def from_the_front(place: object, rank: int) -> object:
    """A place among so many axes, or several, counted from the front where it was from the end."""
    if isinstance(place, tuple):
        return tuple(from_the_front(each, rank) for each in place)
    return place + rank if isinstance(place, int) and place < 0 else place


def operand(ev: Evaluator, frame: Frame, of: Operand, expr: tree.Expr, memo: Memo) -> TensorValue:
    """One operand as a tensor."""
    match of:
        case OpUse():
            value = operation(ev, frame, of, expr, memo)
        case Fixed():
            value = ev.domain.constant(of.value, frame.element(of.element))
        case HostOperand():
            value = scalar(ev, evaluate(ev, frame, of.value), frame.element(of.element))
        case _:
            if id(of) not in memo:
                memo[id(of)] = evaluate(ev, frame, of)
            value = memo[id(of)]
            kind = ev.program.types.get(of)
            if isinstance(value, (bool, int, float)):
                element = kind.element if isinstance(kind, Tensor) else I64 if isinstance(value, int) else F64
                value = ev.domain.constant(value, frame.element(element))
    if not isinstance(value, TENSORS):
        raise problem("E2111", f"a tensor is needed here, and this is `{type(value).__name__}`", frame.span(expr))
    result: TensorValue = value
    return result


def scalar(ev: Evaluator, value: Value, element: Element) -> TensorValue:
    """A host number, known or open, as a scalar of this element."""
    if isinstance(value, TENSORS):
        tensor: TensorValue = value
        if tensor.element.name != element.name:
            tensor = ev.domain.emit("cast", (tensor,), {"element": element.base}, None)
        if tensor.element != element and element.refinement != "Index":
            tensor = ev.domain.emit("refine", (tensor,), {"element": element}, None)
        return tensor
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"`{type(value).__name__}` isn't a number")
    return ev.domain.constant(value, element)


def attribute(ev: Evaluator, frame: Frame, key: str, value: object) -> object:
    """An attribute in the domain's axes and sizes."""
    match value:
        case Axis():
            return frame.axis(value)
        case Size():
            return frame.size(value)
        case Element():
            return frame.element(value)
        case StaticArgument():
            found = known(ev, frame, value.value)
            if isinstance(found, int) and not isinstance(found, bool) and key in SIZES:
                return Size.of(found)
            return found
        case tuple():
            if value and all(isinstance(item, Axis) for item in value):
                return frame.axes_of(value)
            return tuple(attribute(ev, frame, key, item) for item in value)
    return value


# --- fields, sizes, casts ------------------------------------------------------------------------------------------


def model_info(ev: Evaluator, model: tree.Model) -> ModelInfo:
    """What the checker knows of a model."""
    return ev.program.model_of[model]


def field_of(ev: Evaluator, frame: Frame, owner: Value, name: str, expr: tree.Expr) -> Value:
    """A field of a batch, a model or gradients, or an attribute of a Python value."""
    if isinstance(owner, (BatchValue, ModelValue, GradientsValue)):
        if name not in owner.fields:
            raise problem("E2111", f"the gradients have no `{name}`: it isn't trained", frame.span(expr))
        return frame.conform(owner.fields[name], ev.program.types.get(expr))
    try:
        found: Value = getattr(owner, name)
    except Exception as error:
        raise python_problem(error, frame, expr) from error
    return found


def python_problem(error: BaseException, frame: Frame, expr: tree.Expr) -> Exception:
    """The error for an exception of Python code."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return problem("E2114", words, frame.span(expr), ("it was raised by the Python code that this calls",))


def of_python(items: Iterator[Value], frame: Frame, expr: tree.Expr) -> Iterator[Value]:
    """What an iterator of Python gives; what it raises is an error at the place that made it."""
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except Exception as error:
            raise python_problem(error, frame, expr) from error
        yield item


def python_value(frame: Frame, use: PythonUse, expr: tree.Expr) -> Value:
    """A module of Python, or an attribute of one."""
    try:
        module = importlib.import_module(use.module)
        return module if use.attribute is None else getattr(module, use.attribute)
    except Exception as error:
        raise python_problem(error, frame, expr) from error


def dim(ev: Evaluator, frame: Frame, size: Size, expr: tree.Expr) -> Value:
    """A size where a value stands."""
    bound = frame.size(size)
    number = ev.domain.size_of(Axis(None, bound))
    if number is None:
        raise problem("E2116", f"the size `{size}` isn't known here", frame.span(expr))
    return number


def count(ev: Evaluator, frame: Frame, axis: Axis, expr: tree.Expr) -> Value:
    """How long an axis is: a number where it is known, a tensor where the type says so."""
    bound = frame.axis(axis)
    number = ev.domain.size_of(bound)
    kind = ev.program.types.get(expr)
    element = kind.element if isinstance(kind, Tensor) else I64
    if number is None:
        return ev.domain.emit("size", (), {"over": bound, "element": element}, frame.span(expr))
    return ev.domain.constant(number, element) if isinstance(kind, Tensor) else number


def cast(ev: Evaluator, frame: Frame, value: Value, of: Type, expr: tree.Expr) -> Value:
    """`value as type`."""
    span = frame.span(expr)
    if isinstance(of, Tensor):
        wanted = frame.tensor(of)
        if isinstance(value, (bool, int, float)) and not of.axes:
            _check_index(ev, value, wanted.element, span, expr, frame)
            if not wanted.element.is_float and isinstance(value, float):
                value = int(value)
            return ev.domain.constant(value, wanted.element)
        if isinstance(value, TENSORS):
            tensor: TensorValue = relabelled(ev.domain, value, wanted.axes)
            if tensor.element.name != wanted.element.name:
                tensor = ev.domain.emit("cast", (tensor,), {"element": wanted.element.base}, span)
            if tensor.element != wanted.element:
                tensor = ev.domain.emit("refine", (tensor,), {"element": wanted.element}, span)
            return tensor
    return ev.domain.from_python(frame, value, of, span)


def _check_index(
    ev: Evaluator, value: int | float, element: Element, span: object, expr: tree.Expr, frame: Frame
) -> None:
    if element.bound is None:
        return
    bound = ev.domain.size_of(Axis(None, element.bound))
    if bound is not None and not 0 <= value < bound:
        raise problem("E2113", f"{value} isn't an `Index[{element.bound}]`: it must be in 0..{bound}", frame.span(expr))


# --- host values -----------------------------------------------------------------------------------------------------


def host_operands(expr: tree.Expr) -> list[tree.Expr]:
    """The operands of arithmetic or of a call on host values."""
    match expr:
        case tree.Binary():
            return [expr.left, expr.right]
        case tree.Unary():
            return [expr.operand]
        case tree.Call():
            return [argument.value for argument in expr.arguments]
        case tree.Pipe():
            target = expr.target
            return [expr.value, *(host_operands(target) if isinstance(target, tree.Call) else [])]
        case tree.Group():
            return host_operands(expr.inner)
    return []


def host(ev: Evaluator, frame: Frame, op: str, expr: tree.Expr) -> Value:
    """Arithmetic, comparisons and functions of host values, open numbers and gradients."""
    operands = host_operands(expr)
    if op in ("and", "or"):
        left = truth(ev, frame, operands[0])
        return (left and truth(ev, frame, operands[1])) if op == "and" else (left or truth(ev, frame, operands[1]))
    values = [evaluate(ev, frame, each) for each in operands]
    if any(is_gradients(value) for value in values):
        return on_gradients(ev, op, values)
    if any(is_tensor(value) for value in values):
        return on_open_numbers(ev, frame, op, values, expr)
    try:
        return compute(op, *values)
    except HostProblem as error:
        raise problem("E2111", str(error), frame.span(expr)) from error
    except Exception as error:
        raise python_problem(error, frame, expr) from error


def on_open_numbers(ev: Evaluator, frame: Frame, op: str, values: list[Value], expr: tree.Expr) -> Value:
    """An operation on host numbers of which one isn't known: as scalar tensors, in f64 where one is a float."""
    whole = op != "/" and all(
        value.element.is_whole if isinstance(value, TENSORS) else isinstance(value, int) for value in values
    )
    element = I64 if whole else F64
    tensors = [scalar(ev, value, element) for value in values]
    if op == "-" and len(tensors) == 1:
        name = "negate"
    elif op in ("not", "!"):
        return ev.domain.emit("not", (tensors[0],), {}, frame.span(expr))
    else:
        name = TENSOR_OPS.get(op, op)
    if name in ("log", "sqrt"):
        tensors = [scalar(ev, tensors[0], F64.refined("NonNeg"))]
    result = tensors[0]
    if len(tensors) == 1:
        return ev.domain.emit(name, tensors, {}, frame.span(expr))
    for tensor in tensors[1:]:
        result = ev.domain.emit(name, (result, tensor), {}, frame.span(expr))
    return result


def is_gradients(value: Value) -> bool:
    """Whether a value is gradients, of a model or of a list of models."""
    return isinstance(value, GradientsValue) or (isinstance(value, list) and all(map(is_gradients, value)))


def on_gradients(ev: Evaluator, op: str, values: list[Value]) -> Value:
    """Gradients add, subtract and scale, tensor by tensor."""
    shapes = [value for value in values if is_gradients(value)]

    def one(*tensors: TensorValue) -> TensorValue:
        left = iter(tensors)
        parts = [next(left) if is_gradients(value) else value for value in values]
        element = tensors[0].element.base
        ready: list[TensorValue] = [
            part if isinstance(part, TENSORS) and part.axes else scalar(ev, part, element) for part in parts
        ]
        name = "negate" if len(ready) == 1 else TENSOR_OPS[op]
        return ev.domain.emit(name, ready, {}, None)

    return map_tensors(one, *shapes)


def host_index(ev: Evaluator, frame: Frame, expr: tree.Expr) -> Value:
    """`m.blocks[i]`, `t[0]`, `python_value[i]`."""
    assert isinstance(expr, tree.Index)
    owner = evaluate(ev, frame, expr.of)
    values = [known(ev, frame, item.value) for item in expr.items]
    at = values[0] if len(values) == 1 else tuple(values)
    try:
        return owner[at]  # type: ignore[index]
    except IndexError as error:
        if isinstance(owner, (list, tuple)):
            message = f"there is no place {at}: there are {len(owner)}, numbered from 0"
            raise problem("E2111", message, frame.span(expr)) from error
        raise python_problem(error, frame, expr) from error
    except Exception as error:
        raise python_problem(error, frame, expr) from error


def builtin(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """A built-in of the domain."""
    found = ev.domain.builtins.get(use.name)
    if found is None:
        message = f"`{use.name}` can't run while a function is compiled for a device"
        raise problem("E2116", message, frame.span(expr))
    with ev.domain.blamed(frame.span(expr)):
        return found(ev, frame, use, expr)


def extern_arguments(ev: Evaluator, frame: Frame, use: ExternUse) -> list[Value]:
    """The arguments of an `extern fn` in order; a default is read where the function stands."""
    own = ev.program.function_of[use.function]
    callee = ev.frame(own.source, own)
    return [
        evaluate(ev, callee, each.value) if isinstance(each, Default) else evaluate(ev, frame, each)
        for each in use.arguments
    ]


def make_batch(ev: Evaluator, frame: Frame, use: DataUse, expr: tree.Expr) -> Value:
    """`Example(pixels=x, digit=y)`."""
    fields: dict[str, object] = {name: evaluate(ev, frame, value) for name, value in use.fields.items()}
    kind = ev.program.types.get(expr)
    first = next((value for value in fields.values() if isinstance(value, TENSORS)), None)
    axis = getattr(kind, "axis", None)
    if first is None:
        raise problem("E2111", "a batch is made of tensors", frame.span(expr))
    bound = frame.axis(axis) if isinstance(axis, Axis) else first.axes[0]
    return BatchValue(use.data, bound, fields)


def arguments_of(
    ev: Evaluator, frame: Frame, arguments: Mapping[str, tree.Expr], **defaults: Value
) -> dict[str, Value]:
    """A built-in's arguments by name, those left out by their defaults."""
    return {**defaults, **{name: evaluate(ev, frame, value) for name, value in arguments.items()}}


def shape_of_fields(ev: Evaluator, model: ModelOf) -> dict[str, Type]:
    """The types of a model's fields, its dims given."""
    info = model_info(ev, model.declaration)
    return {name: field_type(model, info.dims, member.type) for name, member in info.fields.items()}


def is_models(of: Type) -> bool:
    """Whether a field holds models."""
    return isinstance(of, (ModelOf, ModelList))
