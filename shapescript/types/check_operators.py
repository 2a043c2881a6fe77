"""Checks operators on tensors, and the functions that work element by element.

Takes `Binary` and `Unary` nodes of which an operand is a tensor, and calls of `exp`, `where`, `clamp` and their like;
gives types and uses. Operands line up by the names of their axes: those of the smaller are among those of the larger,
in the same order. Arithmetic of host values alone is the core's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import Axis, contains, places, same, show_axes
from shapescript.types.check_values import (
    Value,
    apply,
    arguments_of,
    cast,
    finish,
    hidden_axis,
    line_up_elements,
    literal,
    relabel,
    tensor,
)
from shapescript.types.context import Arguments, Context
from shapescript.types.element import F32, Element
from shapescript.types.kinds import WRONG, Host, Tensor, Type, Wrong

ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "remainder"}
COMPARISONS = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
UNARY = (
    "abs exp expm1 log log1p sqrt rsqrt square sin cos tanh sigmoid relu silu softplus erf floor ceil round sign is_nan"
).split()


def check_binary(context: Context, node: tree.Binary) -> Type:
    """`left op right` where one side is a tensor."""
    if node.op == "@":
        return check_matmul(context, node, [(None, node.left), (None, node.right)])
    if node.op in ("and", "or"):
        return _check_words(context, node)
    values = line_up_elements(context, [node.left, node.right])
    if values is None:
        return WRONG
    return finish(context, node, _binary(context, node, node.op, values))


def _check_words(context: Context, node: tree.Binary) -> Type:
    for side in (node.left, node.right):
        found = context.type_of(side)
        if isinstance(found, Wrong):
            return WRONG
        if not (found == Host("bool") or (isinstance(found, Tensor) and found.element.is_bool)):
            context.report("E0508", f"`{node.op}` takes bools, and this is `{found}`", side)
            return WRONG
    values = line_up_elements(context, [node.left, node.right])
    if values is None or not align(context, node, values):
        return WRONG
    return finish(context, node, apply(context, node, node.op, values))


def _binary(context: Context, node: tree.Expr, op: str, values: list[Value]) -> Value | None:
    if op == "**":
        return _power(context, node, values)
    if not align(context, node, values) or not _one_element(context, node, op, values):
        return None
    if op in COMPARISONS:
        return apply(context, node, COMPARISONS[op], [plain(value) for value in values])
    if op == "/" and not values[0].type.element.is_float:
        widened = [
            cast(context, value, F32.refined("NonNeg" if value.type.element.is_nonneg else None)) for value in values
        ]
        values = [value for value in widened if value is not None]
        if len(values) != 2:
            return None
    result = apply(context, node, ARITHMETIC[op], [counted(value) for value in values])
    right = values[1].type.element
    if result is not None and op == "-" and right.is_prob and literal(values[0].node) == 1:
        return apply(context, node, "refine", [result], element=right.refined("Prob"))
    return result


def plain(value: Value) -> Value:
    """For a comparison, whose operands may be refined differently: `Index[V]` against whole numbers."""
    return replace(value, type=Tensor(value.type.axes, value.type.element.base))


def counted(value: Value) -> Value:
    """In arithmetic an `Index` is a whole number like any other."""
    return plain(value) if value.type.element.refinement == "Index" else value


def _power(context: Context, node: tree.Expr, values: list[Value]) -> Value | None:
    base, power = values
    if literal(power.node) == 2:
        return apply(context, node, "square", [counted(base)])
    if not align(context, node, values):
        return None
    return apply(context, node, "power", [counted(value) for value in values])


def _one_element(context: Context, node: tree.Expr, op: str, values: Sequence[Value]) -> bool:
    """Whether operands have one element below their refinements; bools are for comparisons and `!` only."""
    first, second = values[0], values[1]
    a, b = first.type.element, second.type.element
    if op not in ("==", "!=") and (a.is_bool or b.is_bool):
        blamed = first if a.is_bool else second
        helps = [f"make them numbers first: `({text(context, blamed.node)} as f32)`"]
        context.report("E0508", f"`{op}` doesn't take bools", blamed.node, f"this is `{blamed.type}`", helps=helps)
        return False
    if a.name == b.name:
        if a.refinement == b.refinement == "Index" and a.bound != b.bound and op in ("==", "!="):
            return _one_index(context, node, first, second)
        return True
    report_elements(context, node, first, second)
    return False


def _one_index(context: Context, node: tree.Expr, first: Value, second: Value) -> bool:
    a, b = first.type.element, second.type.element
    notes = ["they count along two different axes"]
    helps = [f"if that is meant, compare whole numbers: `{text(context, first.node)} as i64`"]
    here = [Label(context.span(first.node), f"this is `{a}`")]
    context.report("E0506", f"`{a}` is compared with `{b}`", second.node, f"this is `{b}`", here, notes, helps)
    return False


def report_elements(context: Context, node: tree.Expr, first: Value, second: Value) -> None:
    """The error of two elements that differ, and what to write: the wider float, or the float of the two."""
    a, b = first.type.element, second.type.element
    narrow, wide = (first, second) if _width(a) <= _width(b) else (second, first)
    helps = [f"write `({text(context, narrow.node)} as {wide.type.element.base})`"]
    secondary = [Label(context.span(first.node), f"this is `{first.type}`")]
    message = f"`{a.base}` meets `{b.base}`"
    context.report("E0501", message, second.node, f"this is `{second.type}`", secondary, helps=helps)


def _width(element: Element) -> int:
    order = ["bool", "u8", "i8", "i16", "i32", "i64", "bf16", "f16", "f32", "f64"]
    return order.index(element.name)


def text(context: Context, expr: tree.Expr) -> str:
    text = context.source_text(expr)
    return f"({text})" if isinstance(expr, (tree.Binary, tree.As, tree.Pipe, tree.Unary)) else text


# --- lining up -----------------------------------------------------------------------------------------------------


def is_within(small: Sequence[Axis], large: Sequence[Axis]) -> bool:
    """Whether the axes of one are axes of the other, in the same order."""
    at = 0
    for axis in small:
        while at < len(large) and not same(axis, large[at]):
            at += 1
        if at == len(large):
            return False
        at += 1
    return True


def align(context: Context, node: tree.Expr, values: Sequence[Value]) -> bool:
    """Whether each operand lines up with the largest; reports the first that doesn't."""
    large = max(values, key=lambda value: len(value.type.axes))
    for value in values:
        if not is_within(value.type.axes, large.type.axes) or _lacks_last_one(value, large):
            report_align(context, node, value, large)
            return False
        for axis in value.type.axes:
            for other in (value, large):
                if sum(same(axis, each) for each in other.type.axes) > 1 and value.type.axes != large.type.axes:
                    _report_twice(context, other, axis)
                    return False
    return True


def _lacks_last_one(small: Value, large: Value) -> bool:
    """Whether `[b]` meets `[b 1]`: nothing would be wrong with repeating it, but nobody means two shapes by it."""
    axes = large.type.axes
    return bool(small.type.axes) and len(axes) == len(small.type.axes) + 1 and axes[-1].size.constant == 1


def _report_twice(context: Context, value: Value, axis: Axis) -> None:
    message = f"axes line up by name, and `{axis}` stands twice in `{show_axes(value.type.axes)}`"
    context.report("E0303", message, value.node, f"this is `{value.type}`", helps=["name the second with a pattern"])


def report_align(context: Context, node: tree.Expr, small: Value, large: Value) -> None:
    first, second = (small, large) if small.node.start <= large.node.start else (large, small)
    a, b = show_axes(first.type.axes), show_axes(second.type.axes)
    missing = [axis for axis in small.type.axes if not contains(large.type.axes, axis)]
    if not missing and len(large.type.axes) > len(small.type.axes) and _lacks_last_one(small, large):
        missing, small, large = [large.type.axes[-1]], large, small
    notes, helps = [], []
    if not missing:
        twice = next((axis for axis in small.type.axes if len(places(axis, small.type.axes)) > 1), None)
    if not missing and twice is not None:
        notes.append(f"`{twice}` stands twice in `{show_axes(small.type.axes)}`, so it doesn't line up by name")
    elif not missing:
        notes.append("they have the axes in different orders")
        order = " ".join(str(axis) for axis in large.type.axes if contains(small.type.axes, axis))
        old = " ".join(map(str, small.type.axes))
        helps.append(f"write `rearrange({context.source_text(small.node)}: {old} -> {order})`")
    else:
        notes.append(_why(missing, small, large))
        ones = [axis for axis in (*small.type.axes, *large.type.axes) if axis.size.constant == 1]
        if ones:
            helps.append(drop_one(context, small if ones[0] in small.type.axes else large))
        else:
            union = [*large.type.axes, *missing]
            both = show_axes(union)
            helps.append(
                f"if each of one is to meet each of the other: `broadcast({context.source_text(large.node)}, {both})`"
            )
    secondary = [Label(context.span(first.node), f"this is `{first.type}`")]
    message = f"the axes {a} and {b} don't line up".replace("axes [", "axes `[").replace("] and [", "]` and `[")
    message = message.replace("] don't", "]` don't")
    context.report("E0301", message, second.node, f"this is `{second.type}`", secondary, notes, helps)


def _why(missing: Sequence[Axis], small: Value, large: Value) -> str:
    names = " and ".join(f"`{axis}`" for axis in missing)
    equal = [axis for axis in large.type.axes if axis.size == missing[0].size and not contains(small.type.axes, axis)]
    if equal:
        return f"`{missing[0]}` and `{equal[0]}` have one size but are two axes"
    return f"`{show_axes(large.type.axes)}` has no axis {names}"


def drop_one(context: Context, value: Value) -> str:
    old = " ".join(map(str, value.type.axes))
    kept = " ".join(str(axis) for axis in value.type.axes if axis.size.constant != 1)
    text = context.source_text(value.node)
    return f"an axis of size 1 is an axis like any other; drop it: `rearrange({text}: {old} -> {kept})`"


def check_unary(context: Context, node: tree.Unary) -> Type:
    """`-x`, `!x`, `not x` of a tensor."""
    value = tensor(context, node.operand, f"`{node.op}`")
    if value is None:
        return WRONG
    if (node.op == "-") == value.type.element.is_bool:
        wanted = "numbers" if node.op == "-" else "bools"
        helps = [f"`-{text(context, node.operand)}` is the negative"] if node.op != "-" else []
        message = f"`{node.op}` takes {wanted}, and this is `{value.type}`"
        context.report("E0508", message, node.operand, helps=helps)
        return WRONG
    return finish(context, node, apply(context, node, "negate" if node.op == "-" else "not", [counted(value)]))


# --- matmul --------------------------------------------------------------------------------------------------------


def check_matmul(context: Context, node: tree.Expr, arguments: Arguments) -> Type:
    """`x @ w`: contracts the last axis of x with the first of w, after the leading ones where w has three or more."""
    given = arguments_of(context, node, "matmul", arguments, ["x", "w"])
    if given is None:
        return WRONG
    x, w = tensor(context, given["x"], "`@`"), tensor(context, given["w"], "`@`")
    if x is None or w is None:
        return WRONG
    if not x.type.axes or not w.type.axes:
        scalar = x if not x.type.axes else w
        context.report("E0306", "`@` takes tensors with axes, and this is a scalar", scalar.node, helps=["write `*`"])
        return WRONG
    if x.type.element.name != w.type.element.name:
        report_elements(context, node, x, w)
        return WRONG
    return finish(context, node, _matmul(context, node, x, w))


def _matmul(context: Context, node: tree.Expr, x: Value, w: Value) -> Value | None:
    lead = max(0, len(w.type.axes) - 2)
    inner = w.type.axes[lead]
    last = x.type.axes[-1]
    if not same(last, inner):
        _report_contraction(context, x, w, last, inner)
        return None
    for at in range(lead):
        if len(x.type.axes) < lead + 1 or not same(x.type.axes[at], w.type.axes[at]):
            message = f"`@` of `{show_axes(x.type.axes)}` and `{show_axes(w.type.axes)}`: the leading axes differ"
            helps = ["einsum names each axis: `einsum(x, w: b n k, b k m -> b n m)`"]
            here = [Label(context.span(x.node), f"this is `{x.type}`")]
            context.report("E0306", message, w.node, f"this is `{w.type}`", here, helps=helps)
            return None
    warn_normalised(context, node, x, [last])
    # By place, so an axis that stands twice ([D D]) gets names of its own for the time of the product.
    kept = x.type.axes[:-1]
    outer = w.type.axes[lead + 1 :]
    summed = hidden_axis(node, "contracted", last.size, batch=last.batch)
    hidden = tuple(hidden_axis(node, f"kept{at}", axis.size, batch=axis.batch) for at, axis in enumerate(outer))
    clash = any(contains(x.type.axes, axis) or same(axis, inner) for axis in outer) or contains(kept, last)
    if not clash:
        return apply(context, node, "contract", [x, w], axes=(*kept, *outer))
    left = relabel(context, x, (*kept, summed))
    right = relabel(context, w, (*w.type.axes[:lead], summed, *hidden))
    if left is None or right is None:
        return None
    product = apply(context, node, "contract", [left, right], axes=(*kept, *hidden))
    return None if product is None else relabel(context, product, (*kept, *outer))


def warn_normalised(context: Context, node: tree.Expr, value: Value, summed: Sequence[Axis]) -> None:
    """Warns when weights that a softmax normalised over one axis are contracted over others only."""
    axis = value.type.normalised
    if axis is None or not summed or contains(summed, axis):
        return
    message = f"weights normalised over `{axis}` are contracted over `{summed[0]}`"
    notes = [f"the softmax makes them sum to 1 over `{axis}`, so what is added up here isn't a weighted mean"]
    helps = [f"if that isn't meant: `softmax(over={summed[0]})`"]
    context.report("W0507", message, value.node, "", (), notes, helps)


def _by_pattern(context: Context, x: Value, w: Value) -> str:
    """The pattern that contracts the last axes of both, as `q @ k.T` does; what both have before is the right's own."""
    left, right = [str(axis) for axis in x.type.axes], [str(axis) for axis in w.type.axes]
    if right[-2] in left:
        right[-2] = next(letter for letter in "mkpqr" if letter not in (*left, *right))
    result = [*left[:-1], right[-2]]
    operands = f"{context.source_text(x.node)}, {context.source_text(w.node)}"
    pattern = f"{' '.join(left)}, {' '.join(right)} -> {' '.join(result)}"
    return f"to contract `{left[-1]}` of both: `einsum({operands}: {pattern})`"


def _report_contraction(context: Context, x: Value, w: Value, last: Axis, inner: Axis) -> None:
    notes = [f"`@` contracts the last axis of the left, `{last}`, with the first of the right, `{inner}`"]
    lengths = context.length_of(last), context.length_of(inner)
    if last.size == inner.size or (None not in lengths and lengths[0] == lengths[1]):
        notes.append(f"`{last}` and `{inner}` have one size but are two axes")
    elif None not in lengths:
        notes.append(f"their sizes are {lengths[0]} and {lengths[1]}")
    helps = []
    if len(w.type.axes) == 2 and same(last, w.type.axes[1]):
        a, b = w.type.axes
        helps.append(f"transpose the right: `rearrange({context.source_text(w.node)}: {a} {b} -> {b} {a})`")
    elif len(x.type.axes) > 1 and len(w.type.axes) > 1 and same(last, w.type.axes[-1]):
        helps.append(_by_pattern(context, x, w))
    secondary = [Label(context.span(x.node), f"this is `{x.type}`")]
    message = f"`@` can't contract `{last}` with `{inner}`"
    context.report("E0302", message, w.node, f"this is `{w.type}`", secondary, notes, helps)
