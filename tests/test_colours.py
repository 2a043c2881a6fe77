"""The Pygments lexer: it takes any text whole, and colours a program without an error token."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.token import Comment, Error, Keyword, Name, Number, Token

from shapescript.colours import BUILTINS, TYPES, ShapeScriptLexer
from shapescript.editor.find_names import TYPE_NAMES
from shapescript.ops.registry import REGISTRY
from shapescript.types.check_expressions import BUILTIN_NAMES

ROOT = Path(__file__).resolve().parent.parent


def kinds(text: str) -> list[tuple[object, str]]:
    return [(kind, word) for kind, word in ShapeScriptLexer().get_tokens(text) if word.strip()]


def test_a_program() -> None:
    found = kinds(
        "devices cpu\ndim D = 4_0  # rows\nfn f(x: [b D]) -> [b D]:\n    return x.w |> relu |> g(0..3, 1e-3)\n"
    )
    for kind, word in [
        (Keyword, "devices"), (Name.Constant, "D"), (Number.Integer, "4_0"), (Comment.Single, "# rows"),
        (Name.Function, "f"), (Keyword, "return"), (Name.Attribute, "w"), (Number.Float, "1e-3"),
        (Token.Operator, ".."),
    ]:  # fmt: skip
        assert (kind, word) in found


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/*.ss")), ids=lambda path: path.stem)
def test_the_examples_have_no_errors(path: Path) -> None:
    text = path.read_text()
    assert "".join(word for _, word in ShapeScriptLexer().get_tokens(text)) == text
    assert not [word for kind, word in kinds(text) if kind is Error]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_comes_out_whole(text: str) -> None:
    lexer = ShapeScriptLexer(stripnl=False, ensurenl=False)
    assert "".join(word for _, word in lexer.get_tokens(text)) == text.replace("\r\n", "\n").replace("\r", "\n")


def test_the_words_are_the_languages() -> None:
    assert set(TYPES) == set(TYPE_NAMES)
    missing = set(BUILTIN_NAMES) - set(BUILTINS) - set(TYPES) - {"inf", "nan", "pi"}
    assert not missing, missing
    assert {name for name in BUILTINS if name not in BUILTIN_NAMES} <= {
        *REGISTRY,
        "constant",
        "xavier",
        "kaiming",
        "orthogonal",
    }
