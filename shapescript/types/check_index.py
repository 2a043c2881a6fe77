"""Checks indexing of tensors by axis: one place, a range, or a tensor of indices; and scatter_add, its converse.

Takes `Index` nodes whose value is a tensor; gives types and uses made of `slice`, `rearrange` and `gather`. An index of
a batch, a list of models or a Python value is the core's.
"""

from __future__ import annotations

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import Axis, contains, same, show_axes
from shapescript.types.check_values import (
    Value,
    apply,
    arguments_of,
    bare,
    finish,
    hidden_axis,
    literal,
    named_axis,
    need_over,
    one_axis,
    relabel,
    several_axes,
    tensor,
)
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.element import Element
from shapescript.types.kinds import WRONG, Host, Tensor, Type, Wrong
from shapescript.types.size import Size
from shapescript.types.uses import HostOperand


def check_index(context: Context, node: tree.Index) -> Type:
    """`x[n=0]`, `x[n=1..]`, `x[A=action]`, `x[i]`."""
    value = tensor(context, node.of, "an index by axis")
    if value is None:
        return WRONG
    if not value.type.axes:
        context.report("E0305", "a scalar has no axis to index", node)
        return WRONG
    unnamed = [item for item in node.items if item.axis is None]
    if len(unnamed) > 1 or (unnamed and node.items[0] is not unnamed[0]):
        example = ", ".join(f"{axis}=..." for axis in value.type.axes[: len(node.items)])
        helps = [f"name the axes: `{context.source_text(node.of)}[{example}]`"]
        context.report("E0313", "only one index may stand without the name of its axis", unnamed[-1], helps=helps)
        return WRONG
    result: Value | None = value
    for item in node.items:
        if result is None:
            return WRONG
        if item.axis is None:
            result = _first_apart(context, item, result)
        axis = (
            one_axis(context, item.axis, result, "the index") if item.axis is not None and result is not None else None
        )
        if result is not None and item.axis is None:
            axis = result.type.axes[0]
        result = _one(context, node, result, axis, item) if axis is not None and result is not None else None
    if result is value:
        result = apply(context, node, "relabel", [value], axes=value.type.axes)
    return finish(context, node, result)


def _first_apart(context: Context, item: tree.IndexItem, value: Value) -> Value | None:
    """The value, its first axis under a name of its own where another is the same: `[D D]` goes by place here."""
    first, *rest = value.type.axes
    return (
        relabel(context, value, (hidden_axis(item, "first", first.size, batch=first.batch), *rest))
        if contains(rest, first)
        else value
    )


def _one(context: Context, node: tree.Index, value: Value, axis: Axis, item: tree.IndexItem) -> Value | None:
    index = bare(item.value)
    if isinstance(index, tree.Slice):
        return _range(context, node, value, axis, index)
    if isinstance(index, tree.Range):
        return _range(context, node, value, axis, tree.Slice(index.start, index.end, index.first, index.last))
    found = context.type_of(item.value)
    if isinstance(found, Wrong):
        return None
    if isinstance(found, Tensor):
        return _by_tensor(context, node, value, axis, Value(item.value, found, item.value))
    if found == Host("int"):
        return _place(context, node, value, axis, item.value)
    helps = ["a choice by bools has no size of its own: `where(mask, x, 0)` keeps the axis"]
    message = f"an index is a whole number, a range or a tensor of `Index`, and this is `{found}`"
    context.report("E0313", message, item.value, helps=helps if found == Host("bool") else [])
    return None


def _bound(context: Context, expr: tree.Expr, axis: Axis) -> Size | None:
    """A place along an axis, counted from its end where it is negative; None if it isn't known as a size."""
    size = context.size_of(expr)
    if size is not None:
        constant = size.constant
        return axis.size + size if constant is not None and constant < 0 else size
    known = literal(expr)
    if isinstance(known, int):
        return axis.size + known if known < 0 else Size.of(known)
    expr = bare(expr)
    if isinstance(expr, tree.Unary) and expr.op == "-":
        inner = context.size_of(expr.operand)
        return axis.size - inner if inner is not None else None
    return None


def _place(context: Context, node: tree.Index, value: Value, axis: Axis, expr: tree.Expr) -> Value | None:
    """One place, by a whole number: the axis leaves."""
    start = _bound(context, expr, axis)
    if start is None:
        element = Element.index(axis.size)
        index = Value(HostOperand(expr, element), Tensor((), element), expr)
        return apply(context, node, "gather", [value, index], over=axis)
    constant, length = start.constant, axis.size.constant
    below = (axis.size - start).constant
    if (constant is not None and constant < 0) or (below is not None and below <= 0):
        _outside(context, axis, expr, length)
        return None
    one = Axis.of(1)
    part = apply(context, node, "slice", [value], over=axis, start=start, stop=start + 1, result=one)
    kept = tuple(other for other in value.type.axes if other is not axis)
    return apply(context, node, "rearrange", [part], axes=kept) if part is not None else None


def _outside(context: Context, axis: Axis, expr: tree.Expr, length: int | None) -> None:
    text = context.source_text(expr)
    many = length if length is not None else f"`{axis.size}`"
    notes = [f"places are counted from 0: the last of `{axis}` is `{axis.size - 1}`, or `-1`"]
    context.report("E0311", f"`{text}` is outside the axis `{axis}`, which has {many} places", expr, notes=notes)


def _range(context: Context, node: tree.Index, value: Value, axis: Axis, index: tree.Slice) -> Value | None:
    """A range: the axis gets a new size; `..n` gives the axis n."""
    start = Size.of(0) if index.first is None else _bound(context, index.first, axis)
    stop = axis.size if index.last is None else _bound(context, index.last, axis)
    for bound, expr in ((start, index.first), (stop, index.last)):
        if bound is None and expr is not None:
            found = context.type_of(expr)
            if not isinstance(found, Wrong):
                notes = ["a range's bounds are sizes, so that the size of the result is known"]
                helps = ["whole numbers, dims, axis variables and `int` parameters are sizes"]
                context.report("E0312", "the bound of a range isn't known as a size", expr, notes=notes, helps=helps)
            return None
    if start is None or stop is None:
        return None
    size = stop - start
    for bad, expr in (((axis.size - stop).constant, index.last), (start.constant, index.first), (size.constant, None)):
        if bad is not None and bad < 0:
            _outside(context, axis, expr if expr is not None else index, axis.size.constant)
            return None
    if size == axis.size:
        return value
    result = Axis(None, size, (), axis.batch)
    if start == Size.of(0) and index.last is not None and isinstance(bare(index.last), tree.Name):
        named = named_axis(context, index.last, ())
        result = Axis(named.name, size, (), axis.batch) if named is not None else result
    if contains([other for other in value.type.axes if other is not axis], result) and result.name is not None:
        context.report("E0303", f"`{result}` would stand twice in the value", index)
        return None
    return apply(context, node, "slice", [value], over=axis, start=start, stop=stop, result=result)


def _check_element(context: Context, index: Value, size: Size, axis: Axis) -> bool:
    element = index.type.element
    if element.refinement == "Index" and element.bound is not None:
        room = (size - element.bound).constant
        if room is not None and room >= 0:
            return True
    text = context.source_text(index.node)
    if isinstance(index.node, (tree.Binary, tree.As, tree.Unary)):
        text = f"({text})"
    if element.is_bool:
        helps = ["a choice by bools has no size of its own: `where(mask, x, 0)` keeps the axis"]
    else:
        helps = [f"if each is known to lie in 0..{size}: `{text} as {show_axes(index.type.axes)} Index[{size}]`"]
    message = f"`{axis}` is indexed by `Index[{size}]`, and this is `{element}`"
    context.report("E0506", message, index.node, f"this is `{index.type}`", helps=helps)
    return False


def _by_tensor(context: Context, node: tree.Index, value: Value, axis: Axis, index: Value) -> Value | None:
    """A tensor of indices: the axis leaves, the index's own axes come in its place."""
    if not _check_element(context, index, axis.size, axis):
        return None
    return apply(context, node, "gather", [value, index], over=axis)


def _check_scatter_add(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    """`scatter_add(x, i, over=N)`: adds each place of x to the place of N that i says.

    All axes of i leave and N stands where the first stood; those in `keep=` line up instead.
    """
    given = arguments_of(context, node, "scatter_add", arguments, ["x", "i"], [], ["over", "keep"])
    if given is None:
        return WRONG
    x, index = tensor(context, given["x"], "`scatter_add`"), tensor(context, given["i"], "`scatter_add`")
    if x is None or index is None:
        return WRONG
    over_expr = need_over(context, node, "scatter_add", given, x)
    over = (
        named_axis(context, over_expr, ()) if over_expr is not None and not isinstance(over_expr, tree.Axes) else None
    )
    if over is None:
        if over_expr is not None:
            context.report("E0305", f"there is no axis `{context.source_text(over_expr)}` to add into", over_expr)
        return WRONG
    keep_expr = given.get("keep")
    keep = several_axes(context, keep_expr, index, "`keep`") if keep_expr is not None else ()
    if keep is None or not _check_element(context, index, over.size, over):
        return WRONG
    for axis in index.type.axes:
        if not contains(x.type.axes, axis):
            here = [Label(context.span(index.node), f"this is `{index.type}`")]
            message = f"the index has `{axis}`, and what is scattered hasn't: `{show_axes(x.type.axes)}`"
            context.report("E0301", message, x.node, f"this is `{x.type}`", here)
            return WRONG
    leaving = [axis for axis in index.type.axes if not contains(keep, axis)]
    axes: list[Axis] = []
    for axis in x.type.axes:
        if not contains(leaving, axis):
            axes.append(axis)
        elif not any(same(over, other) for other in axes):
            axes.append(over)
    if not leaving:
        axes.append(over)
    return finish(context, node, apply(context, node, "scatter_add", [x, index], over=over, axes=tuple(axes)))


FUNCTIONS: dict[str, Operation] = {"scatter_add": _check_scatter_add}
