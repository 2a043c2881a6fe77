"""The shape bugs that training code suffers from, each caught before anything runs; and what must be let through."""

from __future__ import annotations

import pytest

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.source import Source
from shapescript.syntax.parse import parse
from shapescript.types.checker import check_program

HEAD = """devices cpu

dim D  = 12
dim H  = 3
dim Dh = D / H
dim C  = 5
dim K  = 5
dim V  = 7
dim T  = 8
dim Y  = 28
dim X  = 28

"""


def diagnostics(body: str) -> list[Diagnostic]:
    """What the checker says of declarations under `HEAD`."""
    source = Source("shapes.ss", HEAD + body)
    return check_program(source, parse(source)).diagnostics


def codes(body: str) -> list[str]:
    return [each.code for each in diagnostics(body)]


def function(signature: str, *lines: str) -> str:
    return f"fn f({signature}:\n" + "".join(f"    {line}\n" for line in lines)


def the_one(body: str, code: str) -> Diagnostic:
    found = diagnostics(body)
    assert [each.code for each in found] == [code], found
    return found[0]


# --- the twelve ----------------------------------------------------------------------------------------------------


def test_1_a_loss_of_b_against_b_1() -> None:
    error = the_one(function("y: [b], t: [b 1]) -> [] NonNeg", "return mse(y, t)"), "E0301")
    assert "[b]" in error.message and "[b 1]" in error.message
    assert any("rearrange(t: b 1 -> b)" in line for line in error.helps)
    assert "E0301" in codes(function("y: [b], t: [b 1]) -> [b]", "return y - t"))


def test_2_heads_merged_without_moving_the_head_axis() -> None:
    body = function("y: [b H n Dh]) -> [b n D]", "return rearrange(y: b n H Dh -> b n (H Dh))")
    assert the_one(body, "E0408").message == "the pattern calls axis 2 `n`, but `n` is axis 3"
    body = function("y: [b H n Dh]) -> [b n (H Dh)]", "return rearrange(y: b H n Dh -> b n (Dh H))")
    assert codes(body) == ["E0351"]


def test_3_a_softmax_over_one_axis_contracted_over_another() -> None:
    lines = ("a = softmax(s, over=n)", "return einsum(a, v: b n m, b m D -> b n D)")
    warning = the_one(function("s: [b n m], v: [b m D]) -> [b n D]", *lines), "W0507")
    assert warning.severity == "warning" and "`n`" in warning.message and "`m`" in warning.message
    assert codes(function("s: [b n m], v: [b m D]) -> [b n D]", lines[0].replace("=n)", "=m)"), lines[1])) == []
    dropped = "a = softmax(s, over=n) |> dropout(0.1)"
    assert codes(function("s: [b n m], v: [b m D]) -> [b n D]", dropped, lines[1])) == ["W0507"]
    assert codes(function("s: [n m], v: [m D]) -> [n D]", "return softmax(s, over=n) @ v")) == ["W0507"]


def test_4_a_reduction_that_leaves_what_broadcasts_wrongly() -> None:
    body = function("x: [b n]) -> [b n]", "return x - mean(x, over=b)")
    assert codes(body) == []
    body = function("x: [b n], w: [n b]) -> [b n]", "return x - w")
    assert codes(body) == ["E0301"]
    body = function("x: [b n D], m: [b D n]) -> [b n D]", "return x * mean(m, over=b)")
    assert codes(body) == ["E0301"]


def test_5_a_contraction_of_two_axes_of_one_size_and_two_names() -> None:
    error = the_one(function("x: [b C], w: [K D]) -> [b D]", "return x @ w"), "E0302")
    assert "`C`" in error.message and "`K`" in error.message
    assert codes(function("x: [b C], w: [C D]) -> [b D]", "return x @ w")) == []


def test_6_an_einsum_index_summed_by_a_slip() -> None:
    body = function("q: [b n D], k: [b n D]) -> [b n]", "return einsum(q, k: b n D, b m D -> b n)")
    error = the_one(body, "E0404")
    assert "`m`" in error.message and any("sum" in line for line in error.helps)


def test_7_the_values_not_renamed_with_the_keys() -> None:
    lines = ("s = einsum(q, k: b n D, b m D -> b n m)", "return einsum(s, v: b n m, b n D -> b n D)")
    assert codes(function("q: [b n D], k: [b n D], v: [b n D]) -> [b n D]", *lines)) == ["E0404"]


def test_8_an_odd_size_halved() -> None:
    body = function("x: [b 7]) -> [b 2 3]", "return rearrange(x: b (two h) -> b two h, two=2)")
    assert codes(body)[0] == "E0307"
    assert codes("dim Half = C / 2\n") == ["E0371"]


def test_9_a_fixed_batch_size_meets_a_short_last_batch() -> None:
    body = function("x: [b D], h: [64 D]) -> [b D]", "return x + h")
    assert codes(body) == ["E0301"]
    body = function("x: [b D]) -> [b D]", "return x + zeros[64 D]")
    assert codes(body) == ["E0301"]
    assert codes(function("x: [b D]) -> [b D]", "return x + zeros[b D]")) == []


def test_10_query_and_key_swapped() -> None:
    lines = ("s = einsum(k, q: b n D, b m D -> b n m)", "return softmax(s, over=m)")
    assert "E0408" in codes(function("q: [b n D], k: [b m D]) -> [b n m]", *lines)) or "E0407" in codes(
        function("q: [b n D], k: [b m D]) -> [b n m]", *lines)
    )


def test_11_a_mask_off_by_an_axis() -> None:
    body = function("s: [b n m], mask: [b m n] bool) -> [b n m]", "return masked_fill(s, mask, -inf)")
    assert codes(body) == ["E0301"]
    body = function("s: [b n m], mask: [n b] bool) -> [b n m]", "return masked_fill(s, mask, -inf)")
    assert codes(body) == ["E0301"]
    body = function("s: [b n m]) -> [b n m]", "return masked_fill(s, !causal[n m], -inf)")
    assert codes(body) == []


def test_12_labels_and_classes_of_two_counts() -> None:
    body = function("y: [b C], t: [b] Index[V]) -> [] NonNeg", "return cross_entropy(y, t, over=C)")
    error = the_one(body, "E0506")
    assert "Index[C]" in error.message and "Index[V]" in error.message
    assert codes(function("y: [b C], t: [b] Index[C]) -> [] NonNeg", "return cross_entropy(y, t, over=C)")) == []


# --- what else is an error -----------------------------------------------------------------------------------------

WRONG = [
    ("x: [b n]) -> [b]", "return sum(x, over=m)", "E0305"),
    ("x: [b n]) -> [b]", "return sum(x)", "E0304"),
    ("w: [D D]) -> [D]", "return sum(w, over=D)", "E0303"),
    ("a: [n], b: [m]) -> [n m]", "return a + b", "E0301"),
    ("x: [b n D]) -> [b n]", "return rearrange(x: b n D -> b n)", "E0406"),
    ("x: [b n]) -> [b n D]", "return rearrange(x: b n -> b n D)", "E0403"),
    ("x: [b n D]) -> [b n]", "return rearrange(x: b n -> n b)", "E0402"),
    ("q: [b n D], k: [b n D]) -> [b n n]", "return einsum(q, k: b n D, b m D -> b n n)", "E0405"),
    ("x: [b (H Dh)]) -> [b H Dh]", "return rearrange(x: b (Dh H) -> b H Dh)", "E0409"),
    ("x: [b D]) -> [b D]", "return rearrange(x: b (p q) -> b p q)", "E0410"),
    ("x: [b D] f16, y: [b D]) -> [b D]", "return x + y", "E0501"),
    ("x: [b D] i64) -> [b D] i64", "return x + 0.5", "E0503"),
    ("x: [b D]) -> [b D]", "return sqrt(x)", "E0504"),
    ("x: [b C], t: [b] Index[C]) -> []", "return cross_entropy(softmax(x, over=C), t, over=C)", "E0505"),
    ("x: [b D]) -> [b D]", "return !x", "E0508"),
    ("x: [b D] i64) -> [b D]", "return exp(x)", "E0509"),
    ("x: [b D]) -> [D b]", "return x as [D b] f32", "E0510"),
    ("x: [b D], i: [b] Index[V]) -> [b]", "return x[D=i]", "E0506"),
    ("x: [b 3]) -> [b]", "return x[3=3]", "E0311"),
    ("x: [b D], y: [b n D]) -> [b n D]", "return concat(x, y)", "E0306"),
]


@pytest.mark.parametrize(("signature", "line", "code"), WRONG)
def test_errors(signature: str, line: str, code: str) -> None:
    assert codes(function(signature, line))[:1] == [code]


RIGHT = [
    ("x: [b n D], w: [D]) -> [b n D]", "return x * w + 1"),
    ("x: [b n D]) -> [b n]", "return mean(x, over=D)"),
    (
        "x: [b n 3*D]) -> [b n D]",
        "q, k, v = split(x: b n (3 H Dh) -> b H n Dh)",
        "return rearrange(q: b H n Dh -> b n (H Dh))",
    ),
    ("x: [b n D], w: [D D]) -> [b n D]", "return x @ w"),
    ("w: [D D], u: [D D]) -> [D D]", "return w @ u"),
    ("a: [b H n Dh], v: [b H Dh m]) -> [b H n m]", "return a @ v"),
    ("p: [b C] Prob) -> [b C] NonNeg", "return sqrt(1 - p)"),
    ("x: [b D], a: [b] Index[D]) -> [b]", "return x[D=a]"),
    ("w: [V D], t: [b n] Index[V]) -> [b n D]", "return w[t]"),
    ("x: [b n D], w: [T D]) -> [b n D]", "return x + w[T=..n]"),
    ("x: [b T]) -> [b T-1]", "return x[T=1..]"),
    ("x: [b T]) -> [b T-1]", "return x[T=..-1] - x[T=1..]"),
    ("x: [b T]) -> [b]", "return x[T=0] + x[T=-1]"),
    ("a: [b C], c: [b V]) -> [b C+V]", "return concat(a, c)"),
    ("x: [b V], k: int) -> [b k]", "best, _ = topk(x, k, over=V)", "return best"),
    ("x: [b n], y: [b m]) -> [b n m]", "return broadcast(x, [b n m]) * broadcast(y, [b n m])"),
    ("x: [n]) -> [n T] bool", "return causal[n T]"),
    ("a: [n D], b: [D m], c: [m k]) -> [n k]", "return einsum(a, b, c: n D, D m, m k -> n k)"),
    ("x: [b n D]) -> [b n D]", "return attention(x, x, x: b n D, b m D, b m D -> b n D, mask=causal[n m])"),
    ("x: [b 3 Y X], w: [C 3 3 3]) -> [b C Y/2 X/2]", "return conv(x, w, over=[Y X], stride=2, pad=1)"),
    ("x: [b C Y X], w: [C C 3 3]) -> [b C Y X]", "return conv(x, w, over=[Y X], pad=same)"),
    ("x: [b C Y X]) -> [b C Y/2 X/2]", "return max_pool(x, 2, over=[Y X])"),
    ("x: [b C Y X], w: [C V 4 4]) -> [b V 2*Y 2*X]", "return conv_transpose(x, w, over=[Y X], stride=2, pad=1)"),
    ("i: [b n] Index[V]) -> [V]", "return scatter_add(ones[b n], i, over=V)"),
    ("x: [b D]) -> [b T D]", "return repeat(x: b D -> b T D)"),
    ("x: [b n] bool) -> [b] i64", "return sum(x, over=n)"),
    ("x: [b n] i64, y: [b n] i64) -> [b n]", "return x / y"),
]


@pytest.mark.parametrize("case", RIGHT, ids=lambda c: c[-1])
def test_what_is_right(case: tuple[str, ...]) -> None:
    assert diagnostics(function(case[0], *case[1:])) == []
