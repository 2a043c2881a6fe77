"""What a pattern says of the axes of its operands and of its result.

Takes the sizes that a pattern writes and the types of its operands; gives the operands under the pattern's names, and
the result's axes. A pattern names its operand's axes in order. An axis of the operand's own that the pattern names
stands where the pattern puts it; a name that the operand doesn't have is a new name for that axis, which stands to the
end of the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import ANY_AXES, Axis, contains, show_axes
from shapescript.types.check_values import Value, bare, relabel
from shapescript.types.context import Context
from shapescript.types.size import Size
from shapescript.types.unify import solve_size

UNKNOWN = "?"


@dataclass
class Names:
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
                if self.context.is_lost(name):
                    return False
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


def named_operand(names: Names, value: Value, sizes: Sequence[tree.Expr]) -> Value | None:
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
        for name in leaf_names(size):
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


def leaf_names(size: tree.Expr) -> list[str]:
    size = bare(size)
    if isinstance(size, tree.Name):
        return [size.name]
    return [name for part in size.sizes for name in leaf_names(part)] if isinstance(size, tree.Merged) else []


def _named_axis(names: Names, value: Value, size: tree.Expr, axis: Axis, place: int) -> Axis | None:
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


def _name(names: Names, value: Value, size: tree.Name, axis: Axis, place: int) -> Axis | None:
    context, name = names.context, size.name
    known = names.known(name)
    meant = (
        known.name or name if known is not None else name
    )  # in an imported file a dim's name has the file's before it
    own = [at for at, each in enumerate(value.type.axes) if each.name == meant]
    if axis.name == meant:
        return axis if names.bind(name, axis, size) else None
    if own:
        order = f"the pattern calls axis {place + 1} `{name}`, but `{name}` is axis {own[0] + 1}"
        message = order if place >= 0 else f"the pattern puts `{name}` where the value has `{axis}`"
        here = [Label(context.span(value.node), f"this is `{value.type}`")]
        helps = [f"a pattern names the axes in the value's order: `{' '.join(map(str, value.type.axes))}`"]
        context.report("E0408", message, size, f"this axis is `{axis}`", here, helps=helps)
        return None
    if known is not None and known.size != axis.size:
        message = f"`{name}` has the size `{known.size}`, and the value has `{axis}` there"
        here = [Label(context.span(value.node), f"this is `{value.type}`")]
        if known.size == Size.atom(name) or axis.name is not None:
            message = f"the pattern calls an axis `{name}` that is `{axis}`, of another size"
        context.report("E0407", message, size, f"this axis is `{axis}`", here)
        return None
    renamed = axis.renamed(name) if known is None else Axis(meant, known.size, (), axis.batch)
    return renamed if names.bind(name, renamed, size) else None


# --- merged axes ---------------------------------------------------------------------------------------------------


def _merged(names: Names, size: tree.Merged, axis: Axis) -> Axis | None:
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


def _fits(names: Names, size: tree.Expr, part: Axis) -> bool:
    known = _known_size(names, size)
    return known is None or known == part.size


def _out_of_order(names: Names, size: tree.Merged, axis: Axis) -> bool:
    written = [name for part in size.sizes for name in leaf_names(part)]
    merged = [part.name for part in axis.parts if part.name is not None]
    ours = [name for name in written if name in merged]
    if ours == [name for name in merged if name in written]:
        return False
    message = f"the axis was merged as `{axis}`, and the pattern splits it in another order"
    names.context.report("E0409", message, size, helps=[f"write `{axis}`, and reorder in the result"])
    return True


def _known_size(names: Names, size: tree.Expr) -> Size | None:
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


def _solve(names: Names, size: tree.Merged, axis: Axis) -> list[Axis] | None:
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


def _part(names: Names, size: tree.Expr, part: Axis) -> Axis | None:
    size = bare(size)
    if isinstance(size, tree.Name):
        known = names.known(size.name)
        meant = known.name or size.name if known is not None else size.name
        named = Axis(meant, known.size if known is not None else part.size, (), part.batch)
        return named if names.bind(size.name, named, size) else None
    if isinstance(size, tree.Merged):
        return _merged(names, size, part)
    return part


# --- results -------------------------------------------------------------------------------------------------------


def result_axes(names: Names, sizes: Sequence[tree.Expr], *, new: bool = False) -> tuple[Axis, ...] | None:
    """The axes that the right side of a pattern writes; `new` lets it bring in axes that no operand has."""
    result: list[Axis] = []
    written: set[str] = set()
    for size in sizes:
        for name in leaf_names(size):
            if name in written:
                helps = ["give one of them another name, in its operand too: a new name stands for that axis"]
                message = f"`{name}` stands twice in the result of the pattern"
                names.context.report("E0405", message, size, helps=helps)
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


def _result_axis(names: Names, size: tree.Expr, new: bool) -> Axis | None:
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
            helps = (
                []
                if new
                else [
                    f"`rename` gives an axis another name: `rename(x, n={size.name})`",
                    f"`repeat` adds an axis: `repeat(b D -> b {size.name} D)`",
                ]
            )
            context.report("E0403", message, size, helps=helps)
        return axis
    return context.axis_of(size)


def leaves(axes: Sequence[Axis]) -> list[Axis]:
    return [leaf for axis in axes for leaf in (leaves(axis.parts) if axis.parts else [axis])]


def dropped(given: Sequence[Axis], kept: Sequence[Axis]) -> list[Axis]:
    """The leaves that are lost on the way, those of size 1 aside."""
    return [leaf for leaf in leaves(given) if leaf.size.constant != 1 and not contains(leaves(kept), leaf)]
