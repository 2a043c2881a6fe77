"""Checks tensors made from nothing, and `as` on tensors.

Takes makers with their axes (`zeros[n D]`, `normal[b D](std=1)`), calls of `categorical`, and `x as type` where x is a
tensor; gives types and uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import Axis, same_axes, show_axes
from shapescript.types.check_values import (
    Given,
    Value,
    apply,
    arguments_of,
    cast,
    finish,
    fixed,
    hidden_axis,
    need_over,
    number,
    one_axis,
    relabel,
    tensor,
)
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.element import BOOL, F32, I64, Element
from shapescript.types.kinds import WRONG, Host, Type

MakeOne = Callable[[Context, tree.Expr, tuple[Axis, ...], Given], "Value | None"]


def check_maker(
    context: Context, node: tree.Expr, name: str, sizes: Sequence[tree.Expr], arguments: Arguments | None
) -> Type:
    """`name[sizes]`, or `name[sizes](arguments)`: a tensor made from nothing. `arguments` is None without brackets."""
    make, required, optional = MAKERS[name]
    found = [context.axis_of(size) for size in sizes]
    axes = tuple(axis for axis in found if axis is not None)
    if len(axes) != len(found):
        return WRONG
    given = arguments_of(context, node, f"{name}[...]", arguments or [], required, optional)
    if given is None:
        return WRONG
    return finish(context, node, make(context, node, axes, given))


def filled(context: Context, node: tree.Expr, value: Value | None, axes: tuple[Axis, ...]) -> Value | None:
    """A scalar at each place."""
    return apply(context, node, "broadcast", [value], axes=axes) if value is not None else None


def _zeros(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    return filled(context, node, fixed(0.0, F32, node), axes)


def _ones(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    return filled(context, node, fixed(1.0, F32, node), axes)


def _full(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    element = BOOL if context.type_of(given["value"]) == Host("bool") else F32
    value = number(context, given["value"], element)
    if value is not None and value.type.axes:
        context.report("E0301", f"`full` takes a scalar, and this is `{value.type}`", value.node)
        return None
    return filled(context, node, value, axes)


def _arange(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    if len(axes) != 1:
        context.report("E0306", f"`arange` has one axis, and this is `{show_axes(axes)}`", node)
        return None
    return _places(context, node, axes[0])


def _places(context: Context, node: tree.Expr, axis: Axis) -> Value | None:
    return apply(context, node, "iota", [], over=axis, element=Element.index(axis.size))


def _compared(context: Context, node: tree.Expr, name: str, axes: tuple[Axis, ...], op: str) -> Value | None:
    """Bools over two axes: the place along the second compared with that along the first."""
    if len(axes) != 2:
        helps = [f"write `{name}[n m]`"]
        context.report("E0306", f"`{name}` has two axes, and this is `{show_axes(axes)}`", node, helps=helps)
        return None
    row, column = (
        hidden_axis(node, "row", axes[0].size, batch=axes[0].batch),
        hidden_axis(node, "column", axes[1].size, batch=axes[1].batch),
    )
    wide: list[Value] = []
    for axis in (column, row):
        place = apply(context, node, "iota", [], over=axis, element=I64)
        spread = filled(context, node, place, (row, column))
        if spread is None:
            return None
        wide.append(spread)
    result = apply(context, node, op, wide)
    return relabel(context, result, axes) if result is not None else None


def _eye(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    equal = _compared(context, node, "eye", axes, "equal")
    return cast(context, equal, F32) if equal is not None else None


def _causal(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    return _compared(context, node, "causal", axes, "less_equal")


# --- random --------------------------------------------------------------------------------------------------------


def random_key(context: Context, node: tree.Expr) -> Value | None:
    """The number of the controller's call, from which a draw depends."""
    return apply(context, node, "random_key", [])


def _drawn(context: Context, node: tree.Expr, op: str, axes: tuple[Axis, ...]) -> Value | None:
    key = random_key(context, node)
    return apply(context, node, op, [key], axes=axes, place=node.start, element=F32) if key is not None else None


def _scaled(context: Context, node: tree.Expr, value: Value | None, op: str, by: tree.Expr | None) -> Value | None:
    """A draw times or plus a number; as it is where none is given."""
    if value is None or by is None:
        return value
    scalar = number(context, by, F32)
    if scalar is None:
        return None
    if scalar.type.axes:
        context.report("E0301", f"a scalar is needed, and this is `{scalar.type}`", by)
        return None
    return apply(context, node, op, [value, scalar])


def _normal(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    drawn = _scaled(context, node, _drawn(context, node, "random_normal", axes), "multiply", given.get("std"))
    return _scaled(context, node, drawn, "add", given.get("mean"))


def _uniform(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    drawn = _drawn(context, node, "random_uniform", axes)
    low, high = given.get("a"), given.get("b")
    if low is None or drawn is None:
        return drawn
    if high is None:
        context.report("E0601", "`uniform[...]` takes two bounds, `a` and `b`, or none", node)
        return None
    a, b = number(context, low, F32), number(context, high, F32)
    if a is None or b is None:
        return None
    width = apply(context, node, "subtract", [b, a])
    wide = apply(context, node, "multiply", [drawn, width]) if width is not None else None
    return apply(context, node, "add", [wide, a]) if wide is not None else None


def _randint(context: Context, node: tree.Expr, axes: tuple[Axis, ...], given: Given) -> Value | None:
    bound = context.size_of(given["bound"])
    if bound is None:
        notes = ["the result is `Index[N]`, so N is a dim, a whole number or an axis's size"]
        context.report("E0312", "the bound of `randint` isn't known as a size", given["bound"], notes=notes)
        return None
    key = random_key(context, node)
    if key is None:
        return None
    return apply(context, node, "random_integers", [key], axes=axes, place=node.start, bound=bound)


MAKERS: dict[str, tuple[MakeOne, Sequence[str], Sequence[str]]] = {
    "zeros": (_zeros, (), ()),
    "ones": (_ones, (), ()),
    "full": (_full, ("value",), ()),
    "arange": (_arange, (), ()),
    "eye": (_eye, (), ()),
    "causal": (_causal, (), ()),
    "normal": (_normal, (), ("std", "mean")),
    "uniform": (_uniform, (), ("a", "b")),
    "randint": (_randint, ("bound",), ()),
}
"""Each maker with its required and optional parameters."""


def _check_categorical(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    """One draw along `over` with the chances of these logits: the greatest of logits plus Gumbel noise."""
    given = arguments_of(context, node, "categorical", arguments, ["logits"], [], ["over"])
    logits = tensor(context, given["logits"], "`categorical`") if given is not None else None
    if given is None or logits is None:
        return WRONG
    over = need_over(context, node, "categorical", given, logits)
    axis = one_axis(context, over, logits, "`categorical`") if over is not None else None
    logits = cast(context, logits, F32)
    if axis is None or logits is None:
        return WRONG
    noise = _drawn(context, node, "random_uniform", logits.type.axes)
    for op in ("log", "negate", "refine", "log"):
        attributes: dict[str, object] = {"element": F32.refined("NonNeg")} if op == "refine" else {}
        noise = apply(context, node, op, [noise], **attributes) if noise is not None else None
    score = apply(context, node, "subtract", [logits, noise]) if noise is not None else None
    return finish(context, node, apply(context, node, "argmax", [score], over=axis) if score is not None else None)


# --- as ------------------------------------------------------------------------------------------------------------


def check_cast(context: Context, node: tree.As, element: Element, axes: tuple[Axis, ...] | None) -> Type:
    """`x as f32`, `x as [b D] NonNeg` where x is a tensor: another element, or a refinement that is asserted.

    `axes` is None where the type is an element alone; else they must be the value's, which may name a merged axis.
    """
    value = tensor(context, node.value, "`as`")
    if value is None:
        return WRONG
    if axes is not None and not same_axes(axes, value.type.axes):
        message = (
            f"`as` changes no axes: the value has `{show_axes(value.type.axes)}`, and the type `{show_axes(axes)}`"
        )
        helps = ["`rearrange` moves, merges and splits axes, `rename` gives new names"]
        context.report(
            "E0510", message, node.type, "", [Label(context.span(node.value), f"this is `{value.type}`")], helps=helps
        )
        return WRONG
    result: Value | None = value
    if value.type.element.name != element.name:
        result = cast(context, value, element.base)
    if result is not None and element.refinement is not None and not result.type.element.fits(element):
        result = apply(context, node, "refine", [result], element=element)
    elif result is not None and element.refinement is None and result.type.element != element:
        result = cast(context, result, element)
    if result is not None and axes is not None:
        result = relabel(context, result, axes)
    if result is value:
        result = apply(context, node, "relabel", [value], axes=value.type.axes)
    return finish(context, node, result)


FUNCTIONS: dict[str, Operation] = {"categorical": _check_categorical}
