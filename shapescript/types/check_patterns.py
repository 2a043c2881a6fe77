"""Checks what takes a pattern: einsum, rearrange, split, repeat, and rename.

Takes calls with a `Pattern`; gives types and uses made of `relabel`, `rearrange`, `contract`, `slice` and
`broadcast`. What the names of a pattern mean is `check_pattern_axes.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from shapescript.syntax import tree
from shapescript.types.axes import Axis, contains, same, show_axes
from shapescript.types.check_operators import report_elements, warn_normalised
from shapescript.types.check_pattern_axes import Names, dropped, leaf_names, leaves, named_operand, result_axes
from shapescript.types.check_values import Value, apply, finish, hidden_axis, one_axis, relabel, tensor
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.kinds import WRONG, Tensor, TupleOf, Type
from shapescript.types.size import Size
from shapescript.types.uses import OpUse


def _operands(
    context: Context, node: tree.Expr, name: str, pattern: tree.Pattern | None, arguments: Arguments, example: str
) -> tuple[tree.Pattern, list[Value], Names] | None:
    """The tensors of a call with a pattern, and the sizes that it gives by name."""
    if pattern is None:
        context.report("E0401", f"`{name}` needs a pattern", node, helps=[f"write it like `{example}`"])
        return None
    exprs = [value for given, value in arguments if given is None]
    if len(exprs) != len(pattern.operands):
        message = (
            f"`{name}` has {len(exprs)} value{'s' if len(exprs) != 1 else ''}, and its pattern {len(pattern.operands)}"
        )
        context.report("E0401", message, pattern, helps=["a comma stands between the patterns of two values"])
        return None
    found = [tensor(context, expr, f"`{name}`") for expr in exprs]
    values = [value for value in found if value is not None]
    names = Names(context)
    for argument in pattern.sizes:
        size = context.size_of(argument.value)
        if size is None or argument.name is None:
            context.report("E0407", "a size after a pattern is a whole number or a dim", argument.value)
            return None
        names.axes[argument.name] = Axis(argument.name, size)
        if context.axis_named(argument.name) is None:
            context.declare_axis(argument.name, names.axes[argument.name])
    return (pattern, values, names) if len(values) == len(found) else None


def _check_rearrange(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    read = _operands(context, node, "rearrange", pattern, arguments, "rearrange(x: b n D -> b D n)")
    if read is None:
        return WRONG
    found, values, names = read
    if len(values) != 1:
        context.report("E0401", "`rearrange` takes one value", node)
        return WRONG
    value = named_operand(names, values[0], found.operands[0].sizes)
    axes = result_axes(names, found.result.sizes) if value is not None else None
    if value is None or axes is None:
        return WRONG
    lost = dropped(value.type.axes, axes)
    if lost:
        message = f"`rearrange` never drops an axis, and `{lost[0]}` isn't in its result"
        helps = [f"sum it, or take its mean, openly: `sum(..., over={lost[0]})`"]
        context.report("E0406", message, found.result, helps=helps)
        return WRONG
    gained = [axis for axis in leaves(axes) if axis.size.constant != 1 and not contains(leaves(value.type.axes), axis)]
    if gained:
        context.report("E0403", f"`rearrange` adds no axis but one written `1`, and `{gained[0]}` is new", found.result)
        return WRONG
    return finish(context, node, apply(context, node, "rearrange", [value], axes=axes))


def _check_split(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    read = _operands(context, node, "split", pattern, arguments, "split(b n (3 H Dh) -> b H n Dh)")
    if read is None:
        return WRONG
    found, values, names = read
    value = named_operand(names, values[0], found.operands[0].sizes) if len(values) == 1 else None
    axes = result_axes(names, found.result.sizes) if value is not None else None
    if value is None or axes is None:
        return WRONG
    taken = [leaf for leaf in leaves(value.type.axes) if not contains(leaves(axes), leaf)]
    counts = [axis for axis in taken if axis.name is None and axis.size.constant is not None]
    if len(taken) != 1 or len(counts) != 1:
        lost = [axis for axis in taken if axis not in counts]
        why = f"`{lost[0]}` isn't in its result" if lost else "none is left out of its result"
        helps = ["a number in a merged axis is what it takes out: `split(b n (3 H Dh) -> b H n Dh)`"]
        context.report("E0406", f"`split` takes one number out, and {why}", found, helps=helps)
        return WRONG
    # The number becomes an axis of its own, in front, of which each value is one place.
    front = hidden_axis(node, "part", counts[0].size)
    named = relabel(context, value, _replaced(value.type.axes, counts[0], front))
    moved = apply(context, node, "rearrange", [named], axes=(front, *axes)) if named is not None else None
    if moved is None:
        return WRONG
    parts: list[OpUse] = []
    count = counts[0].size.constant or 0
    for at in range(count):
        one = Axis.of(1)
        place = apply(context, node, "slice", [moved], over=front, start=Size.of(at), stop=Size.of(at + 1), result=one)
        part = apply(context, node, "rearrange", [place], axes=axes) if place is not None else None
        if part is None or not isinstance(part.operand, OpUse):
            return WRONG
        parts.append(part.operand)
    context.use(node, OpUse("tuple", (), {}, len(parts), tuple(parts)))
    return TupleOf(tuple(Tensor(axes, value.type.element) for _ in parts))


def _replaced(axes: Sequence[Axis], old: Axis, new: Axis) -> tuple[Axis, ...]:
    result = []
    for axis in axes:
        if axis.parts:
            result.append(Axis(axis.name, axis.size, _replaced(axis.parts, old, new), axis.batch))
        else:
            result.append(new if axis is old else axis)
    return tuple(result)


def _check_repeat(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    read = _operands(context, node, "repeat", pattern, arguments, "repeat(b D -> b n D)")
    if read is None:
        return WRONG
    found, values, names = read
    value = named_operand(names, values[0], found.operands[0].sizes) if len(values) == 1 else None
    axes = result_axes(names, found.result.sizes, new=True) if value is not None else None
    if value is None or axes is None:
        return WRONG
    lost = dropped(value.type.axes, axes)
    if lost:
        context.report("E0406", f"`repeat` adds axes, and `{lost[0]}` isn't in its result", found.result)
        return WRONG
    flat = tuple(leaves(axes))
    wide = apply(context, node, "broadcast", [value], axes=flat)
    if wide is None or flat == axes:
        return finish(context, node, wide)
    return finish(context, node, apply(context, node, "rearrange", [wide], axes=axes))


def _check_einsum(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    read = _operands(context, node, "einsum", pattern, arguments, "einsum(a, b: b n k, k m -> b n m)")
    if read is None:
        return WRONG
    found, values, names = read
    for value in values[1:]:
        if value.type.element.name != values[0].type.element.name:
            report_elements(context, node, values[0], value)
            return WRONG
    named = [named_operand(names, v, o.sizes) for v, o in zip(values, found.operands, strict=True)]
    operands = [value for value in named if value is not None]
    if len(operands) != len(values):
        return WRONG
    axes = result_axes(names, found.result.sizes)
    if axes is None or not _check_summed(context, found, operands, axes):
        return WRONG
    if len(operands) == 1:
        return finish(context, node, apply(context, node, "rearrange", operands, axes=axes))
    result = leaves(axes)
    for value in operands:
        warn_normalised(context, node, value, [leaf for leaf in leaves(value.type.axes) if not contains(result, leaf)])
    flat = [_flat(context, node, value) for value in operands]
    product: Value | None = flat[0]
    for at in range(1, len(flat)):
        later = [axis for value in flat[at + 1 :] if value is not None for axis in value.type.axes]
        right = flat[at]
        if product is None or right is None:
            return WRONG
        wanted = tuple(leaves(axes)) if at == len(flat) - 1 else _between(product, right, [*leaves(axes), *later])
        product = apply(context, node, "contract", [product, right], axes=wanted)
    if product is not None and product.type.axes != axes:
        product = apply(context, node, "rearrange", [product], axes=axes)
    return finish(context, node, product)


def _flat(context: Context, node: tree.Expr, value: Value) -> Value | None:
    """An operand whose merged axes are split into the parts that the pattern names."""
    flat = tuple(leaves(value.type.axes))
    return value if flat == value.type.axes else apply(context, node, "rearrange", [value], axes=flat)


def _between(left: Value, right: Value, needed: Sequence[Axis]) -> tuple[Axis, ...]:
    """What the product of two operands keeps: the axes that the result or a later operand has."""
    union = [*left.type.axes, *(axis for axis in right.type.axes if not contains(left.type.axes, axis))]
    return tuple(axis for axis in union if contains(needed, axis))


def _check_summed(context: Context, pattern: tree.Pattern, operands: Sequence[Value], axes: Sequence[Axis]) -> bool:
    """Whether every name that the result leaves out is shared by two operands."""
    result = leaves(axes)
    for value, written in zip(operands, pattern.operands, strict=True):
        for leaf in leaves(value.type.axes):
            having = [other for other in operands if contains(leaves(other.type.axes), leaf)]
            if len(having) > 1 or contains(result, leaf):
                continue
            place = next((size for size in written.sizes if str(leaf) in leaf_names(size)), written)
            message = f"`{leaf}` stands in one operand only, and the result leaves it out"
            helps = [f"write `{leaf}` in the result, or sum it openly: `sum(..., over={leaf})`"]
            if any(same(leaf, other) for other in _own_axes(operands, value)):
                helps.append("two operands share an axis when the pattern calls it by one name")
            context.report("E0404", message, place, "summed by a slip?", helps=helps)
            return False
    return True


def _own_axes(operands: Sequence[Value], but: Value) -> list[Axis]:
    return [axis for value in operands if value is not but for axis in value.type.axes]


def _check_rename(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    if not arguments or arguments[0][0] is not None or len(arguments) < 2:
        context.report("E0601", "`rename` takes a value and the new names", node, helps=["write `rename(x, n=m)`"])
        return WRONG
    value = tensor(context, arguments[0][1], "`rename`")
    if value is None:
        return WRONG
    axes = list(value.type.axes)
    for old, new in arguments[1:]:
        if old is None or not isinstance(new, tree.Name):
            context.report("E0601", "a new name is written `old=new`", new, helps=["write `rename(x, n=m)`"])
            return WRONG
        word = tree.Name(new.start, new.start, old)
        axis = one_axis(context, word, value, "`rename`")
        if axis is None:
            return WRONG
        known = context.axis_named(new.name)
        if known is not None and known.size != axis.size:
            context.report("E0407", f"`{new.name}` has the size `{known.size}`, and `{old}` is `{axis.size}`", new)
            return WRONG
        if known is None:
            context.declare_axis(new.name, axis.renamed(new.name))
        axes[value.type.axes.index(axis)] = axis.renamed(new.name)
    repeated = next((axis for at, axis in enumerate(axes) if axis.name and contains(axes[:at], axis)), None)
    if repeated is not None:
        context.report("E0405", f"`{repeated}` would stand twice in `{show_axes(axes)}`", node)
        return WRONG
    return finish(context, node, apply(context, node, "relabel", [value], axes=tuple(axes)))


FUNCTIONS: dict[str, Operation] = {
    "rearrange": _check_rearrange,
    "split": _check_split,
    "repeat": _check_repeat,
    "einsum": _check_einsum,
    "rename": _check_rename,
}
