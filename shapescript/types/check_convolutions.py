"""Checks conv, conv_transpose, max_pool and avg_pool.

Takes calls; gives types and uses. `pad=same` gives `h/stride`, which must divide; a number gives PyTorch's size, in
which `h/stride` must divide too where it isn't known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shapescript.diagnostics.diagnostic import Label
from shapescript.ops.convolution import exchanged
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
    need_over,
    place_in,
    several_axes,
    tensor,
)
from shapescript.types.context import Arguments, Context, Operation
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


# --- conv ----------------------------------------------------------------------------------------------------------


def _convolution(name: str) -> Operation:
    transposed = name == "conv_transpose"

    def check(context: Context, node: tree.Expr, pattern: tree.Pattern | None, arguments: Arguments) -> Type:
        options = ["over", "stride", "pad", "dilation", "groups"]
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
    channel = _channel(context, x, w, inner, axes, ONE if transposed else groups)
    kernels = [Axis.of(axis.size) for axis in w.type.axes[2:]]
    windows = _windows(context, node, given, axes, kernels, "transpose" if transposed else "conv")
    if channel is None or windows is None:
        return None
    made = Axis.of(outer.size * groups) if transposed and groups != ONE else outer
    at = x.type.axes.index(channel)
    moved = _moved(x, windows, ("stride", "dilation"))
    places = moved.pop("places")
    assert isinstance(places, tuple)
    final = exchanged(x.type.axes, (*(x.type.axes.index(window.axis) for window in windows), at), (*places, made))
    name = "conv_transpose" if transposed else "conv"
    channel_at = place_in(x.type.axes, at)
    return apply(context, node, name, [x, w], channel=channel_at, groups=groups, axes=final, **moved)


def _moved(x: Value, windows: Sequence[_Window], options: Sequence[str]) -> dict[str, object]:
    """The attributes that say how the windows move."""
    return {
        "spatial": tuple(place_in(x.type.axes, x.type.axes.index(window.axis)) for window in windows),
        "places": tuple(window.result for window in windows),
        "before": tuple("same" if window.pad is None else window.pad for window in windows),
        **{option: tuple(getattr(window, option) for window in windows) for option in options},
    }


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


def _pool(name: str) -> Operation:
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
        kernels = [Axis.of(size) for size in sizes if size is not None]
        windows = _windows(context, node, given, axes, kernels, "pool") if len(kernels) == len(axes) else None
        if windows is None:
            return WRONG
        sizes_of = tuple(kernel.size for kernel in kernels)
        return finish(
            context, node, apply(context, node, name, [x], window=sizes_of, **_moved(x, windows, ("stride",)))
        )

    return check


FUNCTIONS: dict[str, Operation] = {
    "conv": _convolution("conv"),
    "conv_transpose": _convolution("conv_transpose"),
    "max_pool": _pool("max_pool"),
    "avg_pool": _pool("avg_pool"),
}
