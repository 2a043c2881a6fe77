"""Checks `attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh, mask=...)`.

Takes the call with its pattern; gives a use made of products, a softmax and a choice. The last axis that the pattern
gives q is contracted with k's, and the scores are divided by the root of its size; the softmax is over the axis that k
and v share and q lacks. Where the mask is false nothing is attended to.
"""

from __future__ import annotations

from shapescript.syntax import tree
from shapescript.types.axes import contains, show_axes
from shapescript.types.check_operators import align, report_elements
from shapescript.types.check_pattern_axes import Names, named_operand, result_axes
from shapescript.types.check_values import Value, apply, finish, fixed, tensor
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
    element = q.type.element.base
    scores = apply(context, node, "contract", [q, k], axes=scored)
    size = apply(context, node, "size", [], over=feature, element=element.refined("NonNeg"))
    root = apply(context, node, "rsqrt", [size]) if size is not None else None
    scores = apply(context, node, "multiply", [scores, root]) if scores is not None and root is not None else None
    if scores is not None and mask is not None:
        scores = _masked(context, node, scores, mask)
    weights = apply(context, node, "softmax", [scores], over=keys[0]) if scores is not None else None
    return apply(context, node, "contract", [weights, v], axes=axes) if weights is not None else None


def _masked(context: Context, node: tree.Expr, scores: Value, mask: Value) -> Value | None:
    if not mask.type.element.is_bool:
        message = f"a mask is true where attention may look, and this is `{mask.type}`"
        context.report("E0508", message, mask.node)
        return None
    if any(not contains(scores.type.axes, axis) for axis in mask.type.axes):
        message = (
            f"the mask `{show_axes(mask.type.axes)}` doesn't line up with the scores `{show_axes(scores.type.axes)}`"
        )
        context.report("E0301", message, mask.node)
        return None
    if not align(context, node, [mask, scores]):
        return None
    never = fixed(float("-inf"), scores.type.element.base, node)
    return apply(context, node, "where", [mask, scores, never])


FUNCTIONS: dict[str, Operation] = {"attention": _check_attention}
