"""Checks what joins, widens and moves tensors along axes: broadcast, concat, stack, pad, roll, one_hot and topk.

Takes calls; gives types and uses. What a pattern reorders is `check_patterns.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import Axis, contains, same, same_axes, show_axes
from shapescript.types.check_makers import filled
from shapescript.types.check_operators import report_elements
from shapescript.types.check_values import (
    Value,
    apply,
    arguments_of,
    bare,
    cast,
    finish,
    literal,
    named_axis,
    need_over,
    number,
    one_axis,
    place_in,
    tensor,
)
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.element import F32
from shapescript.types.kinds import WRONG, Host, Tensor, TupleOf, Type, Wrong
from shapescript.types.size import Size
from shapescript.types.uses import OpUse, StaticArgument


def _check_broadcast(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "broadcast", arguments, ["x", "axes"])
    if given is None:
        return WRONG
    wanted = given["axes"]
    value = number(context, given["x"], F32)
    if value is None:
        return WRONG
    if not isinstance(wanted, (tree.Axes, tree.WithAxes)):
        context.report(
            "E0313", "the axes of `broadcast` stand in brackets", wanted, helps=["write `broadcast(x, [n m])`"]
        )
        return WRONG
    found = [context.axis_of(size) for size in wanted.sizes]
    axes = tuple(axis for axis in found if axis is not None)
    if len(axes) != len(found):
        return WRONG
    for axis in value.type.axes:
        if not contains(axes, axis):
            message = f"`broadcast` keeps every axis, and `{axis}` isn't in `{show_axes(axes)}`"
            context.report("E0305", message, wanted, "", [Label(context.span(value.node), f"this is `{value.type}`")])
            return WRONG
    return finish(context, node, apply(context, node, "broadcast", [value], axes=axes))


def _tensors(context: Context, node: tree.Expr, name: str, arguments: Arguments) -> list[Value] | None:
    """The positional arguments, tensors of one element and as many axes."""
    found = [tensor(context, value, f"`{name}`") for given, value in arguments if given is None]
    values = [value for value in found if value is not None]
    if len(values) != len(found):
        return None
    if not values:
        context.report("E0601", f"`{name}` needs values to join", node)
        return None
    first = values[0]
    for value in values[1:]:
        if value.type.element.name != first.type.element.name:
            report_elements(context, node, first, value)
            return None
        if len(value.type.axes) != len(first.type.axes):
            message = f"`{name}` joins values of as many axes"
            here = [Label(context.span(first.node), f"this is `{first.type}`")]
            context.report("E0306", message, value.node, f"this is `{value.type}`", here)
            return None
    return values


def _over_of(context: Context, name: str, arguments: Arguments) -> tuple[bool, tree.Expr | None]:
    over: tree.Expr | None = None
    for given, value in arguments:
        if given == "over":
            over = value
        elif given is not None:
            context.report("E0602", f"`{name}` has no parameter `{given}`", value)
            return False, None
    return True, over


def _check_concat(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    good, over = _over_of(context, "concat", arguments)
    values = _tensors(context, node, "concat", arguments) if good else None
    if values is None:
        return WRONG
    first = values[0]
    differ = [
        at for at in range(len(first.type.axes)) if not all(same(v.type.axes[at], first.type.axes[at]) for v in values)
    ]
    if over is not None:
        axis = one_axis(context, over, first, "`concat`")
        if axis is None:
            return WRONG
        at = first.type.axes.index(axis)
        if [place for place in differ if place != at]:
            _report_concat(context, values, [place for place in differ if place != at])
            return WRONG
    elif len(differ) == 1:
        at = differ[0]
    elif differ:
        _report_concat(context, values, differ)
        return WRONG
    else:
        helps = [f"say along which: `over={axis}`" for axis in first.type.axes]
        context.report("E0304", "`concat` joins where axes differ, and these have the same", node, helps=helps)
        return WRONG
    total = Size.of(0)
    for value in values:
        total = total + value.type.axes[at].size
    joined = Axis(None, total, (), any(value.type.axes[at].batch for value in values))
    at = place_in(first.type.axes, at)
    return finish(context, node, apply(context, node, "concat", values, over=joined, position=at))


def _report_concat(context: Context, values: Sequence[Value], differ: Sequence[int]) -> None:
    first = values[0]
    other = next(value for value in values if not same(value.type.axes[differ[0]], first.type.axes[differ[0]]))
    a, b = first.type.axes[differ[0]], other.type.axes[differ[0]]
    message = f"`concat` joins along one axis, and these differ elsewhere too: `{a}` and `{b}`"
    here = [Label(context.span(first.node), f"this is `{first.type}`")]
    context.report("E0306", message, other.node, f"this is `{other.type}`", here)


def _check_stack(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    """`stack(a, b, over=k)`: a new axis in front, of as many places as values; without `over` it has no name."""
    good, over = _over_of(context, "stack", arguments)
    values = _tensors(context, node, "stack", arguments) if good else None
    if values is None:
        return WRONG
    first = values[0]
    for value in values[1:]:
        if not same_axes(value.type.axes, first.type.axes):
            here = [Label(context.span(first.node), f"this is `{first.type}`")]
            message = "`stack` takes values of the same axes"
            context.report("E0306", message, value.node, f"this is `{value.type}`", here)
            return WRONG
    front = Axis.of(len(values))
    if over is not None:
        name = bare(over)
        known = named_axis(context, over, ())
        if known is None and isinstance(name, tree.Name):
            known = Axis(name.name, front.size)
            context.declare_axis(name.name, known)
        if known is None or known.size != front.size:
            message = f"{len(values)} values are stacked, and `{context.source_text(over)}` isn't {len(values)} long"
            context.report("E0407", message, over)
            return WRONG
        front = known
    ones = [apply(context, node, "rearrange", [value], axes=(Axis.of(1), *value.type.axes)) for value in values]
    whole = [value for value in ones if value is not None]
    if len(whole) != len(values):
        return WRONG
    return finish(context, node, apply(context, node, "concat", whole, over=front, position=0))


def _by_axis(
    context: Context, node: tree.Expr, name: str, arguments: Arguments, extra: Sequence[str] = ()
) -> tuple[Value, list[tuple[Axis, tree.Expr]], dict[str, tree.Expr]] | None:
    """A value, and what is said of its axes by their names: `roll(x, T=-1)`."""
    positional = [value for given, value in arguments if given is None]
    if len(positional) != 1:
        context.report(
            "E0601", f"`{name}` takes one value, then axes by name", node, helps=[f"write `{name}(x, n=...)`"]
        )
        return None
    value = tensor(context, positional[0], f"`{name}`")
    if value is None:
        return None
    axes: list[tuple[Axis, tree.Expr]] = []
    options: dict[str, tree.Expr] = {}
    for given, expr in arguments:
        if given is None:
            continue
        if given in extra and not any(axis.name == given for axis in value.type.axes):
            options[given] = expr
            continue
        axis = one_axis(context, tree.Name(expr.start, expr.end, given), value, f"`{name}`")
        if axis is None:
            return None
        axes.append((axis, expr))
    return value, axes, options


def _count(context: Context, expr: tree.Expr) -> Size | None:
    size = context.size_of(expr)
    known = literal(expr)
    if size is None and isinstance(known, int):
        return Size.of(known)
    if size is None and not isinstance(context.type_of(expr), Wrong):
        context.report("E0312", "this isn't known as a size", expr)
    return size


def _check_pad(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    read = _by_axis(context, node, "pad", arguments, ["value"])
    if read is None:
        return WRONG
    value, axes, options = read
    filler: object = 0
    if "value" in options:
        known = literal(options["value"])
        filler = known if known is not None else StaticArgument(options["value"])
        if known is None and not isinstance(context.type_of(options["value"]), Host):
            context.report("E0607", "`value` is a number that is known", options["value"])
            return WRONG
    result: Value | None = value
    for axis, expr in axes:
        pair = bare(expr)
        ends = pair.items if isinstance(pair, tree.Tuple) else [pair, pair]
        if len(ends) != 2:
            context.report(
                "E0607", "what is added is one size, or two: before and after", expr, helps=["write `n=(1, 0)`"]
            )
            return WRONG
        before, after = _count(context, ends[0]), _count(context, ends[1])
        if before is None or after is None or result is None:
            return WRONG
        wide = Axis(None, before + axis.size + after, (), axis.batch)
        result = apply(context, node, "pad", [result], over=axis, before=before, after=after, value=filler, result=wide)
    return finish(context, node, result)


def _check_roll(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    read = _by_axis(context, node, "roll", arguments)
    if read is None:
        return WRONG
    result: Value | None = read[0]
    for axis, expr in read[1]:
        shift = _count(context, expr)
        if shift is None or result is None:
            return WRONG
        result = apply(context, node, "roll", [result], over=axis, shift=shift)
    return finish(context, node, result)


def _check_one_hot(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "one_hot", arguments, ["i"], [], ["over"])
    index = tensor(context, given["i"], "`one_hot`") if given is not None else None
    if given is None or index is None:
        return WRONG
    over = given.get("over")
    if over is None:
        context.report(
            "E0304", "`one_hot` needs `over=`, the axis it makes", node, helps=["write `one_hot(i, over=V)`"]
        )
        return WRONG
    axis = named_axis(context, over, ())
    if axis is None:
        context.report("E0305", f"there is no axis `{context.source_text(over)}`", over)
        return WRONG
    element = index.type.element
    if not element.is_whole or (element.bound is not None and element.bound != axis.size):
        message = f"`one_hot` over `{axis}` takes `Index[{axis.size}]`, and this is `{element}`"
        context.report("E0506", message, index.node, f"this is `{index.type}`")
        return WRONG
    axes = (*index.type.axes, axis)
    place = apply(context, node, "iota", [], over=axis, element=element)
    wide, places = filled(context, node, index, axes), filled(context, node, place, axes)
    if wide is None or places is None:
        return WRONG
    hot = apply(context, node, "equal", [wide, places])
    return finish(context, node, cast(context, hot, F32.refined("Prob")) if hot is not None else None)


def _check_topk(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "topk", arguments, ["x", "k"], [], ["over"])
    value = tensor(context, given["x"], "`topk`") if given is not None else None
    over = need_over(context, node, "topk", given, value) if given is not None and value is not None else None
    axis = one_axis(context, over, value, "`topk`") if over is not None and value is not None else None
    if given is None or value is None or axis is None:
        return WRONG
    size = _count(context, given["k"])
    if size is None:
        return WRONG
    named = bare(given["k"])
    known = context.axis_named(named.name) if isinstance(named, tree.Name) else None
    result = known if known is not None and known.size == size else Axis.of(size)
    parts: list[OpUse] = []
    types: list[Tensor] = []
    for op in ("topk_values", "topk_indices"):
        part = apply(context, node, op, [value], over=axis, k=size, result=result)
        if part is None or not isinstance(part.operand, OpUse):
            return WRONG
        parts.append(part.operand)
        types.append(part.type)
    context.use(node, OpUse("tuple", (), {}, len(parts), tuple(parts)))
    return TupleOf(tuple(types))


FUNCTIONS: dict[str, Operation] = {
    "broadcast": _check_broadcast,
    "concat": _check_concat,
    "stack": _check_stack,
    "pad": _check_pad,
    "roll": _check_roll,
    "one_hot": _check_one_hot,
    "topk": _check_topk,
}
