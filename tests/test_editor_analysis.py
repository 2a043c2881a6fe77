"""The analysis of an open file: after any edit it says what a check of the text as it stands says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from count_calls import calls_of

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.editor.analysis import Analysis
from shapescript.editor.find_names import all_occurrences
from shapescript.editor.text import Place, Positions, edited
from shapescript.editor.units import split
from shapescript.placement.place import place
from shapescript.source import Source
from shapescript.syntax.parse import parse
from shapescript.types.checker import check_program

ROOT = Path(__file__).resolve().parent.parent
DIGITS = (ROOT / "examples" / "digits" / "train.ss").read_text(encoding="utf-8")
PATH = ROOT / "examples" / "digits" / "edited.ss"
SNIPPETS = [
    "x", " ", "\n", "    ", "(", ")", "[", "]", ":", ",", "=", "->", "|>", '"', "#", "1", "b", "fn ", "return ", "@ ",
    "+ ", "mut ", "over=", "dim Q = 3\n", "fn g(x: [b D]) -> [b D]:\n    return x\n", "😀", "\r\n", "\t",
    "é", "\u2028", "data ", "    y = relu(m.into)\n", "import nothing\n",
    "D", "(\n", "if ", "model M:\n    param w: [H] = zeros\n",
]  # fmt: skip


def plain(diagnostics: list[Diagnostic]) -> list[tuple[object, ...]]:
    """Diagnostics without their sources."""
    return sorted(
        (each.primary.span.start, each.code, each.message, each.primary.span.end, each.primary.words, each.notes,
         each.helps, tuple((label.span.start, label.span.end, label.words) for label in each.secondary))
        for each in diagnostics
    )  # fmt: skip


def fresh(text: str) -> list[tuple[object, ...]]:
    """What a check of the whole text says, without the editor's parts."""
    source = Source(str(PATH), text)
    analysis = Analysis(PATH, "")
    typed = check_program(source, parse(source), analysis.load_module)
    found = list(typed.diagnostics)
    if not typed.errors:
        found += place(typed).diagnostics
    return plain(found)


def big_program(lines: int) -> str:
    """A program of so many lines that checks."""
    head, _, rest = DIGITS.partition("fn scores")
    body = "fn scores" + rest.partition("fn main")[0]
    parts = [head]
    number = 0
    while sum(part.count("\n") for part in parts) < lines:
        part = body
        for name in ("scores", "loss", "step", "right", "accuracy"):
            for before in "( ":
                for after in "(,":
                    part = part.replace(f"{before}{name}{after}", f"{before}{name}_{number}{after}")
        parts.append(part)
        number += 1
    return "".join(parts)


@pytest.mark.parametrize("seed", range(6))
def test_random_edits(seed: int) -> None:
    random_of = random.Random(seed)
    text = DIGITS if seed % 2 else DIGITS.replace("\n", "\r\n").replace("rows", "r😀ws")
    analysis = Analysis(PATH, text)
    for number in range(60):
        _ = analysis.diagnostics()
        for _ in range(random_of.choice([1, 1, 1, 3])):
            start = random_of.randrange(len(text) + 1)
            length = random_of.choice([0, 0, 0, 1, 1, 5, 30])
            text = text[:start] + random_of.choice([*SNIPPETS, ""]) + text[start + length :]
            analysis.update(text)
        if number % 3 == 0:
            text = DIGITS
            analysis.update(text)
            analysis.diagnostics()
            at = random_of.randrange(len(text))
            text = text[:at] + random_of.choice(SNIPPETS) + text[at:]
            analysis.update(text)
        assert plain(analysis.diagnostics()) == fresh(text), (seed, number)


def test_edits_within_bodies_keep_what_is_known() -> None:
    text = DIGITS
    analysis = Analysis(PATH, text)
    _ = analysis.typed
    kept = analysis.checked
    for old, new in [
        ("rate=0.1", "rate=0.25"),
        ("    return l\n", "    # the loss\n    return l\n"),
        ("over=C) ==", "over=b) =="),
        ("over=b) ==", "over=C) =="),
        ("total = 0\n", "total = (\n"),
        ("total = (\n", "total = 0\n"),
        ("dim H = 96  #", "dim H = 96  # wide:"),
    ]:
        assert old in text
        text = text.replace(old, new, 1)
        analysis.update(text)
        assert plain(analysis.diagnostics()) == fresh(text)
        assert analysis.checked is kept, f"{old!r} -> {new!r} was checked anew"


@pytest.mark.parametrize("devices", ["cpu", "cpu[0 1 2]"])
def test_an_edit_of_2000_lines_does_a_part_of_the_work(devices: str) -> None:
    """What an editor asks for after an edit, with where functions run and what is split, in a tenth of the work."""
    text = big_program(2000).replace("devices cpu", f"devices {devices}", 1)
    kept: list[Analysis] = []
    opened = calls_of(lambda: kept.append(Analysis(PATH, text)) or kept[0].diagnostics())
    analysis = kept[0]
    assert analysis.diagnostics() == []
    at = text.index("rate=0.1", len(text) // 2)
    for number in range(1, 3):
        text = text[:at] + f"rate=0.{number}" + text[at + 8 :]
        edited = calls_of(lambda new=text: analysis.update(new) or analysis.diagnostics())  # type: ignore[misc]
        assert edited < opened / 10
    assert analysis.diagnostics() == []


def test_what_is_kept_of_a_body_is_of_the_body_that_is_there() -> None:
    """On several devices: what is split in a function hangs on its callers, and its errors move with the text."""
    text = DIGITS.replace("devices cpu", "devices cpu[0 1 2]", 1)
    assert "devices cpu[0 1 2]" in text
    analysis = Analysis(PATH, text)
    for old, new in [
        ("rate=0.1", "rate=0.25"),
        ("return dropout(features, rate) @ m.out", "return softmax(dropout(features, rate) @ m.out, over=b)"),
        ("fn loss(", "# a line more\n\nfn loss("),
        ("rate=0.25", "rate=0.5"),
        (", over=b)\n", ", over=C)\n"),
        ("    return l\n", "    print(l)\n    return l\n"),
        ("# a line more\n\nfn loss(", "fn loss("),
        ("    print(l)\n", ""),
    ]:
        assert old in text, old
        text = text.replace(old, new, 1)
        analysis.update(text)
        assert plain(analysis.diagnostics()) == fresh(text), new


def test_units_make_up_the_text() -> None:
    for text in (DIGITS, "", "x", "fn f(\nfn g(\nfn h()", "data x in\n"):
        assert "".join(split(text)) == text
    assert len(split(DIGITS)) > 10


def test_places() -> None:
    positions = Positions("a😀b\r\nc\rd\n\u2028e")
    assert [positions.place(offset) for offset in (0, 1, 2, 5, 6, 7, 9, 10)] == [
        Place(0, 0), Place(0, 1), Place(0, 3), Place(1, 0), Place(1, 1), Place(2, 0), Place(3, 0), Place(3, 1),
    ]  # fmt: skip
    for offset in (0, 1, 2, 5, 6, 7, 9, 10):
        assert positions.offset(positions.place(offset)) == offset
    assert positions.offset(Place(0, 99)) == 3 and positions.offset(Place(9, 0)) == len(positions.text)
    assert edited("a😀b", Place(0, 3), Place(0, 4), "c") == "a😀c"


def test_an_imported_file_that_changes(tmp_path: Path) -> None:
    (tmp_path / "nets.ss").write_text("dim D = 4\n\nfn twice(x: [b D]) -> [b D]:\n    return x + x\n")
    text = "devices cpu\n\nimport nets\n\nfn f(x: [b nets.D]) -> [b nets.D]:\n    return nets.twice(x)\n"
    analysis = Analysis(tmp_path / "main.ss", text)
    assert analysis.diagnostics() == []
    (tmp_path / "nets.ss").write_text("dim D = 4\n")
    assert analysis.refresh()
    assert [each.code for each in analysis.diagnostics()] != []
    (tmp_path / "nets.ss").unlink()
    assert analysis.refresh()
    assert "E0902" in [each.code for each in analysis.diagnostics()]


def test_names_that_are_kept_are_those_of_the_text() -> None:
    """After edits, the names of the file are those that a fresh analysis finds."""
    random_of = random.Random(3)
    text = DIGITS
    analysis = Analysis(PATH, text)
    for _ in range(60):
        at = random_of.randrange(len(text) + 1)
        text = text[:at] + random_of.choice(SNIPPETS) + text[at + random_of.choice([0, 0, 3]) :]
        if random_of.random() < 0.2:
            text = DIGITS
        analysis.update(text)
        ours = [(each.start, each.end, each.symbol) for each in all_occurrences(analysis)]
        assert ours == [(each.start, each.end, each.symbol) for each in all_occurrences(Analysis(PATH, text))]
        assert all(text[start:end] == symbol.name for start, end, symbol in ours)
