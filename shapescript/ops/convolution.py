"""Convolutions and poolings along axes of a value: what moves a window.

The operands go by place: x's axis at `channel` is read, and those at `spatial` are moved along; the weights are
`[made, read, window...]`, and the result's `axes` are x's but at `channel` and `spatial`; those of a pooling are x's
with `places` at `spatial`. `stride`,
`dilation` and `before` have a size for each axis of `spatial`; `before` is how much is filled in before the axis, or
`same`, the smaller half of what the window reaches over; what is filled in behind follows from the sizes. `groups`
parts of the channels are read each by its own weights.

A convolution and its two gradients are three ops, each of which has its gradients by the others: `conv` gives y of x
and w, `conv_transpose` x of y and w, `conv_weights` w of x and y. The first place of a window that holds a maximum
gets its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shapescript.ops.registry import MAP, SUM, WHOLE, Op, Role, Roles, RuleError, register
from shapescript.ops.rules import Attributes, Operands, attribute, axes_attribute, need_float, one_name, size_attribute
from shapescript.types.axes import Axis, same_axes
from shapescript.types.kinds import Tensor
from shapescript.types.size import Size

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node

MOVED = ("spatial", "stride", "before")
CONVOLVED = (*MOVED, "channel", "dilation", "groups")


def positions(attributes: Attributes, name: str = "spatial") -> tuple[int, ...]:
    """Where the axes stand that the window moves along."""
    found = attribute(attributes, name, tuple)
    if not all(isinstance(place, int) for place in found):
        raise TypeError(f"`{name}` holds something that is no place: {found!r}")
    return found


def exchanged(
    axes: Sequence[Axis],
    places: Sequence[int],
    new: Sequence[Axis],
    channel: int | None = None,
    made: Axis | None = None,
) -> tuple[Axis, ...]:
    """Axes with others at some places."""
    result = list(axes)
    for place, axis in zip(places, new, strict=True):
        result[place] = axis
    if channel is not None and made is not None:
        result[channel] = made
    return tuple(result)


def _floats(operands: Operands, name: str) -> Tensor:
    for number, operand in enumerate(operands):
        need_float(operand, name, number)
    return Tensor((), one_name(operands))


def _check_weights(weights: Tensor, spatial: Sequence[int], groups: Size, read: Axis, made: Axis, number: int) -> None:
    if len(weights.axes) != len(spatial) + 2:
        message = f"the weights have an axis for what is made, one for what is read, and {len(spatial)} of the window"
        raise RuleError("E0306", message, number)
    wanted = (made.size, read.size)
    found = (weights.axes[0].size, weights.axes[1].size * groups)
    if wanted != found:
        raise RuleError("E0302", f"weights `{weights}` don't make `{made}` of `{read}`", number)


def _side_rule(operands: Operands, attributes: Attributes, transposed: bool) -> Tensor:
    """One side of a convolution from the other: `axes` are those of the operand but at the channel and the places."""
    x, w = operands
    channel, axes = attribute(attributes, "channel", int), axes_attribute(attributes)
    places = (*positions(attributes), channel)
    if len(axes) != len(x.axes) or not same_axes(exchanged(x.axes, places, [axes[at] for at in places]), axes):
        raise RuleError("E0301", "a convolution leaves the axes that its window doesn't move along")
    read, made = (axes[channel], x.axes[channel]) if transposed else (x.axes[channel], axes[channel])
    _check_weights(w, positions(attributes), size_attribute(attributes, "groups"), read, made, 1)
    return Tensor(axes, _floats(operands, "conv").element)


def _conv_rule(operands: Operands, attributes: Attributes) -> Tensor:
    return _side_rule(operands, attributes, transposed=False)


def _transpose_rule(operands: Operands, attributes: Attributes) -> Tensor:
    return _side_rule(operands, attributes, transposed=True)


def _weights_rule(operands: Operands, attributes: Attributes) -> Tensor:
    x, y = operands
    spatial, channel = positions(attributes), attribute(attributes, "channel", int)
    rest = [axis for at, axis in enumerate(x.axes) if at not in (channel, *spatial)]
    others = [axis for at, axis in enumerate(y.axes) if at not in (channel, *spatial)]
    if not same_axes(rest, others):
        raise RuleError("E0301", f"`{x}` and `{y}` aren't the two sides of a convolution", 1)
    result = Tensor(axes_attribute(attributes), _floats(operands, "conv_weights").element)
    groups = size_attribute(attributes, "groups")
    _check_weights(result, spatial, groups, x.axes[channel], y.axes[channel], 0)
    return result


# --- layouts -------------------------------------------------------------------------------------------------------


def _along(axes: Sequence[Axis], channel: int, spatial: Sequence[int], word: str) -> list[Role]:
    """The axes that the window leaves alone: of x and the result, or of both operands, which are summed."""
    rest = [at for at in range(len(axes)) if at != channel and at not in spatial]
    if word == SUM:
        return [Role(axes[at], SUM, (at, at), None) for at in rest]
    return [Role(axes[at], MAP, (at, None), at) for at in rest]


def _windows(
    node: Node, first: Sequence[int], second: Sequence[int | None], result: Sequence[int | None]
) -> list[Role]:
    """Whole along the window: the axes at `first` of one operand, at `second` of the other and in the result."""
    roles = [Role(node.operands[0].axes[at], WHOLE, _pair(node, at, None), None) for at in first]
    roles += [Role(node.operands[1].axes[at], WHOLE, (None, at), None) for at in second if at is not None]
    return roles + [Role(node.axes[at], WHOLE, _pair(node, None, None), at) for at in result if at is not None]


def _pair(node: Node, first: int | None, second: int | None) -> tuple[int | None, ...]:
    return (first, second)[: len(node.operands)]


def _grouped(node: Node) -> bool:
    return size_attribute(node.attributes, "groups") != Size.of(1)


def _conv_roles(node: Node) -> Roles:
    x, w = node.operands
    spatial, channel = positions(node.attributes), attribute(node.attributes, "channel", int)
    whole = WHOLE if _grouped(node) else None
    transposed = node.name == "conv_transpose"
    read, made = (0, 1) if transposed else (1, 0)
    return (
        *_along(x.axes, channel, spatial, MAP),
        Role(x.axes[channel], whole or SUM, (channel, read), None),
        Role(node.axes[channel], whole or MAP, (None, made), channel),
        *_windows(node, spatial, range(2, len(w.axes)), spatial),
    )


def _weights_roles(node: Node) -> Roles:
    x, y = node.operands
    spatial, channel = positions(node.attributes), attribute(node.attributes, "channel", int)
    word = WHOLE if _grouped(node) else MAP
    return (
        *_along(x.axes, channel, spatial, SUM),
        Role(x.axes[channel], word, (channel, None), 1),
        Role(y.axes[channel], word, (None, channel), 0),
        *_windows(node, spatial, spatial, range(2, len(node.axes))),
    )


def _pool_roles(node: Node) -> Roles:
    spatial, count = positions(node.attributes), len(node.operands)
    axes = node.operands[0].axes
    roles = [Role(axes[at], MAP, (at,) * count, at) for at in range(len(axes)) if at not in spatial]
    for number, operand in enumerate(node.operands):
        alone = tuple(None for _ in range(count))
        roles += [Role(operand.axes[at], WHOLE, (*alone[:number], at, *alone[number + 1 :]), None) for at in spatial]
    return (*roles, *(Role(node.axes[at], WHOLE, (None,) * count, at) for at in spatial))


# --- gradients -----------------------------------------------------------------------------------------------------


def _moved(node: Node, names: Sequence[str] = CONVOLVED) -> dict[str, Any]:
    """How the window moves: what the ops of one convolution share."""
    return {name: node.attributes[name] for name in names if name in node.attributes}


def _at(axes: Sequence[Axis], places: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(axes[place] for place in places)


def _conv_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    """Of `conv` and of `conv_transpose`, each of which sends its gradient back by the other."""
    x, w = node.operands
    transposed = node.name == "conv_transpose"
    back = b.emit("conv" if transposed else "conv_transpose", dy, w, **_moved(node), axes=x.axes)
    wide, narrow = (dy, x) if transposed else (x, dy)
    return back, b.emit("conv_weights", wide, narrow, **_moved(node), axes=w.axes)


def _weights_gradient(b: Builder, node: Node, dw: Node) -> Sequence[Node | None]:
    x, y = node.operands
    to_x = b.emit("conv_transpose", y, dw, **_moved(node), axes=x.axes)
    to_y = b.emit("conv", x, dw, **_moved(node), axes=y.axes)
    return to_x, to_y


def _max_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return [b.emit("max_pool_spread", node.operands[0], dy, **_moved(node, (*MOVED, "window")))]


def _spread_gradient(b: Builder, node: Node, dx: Node) -> Sequence[Node | None]:
    x, dy = node.operands
    places = _at(dy.axes, positions(node.attributes))
    return None, b.emit("max_pool_pick", x, dx, **_moved(node, (*MOVED, "window")), places=places)


def _pick_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return None, b.emit("max_pool_spread", node.operands[0], dy, **_moved(node, (*MOVED, "window")))


def _average_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x = node.operands[0]
    name = "avg_pool" if node.name == "avg_pool_spread" else "avg_pool_spread"
    places = _at(x.axes, positions(node.attributes))
    return [b.emit(name, dy, **_moved(node, (*MOVED, "window")), places=places)]


# --- the ops -------------------------------------------------------------------------------------------------------


def _pool_rule(operands: Operands, attributes: Attributes) -> Tensor:
    x = operands[0]
    need_float(x, "a pooling")
    axes = exchanged(x.axes, positions(attributes), axes_attribute(attributes, "places"))
    return Tensor(axes, x.element)


def _spread_rule(operands: Operands, attributes: Attributes) -> Tensor:
    x, _ = operands
    return Tensor(x.axes, one_name(operands))


def _pick_rule(operands: Operands, attributes: Attributes) -> Tensor:
    x, _ = operands
    return Tensor(exchanged(x.axes, positions(attributes), axes_attribute(attributes, "places")), one_name(operands))


Rule = Callable[[Operands, Attributes], Tensor]
EACH = (frozenset({0}), frozenset({1}))
EXAMPLE = "sum(conv(ones[n 4 9], ones[C 4 3], over=9, pad=1), over=[n C 9])"

register(
    Op(
        "conv",
        "conv(x: [.. I ..], w: [O I k..], over=[h w], stride=1, pad=0, dilation=1, groups=1)",
        _conv_rule,
        "Weights moved along axes of x: each place of the result is their product with the window there.",
        "conv(ones[n 4 9], ones[C 4 3], over=9, pad=1)",
        _conv_roles,
        EACH,
        _conv_gradient,
    )
)
register(
    Op(
        "conv_transpose",
        "conv_transpose(x: [.. I ..], w: [I O k..], over=[h w], stride=1, pad=0, dilation=1, groups=1)",
        _transpose_rule,
        "The transpose of a convolution: each place of x is spread over its window, by the weights.",
        "conv_transpose(ones[n 4 9], ones[4 C 3], over=9, stride=2, pad=same)",
        _conv_roles,
        EACH,
        _conv_gradient,
    )
)
register(
    Op(
        "conv_weights",
        "conv_weights(x: [.. I ..], y: [.. O ..]) -> [O I k..]",
        _weights_rule,
        "The gradient of a convolution's weights: the products of both sides, summed over the places.",
        EXAMPLE,
        _weights_roles,
        EACH,
        _weights_gradient,
    )
)
register(
    Op(
        "max_pool",
        "max_pool(x, size, over=[h w], stride=size, pad=0)",
        _pool_rule,
        "The greatest value of each window; what is filled in is never the greatest.",
        "max_pool(ones[n 4 8], 2, over=8)",
        _pool_roles,
        gradient=_max_gradient,
    )
)
register(
    Op(
        "max_pool_spread",
        "max_pool_spread(x, dy)",
        _spread_rule,
        "The gradient of `max_pool`: each value goes to the first place of its window that holds the maximum.",
        "max_pool(ones[n 4 8], 2, over=8)",
        _pool_roles,
        (frozenset({1}),),
        _spread_gradient,
    )
)
register(
    Op(
        "max_pool_pick",
        "max_pool_pick(x, z)",
        _pick_rule,
        "The values of z where the windows of x have their maxima: the transpose of `max_pool_spread`.",
        "max_pool(ones[n 4 8], 2, over=8)",
        _pool_roles,
        (frozenset({1}),),
        _pick_gradient,
    )
)
register(
    Op(
        "avg_pool",
        "avg_pool(x, size, over=[h w], stride=size, pad=0)",
        _pool_rule,
        "The mean of each window; what is filled in counts as 0.",
        "avg_pool(ones[n 4 8], 2, over=8)",
        _pool_roles,
        (frozenset({0}),),
        _average_gradient,
    )
)
register(
    Op(
        "avg_pool_spread",
        "avg_pool_spread(dy)",
        _pool_rule,
        "The gradient of `avg_pool`: each value goes to the places of its window in equal shares.",
        "avg_pool(ones[n 4 8], 2, over=8)",
        _pool_roles,
        (frozenset({0}),),
        _average_gradient,
    )
)
