"""Losses, made of primitives: stable for any logits, and a mean over the true count.

Each has `keep`, the axes over which it isn't averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from shapescript.ops.registry import Op, RuleError, over_axes, position_of, register
from shapescript.ops.rules import (
    Attributes,
    Operands,
    axes_attribute,
    find,
    need_float,
    need_same_axes,
    one_axis,
    one_name,
)
from shapescript.types.axes import Axis, same_axes, show_axes
from shapescript.types.element import I64
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node


def kept_axes(axes: Sequence[Axis], attributes: Mapping[str, object]) -> tuple[Axis, ...]:
    """Those of `axes` that `keep` names, in the order in which the value has them."""
    keep = axes_attribute(attributes, "keep")
    for axis in keep:
        find(axes, axis)
    return tuple(axis for axis in axes if position_of(keep, axis) is not None)


def _other_axes(axes: Sequence[Axis], attributes: Mapping[str, object]) -> tuple[Axis, ...]:
    keep = axes_attribute(attributes, "keep")
    return tuple(axis for axis in axes if position_of(keep, axis) is None)


def averaged(b: Builder, losses: Node, attributes: Mapping[str, object]) -> Node:
    """The mean over the axes that `keep` doesn't name, known to be 0 or more."""
    over = _other_axes(losses.axes, attributes)
    mean = b.emit("mean", losses, over=over) if over else losses
    return b.refine(mean, losses.element.base.refined("NonNeg"))


# --- cross_entropy -------------------------------------------------------------------------------------------------


def _cross_entropy_rule(operands: Operands, attributes: Attributes) -> Tensor:
    logits, label, *weights = operands
    element = need_float(logits, "cross_entropy")
    if element.is_prob:
        raise RuleError("E0505", "`cross_entropy` takes logits, and these are probabilities already", 0)
    place = find(logits.axes, one_axis(attributes))
    rest = (*logits.axes[:place], *logits.axes[place + 1 :])
    wanted = logits.axes if label.element.is_float else rest
    if label.element.is_bool or not same_axes(label.axes, wanted):
        raise RuleError("E0301", f"the label of these logits is `{show_axes(wanted)}`, and this is `{label}`", 1)
    for weight in weights:
        if not same_axes(weight.axes, (logits.axes[place],)):
            message = f"a weight for each class is `[{logits.axes[place]}]`, and this is `{weight}`"
            raise RuleError("E0301", message, 2)
        if weight.element.name != element.name:
            raise RuleError("E0501", f"logits of {element.base} have weights of {weight.element}", 2)
    return Tensor(kept_axes(rest, attributes), element.base.refined("NonNeg"))


def _expand_cross_entropy(b: Builder, operands: Sequence[Node], attributes: Mapping[str, object]) -> Node:
    logits, label, *weights = operands
    weight = weights[0] if weights else None
    axis = one_axis(attributes)
    smoothing = float(str(attributes.get("smoothing", 0.0)))
    logs = b.log_softmax(logits, over=axis)
    if weight is not None:
        # a class of weight 0 costs nothing, even where its logit is -inf
        wide = b.broadcast(weight, logs.axes)
        logs = b.where(b.equal(wide, 0), b.full_like(logs, 0), b.multiply(logs, wide))
    if label.element.is_float:
        return averaged(b, _against_probabilities(b, logs, label, axis, smoothing), attributes)
    ignore = attributes.get("ignore")
    if not isinstance(ignore, int):
        losses = _against_classes(b, logs, label, axis, smoothing)
        return averaged(b, losses, attributes) if weight is None else _shared(b, losses, weight, label, attributes)
    label = b.cast(label, I64)
    valid = b.not_equal(label, ignore)
    label = b.where(valid, label, 0)
    losses = _against_classes(b, logs, label, axis, smoothing)
    losses = b.where(valid, losses, b.full_like(losses, 0))
    return _shared(b, losses, weight, label, attributes, valid)


def _shared(
    b: Builder,
    losses: Node,
    weight: Node | None,
    label: Node,
    attributes: Mapping[str, object],
    valid: Node | None = None,
) -> Node:
    """The mean in which a row counts as much as its class weighs, and an ignored one not at all.

    Where nothing counts it is 0, without a gradient.
    """
    over = _other_axes(losses.axes, attributes)
    nonneg = losses.element.base.refined("NonNeg")
    if not over:
        return b.refine(losses, nonneg)
    counts = b.full_like(losses, 1) if weight is None else b.gather(weight, label, over=weight.axes[0])
    if valid is not None:
        counts = b.where(valid, counts, b.full_like(counts, 0))
    total = b.sum(counts, over=over)
    divisor = b.where(b.equal(total, 0), b.full_like(total, 1), total)
    return b.refine(b.divide(b.sum(losses, over=over), divisor), nonneg)


def _against_classes(b: Builder, logs: Node, label: Node, axis: Axis, smoothing: float) -> Node:
    """-log p of the label's class; `smoothing` puts that share evenly on all classes (Szegedy and others 2015)."""
    losses = b.negate(b.gather(logs, label, over=axis))
    if smoothing == 0:
        return losses
    even = b.divide(b.negate(b.sum(logs, over=axis)), b.size(axis, element=logs.element.base))
    return b.add(b.multiply(losses, 1 - smoothing), b.multiply(even, smoothing))


def _against_probabilities(b: Builder, logs: Node, label: Node, axis: Axis, smoothing: float) -> Node:
    wanted = b.cast(label, logs.element.base)
    if smoothing != 0:
        even = b.divide(smoothing, b.size(axis, element=logs.element.base))
        wanted = b.add(b.multiply(wanted, 1 - smoothing), even)
    nothing = b.equal(wanted, 0)  # a class of probability 0 costs nothing, even where its logit is -inf
    terms = b.multiply(wanted, b.where(nothing, b.full_like(logs, 0), logs))
    return b.negate(b.sum(terms, over=axis))


register(
    Op(
        "cross_entropy",
        "cross_entropy(logits, label, over=C, weight=, smoothing=0, ignore=, keep=)",
        _cross_entropy_rule,
        "The mean of -log softmax(logits) at the label. `ignore` is a label that doesn't count; all ignored give 0. "
        "`weight` weighs each class: the mean divides by the weights of the labels there are, as PyTorch's does.",
        "cross_entropy(ones[n C], arange[n] as Index[C], over=C)",
        expand=_expand_cross_entropy,
    )
)


# --- of pairs ------------------------------------------------------------------------------------------------------


def _pair_rule(name: str) -> Callable[[Operands, Attributes], Tensor]:
    def rule(operands: Operands, attributes: Attributes) -> Tensor:
        need_float(operands[0], name)
        base = one_name(operands)
        if operands[0].axes and operands[1].axes:
            need_same_axes(operands, name)
        axes = operands[0].axes or operands[1].axes
        return Tensor(kept_axes(axes, attributes), base.refined("NonNeg"))

    return rule


def pair_loss(
    name: str, signature: str, doc: str, example: str, each: Callable[[Builder, Node, Node, Attributes], Node]
) -> None:
    """Registers a mean over what each pair of places costs."""

    def expand(b: Builder, operands: Sequence[Node], attributes: Mapping[str, object]) -> Node:
        return averaged(b, each(b, operands[0], operands[1], attributes), attributes)

    register(Op(name, signature, _pair_rule(name), doc, example, expand=expand))


def _squared(b: Builder, x: Node, y: Node, attributes: Attributes) -> Node:
    return b.square(b.subtract(x, y))


def _binary(b: Builder, logits: Node, label: Node, attributes: Attributes) -> Node:
    """label softplus(-logits) + (1 - label) softplus(logits); a share of 0 costs nothing, even of an infinite term."""
    other = b.subtract(1, label)
    zero = b.full_like(logits, 0)
    yes = b.multiply(label, b.where(b.equal(label, 0), zero, b.softplus(b.negate(logits))))
    no = b.multiply(other, b.where(b.equal(other, 0), zero, b.softplus(logits)))
    return b.add(yes, no)


def _huber(b: Builder, x: Node, y: Node, attributes: Attributes) -> Node:
    delta = float(str(attributes["delta"]))
    distance = b.abs(b.subtract(x, y))
    near = b.multiply(b.square(distance), 0.5)
    far = b.multiply(b.subtract(distance, 0.5 * delta), delta)
    return b.where(b.less_equal(distance, delta), near, far)


pair_loss("mse", "mse(x, y, keep=)", "The mean of the squared differences.", "mse(ones[n], zeros[n])", _squared)
pair_loss(
    "binary_cross_entropy",
    "binary_cross_entropy(logits, label, keep=)",
    "The mean cost of a yes or no, from logits, stable for any of them.",
    "binary_cross_entropy(zeros[n], ones[n])",
    _binary,
)
pair_loss(
    "huber",
    "huber(x, y, delta=1, keep=)",
    "Half the squared difference up to delta, linear beyond (PyTorch's HuberLoss).",
    "huber(ones[n], zeros[n])",
    _huber,
)


def _kl_rule(operands: Operands, attributes: Attributes) -> Tensor:
    p, q = operands
    base = one_name(operands)
    need_float(p, "kl")
    need_same_axes(operands, "kl")
    for number, operand in enumerate(operands):
        if not operand.element.is_nonneg:
            raise RuleError("E0504", f"`kl` compares probabilities, and this is `{operand.element}`", number)
    gone = over_axes(attributes)
    rest = [axis for axis in p.axes if position_of(gone, axis) is None]
    return Tensor(kept_axes(rest, attributes), base.refined("NonNeg"))


def _expand_kl(b: Builder, operands: Sequence[Node], attributes: Mapping[str, object]) -> Node:
    """sum p (log p - log q) over the classes, then the mean over the rest: not over all places."""
    p, q = operands
    nothing = b.equal(p, 0)
    one = b.full_like(p, 1)
    logs = b.subtract(b.log(b.where(nothing, one, p)), b.log(b.where(nothing, one, q)))
    return averaged(b, b.sum(b.multiply(p, logs), over=over_axes(attributes)), attributes)


register(
    Op(
        "kl",
        "kl(p, q, over=C, keep=)",
        _kl_rule,
        "The mean over the rows of sum p log(p / q): how far q is from p.",
        "kl(softmax(ones[n C], over=C), softmax(ones[n C], over=C), over=C)",
        expand=_expand_kl,
    )
)
