"""What the checks of tensor expressions share: operands, the building of uses, arguments and `over=`.

Takes expressions through a `Context`; gives `Value`, an operand with its type and the place to blame. `apply` asks the
registry's rule for a type and turns its `RuleError` into a diagnostic at the operand that is to blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shapescript.diagnostics.diagnostic import Label
from shapescript.diagnostics.of_pytorch import PARAMETERS
from shapescript.diagnostics.suggest import nearest
from shapescript.ops.registry import REGISTRY, RuleError
from shapescript.syntax import tree
from shapescript.types.axes import ANY_AXES, Axis, places, show_axes
from shapescript.types.context import Arguments, Context
from shapescript.types.element import F32, I64, Element
from shapescript.types.kinds import WRONG, Batch, Host, PythonValue, Tensor, Type, Wrong
from shapescript.types.size import Size
from shapescript.types.uses import Fixed, HostOperand, Operand, OpUse


@dataclass(frozen=True)
class Value:
    """A tensor to be: what makes it, its type, and the expression of the text that it comes from."""

    operand: Operand
    type: Tensor
    node: tree.Expr


@dataclass(frozen=True)
class Given:
    """The arguments of one call by parameter; `missing` and `wrong` ones are reported when this is made."""

    values: Mapping[str, tree.Expr] = field(default_factory=dict)
    rest: tuple[tree.Expr, ...] = ()

    def __getitem__(self, name: str) -> tree.Expr:
        return self.values[name]

    def get(self, name: str) -> tree.Expr | None:
        """The argument of a parameter that may be left out."""
        return self.values.get(name)


def bare(expr: tree.Expr) -> tree.Expr:
    """An expression without the brackets around it."""
    while isinstance(expr, tree.Group):
        expr = expr.inner
    return expr


def arguments_of(
    context: Context,
    node: tree.Expr,
    name: str,
    arguments: Arguments,
    required: Sequence[str],
    optional: Sequence[str] = (),
    by_name: Sequence[str] = (),
) -> Given | None:
    """Lines arguments up with parameters: positional ones first, `by_name` ones only with their name."""
    positional = [*required, *optional]
    values: dict[str, tree.Expr] = {}
    for at, (given, value) in enumerate(arguments):
        if given is None and at >= len(positional):
            what = f"`{name}` takes {len(positional)} value{'s' if len(positional) != 1 else ''}"
            helps = over_instead(context, arguments, value) if "over" in by_name and at else []
            if not helps and by_name:
                helps = [f"{what}; `{by_name[0]}` is given by name, `{by_name[0]}=...`"]
            context.report("E0601", f"{what}, and this is one more", value, helps=helps)
            return None
        parameter = positional[at] if given is None else given
        if parameter not in positional and parameter not in by_name:
            known = ", ".join(f"`{p}`" for p in [*positional, *by_name])
            helps = in_words_of_torch(context, parameter, [*positional, *by_name], arguments, value)
            context.report(
                "E0602",
                f"`{name}` has no parameter `{parameter}`",
                value,
                notes=[f"its parameters are {known}"],
                helps=helps,
            )
            return None
        if parameter in values:
            context.report("E0602", f"`{parameter}` is given twice", value)
            return None
        values[parameter] = value
    for parameter in required:
        if parameter not in values:
            context.report("E0601", f"`{name}` needs `{parameter}`", node)
            return None
    return Given(values)


AXIS_WORDS = frozenset(("dim", "dims", "axis", "axes", "axis_name", "normalized_shape", "along"))


def in_words_of_torch(
    context: Context, parameter: str, known: Sequence[str], arguments: Arguments, value: tree.Expr
) -> list[str]:
    """What helps where a call has a parameter of PyTorch's or numpy's, or one that is spelled almost right."""
    if parameter in AXIS_WORDS and "over" in known:
        return over_instead(context, arguments, value)
    if parameter in ("keepdim", "keepdims"):
        return ["leave it out: what is reduced lines up by the names of the axes that are left"]
    similar = PARAMETERS[parameter] if PARAMETERS.get(parameter) in known else nearest(parameter, known)
    return [f"did you mean `{similar}`?"] if similar and len(known) > 1 else []


def over_instead(context: Context, arguments: Arguments, value: tree.Expr) -> list[str]:
    """`over=` with the axis that a number means in the first argument, or with each of its axes."""
    of = context.type_of(arguments[0][1]) if arguments[0][1] is not value else None
    if not isinstance(of, Tensor) or not of.axes:
        return ["the axis is named: `over=D`"]
    number = literal(value)
    if isinstance(number, int) and -len(of.axes) <= number < len(of.axes):
        return [f"the axis is named: `over={of.axes[number]}`"]
    return [f"the axis is named: {', '.join(f'`over={axis}`' for axis in of.axes)}"]


# --- operands ------------------------------------------------------------------------------------------------------


def literal(expr: tree.Expr) -> int | float | None:
    """The value of a number in the text, with its sign."""
    expr = bare(expr)
    if isinstance(expr, tree.Number):
        return expr.value
    if isinstance(expr, tree.Unary) and expr.op == "-":
        value = literal(expr.operand)
        return None if value is None else -value
    if isinstance(expr, tree.Binary) and expr.op in ("+", "*", "/", "-", "**"):
        return _folded(expr)
    return None


def _folded(expr: tree.Binary) -> int | float | None:
    left, right = literal(expr.left), literal(expr.right)
    if left is None or right is None:
        return None
    try:
        match expr.op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                return left / right
        value = left**right
        return value if isinstance(value, (int, float)) else None
    except (ZeroDivisionError, OverflowError):
        return None


def refinement_of(context: Context, expr: tree.Expr) -> str | None:
    """What is known of a host number's sign: `Prob` for 0..1, `NonNeg` for 0 or more."""
    value = literal(expr)
    if value is not None:
        return None if not value >= 0 else "Prob" if value <= 1 else "NonNeg"
    expr = bare(expr)
    if isinstance(expr, tree.Binary) and expr.op in ("+", "*", "/"):
        known = refinement_of(context, expr.left) and refinement_of(context, expr.right)
        return "NonNeg" if known else None
    if isinstance(expr, tree.Name) and expr.name in ("inf", "pi") and isinstance(context.type_of(expr), Host):
        return "NonNeg"
    if isinstance(expr, tree.Call) and isinstance(expr.function, tree.Name) and expr.function.name in ("len", "sqrt"):
        return "NonNeg"
    return "NonNeg" if context.size_of(expr) is not None else None


def describe(of: Type) -> str:
    """A type in a sentence."""
    if isinstance(of, Host):
        return {"int": "a whole number", "float": "a number", "bool": "a bool", "str": "a string"}[of.name]
    if isinstance(of, (Tensor, Batch)):
        return f"`{of}`"
    return str(of) if isinstance(of, PythonValue) else f"`{of}`"


def tensor(context: Context, expr: tree.Expr, what: str = "this operation") -> Value | None:
    """The operand that an expression is, which must be a tensor; None after an error is reported."""
    found = context.type_of(expr)
    if isinstance(found, Tensor):
        return Value(expr, found, expr)
    if not isinstance(found, Wrong):
        helps = []
        if isinstance(found, PythonValue):
            helps = [f"give it a type: `{context.source_text(expr)} as [b D]`"]
        elif isinstance(found, Batch):
            fields = ", ".join(f"`{member.name}`" for member in found.data.members)
            helps = [f"take one of its fields: {fields}"]
        context.report("E0502", f"{what} takes a tensor, and this is {describe(found)}", expr, helps=helps)
    return None


def number(context: Context, expr: tree.Expr, element: Element, meets: tree.Expr | None = None) -> Value | None:
    """The scalar operand of `element` that a host number becomes, or a tensor as it is."""
    found = context.type_of(expr)
    if isinstance(found, Tensor):
        return Value(expr, found, expr)
    if isinstance(found, Wrong):
        return None
    if not isinstance(found, Host) or found.name == "str":
        return tensor(context, expr)
    if (found.name == "bool") != element.is_bool:
        context.report("E0501", f"{describe(found)} meets `{element}`", expr)
        return None
    if found.name == "float" and not element.is_float:
        secondary = [Label(context.span(meets), f"this is `{context.type_of(meets)}`")] if meets is not None else []
        helps = [f"make it a float first: `({_wrapped(context, meets)} as f32)`"] if meets is not None else []
        context.report(
            "E0503", f"a float meets whole numbers, `{element}`", expr, "this is a float", secondary, helps=helps
        )
        return None
    target = element.base if not element.is_float else element.refined(refinement_of(context, expr))
    return Value(HostOperand(expr, target), Tensor((), target), expr)


def _wrapped(context: Context, expr: tree.Expr) -> str:
    text = context.source_text(expr)
    return f"({text})" if isinstance(expr, (tree.Binary, tree.As, tree.Pipe, tree.Unary)) else text


def line_up_elements(context: Context, exprs: Sequence[tree.Expr]) -> list[Value] | None:
    """Operands of one element: host numbers take that of the tensors they meet.

    None after an error is reported. Tensors of different elements are left to the op's rule.
    """
    types = [context.type_of(expr) for expr in exprs]
    if any(isinstance(found, Wrong) for found in types):
        return None
    first = next((expr for expr, found in zip(exprs, types, strict=True) if isinstance(found, Tensor)), None)
    known = context.type_of(first) if first is not None else None
    element = known.element if isinstance(known, Tensor) else _host_element(types)
    values = [number(context, expr, element, first) for expr in exprs]
    found_values = [value for value in values if value is not None]
    return found_values if len(found_values) == len(exprs) else None


def _host_element(types: Sequence[Type]) -> Element:
    names = {found.name for found in types if isinstance(found, Host)}
    return Element("bool") if names == {"bool"} else I64 if names == {"int"} else F32


def fixed(value: int | float | bool, element: Element, node: tree.Expr) -> Value:
    """A scalar that the text doesn't have."""
    return Value(Fixed(value, element), Tensor((), element), node)


# --- building --------------------------------------------------------------------------------------------------------


def apply(context: Context, node: tree.Expr, op: str, values: Sequence[Value], **attributes: object) -> Value | None:
    """The value that an op makes of operands; None after the error of its rule is reported."""
    try:
        result = REGISTRY[op].rule([value.type for value in values], attributes)
    except RuleError as error:
        blamed = values[error.operand].node if error.operand is not None and error.operand < len(values) else node
        context.report(error.code, error.message, blamed, notes=error.notes, helps=error.helps)
        return None
    result = _normalised(op, values, result)
    return Value(OpUse(op, tuple(value.operand for value in values), attributes), result, node)


def _normalised(op: str, values: Sequence[Value], result: Tensor) -> Tensor:
    """The result with what its operand's softmax normalised, where the op leaves weights what they are."""
    axis = values[0].type.normalised if values else None
    if axis is None or op not in ("relabel", "rearrange", "dropout", "cast"):
        return result
    if op == "relabel":
        axis = result.axes[values[0].type.axes.index(axis)] if axis in values[0].type.axes else None
    return replace(result, normalised=axis)


def finish(context: Context, node: tree.Expr, value: Value | None) -> Type:
    """Keeps the use of a node and gives its type."""
    if value is None:
        return WRONG
    for axis in value.type.axes:
        problem = context.unsound(axis.size) if axis.name is None else None
        if problem is not None:
            context.report("E0307", f"this has an axis that can't be: {problem}", node, f"`{value.type}`")
            return WRONG
    operand = value.operand
    if isinstance(operand, OpUse):
        context.use(node, operand)
    elif operand is not node:
        # The value is an operand unchanged (a rearrange that moves nothing): a relabel keeps that an operation.
        context.use(node, OpUse("relabel", (operand,), {"axes": value.type.axes}))
    return value.type


def hidden_axis(node: tree.Node, word: str, size: Size, *, batch: bool = False) -> Axis:
    """An axis within one operation, whose name no program can write and no other operation of the function has."""
    return Axis(f"{word}.{node.start}.{node.end}", size, (), batch)


def place_in(axes: Sequence[Axis], place: int) -> int:
    """A place among axes as an attribute holds it: counted from the end where `..` stands before it."""
    return place - len(axes) if any(axis.name == ANY_AXES.name for axis in axes[:place]) else place


def cast(context: Context, value: Value, element: Element) -> Value | None:
    """A value with another element; itself if it has that already."""
    if value.type.element == element:
        return value
    return apply(context, value.node, "cast", [value], element=element)


def relabel(context: Context, value: Value, axes: Sequence[Axis]) -> Value | None:
    """A value with other names for its axes, in the same order; itself if nothing changes."""
    if tuple(axes) == value.type.axes:
        return value
    return apply(context, value.node, "relabel", [value], axes=tuple(axes))


# --- over= ---------------------------------------------------------------------------------------------------------


def named_axis(context: Context, size: tree.Expr, axes: Sequence[Axis]) -> Axis | None:
    """The axis that a name or size means to somebody who has `axes`; None if it means nothing."""
    size = bare(size)
    if isinstance(size, tree.Name):
        own = next((axis for axis in axes if axis.name == size.name), None)
        return own if own is not None else context.axis_named(size.name)
    return context.axis_of(size)


def one_axis(context: Context, size: tree.Expr, value: Value, what: str) -> Axis | None:
    """The axis of a value that `over=` or an index names; None after an error is reported."""
    axis = named_axis(context, size, value.type.axes)
    if axis is None and not isinstance(bare(size), tree.Name):
        return None
    found = places(axis, value.type.axes) if axis is not None else []
    if len(found) == 1:
        return value.type.axes[found[0]]
    text = context.source_text(size)
    shown = show_axes(value.type.axes)
    here = Label(context.span(value.node), f"this is `{value.type}`")
    if found:
        taken = [axis.name for axis in value.type.axes]
        other = next(letter for letter in "ijklpquvwxyz" if letter not in taken)
        named = " ".join(other if at == found[-1] else f"{axis}" for at, axis in enumerate(value.type.axes))
        renamed = f"rearrange({text_of(context, value.node)}: {named} -> {named})"
        helps = [f"a pattern gives one of them another name: `{renamed}`, and then `over={other}`"]
        message = f"{what}: `{text}` stands {len(found)} times in `{shown}`"
        context.report("E0303", message, size, f"which `{text}`?", [here], helps=helps)
    elif value.type.axes:
        names = ", ".join(f"`{axis}`" for axis in value.type.axes)
        similar = next((f"{axis}" for axis in value.type.axes if f"{axis}".lower() == text.lower()), None)
        helps = [f"did you mean `{similar}`?"] if similar else _renaming(context, value, axis)
        message = f"{what}: the value has no axis `{text}`"
        context.report("E0305", message, size, "", [here], [f"its axes are {names}"], helps)
    else:
        context.report("E0305", f"{what}: the value has no axis `{text}`", size, "", [here], ["it is a scalar"])
    return None


def _renaming(context: Context, value: Value, wanted: Axis | None) -> list[str]:
    """How an axis that has lost its name, as one does that becomes longer or shorter, gets another."""
    if wanted is None or wanted.name is None:
        return []
    at = [place for place, axis in enumerate(value.type.axes) if axis.name is None and wanted.name in axis.size.atoms]
    if len(at) != 1:
        return []
    axes = value.type.axes
    other = next(letter for letter in "mnijklpq" if letter not in {axis.name for axis in axes} | {wanted.name})
    named = " ".join(other if place == at[0] else f"{axis}" for place, axis in enumerate(axes))
    return [
        f"`{axes[at[0]]}` has another length than `{wanted}`; a pattern gives it a name: "
        f"`rearrange({text_of(context, value.node)}: {named} -> {named})`, and then `{other}`"
    ]


def text_of(context: Context, node: tree.Expr) -> str:
    """An operand's text, if it is short enough to be shown again."""
    text = context.source_text(node)
    return text if len(text) <= 30 and "\n" not in text else "x"


def several_axes(context: Context, over: tree.Expr, value: Value, what: str) -> tuple[Axis, ...] | None:
    """The axes that `over=n` or `over=[h w]` names; None after an error is reported."""
    sizes = over.sizes if isinstance(over, tree.Axes) else [over]
    found: list[Axis] = []
    for size in sizes:
        axis = one_axis(context, size, value, what)
        if axis is None:
            return None
        if axis in found:
            context.report("E0303", f"{what}: `{context.source_text(size)}` is named twice", size)
            return None
        found.append(axis)
    return tuple(found)


WHOLE = frozenset(("sum", "mean", "max", "min", "any", "all", "norm", "var", "std"))
"""Reductions that are often over all axes, and may be."""


def need_over(context: Context, node: tree.Expr, name: str, given: Given, value: Value) -> tree.Expr | None:
    """The `over=` of a call, without which there is an error that shows the axes to choose from."""
    over = given.get("over")
    if over is None:
        helps = [f"write `{name}(..., over={axis})`" for axis in value.type.axes]
        if name in WHOLE and len(value.type.axes) > 1:
            helps.append(f"or over all of them, `over={show_axes(value.type.axes)}`")
        shown = show_axes(value.type.axes)
        context.report("E0304", f"`{name}` needs `over=`, the axis", node, f"the value is `{shown}`", helps=helps)
    return over
