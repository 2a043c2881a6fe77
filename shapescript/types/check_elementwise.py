"""Checks the functions that work element by element: `exp`, `where`, `clamp`, `gelu` and their like; and `matmul`.

Takes calls; gives types and uses. Operands line up as those of operators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shapescript.syntax import tree
from shapescript.types.check_operators import (
    align,
    check_matmul,
    counted,
    is_within,
    plain,
    report_align,
    report_elements,
    text,
)
from shapescript.types.check_values import (
    Value,
    apply,
    arguments_of,
    bare,
    finish,
    fixed,
    line_up_elements,
    literal,
    number,
    tensor,
)
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.element import BOOL
from shapescript.types.kinds import WRONG, Host, Type

UNARY = (
    "abs exp expm1 log log1p sqrt rsqrt square sin cos tanh sigmoid relu silu softplus erf floor ceil round sign is_nan"
).split()


def _unary(name: str) -> Operation:
    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        given = arguments_of(context, node, name, arguments, ["x"])
        value = tensor(context, given["x"], f"`{name}`") if given is not None else None
        if value is None:
            return WRONG
        element = value.type.element
        if name in ("sqrt", "log") and element.is_float and not element.is_nonneg:
            _report_sign(context, name, value)
            return WRONG
        if not element.is_float and name not in ("abs", "sign", "square"):
            helps = [f"write `{text(context, value.node)} as f32`"]
            context.report("E0509", f"`{name}` takes floats, and this is `{value.type}`", value.node, helps=helps)
            return WRONG
        return finish(context, node, apply(context, node, name, [counted(value)]))

    return check


def _report_sign(context: Context, name: str, value: Value) -> None:
    shown = text(context, value.node)
    helps = [f"write `{name}(maximum({context.source_text(value.node)}, 0))`"]
    if name == "log":
        helps = [
            f"of a softmax, `log_softmax` is exact; else `log(maximum({context.source_text(value.node)}, 1e-12))`",
            f"if it is known to be 0 or more, say so: `log({shown} as NonNeg)`",
        ]
    else:
        helps.append(f"if it is known to be 0 or more, say so: `sqrt({shown} as NonNeg)`")
    context.report(
        "E0504",
        f"`{name}` asks for `NonNeg`, and this may be below 0",
        value.node,
        f"this is `{value.type}`",
        helps=helps,
    )


def _elementwise(name: str, op: str, parameters: Sequence[str], optional: Sequence[str] = ()) -> Operation:
    """A function of several operands that line up: `maximum(x, 0)`, `where(c, a, b)`."""

    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        given = arguments_of(context, node, name, arguments, parameters, optional)
        if given is None:
            return WRONG
        return finish(context, node, choose(context, node, name, op, [given[p] for p in parameters]))

    return check


def choose(context: Context, node: tree.Expr, name: str, op: str, exprs: Sequence[tree.Expr]) -> Value | None:
    """Operands of one element that line up; the first of `where` is its condition, a bool."""
    condition: list[Value] = []
    if op == "where":
        found = (
            number(context, exprs[0], BOOL) if context.type_of(exprs[0]) == Host("bool") else tensor(context, exprs[0])
        )
        if found is None:
            return None
        if not found.type.element.is_bool:
            context.report("E0508", f"`{name}` chooses by bools, and this is `{found.type}`", found.node)
            return None
        condition, exprs = [found], exprs[1:]
    values = line_up_elements(context, exprs)
    if values is None:
        return None
    a, b = values[0].type.element, values[1].type.element
    if a.name != b.name:
        report_elements(context, node, values[0], values[1])
        return None
    values = _common_index(values)
    if not align(context, node, [*condition, *values]):
        return None
    return apply(context, node, op, [*condition, *values])


def _common_index(values: Sequence[Value]) -> list[Value]:
    """Whole numbers as they are where all are one `Index`; else without it. A number in the text that fits is one."""
    elements = [value.type.element for value in values]
    index = next((element for element in elements if element.refinement == "Index"), None)
    if index is None:
        return list(values)
    bound = index.bound.constant if index.bound is not None else None
    fits = []
    for value in values:
        known = literal(value.node)
        if (
            value.type.element != index
            and known is not None
            and (known == 0 or (bound is not None and 0 <= known < bound))
        ):
            fits.append(fixed(int(known), index, value.node))
        else:
            fits.append(value)
    return fits if all(value.type.element == index for value in fits) else [plain(value) for value in fits]


def _check_masked_fill(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "masked_fill", arguments, ["x", "mask", "value"])
    if given is None:
        return WRONG
    x, mask = tensor(context, given["x"], "`masked_fill`"), tensor(context, given["mask"], "`masked_fill`'s mask")
    if x is None or mask is None:
        return WRONG
    if not mask.type.element.is_bool:
        context.report("E0508", f"a mask holds bools, and this is `{mask.type}`", mask.node)
        return WRONG
    if not is_within(mask.type.axes, x.type.axes):
        report_align(context, node, mask, x)
        return WRONG
    chosen = choose(context, node, "masked_fill", "where", [mask.node, given["value"], x.node])
    if chosen is not None and _is_minus_infinity(given["value"]):
        chosen = replace(chosen, type=replace(chosen.type, hidden=mask.type.axes))
    return finish(context, node, chosen)


def _is_minus_infinity(expr: tree.Expr) -> bool:
    inner = bare(expr)
    operand = bare(inner.operand) if isinstance(inner, tree.Unary) and inner.op == "-" else None
    return isinstance(operand, tree.Name) and operand.name == "inf"


def _check_clamp(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "clamp", arguments, ["x"], ["low", "high"])
    value = tensor(context, given["x"], "`clamp`") if given is not None else None
    if given is None or value is None:
        return WRONG
    result: Value | None = value
    for bound, op in (("low", "maximum"), ("high", "minimum")):
        limit = given.get(bound)
        if limit is None or result is None:
            continue
        scalar = number(context, limit, value.type.element.base, value.node)
        if scalar is None or not align(context, node, [result, scalar]):
            return WRONG
        result = apply(context, node, op, [counted(result), scalar])
    return finish(context, node, result)


def _check_gelu(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "gelu", arguments, ["x"], [], ["approximate"])
    value = tensor(context, given["x"], "`gelu`") if given is not None else None
    if given is None or value is None:
        return WRONG
    approximate = given.get("approximate")
    if approximate is not None and not isinstance(approximate, tree.Bool):
        context.report("E0607", "`approximate` is `true` or `false`", approximate)
        return WRONG
    op = "gelu_tanh" if isinstance(approximate, tree.Bool) and approximate.value else "gelu"
    return finish(context, node, apply(context, node, op, [value]))


def _check_leaky_relu(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    given = arguments_of(context, node, "leaky_relu", arguments, ["x"], ["slope"])
    value = tensor(context, given["x"], "`leaky_relu`") if given is not None else None
    if given is None or value is None:
        return WRONG
    element, expr = value.type.element.base, given.get("slope")
    slope = number(context, expr, element) if expr is not None else fixed(0.01, element, node)
    below = apply(context, node, "multiply", [value, slope]) if slope is not None else None
    zero = fixed(0.0, element, node)
    above = apply(context, node, "greater", [value, zero])
    if below is None or above is None:
        return WRONG
    return finish(context, node, apply(context, node, "where", [above, value, below]))


def _check_matmul(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    return check_matmul(context, node, arguments)


FUNCTIONS: dict[str, Operation] = {
    **{name: _unary(name) for name in UNARY},
    "maximum": _elementwise("maximum", "maximum", ["x", "y"]),
    "minimum": _elementwise("minimum", "minimum", ["x", "y"]),
    "where": _elementwise("where", "where", ["condition", "x", "y"]),
    "masked_fill": _check_masked_fill,
    "clamp": _check_clamp,
    "gelu": _check_gelu,
    "leaky_relu": _check_leaky_relu,
    "matmul": _check_matmul,
}
