"""Built-ins that mean the same in both domains: those of training, and of numbers.

Gives `SHARED`, a table from the name to a function of the evaluator, the frame, the use and the expression. What
prints, reads files or loops over data is the controller's own table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from shapescript.source import Span
from shapescript.specialise.domain import Builtin, problem
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.expressions import arguments_of, evaluate, model_info
from shapescript.specialise.frame import TENSORS, Frame
from shapescript.specialise.layers import batch_norm, dropout
from shapescript.specialise.optimizers import DEFAULTS, STATES, Arithmetic, update
from shapescript.specialise.scan import scan
from shapescript.specialise.values import (
    BatchValue,
    DeviceTensor,
    GradientsValue,
    ModelValue,
    OptimizerValue,
    TensorValue,
    Value,
    copied,
    is_tensor,
    named_tensors,
)
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import F64, NONNEG
from shapescript.types.kinds import ModelList
from shapescript.types.size import Size
from shapescript.types.uses import BuiltinUse, Default

# --- gradients -------------------------------------------------------------------------------------------------------


def _call_values(ev: Evaluator, frame: Frame, use: BuiltinUse) -> list[Value]:
    """The arguments of the function that a built-in calls; None where its default stands."""
    assert use.call is not None
    return [None if isinstance(each, Default) else evaluate(ev, frame, each) for each in use.call.arguments]


def _value_and_grad(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    assert use.call is not None
    values = _call_values(ev, frame, use)
    model = values[0]
    assert isinstance(model, ModelValue)
    before = copied(model)
    assert isinstance(before, ModelValue)
    with ev.differentiated():
        result = ev.call(frame, use.call, values)
    loss = result[0] if isinstance(result, tuple) else result
    if not isinstance(loss, TENSORS):
        raise problem("E2115", "the loss doesn't depend on the model", frame.span(expr))
    gradients = _gradients(ev, frame, before, loss, expr)
    return gradients if use.name == "grad" else (result, gradients)


def _gradients(ev: Evaluator, frame: Frame, model: ModelValue, loss: TensorValue, expr: tree.Expr) -> GradientsValue:
    info = model_info(ev, model.type.declaration)
    fields: dict[str, object] = {}
    for name, part in model.fields.items():
        if isinstance(part, ModelValue):
            fields[name] = _gradients(ev, frame, part, loss, expr)
        elif isinstance(part, list):
            fields[name] = [_gradients(ev, frame, each, loss, expr) for each in part]
        elif info.fields[name].word == "param" and is_tensor(part) and part.element.is_float:  # type: ignore[attr-defined]
            fields[name] = ev.domain.emit("gradient", (loss, part), {}, frame.span(expr))  # type: ignore[arg-type]
    return GradientsValue(model.type, fields)


def _remat(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """The call itself, whose values are computed again on the way back."""
    assert use.call is not None
    with ev.domain.repeated():
        return ev.call(frame, use.call)


def _autocast(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    assert use.call is not None
    to = use.arguments.get("to")
    with ev.domain.rounded_products(to.name if isinstance(to, tree.Name) else "bf16"):
        return ev.call(frame, use.call)


def _in_mode(training: bool) -> Builtin:
    def called(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
        assert use.call is not None
        with ev.mode(training):
            return ev.call(frame, use.call)

    return called


def _update(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    given = arguments_of(ev, frame, use.arguments, lr=None)
    model, state, gradients = given["m"], given["opt"], given["g"]
    assert isinstance(model, (ModelValue, list)) and isinstance(state, OptimizerValue)
    assert isinstance(gradients, (GradientsValue, list))
    update(ev.domain, model, state, gradients, given["lr"])
    return None


def _largest(a: Arithmetic, tensor: TensorValue) -> TensorValue:
    """The greatest absolute value of a tensor."""
    size = a.domain.emit("abs", (tensor,), {}, None)
    return a.domain.emit("max", (size,), {"over": tensor.axes}, None) if tensor.axes else size


def _total(a: Arithmetic, gradients: Value, span: Span | None = None) -> TensorValue:
    """The norm over all tensors of a value: of their parts of the greatest one, so that no square overflows.

    With a `span` a value that is infinite or no number is an error there, which names the field.
    """
    tensors = {path: slots[name] for path, slots, name in named_tensors(gradients)}
    if not tensors:
        return a.domain.constant(0.0, NONNEG)
    # All of the greatest values before the first is looked at: over several devices they then travel together.
    all_greatest = {path: _largest(a, tensor) for path, tensor in tensors.items()}  # type: ignore[arg-type]
    greatest: TensorValue | None = None
    for path, own in all_greatest.items():
        if span is not None:
            own = a.domain.emit("require_finite", (own,), {"what": f"the gradient of `{path}`"}, span)
        greatest = own if greatest is None else a.of("maximum", greatest, own)
    assert greatest is not None
    scale = a.of("where", a.of("greater", greatest, 0.0), greatest, 1.0)
    total: TensorValue | None = None
    for tensor in tensors.values():
        assert isinstance(tensor, TENSORS)
        square = a.domain.emit("square", (a.of("divide", tensor, scale),), {}, None)
        if tensor.axes:
            square = a.domain.emit("sum", (square,), {"over": tensor.axes}, None)
        total = square if total is None else a.of("add", total, square)
    assert total is not None
    root = a.domain.emit("sqrt", (a.as_element(total, total.element.refined("NonNeg")),), {}, None)
    return a.as_element(a.of("multiply", root, scale), total.element.refined("NonNeg"))


def _norm(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    return _total(Arithmetic(ev.domain), evaluate(ev, frame, use.arguments["g"]))


def _clip(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    a = Arithmetic(ev.domain)
    gradients = copied(evaluate(ev, frame, use.arguments["g"]))
    most = evaluate(ev, frame, use.arguments["norm"])
    total = _total(a, gradients, frame.span(expr))
    over = a.of("greater", total, most)
    # where nothing is clipped the divisor is 1, so that a norm of 0 divides nothing
    most_tensor = a.fit(most, total.element)
    factor = a.of("where", over, a.of("divide", most_tensor, a.of("where", over, total, 1.0)), 1.0)
    for _, slots, name in named_tensors(gradients):
        tensor: TensorValue = slots[name]  # type: ignore[assignment]
        slots[name] = a.as_element(a.of("multiply", tensor, factor), tensor.element)
    return gradients


def _average(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    given = arguments_of(ev, frame, use.arguments)
    a = Arithmetic(ev.domain)
    new = {path: slots[name] for path, slots, name in named_tensors(given["m"])}
    keep = given["keep"]
    for path, slots, name in named_tensors(given["ema"]):
        old: TensorValue = slots[name]  # type: ignore[assignment]
        other: TensorValue = new[path]  # type: ignore[assignment]
        if not old.element.is_float:
            slots[name] = other
            continue
        if isinstance(keep, (int, float)):
            mixed = a.mixed(old, other, float(keep))
        else:
            rest = a.of("add", a.of("negate", keep), 1.0)
            mixed = a.of("add", a.scaled(old, keep), a.scaled(other, rest))
        slots[name] = a.as_element(mixed, old.element)
    return None


def _copy(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    return copied(evaluate(ev, frame, use.arguments["m"]))


# --- optimizers ------------------------------------------------------------------------------------------------------


def _optimizer(kind: str) -> Builtin:
    def made(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
        given = arguments_of(ev, frame, use.arguments)
        model = given.pop("m")
        assert isinstance(model, (ModelValue, list))
        return new_optimizer(ev, kind, model, given)

    return made


def new_optimizer(
    ev: Evaluator, kind: str, model: ModelValue | list[ModelValue], given: Mapping[str, Value]
) -> OptimizerValue:
    """An optimizer's state for a model, or for a list of models of one kind: zeros beside each param."""
    options: dict[str, object] = {**DEFAULTS[kind], **given}
    rate = options["lr"]
    options["lr"] = float(rate) if isinstance(rate, (int, float)) else rate
    a = Arithmetic(ev.domain)
    states = STATES[kind] if kind != "SGD" or options["momentum"] else ()
    state: dict[str, dict[str, object]] = {name: {} for name in states}
    for path, slots, name in trained(ev, model):
        weight: TensorValue = slots[name]  # type: ignore[assignment]
        for each in states:
            element = weight.element.base.refined("NonNeg") if each == "second" else weight.element.base
            zero = ev.domain.constant(0.0, element)
            state[each][path] = (
                ev.domain.emit("broadcast", (zero,), {"axes": weight.axes}, None) if weight.axes else zero
            )
    of = ModelList(Axis.of(Size.of(len(model))), model[0].type) if isinstance(model, list) else model.type
    return OptimizerValue(kind, of, options, state, {"step": a.domain.constant(0.0, F64)})


def trained(ev: Evaluator, model: Value, prefix: str = "") -> list[tuple[str, dict[str, object], str]]:
    """Each param of a model with its path: the path, and where it is kept."""
    found: list[tuple[str, dict[str, object], str]] = []
    if isinstance(model, list):
        for index, each in enumerate(model):
            found.extend(trained(ev, each, f"{prefix}{index}."))
    if isinstance(model, ModelValue):
        info = model_info(ev, model.type.declaration)
        for name, part in model.fields.items():
            if isinstance(part, (ModelValue, list)):
                found.extend(trained(ev, part, f"{prefix}{name}."))
            elif info.fields[name].word == "param" and part.element.is_float:  # type: ignore[attr-defined]
                found.append((f"{prefix}{name}", model.fields, name))
    return found


# --- numbers ---------------------------------------------------------------------------------------------------------


def _len(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    value = evaluate(ev, frame, use.arguments["x"])
    if not isinstance(value, BatchValue):
        return len(value)  # type: ignore[arg-type]
    first = next(iter(value.fields.values()))
    if isinstance(first, DeviceTensor):
        return first.shape[0]
    number = ev.domain.size_of(value.axis)
    if number is not None:
        return number
    return ev.domain.emit("size", (), {"over": value.axis, "element": F64}, frame.span(expr))


def _conversion(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    value = evaluate(ev, frame, use.arguments["x"])
    if isinstance(value, TENSORS) and use.name != "str":
        if use.name == "float" and not isinstance(value, DeviceTensor) and not value.axes:
            return Arithmetic(ev.domain).fit(value, F64)
        value = ev.domain.number(value, frame.span(expr))
    try:
        return {"int": int, "float": float, "bool": bool, "str": text_of}[use.name](value)  # type: ignore[operator]
    except (TypeError, ValueError, OverflowError) as error:
        raise problem("E2111", f"`{use.name}`: {error}", frame.span(expr)) from error


def text_of(value: Value) -> str:
    """A value as `str` writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DeviceTensor):
        return str(value.data.item()) if value.data.dim() == 0 else str(value.data.tolist())
    return str(value)


def _reversed(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    value = evaluate(ev, frame, use.arguments["x"])
    assert isinstance(value, (range, list))
    return value[::-1]


def _schedule(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    given = arguments_of(ev, frame, use.arguments, floor=0.0)
    numbers = {
        name: float(ev.domain.number(value, frame.span(expr)) if isinstance(value, TENSORS) else value)  # type: ignore[arg-type]
        for name, value in given.items()
    }
    return schedule(use.name, **numbers)


def schedule(kind: str, *, step: float, peak: float, floor: float = 0.0, **rest: float) -> float:
    """The learning rate of a step."""
    warmup = rest.get("warmup", 0.0)
    if warmup and step < warmup:
        return peak * (step + 1) / warmup
    if kind == "exponential":
        return max(floor, peak * math.pow(rest["rate"], step))
    if kind == "steps":
        return max(floor, peak * math.pow(rest["factor"], step // rest["every"]))
    done = min(1.0, max(0.0, (step - warmup) / max(1.0, rest["total"] - warmup)))
    share = 1.0 - done if kind == "warmup_linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return floor + (peak - floor) * share


def _same(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """`whole(x)` on one device: x."""
    return evaluate(ev, frame, use.arguments["x"])


SHARED: dict[str, Builtin] = {
    "value_and_grad": _value_and_grad,
    "grad": _value_and_grad,
    "remat": _remat,
    "autocast": _autocast,
    "training": _in_mode(True),
    "evaluating": _in_mode(False),
    "scan": scan,
    "update": _update,
    "norm": _norm,
    "clip": _clip,
    "average": _average,
    "copy": _copy,
    "sgd": _optimizer("SGD"),
    "adam": _optimizer("Adam"),
    "adamw": _optimizer("AdamW"),
    "lion": _optimizer("Lion"),
    "dropout": dropout,
    "batch_norm": batch_norm,
    "len": _len,
    "int": _conversion,
    "float": _conversion,
    "bool": _conversion,
    "str": _conversion,
    "reversed": _reversed,
    "whole": _same,
    **{name: _schedule for name in ("warmup_cosine", "warmup_linear", "cosine", "exponential", "steps")},
}
