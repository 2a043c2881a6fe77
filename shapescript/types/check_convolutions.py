"""Checks conv, conv_transpose, max_pool and avg_pool.

Takes calls; gives types and uses made of `gather`, `where` and `contract`: each axis of `over` becomes two, the place
in the result and the place in the window, by an index computed from both; what lies outside is filled in. `pad=same`
gives `h/stride`, which must divide; a number gives PyTorch's size, in which `h/stride` must divide too where it isn't
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import Axis, contains, places
from shapescript.types.check_operators import report_elements
from shapescript.types.check_values import (
    Given,
    Value,
    apply,
    arguments_of,
    bare,
    finish,
    fixed,
    hidden_axis,
    need_over,
    relabel,
    several_axes,
    tensor,
)
from shapescript.types.context import Arguments, Context, Operation
from shapescript.types.element import I64, Element
from shapescript.types.kinds import WRONG, Type
from shapescript.types.size import Size, SizeError

ONE = Size.of(1)


@dataclass(frozen=True)
class _Window:
    """How a window moves along one axis; `pad` is None for `same`."""

    axis: Axis
    kernel: Axis
    result: Axis
    stride: Size
    dilation: Size
    pad: Size | None
    transposed: bool = False


def _option(context: Context, given: Given, name: str, default: Size, at: int, count: int) -> Size | None:
    """`stride=2` or `stride=(2, 1)` for one of `count` axes."""
    expr = given.get(name)
    if expr is None:
        return default
    pair = bare(expr)
    if isinstance(pair, tree.Tuple):
        if len(pair.items) != count:
            context.report("E0607", f"`{name}` has one number, or one for each axis of `over`", expr)
            return None
        expr = pair.items[at]
    size = context.size_of(expr)
    if size is None:
        context.report("E0312", f"`{name}` isn't known as a size", expr)
    return size


def _is_same(given: Given) -> bool:
    pad = given.get("pad")
    pad = bare(pad) if pad is not None else None
    return isinstance(pad, tree.Name) and pad.name == "same"


def _windows(
    context: Context, node: tree.Expr, given: Given, axes: Sequence[Axis], kernels: Sequence[Axis], kind: str
) -> list[_Window] | None:
    """The windows of a call; `kind` is `conv`, `transpose` or `pool`."""
    found: list[_Window] = []
    count = len(axes)
    for at, (axis, kernel) in enumerate(zip(axes, kernels, strict=True)):
        stride = _option(context, given, "stride", kernel.size if kind == "pool" else ONE, at, count)
        dilation = _option(context, given, "dilation", ONE, at, count)
        pad = None if _is_same(given) else _option(context, given, "pad", Size.of(0), at, count)
        if stride is None or dilation is None or (pad is None and not _is_same(given)):
            return None
        try:
            size = _result_size(axis.size, kernel.size, stride, dilation, pad, kind)
        except SizeError:
            size = None
        constant = size.constant if size is not None else None
        if size is None or (not size.atoms and constant is None) or (constant is not None and constant < 1):
            helps = [
                "write the kernel, the stride and the padding as numbers",
                "`pad=same` gives the size over the stride",
            ]
            context.report("E0307", f"the size that `{axis}` becomes isn't known", node, helps=helps)
            return None
        result = axis if size == axis.size else Axis(None, size, (), axis.batch)
        found.append(_Window(axis, kernel, result, stride, dilation, pad, kind == "transpose"))
    return found


def _result_size(axis: Size, kernel: Size, stride: Size, dilation: Size, pad: Size | None, kind: str) -> Size | None:
    reach = (kernel - 1) * dilation
    if kind == "transpose":
        return axis * stride if pad is None else (axis - 1) * stride - 2 * pad + reach + 1
    if pad is None:
        return axis / stride
    rest = 2 * pad - reach - 1
    if stride == ONE:
        return axis + rest + 1
    step, whole, odd = stride.constant, (axis + rest).constant, rest.constant
    if step is not None and whole is not None:
        return Size.of(whole // step + 1)
    if step is not None and odd is not None:
        return axis / stride + (odd // step + 1)
    exact = (axis + rest) / stride + 1
    return exact if kind == "pool" else None


# --- gathering -----------------------------------------------------------------------------------------------------


class _Builder:
    """Whole-number arithmetic on places; None goes through, since its error is reported."""

    def __init__(self, context: Context, node: tree.Expr) -> None:
        self.context, self.node = context, node

    def op(self, name: str, *values: Value | None, **attributes: object) -> Value | None:
        known = [value for value in values if value is not None]
        return apply(self.context, self.node, name, known, **attributes) if len(known) == len(values) else None

    def size(self, size: Size) -> Value | None:
        if size.constant is not None:
            return fixed(size.constant, I64, self.node)
        return self.op("size", over=Axis.of(size), element=I64)

    def steps(self, axis: Axis, step: Size, axes: tuple[Axis, ...]) -> Value | None:
        """The place along an axis times a step, at each place of `axes`."""
        scaled = self.op("multiply", self.op("iota", over=axis, element=I64), self.size(step))
        return self.op("broadcast", scaled, axes=axes)


def _before(build: _Builder, window: _Window) -> Value | None:
    """How much is filled in before the axis; for `same`, the smaller half of what the window reaches over."""
    if window.pad is not None:
        return build.size(window.pad)
    reach = build.size((window.kernel.size - 1) * window.dilation + 1)
    over = build.op("subtract", reach, build.size(window.stride))
    zero = fixed(0, I64, build.node)
    return build.op("floor_divide", build.op("maximum", over, zero), fixed(2, I64, build.node))


def _place(node: tree.Expr, window: _Window, at: int) -> Axis:
    """The result's axis, under a name of its own while the windows are gathered."""
    return hidden_axis(node, f"place{at}", window.result.size, batch=window.result.batch)


def _gather(build: _Builder, value: Value, window: _Window, at: int, filler: float) -> Value | None:
    """The value with an axis turned into the result's and the window's, outside of which `filler` stands."""
    place = _place(build.node, window, at)
    axes = (place, window.kernel)
    along = build.steps(place, ONE if window.transposed else window.stride, axes)
    inside = build.steps(window.kernel, window.dilation, axes)
    zero, one = fixed(0, I64, build.node), fixed(1, I64, build.node)
    meets: Value | None = None
    if window.transposed:
        wide = build.op("subtract", build.op("add", along, _before(build, window)), inside)
        step = build.size(window.stride)
        meets = build.op("equal", build.op("remainder", wide, step), zero)
        index = build.op("floor_divide", wide, step)
    else:
        index = build.op("subtract", build.op("add", along, inside), _before(build, window))
    length = build.size(window.axis.size)
    good = build.op("and", build.op("greater_equal", index, zero), build.op("less", index, length))
    good = build.op("and", good, meets) if window.transposed else good
    last = build.op("subtract", length, one)
    near = build.op("minimum", build.op("maximum", index, zero), last)
    near = build.op("refine", near, element=Element.index(window.axis.size))
    looked = build.op("gather", value, near, over=window.axis)
    return build.op("where", good, looked, fixed(filler, value.type.element.base, build.node))


def _all_windows(
    build: _Builder, value: Value, windows: Sequence[_Window], filler: float
) -> tuple[Value, dict[str, Axis]] | None:
    """The value with every axis of `over` gathered, and the result's axis for each place's name."""
    current: Value | None = value
    named: dict[str, Axis] = {}
    for at, window in enumerate(windows):
        current = _gather(build, current, window, at, filler) if current is not None else None
        named[str(_place(build.node, window, at))] = window.result
    return (current, named) if current is not None else None


# --- conv ----------------------------------------------------------------------------------------------------------


def _convolution(name: str) -> Operation:
    transposed = name == "conv_transpose"

    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        options = ["over", "stride", "pad", "dilation"] + ([] if transposed else ["groups"])
        given = arguments_of(context, node, name, arguments, ["x", "w"], [], options)
        if given is None:
            return WRONG
        x, w = tensor(context, given["x"], f"`{name}`"), tensor(context, given["w"], f"`{name}`'s weights")
        if x is None or w is None:
            return WRONG
        over = need_over(context, node, name, given, x)
        axes = several_axes(context, over, x, f"`{name}`") if over is not None else None
        if axes is None:
            return WRONG
        if x.type.element.name != w.type.element.name:
            report_elements(context, node, x, w)
            return WRONG
        return finish(context, node, _convolve(context, node, given, x, w, axes, transposed))

    return check


def _convolve(
    context: Context, node: tree.Expr, given: Given, x: Value, w: Value, axes: tuple[Axis, ...], transposed: bool
) -> Value | None:
    shape = "I O" if transposed else "O I"
    if len(w.type.axes) != len(axes) + 2:
        kernel = " ".join(f"k{axis.name or ''}" for axis in axes)
        message = f"the weights of this have {len(axes) + 2} axes, `[{shape} {kernel}]`"
        context.report("E0306", message, w.node, f"this is `{w.type}`")
        return None
    outer, inner = (w.type.axes[1], w.type.axes[0]) if transposed else (w.type.axes[0], w.type.axes[1])
    groups = _option(context, given, "groups", ONE, 0, 1)
    if groups is None:
        return None
    channel = _channel(context, x, w, inner, axes, groups)
    kernels = [hidden_axis(node, f"window{at}", axis.size) for at, axis in enumerate(w.type.axes[2:])]
    windows = _windows(context, node, given, axes, kernels, "transpose" if transposed else "conv")
    if channel is None or windows is None:
        return None
    # Names of their own for the time of the product: two axes of a weight may be one ([C C 3 3]).
    group, part, made = (
        hidden_axis(node, "group", groups),
        hidden_axis(node, "channel", inner.size),
        hidden_axis(node, "made", outer.size / groups),
    )
    read = Axis.merged([group, part])
    left = relabel(context, x, tuple(read if axis is channel else axis for axis in x.type.axes))
    flat = [leaf for axis in x.type.axes for leaf in ([group, part] if axis is channel else [axis])]
    build = _Builder(context, node)
    left = build.op("rearrange", left, axes=tuple(flat))
    grouped = Axis.merged([group, made])
    pair = (part, grouped) if transposed else (grouped, part)
    right = build.op("relabel", w, axes=(*pair, *kernels))
    right = build.op("rearrange", right, axes=(group, made, part, *kernels))
    gathered = _all_windows(build, left, windows, 0.0) if left is not None else None
    if gathered is None:
        return None
    value, named = gathered
    kept = tuple(made if axis == part else axis for axis in value.type.axes if axis not in kernels)
    product = build.op("contract", value, right, axes=kept)
    merged = tuple(grouped if axis == made else axis for axis in kept if axis != group)
    product = build.op("rearrange", product, axes=merged)
    final = tuple(outer if axis == grouped else named.get(axis.name or "", axis) for axis in merged)
    return build.op("relabel", product, axes=final)


def _channel(context: Context, x: Value, w: Value, inner: Axis, over: Sequence[Axis], groups: Size) -> Axis | None:
    """The axis of x that the weights read."""
    rest = [axis for axis in x.type.axes if not contains(over, axis)]
    wanted = inner if groups == ONE else Axis.of(inner.size * groups)
    found = places(wanted, rest)
    if len(found) == 1:
        return rest[found[0]]
    here = [Label(context.span(x.node), f"this is `{x.type}`")]
    message = f"the weights read the axis `{wanted}`, which the value {'has twice' if found else 'lacks'}"
    context.report("E0302", message, w.node, f"this is `{w.type}`", here)
    return None


def _pool(name: str, op: str, filler: float) -> Operation:
    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        given = arguments_of(context, node, name, arguments, ["x", "size"], [], ["over", "stride", "pad"])
        x = tensor(context, given["x"], f"`{name}`") if given is not None else None
        over = need_over(context, node, name, given, x) if given is not None and x is not None else None
        axes = several_axes(context, over, x, f"`{name}`") if over is not None and x is not None else None
        if given is None or x is None or axes is None:
            return WRONG
        if not x.type.element.is_float:
            context.report("E0509", f"`{name}` takes floats, and this is `{x.type}`", x.node)
            return WRONG
        sizes = [_option(context, given, "size", ONE, at, len(axes)) for at in range(len(axes))]
        kernels = [hidden_axis(node, f"window{at}", size) for at, size in enumerate(sizes) if size is not None]
        windows = _windows(context, node, given, axes, kernels, "pool") if len(kernels) == len(axes) else None
        build = _Builder(context, node)
        gathered = _all_windows(build, x, windows, filler) if windows is not None else None
        if gathered is None:
            return WRONG
        value, named = gathered
        pooled = build.op(op, value, over=tuple(kernels))
        if pooled is None:
            return WRONG
        final = tuple(named.get(axis.name or "", axis) for axis in pooled.type.axes)
        return finish(context, node, build.op("relabel", pooled, axes=final))

    return check


FUNCTIONS: dict[str, Operation] = {
    "conv": _convolution("conv"),
    "conv_transpose": _convolution("conv_transpose"),
    "max_pool": _pool("max_pool", "max", float("-inf")),
    "avg_pool": _pool("avg_pool", "mean", 0.0),
}
