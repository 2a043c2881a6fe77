"""Checks what works along named axes: reductions, softmax and its like, normalisations, and losses.

Takes calls with `over=`; gives types and uses. Whole numbers and bools are widened before they are added up, so that
300 ones of u8 are 300; a mean is a float.
"""

from __future__ import annotations

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import Axis, contains, same_axes, show_axes
from shapescript.types.check_operators import align, drop_one, report_elements
from shapescript.types.check_values import (
    Given,
    Value,
    apply,
    arguments_of,
    cast,
    finish,
    literal,
    need_over,
    number,
    one_axis,
    several_axes,
    tensor,
)
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.element import F32, I64, PROB
from shapescript.types.kinds import INT, WRONG, Host, Tensor, Type, Wrong
from shapescript.types.uses import StaticArgument

ADDING = ("sum", "prod", "cumsum", "cumprod")
AVERAGING = ("mean", "var", "std", "norm", "logsumexp", "softmax", "log_softmax", "layer_norm", "rms_norm")


def _widened(context: Context, name: str, value: Value) -> Value | None:
    """The operand in the element that this reduction works in; None after an error is reported."""
    element = value.type.element
    if name in ("any", "all"):
        if not element.is_bool:
            message = f"`{name}` takes bools, and this is `{value.type}`"
            context.report("E0508", message, value.node, helps=["compare first: `x > 0`"])
            return None
        return value
    if name in ADDING and not element.is_float:
        return cast(context, value, I64)
    if name == "mean" and not element.is_float:
        return cast(context, value, PROB if element.is_bool else F32)
    if element.is_float or (name not in AVERAGING and not element.is_bool):
        return value
    message = f"`{name}` takes {'floats' if name in AVERAGING else 'numbers'}, and this is `{value.type}`"
    context.report("E0509", message, value.node, helps=["write `as f32` after it"])
    return None


def _read(
    context: Context, node: tree.Expr, name: str, arguments: Arguments, by_name: tuple[str, ...] = ()
) -> tuple[Given, Value, tree.Expr] | None:
    """The one value of a call, and its `over=`."""
    given = arguments_of(context, node, name, arguments, ["x"], [], ["over", *by_name])
    value = tensor(context, given["x"], f"`{name}`") if given is not None else None
    over = need_over(context, node, name, given, value) if given is not None and value is not None else None
    return (given, value, over) if given is not None and value is not None and over is not None else None


def _over_several(name: str) -> Operation:
    """A reduction over one axis or more."""

    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        read = _read(context, node, name, arguments)
        axes = several_axes(context, read[2], read[1], f"`{name}`") if read is not None else None
        wide = _widened(context, name, read[1]) if read is not None and axes is not None else None
        return finish(context, node, apply(context, node, name, [wide], over=axes) if wide is not None else None)

    return check


def _over_one(name: str) -> Operation:
    """What works along a single axis."""

    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        read = _read(context, node, name, arguments)
        if read is None:
            return WRONG
        _, value, over = read
        if isinstance(over, tree.Axes):
            if len(over.sizes) != 1:
                context.report("E0305", f"`{name}` goes along one axis", over, helps=["write `over=n`"])
                return WRONG
            over = over.sizes[0]
        axis = one_axis(context, over, value, f"`{name}`")
        wide = _widened(context, name, value) if axis is not None else None
        result = apply(context, node, name, [wide], over=axis) if wide is not None else None
        if result is not None and name == "softmax" and axis is not None:
            _warn_hidden(context, value, axis)
            made = Tensor(result.type.axes, result.type.element, normalised=axis)
            result = Value(result.operand, made, result.node)
        return finish(context, node, result)

    return check


def _warn_hidden(context: Context, value: Value, axis: Axis) -> None:
    """Warns where a mask lacks the axis of a softmax: it hides whole rows of it, or nothing."""
    hidden = value.type.hidden
    if hidden is None or contains(hidden, axis):
        return
    message = f"the mask has `{show_axes(hidden)}`, and lacks `{axis}`, over which this softmax goes"
    notes = [f"such a mask hides all places of `{axis}` or none: a row of it becomes 0, or stays as it is"]
    helps = [f"if keys are to be hidden, the mask names their axis: `[.. {axis}]`"]
    context.report("W0511", message, value.node, "", (), notes, helps)


def _normalisation(name: str) -> Operation:
    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        read = _read(context, node, name, arguments, ("eps",))
        axes = several_axes(context, read[2], read[1], f"`{name}`") if read is not None else None
        wide = _widened(context, name, read[1]) if read is not None and axes is not None else None
        if read is None or wide is None:
            return WRONG
        eps = known_number(context, read[0].get("eps"), 1e-5 if name == "layer_norm" else 1e-6)
        if eps is None:
            return WRONG
        return finish(context, node, apply(context, node, name, [wide], over=axes, eps=eps))

    return check


def known_number(context: Context, expr: tree.Expr | None, default: float) -> object | None:
    """A number that is known when the function is specialised; None after an error is reported."""
    if expr is None:
        return default
    value = literal(expr)
    if value is not None:
        return float(value)
    found = context.type_of(expr)
    if isinstance(found, Host) and found.name in ("int", "float"):
        return StaticArgument(expr)
    if not isinstance(found, Wrong):
        context.report("E0607", f"this is a number that is known, and not `{found}`", expr)
    return None


# --- losses --------------------------------------------------------------------------------------------------------


def _left_over(axes: tuple[Axis, ...], over: tuple[Axis, ...]) -> tuple[Axis, ...]:
    return tuple(axis for axis in axes if not contains(over, axis))


def _mean_but(context: Context, node: tree.Expr, value: Value | None, keep: tree.Expr | None) -> Value | None:
    """The mean of a loss over its axes, but those in `keep=`."""
    if value is None:
        return None
    kept = several_axes(context, keep, value, "`keep`") if keep is not None else ()
    if kept is None:
        return None
    over = _left_over(value.type.axes, kept)
    return apply(context, node, "mean", [value], over=over) if over else value


def _check_cross_entropy(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    options = ["over", "weight", "smoothing", "ignore", "keep"]
    given = arguments_of(context, node, "cross_entropy", arguments, ["logits", "label"], [], options)
    if given is None:
        return WRONG
    logits = tensor(context, given["logits"], "`cross_entropy`")
    label = tensor(context, given["label"], "`cross_entropy`'s label")
    if logits is None or label is None:
        return WRONG
    over = need_over(context, node, "cross_entropy", given, logits)
    axis = one_axis(context, over, logits, "`cross_entropy`") if over is not None else None
    if axis is None or not _check_logits(context, logits) or not _check_label(context, logits, label, axis):
        return WRONG
    attributes: dict[str, object] = {"over": axis}
    smoothing = known_number(context, given.get("smoothing"), 0.0)
    ignore = given.get("ignore")
    known = literal(ignore) if ignore is not None else None
    if smoothing is None:
        return WRONG
    attributes["smoothing"] = smoothing
    if ignore is not None:
        kind = context.type_of(ignore)
        if kind != INT:
            if not isinstance(kind, Wrong):
                message = f"the label that `ignore` names is a whole number that is known, and this is {kind}"
                context.report("E0607", message, ignore)
            return WRONG
        attributes["ignore"] = known if isinstance(known, int) else StaticArgument(ignore)
    keep = given.get("keep")
    kept = several_axes(context, keep, logits, "`keep`") if keep is not None else ()
    if kept is None:
        return WRONG
    attributes["keep"] = kept
    values = [logits, label]
    if (expr := given.get("weight")) is not None:
        weight = tensor(context, expr, "`cross_entropy`'s weight")
        if weight is None or not _check_weight(context, logits, weight, axis):
            return WRONG
        values.append(weight)
    return finish(context, node, apply(context, node, "cross_entropy", values, **attributes))


def _check_weight(context: Context, logits: Value, weight: Value, axis: Axis) -> bool:
    """A weight for each class, of the logits' element."""
    if not same_axes(weight.type.axes, (axis,)):
        message = f"a weight for each class is `[{axis}]`, and this is `{weight.type}`"
        context.report("E0301", message, weight.node)
        return False
    if weight.type.element.name != logits.type.element.name:
        report_elements(context, weight.node, logits, weight)
        return False
    return True


def _check_logits(context: Context, logits: Value) -> bool:
    element = logits.type.element
    if element.is_prob:
        helps = ["hand in what `softmax` was given", "of probabilities, write `-sum(q * log(p), over=C)`"]
        message = "`cross_entropy` takes logits, and these are probabilities already"
        context.report("E0505", message, logits.node, f"this is `{logits.type}`", helps=helps)
        return False
    if not element.is_float:
        context.report("E0509", f"`cross_entropy` takes logits, and this is `{logits.type}`", logits.node)
        return False
    return True


def _check_label(context: Context, logits: Value, label: Value, axis: Axis) -> bool:
    """A label is an index along `over` for each of the other axes, or probabilities with `over` too."""
    element, place = label.type.element, [Label(context.span(logits.node), f"this is `{logits.type}`")]
    rest = _left_over(logits.type.axes, (axis,))
    if element.is_float:
        if same_axes(label.type.axes, logits.type.axes):
            return True
        message = f"probabilities as a label have the logits' axes, `{show_axes(logits.type.axes)}`"
        helps = [f"a label that is a class is `{show_axes(rest)} Index[{axis}]`"]
        context.report("E0301", message, label.node, f"this is `{label.type}`", place, helps=helps)
        return False
    if element.is_bool or (element.bound is not None and element.bound != axis.size):
        message = f"a label over `{axis}` is `Index[{axis.size}]`, and this is `{element}`"
        context.report("E0506", message, label.node, f"this is `{label.type}`", place)
        return False
    if not same_axes(label.type.axes, rest):
        message = f"the label has `{show_axes(label.type.axes)}`, and the logits leave `{show_axes(rest)}`"
        context.report("E0301", message, label.node, f"this is `{label.type}`", place)
        return False
    return True


def _pair_loss(name: str, first: str, second: str, options: tuple[str, ...] = ()) -> Operation:
    """A loss of two tensors with the same axes: the mean of what each pair costs."""

    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        given = arguments_of(context, node, name, arguments, [first, second], [], ["keep", *options])
        if given is None:
            return WRONG
        a = tensor(context, given[first], f"`{name}`")
        b = number(context, given[second], a.type.element.base, given[first]) if a is not None else None
        if a is None or b is None or not align(context, node, [a, b]):
            return WRONG
        if not same_axes(a.type.axes, b.type.axes) and a.type.axes and b.type.axes:
            _report_pair(context, name, a, b)
            return WRONG
        if not a.type.element.is_float or a.type.element.name != b.type.element.name:
            if a.type.element.name == b.type.element.name:
                context.report(
                    "E0509", f"`{name}` takes floats, and this is `{a.type}`", a.node, helps=["write `as f32`"]
                )
            else:
                report_elements(context, node, a, b)
            return WRONG
        attributes: dict[str, object] = {}
        for option in options:
            value = known_number(context, given.get(option), 1.0)
            if value is None:
                return WRONG
            attributes[option] = value
        keep = given.get("keep")
        kept = several_axes(context, keep, a, "`keep`") if keep is not None else ()
        if kept is None:
            return WRONG
        return finish(context, node, apply(context, node, name, [a, b], keep=kept, **attributes))

    return check


def _report_pair(context: Context, name: str, a: Value, b: Value) -> None:
    message = f"`{name}` compares values with the same axes: `{show_axes(a.type.axes)}` and `{show_axes(b.type.axes)}`"
    here = [Label(context.span(a.node), f"this is `{a.type}`")]
    smaller, larger = (a, b) if len(a.type.axes) < len(b.type.axes) else (b, a)
    helps = [drop_one(context, larger)] if any(axis.size.constant == 1 for axis in larger.type.axes) else []
    helps += [f"if it is meant: `broadcast({context.source_text(smaller.node)}, {show_axes(larger.type.axes)})`"]
    context.report("E0301", message, b.node, f"this is `{b.type}`", here, helps=helps)


def _check_kl(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "kl", arguments, ["p", "q"], [], ["over", "keep"])
    if given is None:
        return WRONG
    p, q = tensor(context, given["p"], "`kl`"), tensor(context, given["q"], "`kl`")
    over = need_over(context, node, "kl", given, p) if p is not None and q is not None else None
    if p is None or q is None or over is None:
        return WRONG
    if not same_axes(p.type.axes, q.type.axes):
        _report_pair(context, "kl", p, q)
        return WRONG
    if p.type.element.name != q.type.element.name:
        report_elements(context, node, p, q)
        return WRONG
    axes = several_axes(context, over, p, "`kl`")
    keep = given.get("keep")
    kept = several_axes(context, keep, p, "`keep`") if keep is not None else ()
    if axes is None or kept is None:
        return WRONG
    return finish(context, node, apply(context, node, "kl", [p, q], over=axes, keep=kept))


def _check_stop_gradient(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "stop_gradient", arguments, ["x"])
    value = tensor(context, given["x"], "`stop_gradient`") if given is not None else None
    return finish(context, node, apply(context, node, "stop_gradient", [value]) if value is not None else None)


SEVERAL = "sum mean max min prod any all logsumexp var std norm".split()
ONE = "argmax argmin softmax log_softmax cumsum cumprod sort argsort flip".split()

FUNCTIONS: dict[str, Operation] = {
    **{name: _over_several(name) for name in SEVERAL},
    **{name: _over_one(name) for name in ONE},
    "layer_norm": _normalisation("layer_norm"),
    "rms_norm": _normalisation("rms_norm"),
    "cross_entropy": _check_cross_entropy,
    "mse": _pair_loss("mse", "x", "y"),
    "binary_cross_entropy": _pair_loss("binary_cross_entropy", "logits", "label"),
    "kl": _check_kl,
    "huber": _pair_loss("huber", "x", "y", ("delta",)),
    "stop_gradient": _check_stop_gradient,
}
