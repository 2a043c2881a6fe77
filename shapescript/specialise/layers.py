"""Layers that act by the mode: dropout and batch_norm.

In training they draw or take statistics, elsewhere they act as in evaluation. Statistics are over the whole batch;
the running ones move by the momentum (0.1), with the unbiased variance, as PyTorch's do.
"""

from __future__ import annotations

from shapescript.specialise.domain import problem
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.expressions import arguments_of
from shapescript.specialise.frame import TENSORS, Frame
from shapescript.specialise.optimizers import Arithmetic
from shapescript.specialise.values import ModelValue, TensorValue, Value
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.uses import BuiltinUse


def dropout(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """Each place becomes 0 with the chance `rate`, and the others grow by 1 / (1 - rate)."""
    given = arguments_of(ev, frame, use.arguments)
    x, rate = given["x"], given["rate"]
    assert isinstance(x, TENSORS)
    if not ev.training or rate == 0:
        return x
    if isinstance(rate, (int, float)) and not 0 <= rate <= 1:
        raise problem("E2111", f"the rate of a dropout is in 0..1, and this is {rate}", frame.span(expr))
    a = Arithmetic(ev.domain)
    tensor: TensorValue = x
    element = tensor.element.base
    drawn = ev.domain.emit(
        "random_uniform", (), {"axes": tensor.axes, "place": 0, "element": element}, frame.span(expr)
    )
    kept = a.of("greater_equal", drawn, rate)
    if isinstance(rate, (int, float)):
        # at a rate of 1 nothing is kept, and nothing need grow
        grown = a.of("multiply", tensor, 1.0 / (1.0 - rate) if rate < 1 else 0.0)
    else:
        share = a.of("subtract", 1.0, rate)
        grown = a.of("divide", tensor, a.of("where", a.of("greater", share, 0.0), share, 1.0))
    return a.of("where", kept, grown, 0.0)


def batch_norm(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """x normalised over `over`, by its own statistics in training and by the running ones elsewhere."""
    given = arguments_of(ev, frame, use.arguments, momentum=0.1, eps=1e-5)
    x, model = given["x"], given["bn"]
    assert isinstance(x, TENSORS) and isinstance(model, ModelValue)
    a = Arithmetic(ev.domain)
    over = tuple(_of_value(axis, x.axes) for axis in frame.axes_of(use.over))
    left = tuple(axis for axis in x.axes if axis not in over)
    state = {name: _under(ev, model.fields[name], left) for name in ("mean", "var")}
    if not ev.training:
        return _normalised(a, x, state["mean"], state["var"], known_number(given["eps"]))
    count: TensorValue | None = None
    for axis in over:
        one = ev.domain.emit("size", (), {"over": axis, "element": x.element.base}, frame.span(expr))
        count = one if count is None else a.of("multiply", count, one)
    assert count is not None
    mean = a.of("divide", ev.domain.emit("sum", (x,), {"over": over}, frame.span(expr)), count)
    centred = a.of("subtract", x, mean)
    squares = ev.domain.emit("sum", (ev.domain.emit("square", (centred,), {}, None),), {"over": over}, frame.span(expr))
    variance = a.as_element(a.of("divide", squares, count), x.element.refined("NonNeg"))
    if "mut" in use.arguments:
        unbiased = a.of("divide", squares, _less_one(a, count))
        _move(ev, a, model, {"mean": mean, "var": unbiased}, known_number(given["momentum"]))
    return _normalised(a, x, mean, variance, known_number(given["eps"]))


def known_number(value: Value) -> float:
    """An option of a layer, a number."""
    assert isinstance(value, (int, float))
    return float(value)


def _less_one(a: Arithmetic, count: TensorValue) -> TensorValue:
    """The divisor of the unbiased variance; of a single place, whose squares are 0, it is 1."""
    return a.of("maximum", a.of("subtract", count, 1.0), 1.0)


def _of_value(axis: Axis, axes: tuple[Axis, ...]) -> Axis:
    """The axis of a value that an axis names: by name first, else by size."""
    by_name = [each for each in axes if each.name is not None and each.name == axis.name]
    return by_name[0] if by_name else next(each for each in axes if each.size == axis.size)


def _under(ev: Evaluator, value: object, axes: tuple[Axis, ...]) -> TensorValue:
    """A state by the axis that the value has."""
    assert isinstance(value, TENSORS)
    tensor: TensorValue = value
    return tensor if tensor.axes == axes else ev.domain.emit("relabel", (tensor,), {"axes": axes}, None)


def _move(ev: Evaluator, a: Arithmetic, model: ModelValue, found: dict[str, TensorValue], momentum: float) -> None:
    for name, new in found.items():
        old = model.fields[name]
        assert isinstance(old, TENSORS)
        held = ev.domain.emit("stop_gradient", (_under(ev, new, old.axes),), {}, None)
        held = a.as_element(held, old.element.base)
        model.fields[name] = a.as_element(a.mixed(old, held, 1.0 - momentum), old.element)


def _normalised(a: Arithmetic, x: TensorValue, mean: TensorValue, variance: TensorValue, eps: float) -> TensorValue:
    element = x.element.base
    mean, variance = a.as_element(mean, element), a.as_element(variance, element.refined("NonNeg"))
    scale = a.domain.emit("rsqrt", (a.as_element(a.of("add", variance, eps), element.refined("NonNeg")),), {}, None)
    return a.as_element(a.of("multiply", a.of("subtract", x, mean), scale), element)
