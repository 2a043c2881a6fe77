"""Optimizers: their state, and one update of a model by its gradients.

Takes a domain, a model, an optimizer's state and gradients; changes the model and the state in place. The formulas
are PyTorch's. Numbers that depend on the step are worked out in f64 and then take the param's element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shapescript.ir.builder import constant_element
from shapescript.specialise.domain import Domain
from shapescript.specialise.frame import TENSORS
from shapescript.specialise.values import (
    GradientsValue,
    ModelValue,
    OptimizerValue,
    TensorValue,
    Value,
    named_tensors,
)
from shapescript.types.element import F64, Element

STATES: Mapping[str, tuple[str, ...]] = {
    "SGD": ("momentum",),
    "Adam": ("first", "second"),
    "AdamW": ("first", "second"),
    "Lion": ("first",),
}
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "SGD": {"momentum": 0.0, "weight_decay": 0.0, "nesterov": False, "decay_axes": 0},
    "Adam": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "decay_axes": 0},
    "AdamW": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "decay_axes": 0},
    "Lion": {"betas": (0.9, 0.99), "weight_decay": 0.0, "decay_axes": 0},
}


class Arithmetic:
    """Operations of a domain on tensors and numbers; a number takes the element of the tensor beside it."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def of(self, op: str, *operands: object, **attributes: object) -> TensorValue:
        """An operation; numbers and scalars of another float take the element of the first tensor with axes."""
        tensors = [each for each in operands if isinstance(each, TENSORS)]
        numbers = [each for each in tensors if not each.element.is_bool] or tensors
        like = next((each for each in numbers if each.axes), numbers[0])
        element: Element = like.element
        ready = [self.fit(each, element) for each in operands]
        return self.domain.emit(op, ready, attributes, None)

    def fit(self, value: object, element: Element) -> TensorValue:
        """A number or a scalar with this element; a bool tensor and a tensor of the element stay."""
        if isinstance(value, (bool, int, float)):
            return self.domain.constant(value, constant_element(value, element))
        tensor: TensorValue = value  # type: ignore[assignment]
        if tensor.element.name != element.name and not tensor.element.is_bool and element.is_float:
            return self.domain.emit("cast", (tensor,), {"element": Element(element.name)}, None)
        return tensor

    def as_element(self, value: TensorValue, element: Element) -> TensorValue:
        """A tensor with exactly this element."""
        if value.element.name != element.name:
            value = self.domain.emit("cast", (value,), {"element": element.base}, None)
        if value.element != element:
            value = self.domain.emit("refine", (value,), {"element": element}, None)
        return value

    def scaled(self, x: TensorValue, by: object) -> TensorValue:
        """x * by."""
        return self.of("multiply", x, by)

    def mixed(self, old: TensorValue, new: TensorValue, keep: float) -> TensorValue:
        """keep * old + (1 - keep) * new."""
        return self.of("add", self.scaled(old, keep), self.scaled(new, 1.0 - keep))


def update(
    domain: Domain,
    model: ModelValue | list[ModelValue],
    state: OptimizerValue,
    gradients: GradientsValue | list[GradientsValue],
    lr: Value,
) -> None:
    """One step of an optimizer, for a model or a list of models."""
    arithmetic = Arithmetic(domain)
    rate = state.options["lr"] if lr is None else lr
    (step_slot,) = state.step
    step = arithmetic.of("add", state.step[step_slot], 1.0)
    state.step[step_slot] = step
    known = {path: (slots, name) for path, slots, name in named_tensors(model)}
    for path, slots, name in named_tensors(gradients):
        owner, field = known[path]
        weight, gradient = owner[field], slots[name]
        assert isinstance(weight, TENSORS) and isinstance(gradient, TENSORS)
        decay = _number(state, "weight_decay")
        if len(weight.axes) < _number(state, "decay_axes"):
            decay = 0.0
        one = RULES[state.kind](arithmetic, state, path, weight, gradient, rate, decay, step)
        owner[field] = arithmetic.as_element(one, weight.element)


def _sgd(
    a: Arithmetic,
    state: OptimizerValue,
    path: str,
    w: TensorValue,
    g: TensorValue,
    lr: Value,
    decay: float,
    step: TensorValue,
) -> TensorValue:
    momentum = _number(state, "momentum")
    if decay:
        g = a.of("add", g, a.scaled(w, decay))
    if momentum:
        kept = state.state["momentum"]
        moved = a.of("add", a.scaled(_tensor(kept[path]), momentum), g)
        kept[path] = a.as_element(moved, w.element.base)
        g = a.of("add", g, a.scaled(moved, momentum)) if state.options["nesterov"] else moved
    return a.of("subtract", w, a.scaled(g, lr))


def _adam(
    a: Arithmetic,
    state: OptimizerValue,
    path: str,
    w: TensorValue,
    g: TensorValue,
    lr: Value,
    decay: float,
    step: TensorValue,
) -> TensorValue:
    if state.kind == "AdamW" and decay:
        w = _decayed(a, w, lr, decay)
    elif decay:
        g = a.of("add", g, a.scaled(w, decay))
    beta1, beta2 = _betas(state)
    element = w.element.base
    first = a.as_element(a.mixed(_tensor(state.state["first"][path]), g, beta1), element)
    squared = a.domain.emit("square", (g,), {}, None)
    second = a.as_element(a.mixed(_tensor(state.state["second"][path]), squared, beta2), element.refined("NonNeg"))
    state.state["first"][path], state.state["second"][path] = first, second
    rate = _as_tensor(a, lr)
    step_size = a.of("divide", rate, _bias(a, beta1, step))
    root = a.domain.emit("sqrt", (a.as_element(_bias(a, beta2, step), F64.refined("NonNeg")),), {}, None)
    below = a.of("divide", a.domain.emit("sqrt", (second,), {}, None), root)
    below = a.of("add", below, _number(state, "eps"))
    return a.of("subtract", w, a.scaled(a.of("divide", first, below), step_size))


def _lion(
    a: Arithmetic,
    state: OptimizerValue,
    path: str,
    w: TensorValue,
    g: TensorValue,
    lr: Value,
    decay: float,
    step: TensorValue,
) -> TensorValue:
    if decay:
        w = _decayed(a, w, lr, decay)
    beta1, beta2 = _betas(state)
    old = _tensor(state.state["first"][path])
    direction = a.domain.emit("sign", (a.mixed(old, g, beta1),), {}, None)
    state.state["first"][path] = a.as_element(a.mixed(old, g, beta2), w.element.base)
    return a.of("subtract", w, a.scaled(direction, lr))


RULES = {"SGD": _sgd, "Adam": _adam, "AdamW": _adam, "Lion": _lion}


def _tensor(value: object) -> TensorValue:
    assert isinstance(value, TENSORS)
    tensor: TensorValue = value
    return tensor


def _as_tensor(a: Arithmetic, number: Value) -> TensorValue:
    if isinstance(number, (int, float)):
        return a.domain.constant(float(number), constant_element(float(number), F64))
    return a.fit(number, F64)


def _number(state: OptimizerValue, name: str) -> float:
    value = state.options[name]
    assert isinstance(value, (int, float))
    return float(value)


def _betas(state: OptimizerValue) -> tuple[float, float]:
    betas = state.options["betas"]
    assert isinstance(betas, Sequence)
    return float(betas[0]), float(betas[1])


def _bias(a: Arithmetic, beta: float, step: TensorValue) -> TensorValue:
    """1 - beta ** step, in f64."""
    base = a.domain.constant(beta, constant_element(beta, F64))
    power = a.domain.emit("power", (base, a.fit(step, F64)), {}, None)
    return a.domain.emit("subtract", (a.domain.constant(1.0, F64), a.as_element(power, F64)), {}, None)


def _decayed(a: Arithmetic, w: TensorValue, lr: Value, decay: float) -> TensorValue:
    """w * (1 - lr * decay)."""
    if isinstance(lr, (int, float)):
        return a.scaled(w, 1.0 - lr * decay)
    shrink = a.scaled(a.fit(lr, F64), decay)
    kept = a.domain.emit("subtract", (a.domain.constant(1.0, F64), a.as_element(shrink, F64)), {}, None)
    return a.scaled(w, kept)
