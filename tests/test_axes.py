"""Axes: when two are the same, binding variables, and matching a signature against arguments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shapescript.types.axes import ANY_AXES, Axis, places, same, show_axes
from shapescript.types.element import I64, NONNEG, PROB, Element
from shapescript.types.kinds import Tensor
from shapescript.types.unify import Bindings, Mismatch, match

B, N, M, D, H, V = (Axis.named(name) for name in ("b", "n", "m", "D", "H", "V"))
DH = Axis("Dh", D.size / H.size)
BARE = st.sampled_from(["b", "n", "m"]).map(Axis.named)


def bound(result: Bindings | Mismatch) -> Bindings:
    assert isinstance(result, Bindings), result
    return result


def wrong(result: Bindings | Mismatch) -> Mismatch:
    assert isinstance(result, Mismatch), result
    return result


def test_named_axes_are_the_same_when_their_names_are() -> None:
    assert same(B, B) and not same(B, N)
    assert not same(Axis("n", D.size), Axis("m", D.size))
    assert same(B, Axis.named("b", batch=True))


def test_axes_without_a_name_go_by_size() -> None:
    assert same(Axis.of(3 * D.size), Axis.merged([Axis.of(3), H, DH]))
    assert same(Axis.merged([H, DH]), D)
    assert not same(Axis.of(784), D)
    assert same(Axis.of(N.size - 1), Axis.of(N.size - 1))


def test_merged_axes_keep_the_order_of_their_parts() -> None:
    assert not same(Axis.merged([H, DH]), Axis.merged([DH, H]))
    assert same(Axis.merged([H, DH]), Axis.merged([H, DH]))


def test_written_as_a_user_writes_it() -> None:
    assert show_axes([B, Axis.merged([H, DH]), Axis.of(3 * D.size), Axis.of(N.size - 1)]) == "[b (H Dh) 3*D (n - 1)]"


def test_substitution_replaces_names_whole_and_atoms_by_sizes() -> None:
    assert N.substitute({"n": Axis.of(7)}) == Axis.of(7)
    assert Axis.of(N.size - 1).substitute({"n": M}) == Axis.of(M.size - 1)
    assert M.renamed("q").substitute({"m": D}) == Axis("q", D.size)
    assert Axis.merged([N, D]).substitute({"n": H}).parts == (H, D)
    assert Axis.named("b", batch=True).substitute({"b": N}).batch


def test_places_go_by_name_before_size() -> None:
    assert places(N, [Axis("m", N.size), N]) == [1]
    assert places(Axis.of(D.size), [B, D]) == [1]
    assert places(D, [D, D]) == [0, 1]


@given(BARE, BARE, BARE)
def test_a_bare_variable_takes_any_axis(first: Axis, second: Axis, third: Axis) -> None:
    result = bound(match([Tensor((N, M, B))], [Tensor((first, second, third))], ["n", "m", "b"]))
    assert result.axes == {"n": first, "m": second, "b": third}
    assert result.apply(Tensor((B, N))) == Tensor((third, first))


def test_one_variable_is_one_axis() -> None:
    assert isinstance(match([Tensor((N,)), Tensor((N,))], [Tensor((D,)), Tensor((D,))], ["n"]), Bindings)
    trouble = wrong(match([Tensor((N,)), Tensor((N,))], [Tensor((D,)), Tensor((H,))], ["n"]))
    assert (trouble.kind, trouble.variable, trouble.first) == ("two axes", "n", 0)
    assert (trouble.bound, trouble.found_axis) == (D, H)


def test_a_size_with_one_unknown_is_solved() -> None:
    result = bound(match([Tensor((Axis.of(N.size + 1),))], [Tensor((Axis.of(D.size + 1),))], ["n"]))
    assert result.axes["n"] == D
    result = bound(match([Tensor((Axis.of(2 * N.size),))], [Tensor((D,))], ["n"]))
    assert result.axes["n"].size == D.size / 2 and result.owed == (D.size / 2,)


def test_equations_wait_for_each_other() -> None:
    product = Tensor((Axis.of(N.size * M.size),))
    result = bound(match([product, Tensor((N,))], [Tensor((Axis.of(D.size * H.size),)), Tensor((H,))], ["n", "m"]))
    assert result.axes["m"].size == D.size
    trouble = wrong(match([product], [Tensor((D,))], ["n", "m"]))
    assert (trouble.kind, trouble.variable) == ("infer", "m")


def test_a_caller_may_use_the_callees_names() -> None:
    result = bound(match([Tensor((N, Axis.of(M.size * 2)))], [Tensor((M, Axis.of(N.size * 2)))], ["n", "m"]))
    assert result.axes == {"n": M, "m": N}


def test_a_number_that_does_not_fit() -> None:
    assert wrong(match([Tensor((Axis.of(2 * N.size),))], [Tensor((Axis.of(7),))], ["n"])).kind == "size"
    assert wrong(match([Tensor((D,))], [Tensor((Axis.of(784),))], [])).kind == "axis"
    assert wrong(match([Tensor((D,))], [Tensor((B, D))], [])).kind == "rank"


def test_any_axes_are_the_same_wherever_they_stand() -> None:
    wanted = [Tensor((ANY_AXES, D)), Tensor((ANY_AXES, H))]
    result = bound(match(wanted, [Tensor((B, N, D)), Tensor((B, N, H))], []))
    assert result.spread == (B, N)
    assert result.apply(Tensor((ANY_AXES,))) == Tensor((B, N))
    assert wrong(match(wanted, [Tensor((B, N, D)), Tensor((B, H))], [])).kind == "spread"


def test_elements() -> None:
    index = Tensor((B,), Element.index(N.size))
    assert bound(match([index], [Tensor((B,), Element.index(V.size))], ["b", "n"])).axes["n"] == V
    assert wrong(match([Tensor((B,))], [Tensor((B,), I64)], ["b"])).kind == "element"
    assert isinstance(match([Tensor((B,), NONNEG)], [Tensor((B,), PROB)], ["b"]), Bindings)
    assert wrong(match([Tensor((B,), PROB)], [Tensor((B,), NONNEG)], ["b"])).kind == "element"
