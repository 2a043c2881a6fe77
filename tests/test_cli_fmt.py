"""`shapescript fmt`: what it writes, what it leaves alone, and how it ends."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from shapescript.cli import main

UGLY = "dim   D=4 # rows\n"
NICE = "dim D = 4  # rows\n"
Out = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "ugly.ss").write_text(UGLY)
    (tmp_path / "nice.ss").write_text(NICE)
    return tmp_path


def test_writes_a_file_and_says_so(folder: Path, capsys: Out) -> None:
    (folder / "ugly.ss").chmod(0o640)
    assert main(["fmt", "ugly.ss", "nice.ss"]) == 0
    assert (folder / "ugly.ss").read_text() == NICE
    assert (folder / "ugly.ss").stat().st_mode & 0o777 == 0o640
    assert capsys.readouterr().err == "1 file changed, 1 file in the style already\n"
    assert sorted(path.name for path in folder.iterdir()) == ["nice.ss", "ugly.ss"]


def test_check_changes_nothing(folder: Path, capsys: Out) -> None:
    assert main(["fmt", "--check", "."]) == 1
    assert capsys.readouterr().err == "would change ugly.ss\n1 file would change, 1 file in the style already\n"
    assert (folder / "ugly.ss").read_text() == UGLY
    assert main(["fmt", "--check", "nice.ss"]) == 0


def test_diff_shows_the_change(folder: Path, capsys: Out) -> None:
    assert main(["fmt", "--diff", "ugly.ss"]) == 1
    assert "-dim   D=4 # rows\n+dim D = 4  # rows\n" in capsys.readouterr().out
    assert (folder / "ugly.ss").read_text() == UGLY


def test_standard_input(folder: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UGLY.encode())))
    assert main(["fmt", "-"]) == 0
    assert capsys.readouterr() == (NICE, "")


def test_a_text_with_errors_is_left_alone(folder: Path, capsys: Out) -> None:
    (folder / "wrong.ss").write_text("fn f(:\n")
    assert main(["fmt", "wrong.ss", "ugly.ss"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error[E0106]") and said.endswith("1 file changed, 1 file left alone, with errors\n")
    assert (folder / "wrong.ss").read_text() == "fn f(:\n"
    assert (folder / "ugly.ss").read_text() == NICE


def test_what_is_not_there_or_not_text(folder: Path, capsys: Out) -> None:
    assert main(["fmt", "nothing.ss"]) == 2
    assert capsys.readouterr().err == "error: there is no file `nothing.ss`\n"
    (folder / "latin.ss").write_bytes(b"# caf\xe9\n")
    assert main(["fmt", "latin.ss"]) == 2
    assert "isn't UTF-8 text" in capsys.readouterr().err


def test_a_link_stays_a_link(folder: Path) -> None:
    (folder / "link.ss").symlink_to("ugly.ss")
    assert main(["fmt", "link.ss"]) == 0
    assert (folder / "link.ss").is_symlink() and (folder / "ugly.ss").read_text() == NICE
