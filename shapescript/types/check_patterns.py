"""Checks what takes a pattern: einsum, rearrange, split, repeat, and rename.

Takes calls with a `Pattern`; gives types and uses made of `relabel`, `rearrange`, `contract`, `slice` and
`broadcast`. A pattern names its operand's axes in order. An axis of the operand's own that the pattern names stands
where the pattern puts it; a name that the operand doesn't have is a new name for that axis, which stands to the end of
the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import ANY_AXES, Axis, contains, same, show_axes
from shapescript.types.check_operators import report_elements, warn_normalised
from shapescript.types.check_values import Value, apply, bare, finish, one_axis, relabel, tensor
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.kinds import WRONG, Tensor, TupleOf, Type
from shapescript.types.size import Size
from shapescript.types.unify import solve_size
from shapescript.types.uses import OpUse

UNKNOWN = "?"


@dataclass
class _Names:
    """The names of one pattern: what each stands for so far, and where it was said."""

    context: Context
    axes: dict[str, Axis] = field(default_factory=dict)
    spread: tuple[Axis, ...] | None = None

    def known(self, name: str) -> Axis | None:
        """The axis of a name that this pattern, or the function, already has."""
        return self.axes.get(name) or self.context.axis_named(name)

    def bind(self, name: str, axis: Axis, node: tree.Expr) -> bool:
        """Makes a name mean this axis for the pattern, and for the function where it is new there."""
        earlier = self.axes.get(name)
        if earlier is None:
            self.axes[name] = axis
            if self.context.axis_named(name) is None:
                if name[0].isupper():
                    message = f"`{name}` is no dim, and a new axis begins with a small letter"
                    self.context.report(
                        "E0201", message, node, helps=[f"write `{name.lower()}`, or declare `dim {name} = ...`"]
                    )
                    return False
                self.context.declare_axis(name, axis)
            return True
        if axis.batch and not earlier.batch:
            self.axes[name] = axis
        if earlier.size == axis.size:
            return True
        message = f"`{name}` has the size `{earlier.size}` in this pattern, and here it is `{axis.size}`"
        self.context.report("E0407", message, node)
        return False


# --- operands ------------------------------------------------------------------------------------------------------


def _named_operand(names: _Names, value: Value, sizes: Sequence[tree.Expr]) -> Value | None:
    """An operand under the names that the pattern gives its axes."""
    context, axes = names.context, value.type.axes
    any_at = next((at for at, size in enumerate(sizes) if isinstance(size, tree.AnyAxes)), None)
    rank = len(sizes) - (any_at is not None)
    if (rank > len(axes)) if any_at is not None else (rank != len(axes)):
        _report_rank(context, value, sizes, rank)
        return None
    after = rank - any_at if any_at is not None else 0
    pairs: list[tuple[tree.Expr, Axis]] = list(zip(sizes, axes, strict=False))
    result: list[Axis] = []
    if any_at is not None:
        last = len(axes) - after
        spread = axes[any_at:last]
        names.spread = spread if names.spread is None else names.spread
        pairs = [*zip(sizes[:any_at], axes[:any_at], strict=True), *zip(sizes[any_at + 1 :], axes[last:], strict=True)]
    seen: dict[str, tree.Expr] = {}
    for place, (size, axis) in enumerate(pairs):
        if any_at is not None and place == any_at:
            result.extend(axes[any_at : len(axes) - after])
        named = _named_axis(names, value, size, axis, place if any_at is None or place < any_at else -1)
        if named is None:
            return None
        for name in _leaf_names(size):
            if name in seen:
                helps = [f"give the second a name of its own: `{name}` and `{name.lower()}2`"]
                context.report("E0406", f"`{name}` stands twice in the pattern of one operand", size, helps=helps)
                return None
            seen[name] = size
        result.append(named)
    if any_at is not None and any_at >= len(pairs):
        result.extend(axes[any_at : len(axes) - after])
    return relabel(context, value, result)


def _report_rank(context: Context, value: Value, sizes: Sequence[tree.Expr], rank: int) -> None:
    count = len(value.type.axes)
    message = f"the pattern names {rank} {'axis' if rank == 1 else 'axes'}, and the value has {count}"
    place: tree.Node = sizes[0] if sizes else value.node
    here = [Label(context.span(value.node), f"this is `{value.type}`")]
    context.report("E0402", message, place, "", here, [f"its axes are `{show_axes(value.type.axes)}`"])


def _leaf_names(size: tree.Expr) -> list[str]:
    size = bare(size)
    if isinstance(size, tree.Name):
        return [size.name]
    return [name for part in size.sizes for name in _leaf_names(part)] if isinstance(size, tree.Merged) else []


def _named_axis(names: _Names, value: Value, size: tree.Expr, axis: Axis, place: int) -> Axis | None:
    """One axis of an operand under the pattern's word for it."""
    size = bare(size)
    if isinstance(size, tree.Name):
        return _name(names, value, size, axis, place)
    if isinstance(size, tree.Merged):
        return _merged(names, size, axis)
    context = names.context
    wanted = context.axis_of(size)
    if wanted is None:
        return None
    if wanted.size != axis.size:
        message = f"the pattern has `{context.source_text(size)}` where the value has `{axis}`"
        context.report("E0407", message, size)
        return None
    return axis


def _name(names: _Names, value: Value, size: tree.Name, axis: Axis, place: int) -> Axis | None:
    context, name = names.context, size.name
    own = [at for at, each in enumerate(value.type.axes) if each.name == name]
    if axis.name == name:
        return axis if names.bind(name, axis, size) else None
    if own:
        order = f"the pattern calls axis {place + 1} `{name}`, but `{name}` is axis {own[0] + 1}"
        message = order if place >= 0 else f"the pattern puts `{name}` where the value has `{axis}`"
        here = [Label(context.span(value.node), f"this is `{value.type}`")]
        helps = [f"a pattern names the axes in the value's order: `{' '.join(map(str, value.type.axes))}`"]
        context.report("E0408", message, size, f"this axis is `{axis}`", here, helps=helps)
        return None
    known = names.known(name)
    if known is not None and known.size != axis.size:
        message = f"`{name}` has the size `{known.size}`, and the value has `{axis}` there"
        here = [Label(context.span(value.node), f"this is `{value.type}`")]
        if known.size == Size.atom(name) or axis.name is not None:
            message = f"the pattern calls an axis `{name}` that is `{axis}`, of another size"
        context.report("E0407", message, size, f"this axis is `{axis}`", here)
        return None
    renamed = axis.renamed(name) if known is None else Axis(name, known.size, (), axis.batch)
    return renamed if names.bind(name, renamed, size) else None


# --- merged axes ---------------------------------------------------------------------------------------------------


def _merged(names: _Names, size: tree.Merged, axis: Axis) -> Axis | None:
    """An axis of an operand split into the parts that the pattern names."""
    context = names.context
    if axis.parts and _out_of_order(names, size, axis):
        return None
    if len(axis.parts) == len(size.sizes) and all(
        _fits(names, s, p) for s, p in zip(size.sizes, axis.parts, strict=True)
    ):
        parts = [_part(names, s, p) for s, p in zip(size.sizes, axis.parts, strict=True)]
    else:
        split = _solve(names, size, axis)
        if split is None:
            return None
        parts = [_part(names, s, p) for s, p in zip(size.sizes, split, strict=True)]
    found = [part for part in parts if part is not None]
    if len(found) != len(parts):
        return None
    merged = Axis.merged(found)
    if merged.size != axis.size:
        context.report(
            "E0407", f"`{context.source_text(size)}` is `{merged.size}` long, and the axis is `{axis}`", size
        )
        return None
    return Axis(None, merged.size, merged.parts, axis.batch or merged.batch)


def _fits(names: _Names, size: tree.Expr, part: Axis) -> bool:
    known = _known_size(names, size)
    return known is None or known == part.size


def _out_of_order(names: _Names, size: tree.Merged, axis: Axis) -> bool:
    written = [name for part in size.sizes for name in _leaf_names(part)]
    merged = [part.name for part in axis.parts if part.name is not None]
    ours = [name for name in written if name in merged]
    if ours == [name for name in merged if name in written]:
        return False
    message = f"the axis was merged as `{axis}`, and the pattern splits it in another order"
    names.context.report("E0409", message, size, helps=[f"write `{axis}`, and reorder in the result"])
    return True


def _known_size(names: _Names, size: tree.Expr) -> Size | None:
    size = bare(size)
    if isinstance(size, tree.Name):
        known = names.known(size.name)
        return known.size if known is not None else None
    if isinstance(size, tree.Merged):
        total = Size.of(1)
        for part in size.sizes:
            known_part = _known_size(names, part)
            if known_part is None:
                return None
            total = total * known_part
        return total
    axis = names.context.axis_of(size)
    return axis.size if axis is not None else None


def _solve(names: _Names, size: tree.Merged, axis: Axis) -> list[Axis] | None:
    """The sizes of the parts, one of which may be unknown: the axis divided by the others."""
    context = names.context
    known = [_known_size(names, part) for part in size.sizes]
    unknown = [at for at, part in enumerate(known) if part is None]
    text = context.source_text(size)
    if len(unknown) > 1:
        free = [context.source_text(size.sizes[at]) for at in unknown]
        words = " and ".join(f"`{name}`" for name in free)
        helps = [f"give one of them after the pattern: `{free[0]}=4`"]
        context.report(
            "E0410", f"the sizes of {words} in `{text}` can't be inferred", size, f"the axis is `{axis}`", helps=helps
        )
        return None
    product = Size.of(1)
    for part in known:
        product = product * (part if part is not None else Size.of(1))
    if unknown:
        rest = solve_size(product * Size.atom(UNKNOWN), UNKNOWN, axis.size)
        constant = rest.constant if rest is not None else None
        if rest is None or (not rest.atoms and constant is None):
            context.report("E0307", f"`{axis}` can't be split into `{text}`: `{product}` doesn't divide it", size)
            return None
        known[unknown[0]] = rest
    elif product != axis.size:
        message = f"`{text}` is `{product}` long, and the value has `{axis}` there"
        context.report("E0407", message, size, f"this axis is `{axis}`")
        return None
    # The first part carries what descends from the batch: an axis is split with its rows in order.
    return [Axis(None, part, (), axis.batch and at == 0) for at, part in enumerate(known) if part is not None]


def _part(names: _Names, size: tree.Expr, part: Axis) -> Axis | None:
    size = bare(size)
    if isinstance(size, tree.Name):
        known = names.known(size.name)
        named = Axis(size.name, known.size if known is not None else part.size, (), part.batch)
        return named if names.bind(size.name, named, size) else None
    if isinstance(size, tree.Merged):
        return _merged(names, size, part)
    return part


# --- results -------------------------------------------------------------------------------------------------------


def _result_axes(names: _Names, sizes: Sequence[tree.Expr], *, new: bool = False) -> tuple[Axis, ...] | None:
    """The axes that the right side of a pattern writes; `new` lets it bring in axes that no operand has."""
    result: list[Axis] = []
    written: set[str] = set()
    for size in sizes:
        for name in _leaf_names(size):
            if name in written:
                names.context.report("E0405", f"`{name}` stands twice in the result of the pattern", size)
                return None
            written.add(name)
        if isinstance(size, tree.AnyAxes):
            result.extend(names.spread if names.spread is not None else (ANY_AXES,))
            continue
        axis = _result_axis(names, size, new)
        if axis is None:
            return None
        result.append(axis)
    return tuple(result)


def _result_axis(names: _Names, size: tree.Expr, new: bool) -> Axis | None:
    size = bare(size)
    context = names.context
    if isinstance(size, tree.Merged):
        parts = [_result_axis(names, part, new) for part in size.sizes]
        found = [part for part in parts if part is not None]
        return Axis.merged(found) if len(found) == len(parts) else None
    if isinstance(size, tree.Name):
        axis = names.axes.get(size.name)
        if axis is None and new:
            axis = context.axis_named(size.name)
        if axis is None:
            message = f"no operand of the pattern has `{size.name}`, which stands in its result"
            helps = [f"`repeat` adds an axis: `repeat(b D -> b {size.name} D)`"] if not new else []
            context.report("E0403", message, size, helps=helps)
        return axis
    return context.axis_of(size)


def _leaves(axes: Sequence[Axis]) -> list[Axis]:
    return [leaf for axis in axes for leaf in (_leaves(axis.parts) if axis.parts else [axis])]


def _dropped(given: Sequence[Axis], kept: Sequence[Axis]) -> list[Axis]:
    """The leaves that are lost on the way, those of size 1 aside."""
    return [leaf for leaf in _leaves(given) if leaf.size.constant != 1 and not contains(_leaves(kept), leaf)]


# --- operations ----------------------------------------------------------------------------------------------------


def _operands(
    context: Context, node: tree.Expr, name: str, pattern: tree.Pattern | None, arguments: Arguments, example: str
) -> tuple[tree.Pattern, list[Value], _Names] | None:
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
    names = _Names(context)
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
    value = _named_operand(names, values[0], found.operands[0].sizes)
    axes = _result_axes(names, found.result.sizes) if value is not None else None
    if value is None or axes is None:
        return WRONG
    lost = _dropped(value.type.axes, axes)
    if lost:
        message = f"`rearrange` never drops an axis, and `{lost[0]}` isn't in its result"
        helps = [f"sum it, or take its mean, openly: `sum(..., over={lost[0]})`"]
        context.report("E0406", message, found.result, helps=helps)
        return WRONG
    gained = [
        axis for axis in _leaves(axes) if axis.size.constant != 1 and not contains(_leaves(value.type.axes), axis)
    ]
    if gained:
        context.report("E0403", f"`rearrange` adds no axis but one written `1`, and `{gained[0]}` is new", found.result)
        return WRONG
    return finish(context, node, apply(context, node, "rearrange", [value], axes=axes))


def _check_split(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
    read = _operands(context, node, "split", pattern, arguments, "split(b n (3 H Dh) -> b H n Dh)")
    if read is None:
        return WRONG
    found, values, names = read
    value = _named_operand(names, values[0], found.operands[0].sizes) if len(values) == 1 else None
    axes = _result_axes(names, found.result.sizes) if value is not None else None
    if value is None or axes is None:
        return WRONG
    taken = [leaf for leaf in _leaves(value.type.axes) if not contains(_leaves(axes), leaf)]
    counts = [axis for axis in taken if axis.name is None and axis.size.constant is not None]
    if len(taken) != 1 or len(counts) != 1:
        lost = [axis for axis in taken if axis not in counts]
        why = f"`{lost[0]}` isn't in its result" if lost else "none is left out of its result"
        helps = ["a number in a merged axis is what it takes out: `split(b n (3 H Dh) -> b H n Dh)`"]
        context.report("E0406", f"`split` takes one number out, and {why}", found, helps=helps)
        return WRONG
    # The number becomes an axis of its own, in front, of which each value is one place.
    front = Axis("part", counts[0].size)
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
    value = _named_operand(names, values[0], found.operands[0].sizes) if len(values) == 1 else None
    axes = _result_axes(names, found.result.sizes, new=True) if value is not None else None
    if value is None or axes is None:
        return WRONG
    lost = _dropped(value.type.axes, axes)
    if lost:
        context.report("E0406", f"`repeat` adds axes, and `{lost[0]}` isn't in its result", found.result)
        return WRONG
    leaves = tuple(_leaves(axes))
    wide = apply(context, node, "broadcast", [value], axes=leaves)
    if wide is None or leaves == axes:
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
    named = [_named_operand(names, v, o.sizes) for v, o in zip(values, found.operands, strict=True)]
    operands = [value for value in named if value is not None]
    if len(operands) != len(values):
        return WRONG
    axes = _result_axes(names, found.result.sizes)
    if axes is None or not _check_summed(context, found, operands, axes):
        return WRONG
    if len(operands) == 1:
        return finish(context, node, apply(context, node, "rearrange", operands, axes=axes))
    result = _leaves(axes)
    for value in operands:
        warn_normalised(context, node, value, [leaf for leaf in _leaves(value.type.axes) if not contains(result, leaf)])
    flat = [_flat(context, node, value) for value in operands]
    product: Value | None = flat[0]
    for at in range(1, len(flat)):
        later = [axis for value in flat[at + 1 :] if value is not None for axis in value.type.axes]
        right = flat[at]
        if product is None or right is None:
            return WRONG
        wanted = tuple(_leaves(axes)) if at == len(flat) - 1 else _between(product, right, [*_leaves(axes), *later])
        product = apply(context, node, "contract", [product, right], axes=wanted)
    if product is not None and product.type.axes != axes:
        product = apply(context, node, "rearrange", [product], axes=axes)
    return finish(context, node, product)


def _flat(context: Context, node: tree.Expr, value: Value) -> Value | None:
    """An operand whose merged axes are split into the parts that the pattern names."""
    leaves = tuple(_leaves(value.type.axes))
    return value if leaves == value.type.axes else apply(context, node, "rearrange", [value], axes=leaves)


def _between(left: Value, right: Value, needed: Sequence[Axis]) -> tuple[Axis, ...]:
    """What the product of two operands keeps: the axes that the result or a later operand has."""
    union = [*left.type.axes, *(axis for axis in right.type.axes if not contains(left.type.axes, axis))]
    return tuple(axis for axis in union if contains(needed, axis))


def _check_summed(context: Context, pattern: tree.Pattern, operands: Sequence[Value], axes: Sequence[Axis]) -> bool:
    """Whether every name that the result leaves out is shared by two operands."""
    result = _leaves(axes)
    for value, written in zip(operands, pattern.operands, strict=True):
        for leaf in _leaves(value.type.axes):
            having = [other for other in operands if contains(_leaves(other.type.axes), leaf)]
            if len(having) > 1 or contains(result, leaf):
                continue
            place = next((size for size in written.sizes if str(leaf) in _leaf_names(size)), written)
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
