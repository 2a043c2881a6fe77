"""Every error code has a page, whose first program gives exactly that code and whose second checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shapescript.cli import main
from shapescript.diagnostics.codes import codes
from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.diagnostics.explain import NoExplanation, Program, explain
from shapescript.session import Session

PAGES = Path(__file__).resolve().parent.parent / "docs" / "errors"
WHILE_RUNNING = [code for code in codes() if code.startswith("E21")]
RENTED = "E1906"


def diagnostics(program: Program, folder: Path) -> list[Diagnostic]:
    for name, text in {**program.files, "program.ss": program.text}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Session(folder / "program.ss", "program.ss").diagnostics


@pytest.mark.parametrize("code", codes())
def test_every_code_has_a_page(code: str) -> None:
    page = explain(code)
    assert page.text.startswith(f"# {code}: {codes()[code]}\n"), "the heading is the code and its title"
    assert len(page.programs) == 2


def test_every_page_is_of_a_code() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(codes())


@pytest.mark.parametrize("code", [code for code in codes() if code not in (*WHILE_RUNNING, RENTED)])
def test_the_first_program_shows_it(code: str, tmp_path: Path) -> None:
    found = diagnostics(explain(code).programs[0], tmp_path)
    assert {diagnostic.code for diagnostic in found} == {code}


@pytest.mark.parametrize("code", codes())
def test_the_second_program_checks(code: str, tmp_path: Path) -> None:
    found = diagnostics(explain(code).programs[1], tmp_path)
    assert [(diagnostic.code, diagnostic.message) for diagnostic in found] == []


@pytest.mark.parametrize("code", WHILE_RUNNING)
def test_what_is_met_while_running(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong, mended = explain(code).programs
    (tmp_path / "program.ss").write_text(wrong.text)
    assert main(["run", "program.ss"]) == 1
    assert f"error[{code}]" in capsys.readouterr().err
    (tmp_path / "program.ss").write_text(mended.text)
    assert main(["run", "program.ss"]) == 0


def test_what_a_rented_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong, mended = explain(RENTED).programs
    (tmp_path / "program.ss").write_text(wrong.text)
    assert main(["run", "--modal", "T4", "program.ss"]) == 1
    assert f"error[{RENTED}]" in capsys.readouterr().err
    (tmp_path / "program.ss").write_text(mended.text)
    main(["run", "--modal", "T4", "--dry-run", "program.ss"])  # what follows depends on what is installed here
    assert RENTED not in capsys.readouterr().err


def test_a_code_in_any_spelling() -> None:
    assert explain("e1901").code == explain("error[E1901]:").code == "E1901"


def test_an_unknown_code() -> None:
    with pytest.raises(NoExplanation, match="there is no error `E9999`"):
        explain("E9999")
    with pytest.raises(NoExplanation):
        explain("../../README")


def test_the_wrong_program_is_shown_with_the_checkers_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "E0301"]) == 0
    plain = capsys.readouterr().out
    assert "    devices cpu\n" in plain and "\x1b" not in plain
    assert plain.count("error[E0301]: ") == 1 and "--> program.ss:4:" in plain
    assert main(["explain", "--color", "always", "E0301"]) == 0
    coloured = capsys.readouterr().out
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured).replace("`", "") == plain.replace("# ", "").replace("`", "")
    assert "\x1b[1;31merror[E0301]" in coloured


@pytest.mark.parametrize("code", codes())
def test_explain_shows_every_page_whole(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 0
    shown = capsys.readouterr().out
    checked = code not in WHILE_RUNNING and code != RENTED
    assert (f"[{code}]: " in shown) == checked
    assert explain(code).programs[1].text.splitlines()[-1] in shown
