"""What tensor expressions compute, against torch: patterns, indexing, makers, convolutions, attention."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from shapescript.controller.host_builtins import HOST
from shapescript.controller.host_domain import HostDomain, host_evaluator
from shapescript.controller.output import Output
from shapescript.diagnostics.render import render_all
from shapescript.placement.kinds import Kind, place_functions
from shapescript.source import Source
from shapescript.specialise.values import DeviceTensor
from shapescript.syntax.parse import parse
from shapescript.types.axes import Axis
from shapescript.types.checker import check_program
from shapescript.types.element import Element

HEAD = """devices cpu

dim D  = 6
dim H  = 3
dim Dh = D / H
dim C  = 4
dim V  = 5
dim T  = 8
dim Y  = 7
dim X  = 6

"""
NAMES = {torch.float32: "f32", torch.int64: "i64", torch.bool: "bool"}


def run(body: str, tmp: Path, *arguments: object) -> object:
    """The result of the function f of `body`."""
    source = Source("program.ss", HEAD + body)
    program = check_program(source, parse(source))
    assert not program.diagnostics, render_all(program.diagnostics)
    kinds = place_functions(program)
    output = Output("program", tmp, io.StringIO(), io.StringIO())
    domain = HostDomain(
        program,
        program.known_sizes(),
        lambda function: kinds[function].kind is Kind.DEVICE,
        output,
        HOST,
        seed=0,
    )
    info = program.functions["f"]
    values = {p.name: given(a) for p, a in zip(info.parameters, arguments, strict=True)}
    result = host_evaluator(domain).apply(info, values)[0]
    return tuple(map(plain, result)) if isinstance(result, tuple) else plain(result)


def given(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    axes = tuple(Axis.named(f"given{place}") for place in range(value.dim()))
    return DeviceTensor(value, axes, Element(NAMES[value.dtype]))


def plain(value: object) -> object:
    return value.data if isinstance(value, DeviceTensor) else value


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def heads(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:-1], 3, 2).movedim(-2, 1)


x, w, q = numbers(2, 3, 6), numbers(6, 5), numbers(2, 3, 18)
image, kernel, narrow = numbers(2, 4, 7, 6), numbers(5, 4, 3, 3), numbers(4, 4, 2, 2)
k, v, tokens = numbers(2, 8, 6), numbers(2, 8, 6), torch.tensor([[4, 0, 0], [1, 2, 3]])
Case = tuple[str, tuple[object, ...], Callable[[], Tensor]]

CASES: list[Case] = [
    ("(x: [b n D], w: [D V]) -> [b n V]: return x @ w", (x, w), lambda: x @ w),
    (
        "(a: [D D], b: [D D]) -> [D D]: return a @ b",
        (x[0].T @ x[0], x[1].T @ x[1]),
        lambda: x[0].T @ x[0] @ x[1].T @ x[1],
    ),
    ("(x: [b n D]) -> [n D b]: return rearrange(x: b n D -> n D b)", (x,), lambda: x.permute(1, 2, 0)),
    ("(x: [b n D]) -> [b H n Dh]: return rearrange(x: b n (H Dh) -> b H n Dh)", (x,), lambda: heads(x)),
    (
        "(x: [b n D]) -> [b n D]: return rearrange(x: b n (H Dh) -> b H n Dh) |> rearrange(b H n Dh -> b n (H Dh))",
        (x,),
        lambda: x,
    ),
    ("(x: [b n D]) -> [b n 1 D]: return rearrange(x: b n D -> b n 1 D)", (x,), lambda: x.unsqueeze(2)),
    ("(x: [b n D]) -> [b n V D]: return repeat(x: b n D -> b n V D)", (x,), lambda: x.unsqueeze(2).expand(2, 3, 5, 6)),
    ("(a: [n], b: [n]) -> []: return einsum(a, b: n, n -> )", (x[0, 0], x[1, 1]), lambda: x[0, 0] @ x[1, 1]),
    (
        "(a: [b n D], w: [D V], u: [V D]) -> [b n D]: return einsum(a, w, u: b n D, D V, V e -> b n e) |> rename(e=D)",
        (x, w, w.T.contiguous()),
        lambda: x @ w @ w.T,
    ),
    ("(x: [b n D]) -> [b D]: return x[n=1]", (x,), lambda: x[:, 1]),
    ("(x: [b n D]) -> [b D]: return x[n=-1]", (x,), lambda: x[:, -1]),
    ("(x: [b n D], k: int) -> [b n]: return x[D=k]", (x, 2), lambda: x[:, :, 2]),
    ("(x: [b n D]) -> [b n-1 D]: return x[n=1..] - x[n=..-1]", (x,), lambda: x[:, 1:] - x[:, :-1]),
    ("(x: [b n D], p: [T D]) -> [b n D]: return x + p[T=..n]", (x, k[0]), lambda: x + k[0][:3]),
    ("(t: [V D], i: [b n] Index[V]) -> [b n D]: return t[i]", (w.T.contiguous(), tokens), lambda: w.T[tokens]),
    (
        "(z: [b n V], i: [b n] Index[V]) -> [b n]: return z[V=i]",
        (x @ w, tokens),
        lambda: (x @ w).gather(2, tokens.unsqueeze(2)).squeeze(2),
    ),
    ("(x: [b n D]) -> [D]: return x[n=0][0]", (x,), lambda: x[0, 0]),
    (
        "(i: [b n] Index[V]) -> [V]: return scatter_add(ones[b n], i, over=V)",
        (tokens,),
        lambda: torch.bincount(tokens.flatten(), minlength=5).float(),
    ),
    ("(x: [b n D], y: [b T D]) -> [b n+T D]: return concat(x, y)", (x, k), lambda: torch.cat((x, k), 1)),
    (
        "(x: [b D], y: [b D]) -> [b 2 D]: return stack(x, y) |> rearrange(two b D -> b two D)",
        (x[0], x[1]),
        lambda: torch.stack((x[0], x[1]), 1),
    ),
    ("(x: [b n D]) -> [b n+3 D]: return pad(x, n=(1, 2), value=7)", (x,), lambda: F.pad(x, (0, 0, 1, 2), value=7.0)),
    ("(x: [b n D]) -> [b n D]: return roll(x, D=-1) + flip(x, over=n)", (x,), lambda: x.roll(-1, 2) + x.flip(1)),
    ("(i: [b n] Index[V]) -> [b n V]: return one_hot(i, over=V)", (tokens,), lambda: F.one_hot(tokens, 5).float()),
    ("(x: [b n D]) -> [b n 2]: best, _ = topk(x, 2, over=D); return best", (x,), lambda: x.topk(2).values),
    ("(x: [b n D]) -> [b n D]: best, _ = topk(x, D, over=D); return best", (x,), lambda: x.topk(x.shape[2]).values),
    (
        "(x: [b n D]) -> [b n D-1]: best, _ = topk(x, D - 1, over=D); return best",
        (x,),
        lambda: x.topk(x.shape[2] - 1).values,
    ),
    (
        "(x: [n m]) -> [n m]: return masked_fill(x, !causal[n m], 0) + eye[n m]",
        (x[0, :, :3],),
        lambda: x[0, :, :3].tril() + torch.eye(3),
    ),
    (
        "(x: [b D]) -> [b D]: return leaky_relu(x) + clamp(x, -0.5, 0.5)",
        (x[0],),
        lambda: F.leaky_relu(x[0]) + x[0].clamp(-0.5, 0.5),
    ),
    (
        "(x: [b D]) -> [b D]: return gelu(x) + gelu(x, approximate=true)",
        (x[0],),
        lambda: F.gelu(x[0]) + F.gelu(x[0], approximate="tanh"),
    ),
    (
        "(x: [b D]) -> [b D]: return x ** 2 + x ** 3 - 2 / (1 + exp(x))",
        (x[0],),
        lambda: x[0] ** 2 + x[0] ** 3 - 2 / (1 + x[0].exp()),
    ),
    ("(x: [b n] i64, y: [b n] i64) -> [b n]: return x / (y + 1)", (tokens, tokens), lambda: tokens / (tokens + 1)),
    ("(x: [b n] i64) -> [b n] i64: return x // 2 * 10 + x % 2", (tokens,), lambda: tokens // 2 * 10 + tokens % 2),
    ("(x: [b n D]) -> [b]: return mean(x > 0, over=[n D])", (x,), lambda: (x > 0).float().mean((1, 2))),
    ("(x: [b n D]) -> [b] i64: return sum(x > 0, over=[n D])", (x,), lambda: (x > 0).sum((1, 2))),
    ("(p: [b D] Prob) -> [b D] NonNeg: return sqrt(1 - p)", (x[0].sigmoid(),), lambda: (1 - x[0].sigmoid()).sqrt()),
    (
        "(q: [b n D], k: [b T D], v: [b T D]) -> [b n D]: return attention(q, k, v: b n D, b m D, b m D -> b n D)",
        (x, k, v),
        lambda: F.scaled_dot_product_attention(x, k, v),
    ),
    (
        "(x: [b n D]) -> [b n D]: return attention(x, x, x: b n D, b m D, b m D -> b n D, mask=causal[n m])",
        (x,),
        lambda: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    ),
    (
        "(x: [b C Y X], w: [V C 3 3]) -> [b V Y X]: return conv(x, w, over=[Y X], pad=same)",
        (image, kernel),
        lambda: F.conv2d(image, kernel, padding=1),
    ),
    (
        "(x: [b C 7 6], w: [V C 3 3]) -> [b V 4 3]: return conv(x, w, over=[7 6], stride=2, pad=1)",
        (image, kernel),
        lambda: F.conv2d(image, kernel, stride=2, padding=1),
    ),
    (
        "(x: [b C Y X], w: [V C 3 3]) -> [b V Y-4 X-4]: return conv(x, w, over=[Y X], dilation=2)",
        (image, kernel),
        lambda: F.conv2d(image, kernel, dilation=2),
    ),
    (
        "(x: [b C Y X], w: [C C/2 3 3]) -> [b C Y X]: return conv(x, w, over=[Y X], pad=1, groups=2)",
        (image, kernel[:4, :2].contiguous()),
        lambda: F.conv2d(image, kernel[:4, :2], padding=1, groups=2),
    ),
    (
        "(x: [b C T], w: [V C 3]) -> [b V T/2]: return conv(x, w, over=T, stride=2, pad=1)",
        (numbers(2, 4, 8), numbers(5, 4, 3)),
        lambda: F.conv1d(numbers(2, 4, 8), numbers(5, 4, 3), stride=2, padding=1),
    ),
    (
        "(x: [b C Y X], w: [C C 2 2]) -> [b C 2*Y 2*X]: return conv_transpose(x, w, over=[Y X], stride=2)",
        (image, narrow),
        lambda: F.conv_transpose2d(image, narrow, stride=2),
    ),
    (
        "(x: [b C Y X], w: [C V 3 3]) -> [b V Y X]: return conv_transpose(x, w, over=[Y X], pad=1)",
        (image, kernel.transpose(0, 1).contiguous()),
        lambda: F.conv_transpose2d(image, kernel.transpose(0, 1), padding=1),
    ),
    (
        "(x: [b C T]) -> [b C T/2]: return max_pool(x, 2, over=T)",
        (numbers(2, 4, 8),),
        lambda: F.max_pool1d(numbers(2, 4, 8), 2),
    ),
    (
        "(x: [b C 7 6]) -> [b C 4 3]: return max_pool(x, 3, over=[7 6], stride=2, pad=1)",
        (image,),
        lambda: F.max_pool2d(image, 3, 2, 1),
    ),
    (
        "(x: [b C T]) -> [b C T/4]: return avg_pool(x, 4, over=T)",
        (numbers(2, 4, 8),),
        lambda: F.avg_pool1d(numbers(2, 4, 8), 4),
    ),
]


def shown(case: Case) -> str:
    return case[0][:60]


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_against_torch(case: Case, tmp_path: Path) -> None:
    head, body = case[0].split(": return", 1) if "; " not in case[0] else case[0].split(": best", 1)
    lines = ["return" + body] if "; " not in case[0] else ("best" + body).split("; ")
    text = f"fn f{head}:\n" + "".join(f"    {line}\n" for line in lines)
    result = run(text, tmp_path, *case[1])
    wanted = case[2]()
    assert isinstance(result, Tensor)
    assert result.shape == wanted.shape
    torch.testing.assert_close(result, wanted)


def test_split_gives_each_part(tmp_path: Path) -> None:
    text = (
        "fn f(x: [b n 3*D]) -> ([b H n Dh], [b H n Dh], [b H n Dh]):\n    return split(x: b n (3 H Dh) -> b H n Dh)\n"
    )
    result = run(text, tmp_path, q)
    assert isinstance(result, tuple)
    for part, wanted in zip(result, q.chunk(3, -1), strict=True):
        torch.testing.assert_close(part, heads(wanted))


def test_draws_have_the_right_spread(tmp_path: Path) -> None:
    text = (
        "fn f() -> ([], [], [] i64, []):\n"
        "    z = normal[1000 D](std=2)\n"
        "    u = uniform[1000 D](-1, 1)\n"
        "    c = categorical(broadcast(where(arange[V] == 3, 0, -inf), [100 V]), over=V)\n"
        "    return std(z, over=[1000 D]), mean(u, over=[1000 D]), min(c as i64, over=100), max(u, over=[1000 D])\n"
    )
    result = run(text, tmp_path)
    assert isinstance(result, tuple)
    spread, middle, chosen, greatest = result
    assert abs(float(spread) - 2) < 0.1 and abs(float(middle)) < 0.05
    assert int(chosen) == 3 and 0.9 < float(greatest) <= 1


GRADIENTS = """model M:
    param w: [C C 3 3] = normal(std=0.3)
    param up: [C C 2 2] = normal(std=0.3)

fn make() -> M:
    return M(seed=0)

fn loss(m: M, x: [b C T T2]) -> []:
    h = conv(x, m.w, over=[T T2], stride=2, pad=1) |> tanh
    y = conv_transpose(h, m.up, over=[T/2 T2/2], stride=2)
    return mean(max_pool(y, 2, over=[T T2]), over=[b C T/2 T2/2])

fn f(m: M, x: [b C T T2]) -> ([], [C C 3 3], [C C 2 2]):
    l, g = value_and_grad(loss, m, x)
    return l, g.w, g.up
"""


def test_gradients_of_convolutions(tmp_path: Path) -> None:
    body = GRADIENTS + "\nfn both(x: [b C T T2]) -> ([], [C C 3 3], [C C 2 2], [C C 3 3], [C C 2 2]):\n"
    body += "    m = M(seed=0)\n    l, gw, gup = f(m, x)\n    return l, gw, gup, m.w, m.up\n"
    x = numbers(2, 4, 8, 8)
    result = run(
        "dim T2 = 8\n" + body.replace("fn f(", "fn grads(").replace("= f(m", "= grads(m").replace("fn both(", "fn f("),
        tmp_path,
        x,
    )
    assert isinstance(result, tuple)
    value, by_w, by_up, w, up = result
    w, up = w.clone().requires_grad_(), up.clone().requires_grad_()
    hidden = torch.tanh(F.conv2d(x, w, stride=2, padding=1))
    wanted = F.max_pool2d(F.conv_transpose2d(hidden, up, stride=2), 2).mean()
    wanted.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(value, wanted.detach())
    torch.testing.assert_close(by_w, w.grad)
    torch.testing.assert_close(by_up, up.grad)
