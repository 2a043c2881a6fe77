"""Checks `attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh, mask=...)`.

Takes the call with its pattern; gives a use of one op, or one made of products, a softmax and a choice. The last axis
that the pattern gives q is contracted with k's, and the scores are divided by the root of its size; the softmax is over
the axis that k and v share and q lacks. Where the mask is false nothing is attended to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shapescript.ops.attention import query_axes
from shapescript.syntax import tree
from shapescript.types.axes import Axis, contains, show_axes
from shapescript.types.check_operators import align, report_elements
from shapescript.types.check_pattern_axes import Names, named_operand, result_axes
from shapescript.types.check_values import Value, apply, bare, finish, fixed, tensor
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.kinds import WRONG, Type

EXAMPLE = "attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh)"


def _check_attention(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    exprs = [value for name, value in arguments if name is None]
    options = [(name, value) for name, value in arguments if name is not None]
    options += [(each.name or "", each.value) for each in pattern.sizes] if pattern is not None else []
    if pattern is None or len(exprs) != 3 or len(pattern.operands) != 3:
        message = "`attention` needs three values and a pattern for each"
        context.report("E0401", message, node if pattern is None else pattern, helps=[f"write `{EXAMPLE}`"])
        return WRONG
    for name, option in options:
        if name != "mask":
            context.report("E0602", f"`attention` has no parameter `{name}`", option, notes=["its parameter is `mask`"])
            return WRONG
    values = [tensor(context, expr, "`attention`") for expr in exprs]
    names = Names(context)
    named: list[Value] = []
    for found, written in zip(values, pattern.operands, strict=True):
        operand = named_operand(names, found, written.sizes) if found is not None else None
        if operand is None:
            return WRONG
        named.append(operand)
    for value in named[1:]:
        if value.type.element.name != named[0].type.element.name:
            report_elements(context, node, named[0], value)
            return WRONG
    mask = tensor(context, options[0][1], "`attention`'s mask") if options else None
    if options and mask is None:
        return WRONG
    result = _attend(context, node, pattern, names, named, mask)
    return finish(context, node, result)


def _attend(
    context: Context, node: tree.Expr, pattern: tree.Pattern, names: Names, named: list[Value], mask: Value | None
) -> Value | None:
    q, k, v = named
    feature = q.type.axes[-1] if q.type.axes else None
    axes = result_axes(names, pattern.result.sizes)
    if axes is None:
        return None
    if feature is None or not contains(k.type.axes, feature):
        message = "the last axis of the first pattern is contracted with the second, which must have it"
        context.report("E0404", message, pattern.operands[1], helps=[f"write `{EXAMPLE}`"])
        return None
    keys = [axis for axis in k.type.axes if contains(v.type.axes, axis) and not contains(q.type.axes, axis)]
    if len(keys) != 1:
        message = f"the softmax is over the axis that k and v share and q lacks, and there are {len(keys)}"
        helps = ["give the keys' axis a name of its own, as `m` in " + f"`{EXAMPLE}`"]
        context.report("E0404", message, pattern, helps=helps)
        return None
    scored = (*q.type.axes[:-1], keys[0])
    for value, others in ((q, axes), (k, (*q.type.axes, *keys)), (v, (*axes, *keys))):
        lost = next((axis for axis in value.type.axes if axis != feature and not contains(others, axis)), None)
        if lost is not None:
            context.report("E0404", f"`{lost}` stands in one value only, and nothing keeps it", value.node)
            return None
    if contains(axes, keys[0]):
        context.report("E0404", f"`{keys[0]}` is averaged over, and stands in the result", pattern.result)
        return None
    masks = [] if mask is None or _is_causal(mask, q, k, feature, keys[0]) else [mask]
    if masks and not _check_mask(context, masks[0], scored):
        return None
    causal = {"causal": True} if mask is not None and not masks else {}
    attributes = {"keys": keys[0], "feature": feature, "axes": axes, **causal}
    if _is_fused(q, k, v, feature, keys[0]):
        return apply(context, node, "attention", [q, k, v, *masks], **attributes)
    return _composed(context, node, [q, k, v], mask, attributes)


def _is_fused(q: Value, k: Value, v: Value, feature: Axis, keys: Axis) -> bool:
    """Whether one op can do it: an axis of the keys is in all three, but for the two that are summed."""
    shared = [axis for axis in k.type.axes if axis not in (feature, keys)]
    queries = [axis for axis in q.type.axes if axis != feature and not contains(shared, axis)]
    return all(contains(q.type.axes, axis) and contains(v.type.axes, axis) for axis in shared) and not any(
        contains(v.type.axes, axis) for axis in queries
    )


def _is_causal(mask: Value, q: Value, k: Value, feature: Axis, keys: Axis) -> bool:
    """Whether the mask is `causal[n m]` of the one axis of the queries and the keys', as written."""
    text = bare(mask.node)
    queries = query_axes(q.type.axes, k.type.axes, feature)
    return (
        isinstance(text, tree.WithAxes)
        and isinstance(text.of, tree.Name)
        and text.of.name == "causal"
        and len(queries) == 1
        and mask.type.axes == (*queries, keys)
    )


def _check_mask(context: Context, mask: Value, scored: tuple[Axis, ...]) -> bool:
    if not mask.type.element.is_bool:
        message = f"a mask is true where attention may look, and this is `{mask.type}`"
        context.report("E0508", message, mask.node)
        return False
    if any(not contains(scored, axis) for axis in mask.type.axes):
        shown = f"`{show_axes(mask.type.axes)}` doesn't line up with the scores `{show_axes(scored)}`"
        context.report("E0301", f"the mask {shown}", mask.node)
        return False
    return True


def _composed(
    context: Context, node: tree.Expr, values: list[Value], mask: Value | None, attributes: Mapping[str, Any]
) -> Value | None:
    """Attention made of products and a softmax, for axes that the one op doesn't have."""
    q, k, v = values
    over, feature = attributes["keys"], attributes["feature"]
    element = q.type.element.base
    scored = (*(axis for axis in q.type.axes if axis != feature), over)
    scores = apply(context, node, "contract", [q, k], axes=scored)
    size = apply(context, node, "size", [], over=feature, element=element.refined("NonNeg"))
    root = apply(context, node, "rsqrt", [size]) if size is not None else None
    scores = apply(context, node, "multiply", [scores, root]) if scores is not None and root is not None else None
    if scores is not None and mask is not None:
        if not align(context, node, [mask, scores]):
            return None
        scores = apply(context, node, "where", [mask, scores, fixed(float("-inf"), element, node)])
    weights = apply(context, node, "softmax", [scores], over=over) if scores is not None else None
    return apply(context, node, "contract", [weights, v], axes=attributes["axes"]) if weights is not None else None


FUNCTIONS: dict[str, Operation] = {"attention": _check_attention}
