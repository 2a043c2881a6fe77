"""Convolutions and poolings in torch: its own kernels, and those of its gradients.

Torch takes `[rows, channels, h, w]`; the axes go there and back by their places. What is filled in before and behind
is padded openly where the two differ, and cut where it is less than nothing. Half floats are added up in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from shapescript.devices.reference.lowering import Run, Step, ValueProblem, half, lowers, whole_number
from shapescript.ir.graph import Node
from shapescript.ops.convolution import positions

ATEN: Any = torch.ops.aten
MOST_AXES = 3


@dataclass(frozen=True)
class Window:
    """How a window moves along each axis, in one run; `wide` and `narrow` are the sizes on the two sides."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    wide: tuple[int, ...]
    narrow: tuple[int, ...]

    @property
    def after(self) -> tuple[int, ...]:
        """What is filled in behind each axis, as far as the last window reaches."""
        reach = [(n - 1) * d + 1 for n, d in zip(self.size, self.dilation, strict=True)]
        last = [(n - 1) * s + r for n, s, r in zip(self.narrow, self.stride, reach, strict=True)]
        return tuple(end - n - b for end, n, b in zip(last, self.wide, self.before, strict=True))

    @property
    def even(self) -> bool:
        """Whether the same is filled in before and behind, so that torch's kernel can do it."""
        return self.before == self.after and all(b >= 0 for b in self.before)

    @property
    def inside(self) -> tuple[int, ...]:
        """What torch's kernel fills in; where it can't, the value is padded before."""
        return self.before if self.even else (0,) * len(self.size)

    def padded(self, x: torch.Tensor, value: float = 0.0) -> torch.Tensor:
        """A wide value with what torch's kernel doesn't fill in itself."""
        return x if self.even else F.pad(x, self._amounts(1), value=value)

    def cut(self, x: torch.Tensor) -> torch.Tensor:
        """A wide value without it: the transpose of `padded`."""
        return x if self.even else F.pad(x, self._amounts(-1))

    @property
    def padded_sizes(self) -> tuple[int, ...]:
        """The sizes of a wide value so padded."""
        if self.even:
            return self.wide
        return tuple(n + b + a for n, b, a in zip(self.wide, self.before, self.after, strict=True))

    def _amounts(self, sign: int) -> list[int]:
        pairs = list(zip(self.before, self.after, strict=True))
        return [sign * amount for pair in reversed(pairs) for amount in pair]


def window_of(node: Node, run: Run, size: Sequence[int], wide: Sequence[int], narrow: Sequence[int]) -> Window:
    """The window of a node, with its sizes in a run."""

    def numbers(name: str) -> tuple[int, ...]:
        sizes = node.attributes.get(name)
        return tuple(whole_number(each, run) for each in sizes) if isinstance(sizes, tuple) else (1,) * len(size)

    stride, dilation = numbers("stride"), numbers("dilation")
    given = node.attributes["before"]
    assert isinstance(given, tuple)
    before = [
        max((n - 1) * d + 1 - s, 0) // 2 if each == "same" else whole_number(each, run)
        for each, n, s, d in zip(given, size, stride, dilation, strict=True)
    ]
    return Window(tuple(size), stride, dilation, tuple(before), tuple(wide), tuple(narrow))


class Rows:
    """A value as `[rows, channels, h, w]` and back: by the places of its channel's axis and of those moved along."""

    def __init__(self, rank: int, channel: int | None, spatial: Sequence[int]) -> None:
        kept = [at for at in range(rank) if at != channel and at not in spatial]
        self.kept = kept
        self.order = [*kept, *([channel] if channel is not None else []), *spatial]
        self.back = [self.order.index(at) for at in range(rank)]
        self.moved = len(self.order) - len(kept)

    def there(self, x: torch.Tensor) -> torch.Tensor:
        """The value as torch's kernels take it."""
        x = x.permute(self.order)
        rows = 1
        for n in x.shape[: len(self.kept)]:
            rows *= n
        return x.reshape(rows, *x.shape[len(self.kept) :])

    def here(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """What a kernel gave, with the axes of `like` that the window leaves alone."""
        rows = [like.shape[at] for at in self.kept]
        return x.reshape(*rows, *x.shape[1:]).permute(self.back)


def summed_wide(x: torch.Tensor) -> torch.Tensor:
    """Half floats as f32, in which they are added up."""
    return x.float() if half(x) and x.device.type == "cpu" else x


def _spatial(node: Node) -> tuple[int, ...]:
    spatial = positions(node.attributes)
    if len(spatial) > MOST_AXES:
        raise ValueProblem(f"`{node.name}` moves along {MOST_AXES} axes at most, and here are {len(spatial)}")
    return spatial


def _channel(node: Node) -> int:
    channel = node.attributes["channel"]
    assert isinstance(channel, int)
    return channel


def _sizes(x: torch.Tensor, spatial: Sequence[int]) -> list[int]:
    return [x.shape[at] for at in spatial]


def _result_sizes(node: Node, run: Run, spatial: Sequence[int]) -> list[int]:
    return [node.axes[at].size.evaluate(run.sizes) for at in spatial]


def _backward(
    window: Window, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, groups: int, which: tuple[bool, bool]
) -> torch.Tensor:
    """Torch's gradient of a convolution by its input or by its weights."""
    found = ATEN.convolution_backward(
        dy,
        x,
        w,
        None,
        list(window.stride),
        list(window.inside),
        list(window.dilation),
        False,
        [0] * len(window.size),
        groups,
        [*which, False],
    )
    result: torch.Tensor = found[0] if which[0] else found[1]
    return result


@lowers("conv")
def conv(node: Node, static: Mapping[str, int]) -> Step:
    """torch's convolution."""
    spatial, channel = _spatial(node), _channel(node)
    rows = Rows(len(node.axes), channel, spatial)

    def step(run: Run, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        groups = whole_number(node.attributes["groups"], run)
        window = window_of(node, run, w.shape[2:], _sizes(x, spatial), _result_sizes(node, run, spatial))
        flat = window.padded(summed_wide(rows.there(x)))
        weights = summed_wide(w)
        if flat.shape[0] == 0:
            return x.new_zeros([axis.size.evaluate(run.sizes) for axis in node.axes])
        y = ATEN.convolution(
            flat,
            weights,
            None,
            list(window.stride),
            list(window.inside),
            list(window.dilation),
            False,
            [0] * len(spatial),
            groups,
        )
        return rows.here(y.to(x.dtype), x)

    return step


@lowers("conv_transpose")
def conv_transpose(node: Node, static: Mapping[str, int]) -> Step:
    """torch's gradient of a convolution by its input."""
    spatial, channel = _spatial(node), _channel(node)
    rows = Rows(len(node.axes), channel, spatial)

    def step(run: Run, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        groups = whole_number(node.attributes["groups"], run)
        wide = _result_sizes(node, run, spatial)
        window = window_of(node, run, w.shape[2:], wide, _sizes(y, spatial))
        flat, weights = summed_wide(rows.there(y)), summed_wide(w)
        if flat.shape[0] == 0:
            return y.new_zeros([axis.size.evaluate(run.sizes) for axis in node.axes])
        like = flat.new_empty((1,)).expand(flat.shape[0], weights.shape[1] * groups, *window.padded_sizes)
        x = _backward(window, flat.contiguous(), like, weights, groups, (True, False))
        return rows.here(window.cut(x).to(y.dtype), y)

    return step


@lowers("conv_weights")
def conv_weights(node: Node, static: Mapping[str, int]) -> Step:
    """torch's gradient of a convolution by its weights."""
    spatial, channel = _spatial(node), _channel(node)
    rows = Rows(len(node.operands[0].axes), channel, spatial)

    def step(run: Run, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        groups = whole_number(node.attributes["groups"], run)
        shape = [axis.size.evaluate(run.sizes) for axis in node.axes]
        window = window_of(node, run, shape[2:], _sizes(x, spatial), _sizes(y, spatial))
        wide, narrow = window.padded(summed_wide(rows.there(x))), summed_wide(rows.there(y))
        if wide.shape[0] == 0:
            return x.new_zeros(shape)
        like = wide.new_empty((1,)).expand(shape)
        found = _backward(window, narrow.contiguous(), wide.contiguous(), like, groups, (False, True))
        return found.to(x.dtype)

    return step


# --- poolings ------------------------------------------------------------------------------------------------------


class Pooled:
    """A pooling's value as `[rows, 1, h, w]`, with one axis more where there is one alone."""

    def __init__(self, rank: int, spatial: Sequence[int]) -> None:
        self.rows = Rows(rank, None, spatial)
        self.lone = len(spatial) == 1

    def there(self, x: torch.Tensor) -> torch.Tensor:
        x = self.rows.there(x).unsqueeze(1)
        return x.unsqueeze(-2) if self.lone else x

    def here(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        x = (x.squeeze(-2) if self.lone else x).squeeze(1)
        return self.rows.here(x, like)

    def wide(self, numbers: Sequence[int], one: int = 1) -> list[int]:
        """Numbers for each axis, with one for the axis that isn't there."""
        return [one, *numbers] if self.lone else list(numbers)


def _pool_window(node: Node, run: Run, wide: Sequence[int], narrow: Sequence[int]) -> Window:
    sizes = node.attributes["window"]
    assert isinstance(sizes, tuple)
    window = window_of(node, run, [whole_number(each, run) for each in sizes], wide, narrow)
    # torch's poolings fill in half a window at most, and never unevenly: all of it is padded openly
    return window


def _padded(window: Window, pooled: Pooled, x: torch.Tensor, value: float, sign: int = 1) -> torch.Tensor:
    pairs = list(zip(window.before, window.after, strict=True))
    amounts = [sign * amount for pair in reversed(pairs) for amount in pair]
    return F.pad(x, amounts, value=value) if any(amounts) else x


def _maxima(window: Window, pooled: Pooled, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The maximum of each window of a padded value, and where it stands among the places of the value."""
    pool: Callable[..., Any] = ATEN.max_pool3d_with_indices if len(window.size) == 3 else ATEN.max_pool2d_with_indices
    values, places = pool(x, pooled.wide(window.size), pooled.wide(window.stride))
    return values, places


@lowers("max_pool")
def max_pool(node: Node, static: Mapping[str, int]) -> Step:
    """torch's max pooling."""
    spatial = _spatial(node)
    pooled = Pooled(len(node.axes), spatial)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        window = _pool_window(node, run, _sizes(x, spatial), _result_sizes(node, run, spatial))
        if x.numel() == 0:
            return x.new_zeros([axis.size.evaluate(run.sizes) for axis in node.axes])
        values, _ = _maxima(window, pooled, _padded(window, pooled, pooled.there(x), float("-inf")))
        return pooled.here(values, x)

    return step


@lowers("max_pool_spread")
def max_pool_spread(node: Node, static: Mapping[str, int]) -> Step:
    """Each value at the first place of its window that holds the maximum."""
    spatial = _spatial(node)
    pooled = Pooled(len(node.axes), spatial)

    def step(run: Run, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        if x.numel() == 0:
            return torch.zeros_like(x)
        window = _pool_window(node, run, _sizes(x, spatial), _sizes(dy, spatial))
        wide = _padded(window, pooled, pooled.there(x), float("-inf"))
        _, places = _maxima(window, pooled, wide)
        found = torch.zeros_like(wide).flatten(2)
        found.scatter_add_(2, places.flatten(2), pooled.there(dy).flatten(2))
        return pooled.here(_padded(window, pooled, found.reshape(wide.shape), 0.0, -1), x)

    return step


@lowers("max_pool_pick")
def max_pool_pick(node: Node, static: Mapping[str, int]) -> Step:
    """The values of another value where the maxima stand."""
    spatial = _spatial(node)
    pooled = Pooled(len(node.axes), spatial)

    def step(run: Run, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        if x.numel() == 0:
            return x.new_zeros([axis.size.evaluate(run.sizes) for axis in node.axes])
        window = _pool_window(node, run, _sizes(x, spatial), _result_sizes(node, run, spatial))
        _, places = _maxima(window, pooled, _padded(window, pooled, pooled.there(x), float("-inf")))
        other = _padded(window, pooled, pooled.there(z), 0.0).flatten(2)
        return pooled.here(other.gather(2, places.flatten(2)).reshape(places.shape), x)

    return step


@lowers("avg_pool")
def avg_pool(node: Node, static: Mapping[str, int]) -> Step:
    """torch's average pooling."""
    spatial = _spatial(node)
    pooled = Pooled(len(node.axes), spatial)

    def step(run: Run, x: torch.Tensor) -> torch.Tensor:
        window = _pool_window(node, run, _sizes(x, spatial), _result_sizes(node, run, spatial))
        if x.numel() == 0:
            return x.new_zeros([axis.size.evaluate(run.sizes) for axis in node.axes])
        wide = summed_wide(_padded(window, pooled, pooled.there(x), 0.0))
        pool: Callable[..., torch.Tensor] = F.avg_pool3d if len(spatial) == 3 else F.avg_pool2d
        return pooled.here(pool(wide, pooled.wide(window.size), pooled.wide(window.stride)).to(x.dtype), x)

    return step


@lowers("avg_pool_spread")
def avg_pool_spread(node: Node, static: Mapping[str, int]) -> Step:
    """torch's gradient of average pooling."""
    spatial = _spatial(node)
    pooled = Pooled(len(node.axes), spatial)

    def step(run: Run, dy: torch.Tensor) -> torch.Tensor:
        shape = [axis.size.evaluate(run.sizes) for axis in node.axes]
        if dy.numel() == 0:
            return dy.new_zeros(shape)
        window = _pool_window(node, run, [shape[at] for at in spatial], _sizes(dy, spatial))
        flat = summed_wide(pooled.there(dy)).contiguous()
        sizes = [n + b + a for n, b, a in zip(window.wide, window.before, window.after, strict=True)]
        like = flat.new_empty((1,)).expand(*flat.shape[:2], *pooled.wide(sizes))
        back: Callable[..., torch.Tensor] = ATEN.avg_pool3d_backward if len(spatial) == 3 else ATEN.avg_pool2d_backward
        none = [0] * len(pooled.wide(sizes))
        found = back(flat, like, pooled.wide(window.size), pooled.wide(window.stride), none, False, True, None)
        return pooled.here(_padded(window, pooled, found, 0.0, -1).to(dy.dtype), dy)

    return step
