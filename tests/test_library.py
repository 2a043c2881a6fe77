"""The standard library, each layer against torch.nn's with the same weights: results and gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from programs import Program, codes, tensors

from shapescript.session import LIBRARY, Session
from shapescript.specialise.values import named_tensors

HEAD = "import nn\ndim D = 8\ndim F = 12\ndim H = 2\ndim V = 10\n"


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run(layer: str, call: str, x_axes: str, y_axes: str, weights: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
    """What `call` gives for m.x, and the gradients of the sum of its squares by x and by the layer's weights."""
    text = (
        HEAD
        + f"model M:\n    l: {layer}\n    param x: [{x_axes}] = zeros\n"
        + f"fn loss(mut m: M) -> ([], [{y_axes}]):\n    y = {call}\n    return sum(square(y), over=[{y_axes}]), y\n"
        + f"fn step(mut m: M) -> ([{y_axes}], Grads[M]):\n"
        + "    (l, y), g = value_and_grad(loss, mut m)\n    return y, g\n"
        + "fn new() -> M:\n    return M(seed=0)\n"
    )
    program = Program(text)
    model = program.call("new")
    given = {"x": x, **{f"l.{name}": w for name, w in weights.items()}}
    for path, slots, name in named_tensors(model):
        if path in given:
            assert slots[name].data.shape == given[path].shape
            slots[name] = replace(slots[name], held=given[path].contiguous())
    y, gradients = program.call("step", model)
    slopes = tensors(gradients)
    return y, {"x": slopes["x"], **{name: slopes[f"l.{name}"] for name in weights}}


def agree(got: Any, y: torch.Tensor, by: dict[str, torch.Tensor], leaves: dict[str, torch.Tensor]) -> None:
    """`by` are the tensors that torch differentiates by, and `leaves` how each compares with the layer's."""
    wanted = dict(zip(by, torch.autograd.grad(y.square().sum(), list(by.values())), strict=True))
    assert torch.allclose(got[0], y, rtol=1e-4, atol=1e-5)
    for name, slope in got[1].items():
        assert torch.allclose(slope, leaves[name](wanted), rtol=1e-3, atol=1e-4), name


def leaf(*shape: int, seed: int = 0) -> torch.Tensor:
    return values(*shape, seed=seed).requires_grad_(True)


def same(*names: str) -> dict[str, Any]:
    return {name: (lambda found, name=name: found[name]) for name in names}


def test_linear() -> None:
    x, w, b = leaf(2, 3, 8), leaf(8, 12, seed=1), leaf(12, seed=2)
    got = run("nn.Linear[D F]", "nn.linear(m.x, m.l)", "2 3 D", "2 3 F", {"w": w.detach(), "b": b.detach()}, x.detach())
    agree(got, torch.nn.functional.linear(x, w.T, b), {"x": x, "w": w, "b": b}, same("x", "w", "b"))


def test_feed_forward() -> None:
    x, up, down = leaf(2, 3, 8), leaf(8, 12, seed=1), leaf(12, 8, seed=2)
    weights = {"up.w": up.detach(), "down.w": down.detach()}
    got = run("nn.FeedForward[D F]", "m.x |> nn.feed_forward(m.l)", "2 3 D", "2 3 D", weights, x.detach())
    y = torch.nn.functional.gelu(x @ up) @ down
    agree(got, y, {"x": x, "up.w": up, "down.w": down}, same("x", "up.w", "down.w"))


@pytest.mark.parametrize("kind", ["LayerNorm", "RmsNorm"])
def test_normalisations(kind: str) -> None:
    x, gain, bias = leaf(2, 3, 8), leaf(8, seed=1), leaf(8, seed=2)
    weights = {"gain": gain.detach(), "bias": bias.detach()}
    if kind == "LayerNorm":
        y = torch.nn.functional.layer_norm(x, (8,), gain, bias)
        got = run("nn.LayerNorm[D]", "nn.layer_normed(m.x, m.l)", "2 3 D", "2 3 D", weights, x.detach())
        agree(got, y, {"x": x, "gain": gain, "bias": bias}, same("x", "gain", "bias"))
        return
    y = torch.nn.functional.rms_norm(x, (8,), gain, eps=1e-6)
    got = run("nn.RmsNorm[D]", "nn.rms_normed(m.x, m.l)", "2 3 D", "2 3 D", {"gain": weights["gain"]}, x.detach())
    agree(got, y, {"x": x, "gain": gain}, same("x", "gain"))


@pytest.mark.parametrize("pictures", [False, True])
def test_batch_norm(pictures: bool) -> None:
    shape = (5, 8, 4, 3) if pictures else (5, 8)
    x, gain, bias = leaf(*shape), leaf(8, seed=1), leaf(8, seed=2)
    axes = "5 D 4 3" if pictures else "5 D"
    call = f"nn.batch_normed{'2d' if pictures else ''}(m.x, mut m.l)"
    got = run("nn.BatchNorm[D]", call, axes, axes, {"gain": gain.detach(), "bias": bias.detach()}, x.detach())
    y = torch.nn.functional.batch_norm(x, None, None, gain, bias, training=True)
    agree(got, y, {"x": x, "gain": gain, "bias": bias}, same("x", "gain", "bias"))


def test_embedding() -> None:
    text = HEAD + "fn f(words: [b n] Index[V]) -> ([b n D], [V D]):\n    m = nn.Embedding[V D](seed=0)\n"
    program = Program(text + "    return nn.embed(words, m), m.w\n")
    words = torch.tensor([[1, 2, 3], [9, 0, 1]])
    y, w = program.call("f", words)
    assert torch.equal(y, torch.nn.functional.embedding(words, w))


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(stride: int) -> None:
    x, w, b = leaf(2, 8, 12, 8), leaf(12, 8, 3, 3, seed=1), leaf(12, seed=2)
    call = f"nn.conv2d(m.x, m.l, stride={stride})"
    axes = f"2 F {12 // stride} {8 // stride}"
    got = run("nn.Conv[D F 3]", call, "2 D 12 8", axes, {"w": w.detach(), "b": b.detach()}, x.detach())
    # a stride of 2 with `pad=same` fills in behind alone, where torch's padding=1 fills in on both sides
    wide = x if stride == 1 else torch.nn.functional.pad(x, (0, 1, 0, 1))
    y = torch.nn.functional.conv2d(wide, w, b, stride, 1 if stride == 1 else 0)
    agree(got, y, {"x": x, "w": w, "b": b}, same("x", "w", "b"))


def test_a_convolution_along_one_axis() -> None:
    x, w, b = leaf(2, 8, 6), leaf(12, 8, 5, seed=1), leaf(12, seed=2)
    weights = {"w": w.detach(), "b": b.detach()}
    got = run("nn.Conv1d[D F 5]", "nn.conv1d(m.x, m.l)", "2 D 6", "2 F 6", weights, x.detach())
    agree(got, torch.nn.functional.conv1d(x, w, b, padding=2), {"x": x, "w": w, "b": b}, same("x", "w", "b"))


def heads(w: torch.Tensor) -> torch.Tensor:
    """A weight of torch's attention, [features out, width], as [width, heads, features]."""
    return w.T.reshape(w.shape[1], -1, 4)


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked: bool) -> None:
    x = leaf(2, 5, 8)
    w_in, w_out = (0.2 * values(24, 8, seed=1)).requires_grad_(True), leaf(8, 8, seed=2)
    q, k, v = w_in.detach().chunk(3)
    weights = {"w_q": heads(q), "w_k": heads(k), "w_v": heads(v), "w_o": w_out.detach().T.reshape(2, 4, 8)}
    call = f"nn.attend(m.x, m.l, masked={'true' if masked else 'false'})"
    got = run("nn.Attention[D H]", call, "2 5 D", "2 5 D", weights, x.detach())
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if masked else None
    y = torch.nn.functional.multi_head_attention_forward(
        *(x.transpose(0, 1),) * 3, 8, 2, w_in, torch.zeros(24), None, None, False, 0.0, w_out, torch.zeros(8),
        need_weights=False, attn_mask=mask, is_causal=masked,
    )[0].transpose(0, 1)  # fmt: skip
    leaves = {
        "x": lambda found: found["x"],
        **{f"w_{name}": (lambda found, i=i: heads(found["in"].chunk(3)[i])) for i, name in enumerate("qkv")},
        "w_o": lambda found: found["out"].T.reshape(2, 4, 8),
    }
    agree(got, y, {"x": x, "in": w_in, "out": w_out}, leaves)


def test_attention_to_a_memory() -> None:
    text = (
        HEAD
        + "fn f(x: [b n D], memory: [b s D], there: [b s] bool) -> ([b n D], [b n D]):\n"
        + "    m = nn.Attention[D H](seed=0)\n    return nn.attend_to(x, memory, there, m), nn.attend(x, m)\n"
    )
    program = Program(text)
    x, there = values(2, 5, 8), torch.ones(2, 5, dtype=torch.bool)
    y, own = program.call("f", x, x, there)
    assert torch.allclose(y, own, atol=1e-6), "a memory that is x itself, all of it there"
    longer = torch.cat([x, 100 * values(2, 3, 8, seed=1)], 1)
    seen = torch.cat([there, torch.zeros(2, 3, dtype=torch.bool)], 1)
    y, _ = program.call("f", x, longer, seen)
    assert torch.allclose(y, own, atol=1e-6), "what isn't there isn't looked at"


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions by complex numbers."""
    n, e = x.shape[-2:]
    step = 10000.0 ** (-2 * torch.arange(e // 2) / e)
    turn = torch.polar(torch.ones(n, e // 2), torch.arange(n)[:, None] * step)
    turned = torch.complex(x[..., : e // 2], x[..., e // 2 :]) * turn
    return torch.cat([turned.real, turned.imag], -1)


def test_rotary_positions() -> None:
    x = values(2, 3, 5, 6)
    got = Program(HEAD + "fn f(x: [b h n e]) -> [b h n e]:\n    return nn.rotary(x)\n").call("f", x)
    assert torch.allclose(got, rotate(x), atol=1e-5)


def test_heads_in_groups_share_keys() -> None:
    x = leaf(2, 5, 8)
    w_q, w_k, w_v = leaf(8, 2, 2, 2, seed=1), leaf(8, 2, 2, seed=2), leaf(8, 2, 2, seed=3)
    w_o = leaf(2, 2, 2, 8, seed=4)
    weights = {name: w.detach() for name, w in {"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}.items()}
    got = run("nn.GroupedAttention[D 2 H]", "nn.attend_grouped(m.x, m.l)", "2 5 D", "2 5 D", weights, x.detach())
    q = rotate(torch.einsum("bnd,dgre->bgrne", x, w_q))
    k = rotate(torch.einsum("bnd,dge->bgne", x, w_k))[:, :, None].expand(q.shape)
    v = torch.einsum("bnd,dge->bgne", x, w_v)[:, :, None].expand(q.shape)
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = torch.einsum("bgrne,gred->bnd", y, w_o)
    by = {"x": x, "w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
    agree(got, y, by, same(*by))


@pytest.mark.parametrize("kind", ["Lstm", "Gru"])
def test_recurrent_nets(kind: str) -> None:
    peer: Any = (torch.nn.LSTM if kind == "Lstm" else torch.nn.GRU)(8, 12, batch_first=True)
    x = leaf(2, 5, 8)
    w_x, w_h, b_x, b_h = (p.detach() for p in peer.parameters())
    if kind == "Lstm":
        with torch.no_grad():
            peer.bias_hh_l0.zero_()
        weights = {"w_x": w_x.T, "w_h": w_h.T, "b": b_x}
        call = "nn.lstm(m.x, m.l, (zeros[2 F], zeros[2 F]))"
        biases = {"b": lambda found: found["b_x"]}
    else:
        weights = {"w_x": w_x.T, "w_h": w_h.T, "b_x": b_x, "b_h": b_h}
        call = "nn.gru(m.x, m.l, zeros[2 F])"
        biases = {name: (lambda found, name=name: found[name]) for name in ("b_x", "b_h")}
    got = run(f"nn.{kind}[D F]", call + "[0]", "2 5 D", "2 5 F", weights, x.detach())
    by = dict(zip(("x", "w_x", "w_h", "b_x", "b_h"), (x, *peer.parameters()), strict=True))
    leaves = {
        "x": lambda found: found["x"],
        "w_x": lambda found: found["w_x"].T,
        "w_h": lambda found: found["w_h"].T,
        **biases,
    }
    agree(got, peer(x)[0], by, leaves)


FUNCTIONS = {
    "elu(x)": torch.nn.functional.elu,
    "mish(x)": torch.nn.functional.mish,
    "log_sigmoid(x)": torch.nn.functional.logsigmoid,
}


@pytest.mark.parametrize("call", FUNCTIONS)
def test_functions(call: str) -> None:
    x = values(3, 4)
    got = Program(HEAD + f"fn f(x: [b n]) -> [b n]:\n    return nn.{call}\n").call("f", x)
    assert torch.allclose(got, FUNCTIONS[call](x), atol=1e-6)


def test_cosine_similarity_and_upsampling() -> None:
    x, y = values(3, 4), values(3, 4, seed=1)
    text = HEAD + "fn f(x: [b n], y: [b n]) -> [b]:\n    return nn.cosine_similarity(x, y)\n"
    assert torch.allclose(Program(text).call("f", x, y), torch.nn.functional.cosine_similarity(x, y), atol=1e-6)
    text = HEAD + "fn f(x: [b c 3 4]) -> [b c 6 8]:\n    return nn.upsampled(x, 2)\n"
    x = values(2, 3, 3, 4)
    assert torch.equal(Program(text).call("f", x), torch.nn.functional.interpolate(x, scale_factor=2))


def test_a_file_beside_the_program_goes_first(tmp_path: Any) -> None:
    (tmp_path / "nn.ss").write_text("fn own(x: [n]) -> [n]:\n    return x\n")
    (tmp_path / "p.ss").write_text("devices cpu\nimport nn\nfn f(x: [n]) -> [n]:\n    return nn.own(x)\n")
    assert Session(tmp_path / "p.ss", "p.ss").diagnostics == []


def test_a_mistake_in_a_call_shows_the_programs_line() -> None:
    assert codes(HEAD + "fn f(x: [b F], m: nn.Linear[D F]) -> [b F]:\n    return nn.linear(x, m)\n") == ["E0352"]
    assert codes(HEAD + "fn f(x: [b D], m: nn.Linaer[D F]) -> [b F]:\n    return zeros[b F]\n") == ["E0205"]


def test_the_library_checks_by_itself() -> None:
    for path in LIBRARY.glob("*.ss"):
        assert codes("devices cpu\n" + path.read_text()) == []
