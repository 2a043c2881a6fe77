"""`new`, `watch` and `completion`: what a user gets who types them."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shapescript.cli import main
from shapescript.cli.main import COMMANDS
from shapescript.cli.new_project import FILES
from shapescript.source import Source
from shapescript.syntax.formatter import format_source

Out = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


def make_run(folder: Path, name: str, values: list[float]) -> Path:
    run = folder / "runs" / name
    run.mkdir(parents=True)
    rows = "".join(f"{step},loss,{value!r}\n" for step, value in enumerate(values))
    (run / "metrics.csv").write_text(f"step,name,value\n{rows}7,lo")
    return run


# --- new -------------------------------------------------------------------------------------------------------------


def test_a_new_project_trains(folder: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["new", "moons"]) == 0
    assert "cd moons" in capsys.readouterr().out
    assert sorted(path.name for path in (folder / "moons").iterdir()) == sorted(FILES)
    monkeypatch.chdir(folder / "moons")
    assert main(["check", "train.ss"]) == 0
    capsys.readouterr()
    assert main(["run", "train.ss", "6"]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    assert len(lines) == 6 and float(lines[-1].split()[-1]) > 0.8
    assert (folder / "moons" / "net.safetensors").is_file()


def test_a_new_project_is_in_the_style() -> None:
    assert format_source(Source("train.ss", FILES["train.ss"])) == FILES["train.ss"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("there", "is there already"), ("no/where", "there is no folder `no`"), ("a b", "can't be the name of a project")],
)
def test_a_new_project_that_cannot_be(folder: Path, capsys: Out, name: str, said: str) -> None:
    (folder / "there").mkdir()
    assert main(["new", name]) == 2
    assert said in capsys.readouterr().err
    assert list((folder / "there").iterdir()) == []


# --- watch -----------------------------------------------------------------------------------------------------------


def test_watch_shows_the_newest_run(folder: Path, capsys: Out) -> None:
    old = make_run(folder, "old", [3.0])
    os.utime(old / "metrics.csv", (1, 1))
    make_run(folder, "train", [2.0, 1.0, float("nan"), 0.5])
    assert main(["watch", "--once"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("runs/train\n") and "loss  0.5 at step 3  (1 values are nan or infinite)" in out
    assert re.search(r"[\u2801-\u28ff]", out)
    assert main(["watch", "--once", "old"]) == 0
    assert "runs/old, no new value for" in capsys.readouterr().out


def test_watch_without_a_run(folder: Path, capsys: Out) -> None:
    assert main(["watch"]) == 2
    assert "there is no run in `runs` here" in capsys.readouterr().err
    make_run(folder, "train", [1.0])
    assert main(["watch", "trian"]) == 2
    assert "did you mean `train`?" in capsys.readouterr().err


def test_watch_draws_a_picture(folder: Path, capsys: Out) -> None:
    pytest.importorskip("matplotlib")
    make_run(folder, "train", [2.0, 1.0, 0.5])
    assert main(["watch", "--once", "--png", "loss.png", "train"]) == 0
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert main(["watch", "--once", "--png", "no/loss.png"]) == 2
    assert "can't be written" in capsys.readouterr().err


def test_watch_follows_until_it_is_stopped(folder: Path) -> None:
    run = make_run(folder, "train", [2.0])
    command = [sys.executable, "-c", "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
               "from shapescript.cli import main\nsys.exit(main(['watch']))"]  # fmt: skip
    # a job in the background ignores Ctrl-C until told otherwise
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(2.5)
        with open(run / "metrics.csv", "a") as file:
            file.write("ss,0.25\n8,loss,0.125\n")
        time.sleep(2.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "at step 8" in out


# --- completion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command(folder: Path, capsys: Out, shell: str) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS) and "devices" in out


def test_completion_in_a_shell(folder: Path, capsys: Out) -> None:
    (folder / "train.ss").write_text("")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asks = 'COMP_WORDS=(shapescript {words}); COMP_CWORD={at}; _shapescript; echo "${{COMPREPLY[@]}}"'
    for words, at, wanted in [("fm", 1, "fmt"), ("fmt --ch", 2, "--check"), ("check tr", 2, "train.ss")]:
        code = script + asks.format(words=words, at=at)
        done = subprocess.run(["bash", "-c", code], cwd=folder, capture_output=True, text=True)
        assert done.stdout.strip() == wanted, (words, done.stderr)


def test_completion_for_another_shell(folder: Path, capsys: Out) -> None:
    assert main(["completion", "dash"]) == 2
    assert "there is for bash, zsh, fish" in capsys.readouterr().err


def test_check_takes_folders_and_the_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one.ss").write_text("devices cpu\n\ndim D = 4\n")
    (tmp_path / "two.ss").write_text("devices cpu\n\ndim D = E\n")
    assert main(["check", "inner"]) == 0
    assert capsys.readouterr().out == f"{Path('inner', 'one.ss')}: no errors\n"
    assert main(["check", "--format", "concise", "."]) == 1
    assert capsys.readouterr().out.startswith("two.ss:3:9: error[E0201]")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"devices cpu\n\ndim D = E\n")))
    assert main(["check", "--format", "concise", "-"]) == 1
    assert capsys.readouterr().out.startswith("-:3:9: error[E0201]")
    (tmp_path / "empty").mkdir()
    assert main(["check", "empty"]) == 2
    assert "there is no program (`.ss`) in `empty`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "--fx", "x.ss"], "`shapescript check` doesn't take `--fx`; did you mean `--fix`?"),
        (["doctor", "now"], "`shapescript doctor` doesn't take `now`"),
        (["check", "--unsafe-fixes", "x.ss"], "goes with `--fix`"),
        (["run"], "the following arguments are required: FILE\n"),
        (["run", "--dim", "Q=3", "x.ss"], "has no dim `Q`; its dims are D, E"),
    ],
)
def test_a_command_line_that_is_mistyped(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ss").write_text("devices cpu\n\ndim D = 4\ndim E = 5\n")
    assert main(words) == 2
    assert said in capsys.readouterr().err
