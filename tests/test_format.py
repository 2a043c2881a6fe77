"""The formatter: one style, the same when formatted again, no comment lost, and never another tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapescript.diagnostics.codes import codes
from shapescript.diagnostics.explain import explain
from shapescript.source import Source
from shapescript.syntax.formatter import (
    WIDTH,
    CannotFormat,
    all_tokens,
    comments_of,
    format_source,
    shown,
)
from shapescript.syntax.parse import parse

ROOT = Path(__file__).resolve().parent.parent


def formatted(text: str) -> str:
    return format_source(Source("test.ss", text))


def corpus() -> list[str]:
    """Every program of the project whose text has no errors."""
    texts = [path.read_text(encoding="utf-8") for path in [*ROOT.glob("examples/*/*.ss"), *ROOT.glob("tests/*/*.ss")]]
    texts += [program.text for code in codes() for program in explain(code).programs]
    return [text for text in texts if not parse(Source("test.ss", text)).diagnostics]


CORPUS = corpus()


def holds(text: str) -> str:
    """Checks what always holds of a formatted text, and gives it."""
    once = formatted(text)
    before, after = parse(Source("test.ss", text)), parse(Source("test.ss", once))
    assert not after.diagnostics
    assert shown(before) == shown(after)
    assert comments_of(text) == comments_of(once)
    assert formatted(once) == once
    assert all(line == line.rstrip() for line in once.split("\n"))
    assert not once or once.endswith("\n") and not once.endswith("\n\n")
    return once


def test_there_are_programs() -> None:
    assert len(CORPUS) > 100


@pytest.mark.parametrize("text", CORPUS, ids=lambda text: re.sub(r"\W+", " ", text)[:30])
def test_every_program_of_the_project(text: str) -> None:
    holds(text)


CASES = [
    # (as written, in the one style)
    ("dim   D=4\n", "dim D = 4\n"),
    ("dim D=4\ndim Hd = D*2 # twice\n", "dim D  = 4\ndim Hd = D * 2  # twice\n"),
    ("fn f( x:[b   D] )->[b D] :return x\n", "fn f(x: [b D]) -> [b D]:\n    return x\n"),
    (
        "fn f(x: [b D], k: int=3) -> [b D]:\n  if k==1: return -x\n  elif not k<2 :\n      return x [ n = 1 .. k-1 ]\n",
        "fn f(x: [b D], k: int = 3) -> [b D]:\n    if k == 1:\n        return -x\n    elif not k < 2:\n"
        "        return x[n=1..k-1]\n",
    ),
    (
        "model M[ I  O ] :\n    param w : [I 3 * O]=zeros\n    param shift:[O]=normal( std = 2 )\n"
        "    inner:Linear [O 2]\n",
        "model M[I O]:\n    param w:     [I 3*O] = zeros\n    param shift: [O]     = normal(std=2)\n"
        "    inner: Linear[O 2]\n",
    ),
    (
        "fn f(x: [b n D]) -> [b n D]:\n    return rearrange( x:b n (H  Dh)->b H n Dh , h = 4 )\n",
        "fn f(x: [b n D]) -> [b n D]:\n    return rearrange(x: b n (H Dh) -> b H n Dh, h=4)\n",
    ),
    (
        "fn f(x: [.. a]) -> [.. a]:\n    y = g(mut x,a=mut y , ) ** 2\n    z=x.a ** - 2 // (x . b)\n",
        "fn f(x: [.. a]) -> [.. a]:\n    y = g(\n        mut x,\n        a=mut y,\n    ) ** 2\n"
        "    z = x.a**-2 // (x.b)\n",
    ),
    (
        "fn f(x: [b D]) -> [b D]:\n    return x\n      # why\n      |> relu |> softmax(over = D)\n",
        "fn f(x: [b D]) -> [b D]:\n    return x\n        # why\n        |> relu\n        |> softmax(over=D)\n",
    ),
    ("\ufeff# first\n\n\n\ndevices cpu\n\n\n", "# first\n\ndevices cpu\n"),
    ("devices cpu[ 0 1   2 ]\n  shard params # a\n  split H # b\n", None),
    ("devices cpu[0 1]\n  split  H  by   2\n", "devices cpu[0 1]\n    split H by 2\n"),
    ("fn f():\n    x = (1 , )\n    a , b = (g(x),h(x))\n", "fn f():\n    x = (1,)\n    a, b = (g(x), h(x))\n"),
    (
        "fn f():\n    pass\n    # of f\n# of g\nfn g():\n\n    pass\n",
        "fn f():\n    pass\n    # of f\n\n# of g\nfn g():\n    pass\n",
    ),
    (
        "import python digits as  d\nrate=0.5\nfn f(): pass\n",
        "import python digits as d\nrate = 0.5\n\nfn f():\n    pass\n",
    ),
]


@pytest.mark.parametrize(("text", "style"), CASES)
def test_the_style(text: str, style: str | None) -> None:
    found = holds(text)
    if style is not None:
        assert found == style


def test_a_long_call_and_a_long_pipe() -> None:
    arguments = ", ".join(f"argument_{n}=value_{n}" for n in range(6))
    call = holds(f"fn f(x: [b D]) -> [b D]:\n    y = compute(x, {arguments})\n")
    assert "    y = compute(\n        x,\n        argument_0=value_0,\n" in call and "value_5,\n    )\n" in call
    steps = " |> ".join(f"function_{n}(value_{n})" for n in range(6))
    pipe = holds(f"fn f(x: [b D]) -> [b D]:\n    y = x |> {steps}\n")
    assert "    y = x\n        |> function_0(value_0)\n" in pipe
    total = " + ".join(f"a_rather_long_name_{n} * 3" for n in range(6))
    lines = holds(f"fn f(x: [b D]) -> [b D]:\n    y = ({total})\n").split("\n")
    assert lines[1] == "    y = (" and lines[3].strip().startswith("+ ") and max(map(len, lines)) <= WIDTH


def test_line_ends_are_kept() -> None:
    text = "devices cpu\r\n\r\nfn f(x: [b D]) -> [b D]:  # why\r\n  return x\r\n"
    once = formatted(text)
    assert once == "devices cpu\r\n\r\nfn f(x: [b D]) -> [b D]:  # why\r\n    return x\r\n"
    assert formatted(once) == once


def test_a_text_with_errors_is_left_alone() -> None:
    with pytest.raises(CannotFormat) as caught:
        formatted("fn f(:\n")
    assert caught.value.diagnostics


def test_nothing_stays_nothing() -> None:
    assert formatted("") == ""
    assert formatted("\n\n") == ""
    assert formatted("#  only\n") == "#  only\n"


# --- other layouts of the same program -------------------------------------------------------------------------------


@st.composite
def laid_anew(draw: st.DrawFn) -> str:
    """A program of the project with other blanks, line breaks, comments and indents."""
    text = draw(st.sampled_from(CORPUS))
    tokens = sorted(all_tokens(Source("test.ss", text)), key=lambda token: token.start)
    indent = draw(st.sampled_from([" ", "  ", "       "]))
    parts: list[str] = []
    at = depth = 0
    for token in tokens:
        gap = text[at : token.start]
        depth_here = depth
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        new_line = "\n" in gap
        if not parts:
            parts.append(gap)
        elif depth_here and not (token.type == "MINUS" or parts[-1] == "-"):
            touching = gap == "" and token.text in "(["  # a bracket that touches is a call's
            choices = [gap or ("" if touching else " "), gap]
            if gap or not touching:
                choices += ["\n" + indent * 3 + " ", " # inside\n\n   # again\n    ", "   "]
            parts.append(draw(st.sampled_from(choices)) if not touching else gap)
        elif token.type == "PIPE":
            parts.append(draw(st.sampled_from([" ", "\n  ", "  # before a pipe\n    # once more\n     "])))
        elif new_line:
            blanks = gap[gap.rfind("\n") + 1 :]
            wide = indent * (len(blanks) // 4) if len(blanks) % 4 == 0 else blanks
            extra = draw(
                st.sampled_from(["\n", "\n\n\n", " # here\n", f"\n{wide}# over\n", "\n# margin\n\n", "\n   # in\n"])
            )
            kept = "".join(f"{comment}\n" for comment in re.findall(r"#[^\n]*", gap))
            parts.append((" " + kept if kept else "") + extra + wide)
        else:
            parts.append(gap)
        parts.append(token.text)
        at = token.end
    return "".join(parts) + draw(st.sampled_from(["", "\n", "\n\n# end", "  # last\n"]))


@settings(max_examples=60, deadline=None)
@given(laid_anew())
def test_any_layout_of_a_program(text: str) -> None:
    if not parse(Source("test.ss", text)).diagnostics:  # the new layout may have made another line of it
        holds(text)


NAMES = st.sampled_from(["x", "m", "a_longer_name", "another_rather_long_name", "D", "Hd"])


def wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions made of expressions."""
    signs = st.sampled_from("+ - * / // % @ ** == < and or |>".split())
    space = st.sampled_from([" ", "  ", "\n   ", " # why\n  "])
    many = st.lists(inner, min_size=1, max_size=4)
    return st.one_of(
        st.tuples(inner, signs, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, signs, inner, space).map(lambda t: f"({t[0]}{t[3]}{t[1]} {t[2]}{t[3]})"),
        st.tuples(NAMES, many, st.booleans()).map(lambda t: f"{t[0]}({', '.join(t[1])}{', ' if t[2] else ''})"),
        st.tuples(NAMES, many).map(lambda t: f"({','.join(t[1])},)"),
        st.tuples(NAMES, inner).map(lambda t: f"{t[0]}(over=[D 3*D n - 1 (H Dh)], y = {t[1]})"),
        st.tuples(NAMES, inner).map(lambda t: f"{t[0]}[n = {t[1]}, 1 .. ]"),
        st.tuples(NAMES, inner).map(lambda t: f"{t[0]}({t[1]} : b (H Dh) , n-> b H  Dh n, h = 4)"),
        inner.map(lambda e: f"(- {e})"),
        inner.map(lambda e: f"(not {e})"),
        inner.map(lambda e: f"(0..{e})"),
        inner.map(lambda e: f"({e} as [b D] f64)"),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, st.sampled_from(["1", "0.5", '"a # b"', "true"])), wrapped, max_leaves=12)
FRAMES = st.sampled_from(
    [
        "    y = {}\n",
        "    return {}\n",
        "    if {}: x = f(y)\n    else: pass\n",
        "    for i in {}:\n        f(i)\n        # end\n",
        '    assert {}, "why"\n',
        "    g(mut x, {})\n",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FRAMES, EXPRESSIONS), min_size=1, max_size=4))
def test_made_up_programs(parts: list[tuple[str, str]]) -> None:
    text = "fn f(x: [b D], y: int) -> [b D]:\n" + "".join(frame.format(expression) for frame, expression in parts)
    if not parse(Source("test.ss", text)).diagnostics:
        holds(text)
