"""Sizes: the laws of a ring, one normal form, substitution, and the words that a user reads."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapescript.types.size import Size, SizeError

ATOMS = ("n", "D", "H", "k")
D, H, N = Size.atom("D"), Size.atom("H"), Size.atom("n")


@st.composite
def sizes(draw: st.DrawFn) -> Size:
    """A sum of a few monomials with small coefficients."""
    total = Size.of(0)
    for _ in range(draw(st.integers(0, 3))):
        term = Size.of(Fraction(draw(st.integers(-6, 6)), draw(st.integers(1, 4))))
        for atom in draw(st.lists(st.sampled_from(ATOMS), max_size=3)):
            term = term * Size.atom(atom)
        total = total + term
    return total


VALUES = st.fixed_dictionaries({atom: st.integers(1, 9) for atom in ATOMS})


@given(sizes(), sizes(), sizes())
def test_ring_laws(a: Size, b: Size, c: Size) -> None:
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + 0 == a and a * 1 == a and a * 0 == Size.of(0)
    assert a - a == Size.of(0)


@given(sizes(), sizes())
def test_equal_sizes_are_equal_data(a: Size, b: Size) -> None:
    assert hash(a + b) == hash(b + a)
    assert (a + b).terms == (b + a).terms


@given(sizes(), sizes())
def test_division_undoes_a_product(a: Size, b: Size) -> None:
    if b != Size.of(0):
        assert (a * b) / b == a


@given(sizes(), VALUES)
def test_substituting_numbers_is_evaluating(a: Size, values: dict[str, int]) -> None:
    result = a.substitute({atom: Size.of(value) for atom, value in values.items()})
    assert not result.atoms
    try:
        assert result.constant == a.evaluate(values)
    except SizeError:
        assert result.constant is None or result.constant < 0


@given(sizes(), sizes(), sizes())
def test_substitution_respects_sums_and_products(a: Size, b: Size, c: Size) -> None:
    values = {"n": c}
    assert (a + b).substitute(values) == a.substitute(values) + b.substitute(values)
    assert (a * b).substitute(values) == a.substitute(values) * b.substitute(values)


def test_a_dim_defined_by_others_is_its_definition() -> None:
    per_head = D / H
    assert H * per_head == D
    assert 3 * H * per_head == 3 * D
    assert per_head != D


def test_a_number_is_equal_to_a_number_only() -> None:
    assert Size.of(784) != D
    assert Size.of(784) == Size.of(28) * 28


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (3 * D, "3*D"),
        (N - 1, "n - 1"),
        (1 + N, "n + 1"),
        (D / H, "D/H"),
        (D / 4, "D/4"),
        (3 * D / 4, "3*D/4"),
        (D * D, "D*D"),
        (Size.of(7), "7"),
        (Size.of(0), "0"),
        (1 / D, "1/D"),
    ],
)
def test_written_as_a_user_writes_it(size: Size, text: str) -> None:
    assert str(size) == text


def test_constants() -> None:
    assert Size.of(12).constant == 12
    assert (Size.of(1) / 2).constant is None
    assert D.constant is None


def test_what_cannot_be() -> None:
    with pytest.raises(SizeError, match="by 0"):
        D / 0
    with pytest.raises(SizeError):
        D / (H + N)
    with pytest.raises(SizeError, match="whole number"):
        (D / H).evaluate({"D": 10, "H": 3})
    with pytest.raises(SizeError, match="no value"):
        D.evaluate({})
    with pytest.raises(SizeError, match="0 or more"):
        (N - 5).evaluate({"n": 3})


def test_substituting_a_sum_below_the_line() -> None:
    assert (D / H).substitute({"D": (N + 1) * 2, "H": N + 1}) == Size.of(2)


def test_what_owes_a_divisibility() -> None:
    assert (D / H).owes and (D / 2).owes
    assert not (3 * D + 1).owes
