"""Diagnostics as text, to the letter; suggestions; formats for tools."""

from __future__ import annotations

import io
import json

import pytest

from shapescript.diagnostics.codes import codes
from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.diagnostics.formats import show
from shapescript.diagnostics.render import render, render_all, wants_colour
from shapescript.diagnostics.suggest import distance, nearest
from shapescript.source import Source

TEXT = """\
devices cuda[0 1 2]

dim D = 784

fn augmented(batch: [b] Digit) -> [b D]:
    return augment.random_crop(batch.img) as [b D]
"""
SOURCE = Source("split.ss", TEXT)


def label(part: str, words: str = "", source: Source = SOURCE) -> Label:
    start = source.text.index(part)
    return Label(source.span(start, start + len(part)), words)


def said(diagnostic: Diagnostic) -> list[str]:
    return render(diagnostic).splitlines()


def test_two_labels_on_a_line() -> None:
    diagnostic = Diagnostic(
        "E1901",
        "`batch.img` is split",
        label("batch.img", "split along `b`"),
        (label("augment.random_crop", "a Python function"),),
        ("each has a part",),
        ("move it",),
    )
    assert render_all([diagnostic]) == (
        "error[E1901]: `batch.img` is split\n"
        " --> split.ss:6:32\n"
        "  |\n"
        "6 |     return augment.random_crop(batch.img) as [b D]\n"
        "  |            ------------------- ^^^^^^^^^ split along `b`\n"
        "  |            |\n"
        "  |            a Python function\n"
        "  |\n"
        "  = note: each has a part\n"
        "  = help: move it\n"
        "\n"
        "For more information about E1901, run `shapescript explain E1901`.\n"
    )


def test_labels_on_several_lines() -> None:
    diagnostic = Diagnostic("E0301", "m", label("img"), (label("D = 784", "here"), label("fn augmented", "in")))
    assert said(diagnostic) == [
        "error[E0301]: m",
        " --> split.ss:6:38",
        "  |",
        "3 | dim D = 784",
        "  |     ------- here",
        "4 |",
        "5 | fn augmented(batch: [b] Digit) -> [b D]:",
        "  | ------------ in",
        "6 |     return augment.random_crop(batch.img) as [b D]",
        "  |                                      ^^^",
    ]


def test_lines_far_apart_have_dots_between() -> None:
    diagnostic = Diagnostic("E0301", "m", label("img"), (label("devices"),))
    assert said(diagnostic)[3:6] == ["1 | devices cuda[0 1 2]", "  | -------", "..."]


def test_three_labels_hang_from_the_right() -> None:
    source = Source("a.ss", "a + b + c\n")
    diagnostic = Diagnostic(
        "E0301", "m", label("c", "third", source), (label("a", "first", source), label("b", "second", source))
    )
    assert said(diagnostic)[3:] == [
        "1 | a + b + c",
        "  | -   -   ^ third",
        "  | |   |",
        "  | |   second",
        "  | first",
    ]


def test_a_label_inside_another() -> None:
    source = Source("a.ss", "f(x, y)\n")
    diagnostic = Diagnostic("E0601", "m", label("y", "this", source), (label("f(x, y)", "the call", source),))
    assert said(diagnostic)[3:] == [
        "1 | f(x, y)",
        "  | -----^-",
        "  | |    |",
        "  | |    this",
        "  | the call",
    ]


def test_another_file() -> None:
    other = Source("nets.ss", "dim D = 8\n")
    diagnostic = Diagnostic("E0301", "m", label("784"), (label("D = 8", "and here", other),))
    assert said(diagnostic)[5:] == [" ::: nets.ss:1:5", "  |", "1 | dim D = 8", "  |     ----- and here"]


@pytest.mark.parametrize(
    ("line", "part", "shown", "under"),
    [
        ("\tx = $", "$", "    x = $", "        ^"),
        ('s = "日本" $', "$", 's = "日本" $', "           ^"),
        ('s = "é" $', "$", 's = "é" $', "        ^"),
        ("x\x1b[31m $", "$", "x␛[31m $", "       ^"),
        ("x\u202e $", "$", "x\ufffd $", "   ^"),
        ("\ufeffx $", "$", "x $", "  ^"),
        ("日本", "本", "日本", "  ^^"),
    ],
)
def test_columns_are_those_of_the_screen(line: str, part: str, shown: str, under: str) -> None:
    source = Source("a.ss", line + "\n")
    assert said(Diagnostic("E0101", "m", label(part, "", source)))[3:] == [f"1 | {shown}", f"  | {under}"]


def test_an_empty_place_and_the_end_of_the_file() -> None:
    source = Source("a.ss", "fn f():")
    assert said(Diagnostic("E0105", "m", Label(source.span(7, 7))))[3:] == ["1 | fn f():", "  |        ^"]
    empty = Source("a.ss", "")
    assert said(Diagnostic("E1001", "m", Label(empty.span(0, 0))))[3:] == ["1 |", "  | ^"]


def test_a_place_over_several_lines_is_marked_on_its_first() -> None:
    source = Source("a.ss", "x = f(\n  1)\n")
    start = source.text.index("f(")
    assert said(Diagnostic("E0601", "m", Label(source.span(start, 11), "w")))[3:] == ["1 | x = f(", "  |     ^^ w"]


def test_a_help_of_several_lines() -> None:
    diagnostic = Diagnostic("E0301", "m", label("784"), helps=("write\n    x\n\nhere",))
    assert said(diagnostic)[-4:] == ["  = help: write", "              x", "", "          here"]


def test_a_warning_and_several_codes() -> None:
    found = [Diagnostic("W0507", "a", label("784")), Diagnostic("E0301", "b", label("784"))]
    text = render_all(found)
    assert text.startswith("warning[W0507]: a\n")
    assert text.endswith("For more information about W0507 and E0301, run `shapescript explain W0507`, and so on.\n")


def test_colours_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal()) and not wants_colour(io.StringIO())
    assert wants_colour(io.StringIO(), "always") and not wants_colour(Terminal(), "never")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())
    diagnostic = Diagnostic("E0301", "m", label("784", "w"), notes=("n",))
    coloured = render(diagnostic, colour=True)
    assert "\x1b[1;31m" in coloured and "\x1b" not in render(diagnostic)


def test_formats() -> None:
    diagnostic = Diagnostic("E0301", "m", label("784", "w"), (label("D", "s"),), ("n",), ("h",))
    assert show([diagnostic], "concise") == "split.ss:3:9: error[E0301]: m\n"
    assert show([], "json") == "[]\n" and show([], "text") == show([], "concise") == ""
    [found] = json.loads(show([diagnostic], "json"))
    assert (found["code"], found["severity"], found["line"], found["column"], found["end_column"]) == (
        "E0301",
        "error",
        3,
        9,
        12,
    )
    assert found["label"] == "w" and found["secondary"][0]["label"] == "s" and found["helps"] == ["h"]


@pytest.mark.parametrize(
    ("word", "candidates", "wanted"),
    [
        ("batche", ["batches", "shuffle"], "batches"),
        ("relu", ["Relu", "gelu"], "Relu"),
        ("x", ["only"], "only"),
        ("x", ["y", "z"], None),
        ("crossentropy", ["cross_entropy", "mse"], "cross_entropy"),
        ("sofmtax", ["softmax", "softplus"], "softmax"),
        ("abc", ["xyz", "uvw"], None),
        ("abc", [], None),
    ],
)
def test_the_nearest_name(word: str, candidates: list[str], wanted: str | None) -> None:
    assert nearest(word, candidates) == wanted


def test_distance() -> None:
    assert distance("ab", "ba", 2) == 1
    assert distance("kitten", "sitting", 3) == 3
    assert distance("kitten", "sitting", 2) == 3


def test_codes_are_collected_in_order_with_titles() -> None:
    found = codes()
    assert list(found) == sorted(found) and {"E0101", "E0301", "E1901", "W0507"} <= set(found)
    assert all(title and not title.endswith(".") for title in found.values())
