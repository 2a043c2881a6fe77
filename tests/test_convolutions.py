"""Convolutions and poolings against torch's, their gradients too, in every way that a window moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs import Program, codes

HEAD = "dim I = 4\ndim O = 6\n"


def slopes(text: str, x: torch.Tensor, w: torch.Tensor, x_axes: str, w_axes: str, y_axes: str) -> tuple[Any, Any, Any]:
    """The result of `text`, an expression of m.x and m.w, and the gradients of the sum of its squares."""
    program = Program(
        HEAD
        + f"model M:\n    param x: [{x_axes}] f64 = zeros\n    param w: [{w_axes}] f64 = zeros\n"
        + f"fn loss(m: M) -> ([] f64, [{y_axes}] f64):\n    y = {text}\n    return sum(square(y), over=[{y_axes}]), y\n"
        + f"fn step(m: M) -> ([{y_axes}] f64, [{x_axes}] f64, [{w_axes}] f64):\n"
        + "    (l, y), g = value_and_grad(loss, m)\n    return y, g.x, g.w\n"
        + f"fn f(x: [{x_axes}] f64, w: [{w_axes}] f64) -> ([{y_axes}] f64, [{x_axes}] f64, [{w_axes}] f64):\n"
        + "    m = M(seed=0)\n    m.x = x\n    m.w = w\n    return step(m)\n"
    )
    found = program.call("f", x, w)
    assert isinstance(found, tuple)
    return found


def torchs(function: Any, x: torch.Tensor, w: torch.Tensor) -> tuple[Any, Any, Any]:
    x, w = x.clone().requires_grad_(True), w.clone().requires_grad_(True)
    y = function(x, w)
    return (y.detach(), *torch.autograd.grad(y.square().sum(), (x, w)))


def agree(got: tuple[Any, Any, Any], wanted: tuple[Any, Any, Any]) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-10)


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


CONVOLUTIONS = [
    ("over=[9 8]", (6, 4, 3, 3), "O I 3 3", "2 O 7 6", {}),
    ("over=[9 8], pad=1", (6, 4, 3, 3), "O I 3 3", "2 O 9 8", {"padding": 1}),
    ("over=[9 8], pad=same", (6, 4, 5, 3), "O I 5 3", "2 O 9 8", {"padding": (2, 1)}),
    ("over=[9 8], stride=2, pad=1", (6, 4, 3, 3), "O I 3 3", "2 O 5 4", {"stride": 2, "padding": 1}),
    (
        "over=[9 8], stride=(2, 1), pad=(0, 2)",
        (6, 4, 3, 3),
        "O I 3 3",
        "2 O 4 10",
        {"stride": (2, 1), "padding": (0, 2)},
    ),
    ("over=[9 8], dilation=2", (6, 4, 3, 3), "O I 3 3", "2 O 5 4", {"dilation": 2}),
    ("over=[9 8], groups=2, pad=1", (6, 2, 3, 3), "O I/2 3 3", "2 O 9 8", {"groups": 2, "padding": 1}),
]


@pytest.mark.parametrize(("options", "shape", "w_axes", "y_axes", "torch_options"), CONVOLUTIONS)
def test_convolutions(
    options: str, shape: tuple[int, ...], w_axes: str, y_axes: str, torch_options: dict[str, Any]
) -> None:
    x, w = values(2, 4, 9, 8), values(*shape)
    got = slopes(f"conv(m.x, m.w, {options})", x, w, "2 I 9 8", w_axes, y_axes)
    agree(got, torchs(lambda x, w: F.conv2d(x, w, **torch_options), x, w))


def test_each_channel_by_its_own_weights() -> None:
    x, w = values(2, 4, 9, 8), values(4, 1, 3, 3)
    got = slopes("conv(m.x, m.w, over=[9 8], groups=I, pad=1)", x, w, "2 I 9 8", "I 1 3 3", "2 I 9 8")
    agree(got, torchs(lambda x, w: F.conv2d(x, w, groups=4, padding=1), x, w))


def test_channels_may_stand_last() -> None:
    x, w = values(2, 9, 8, 4), values(6, 4, 3, 3)
    got = slopes("conv(m.x, m.w, over=[9 8], pad=1)", x, w, "2 9 8 I", "O I 3 3", "2 9 8 O")

    def wanted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x.permute(0, 3, 1, 2), w, padding=1).permute(0, 2, 3, 1)

    agree(got, torchs(wanted, x, w))


def test_along_one_axis_of_several_rows() -> None:
    x, w = values(2, 3, 4, 9), values(6, 4, 3)
    got = slopes("conv(m.x, m.w, over=9, pad=1, stride=2)", x, w, "2 3 I 9", "O I 3", "2 3 O 5")

    def wanted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x.flatten(0, 1), w, padding=1, stride=2).unflatten(0, (2, 3))

    agree(got, torchs(wanted, x, w))


def test_an_even_window_fills_in_one_more_behind() -> None:
    x, w = values(2, 4, 9), values(6, 4, 4)
    got = slopes("conv(m.x, m.w, over=9, pad=same)", x, w, "2 I 9", "O I 4", "2 O 9")
    agree(got, torchs(lambda x, w: F.conv1d(F.pad(x, (1, 2)), w), x, w))


def test_along_three_axes() -> None:
    x, w = values(2, 4, 5, 7, 3), values(6, 4, 3, 3, 3)
    got = slopes("conv(m.x, m.w, over=[5 7 3], pad=1)", x, w, "2 I 5 7 3", "O I 3 3 3", "2 O 5 7 3")
    agree(got, torchs(lambda x, w: F.conv3d(x, w, padding=1), x, w))


TRANSPOSED = [
    ("over=[9 8]", (4, 6, 3, 3), "I O 3 3", "2 O 11 10", {}),
    ("over=[9 8], stride=2, pad=1", (4, 6, 4, 4), "I O 4 4", "2 O 18 16", {"stride": 2, "padding": 1}),
    ("over=[9 8], stride=2, pad=same", (4, 6, 4, 4), "I O 4 4", "2 O 18 16", {"stride": 2, "padding": 1}),
    ("over=[9 8], dilation=2, pad=1", (4, 6, 3, 3), "I O 3 3", "2 O 11 10", {"dilation": 2, "padding": 1}),
    ("over=[9 8], groups=2", (4, 3, 3, 3), "I 3 3 3", "2 6 11 10", {"groups": 2}),
]


@pytest.mark.parametrize(("options", "shape", "w_axes", "y_axes", "torch_options"), TRANSPOSED)
def test_transposed(
    options: str, shape: tuple[int, ...], w_axes: str, y_axes: str, torch_options: dict[str, Any]
) -> None:
    x, w = values(2, 4, 9, 8), values(*shape)
    got = slopes(f"conv_transpose(m.x, m.w, {options})", x, w, "2 I 9 8", w_axes, y_axes)
    agree(got, torchs(lambda x, w: F.conv_transpose2d(x, w, **torch_options), x, w))


POOLS = [
    ("max_pool(m.x * m.w, 2, over=[9 8], stride=(1, 2))", "2 I 8 4", lambda z: F.max_pool2d(z, 2, (1, 2))),
    ("max_pool(m.x * m.w, 3, over=[9 8], stride=2, pad=1)", "2 I 5 4", lambda z: F.max_pool2d(z, 3, 2, 1)),
    ("max_pool(m.x * m.w, 2, over=8)", "2 I 9 4", lambda z: F.max_pool2d(z, (1, 2))),
    ("max_pool(m.x * m.w, (3, 2), over=[9 8])", "2 I 3 4", lambda z: F.max_pool2d(z, (3, 2))),
    ("avg_pool(m.x * m.w, 2, over=[9 8], stride=(1, 2))", "2 I 8 4", lambda z: F.avg_pool2d(z, 2, (1, 2))),
    ("avg_pool(m.x * m.w, 3, over=[9 8], stride=2, pad=1)", "2 I 5 4", lambda z: F.avg_pool2d(z, 3, 2, 1)),
]


@pytest.mark.parametrize(("text", "y_axes", "function"), POOLS)
def test_poolings(text: str, y_axes: str, function: Any) -> None:
    x, w = values(2, 4, 9, 8), values(2, 4, 9, 8).flip(2)
    got = slopes(text, x, w, "2 I 9 8", "2 I 9 8", y_axes)
    agree(got, torchs(lambda x, w: function(x * w), x, w))


def test_a_convolution_of_no_rows() -> None:
    text = (
        HEAD + "fn f(x: [b I 9], w: [O I 3]) -> [b O 9]:\n    return max_pool(conv(x, w, over=9, pad=1), 1, over=9)\n"
    )
    assert tuple(Program(text).call("f", torch.zeros(0, 4, 9), torch.zeros(6, 4, 3)).shape) == (0, 6, 9)


@pytest.mark.parametrize("element", [torch.float16, torch.bfloat16])
def test_half_floats_are_added_up_in_f32(element: torch.dtype) -> None:
    name = "f16" if element == torch.float16 else "bf16"
    text = f"fn f(x: [b 4096 4] {name}, w: [1 4096 1] {name}) -> [b 1 4] {name}:\n    return conv(x, w, over=4)\n"
    got = Program(text).call("f", torch.ones(1, 4096, 4, dtype=element), torch.ones(1, 4096, 1, dtype=element))
    assert (got.float() == 4096).all()


def test_what_does_not_fit() -> None:
    def of(body: str, x: str = "b I 9 8", w: str = "O I 3 3") -> list[str]:
        return codes(HEAD + f"fn f(x: [{x}], w: [{w}]) -> []:\n    y = {body}\n    return 0 as []\n")

    assert of("conv(x, w, over=[9 8])", w="O 8 3 3") == ["E0302"]
    assert of("conv(x, w, over=[9 8])", w="O I 3") == ["E0306"]
    assert of("conv(x, w)") == ["E0304"]
    assert of("conv(x, w, over=[9 8], groups=3)") == ["E0302"]
    assert of("max_pool(x, 3, over=[9 I Q])") == ["E0305"]
