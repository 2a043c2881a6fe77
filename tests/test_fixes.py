"""Fixes: each mends what it is for, `check --fix` applies the safe ones alone, and tools can read what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shapescript.cli import main
from shapescript.cli.fixing import fixed
from shapescript.diagnostics.codes import codes
from shapescript.diagnostics.explain import explain
from shapescript.session import Session
from shapescript.source import Source

Out = pytest.CaptureFixture[str]

SAFE = [
    ("fn f(x: [b, D]) -> [b,D]:\n    return x\n", "fn f(x: [b D]) -> [b D]:\n    return x\n"),
    ("def f(x: [b D]) -> [b D]\n    return x\n", "fn f(x: [b D]) -> [b D]:\n    return x\n"),
    (
        "fn f(n: int) -> int:\n    if n > 1 && n < 3 || n <> 5:\n        n += 2 * n\n    return n\n",
        "fn f(n: int) -> int:\n    if n > 1 and n < 3 or n != 5:\n        n = n + (2 * n)\n    return n\n",
    ),
    ("fn f(n: int):\n    print('a', 1., .5, n ≤ 2)\n", 'fn f(n: int):\n    print("a", 1.0, 0.5, n <= 2)\n'),
    ("fn f(n: int) -> bool:\n    return 0 < n < 3\n", "fn f(n: int) -> bool:\n    return 0 < n and n < 3\n"),
    ("fn f(n: int) -> int:\n\treturn n\n", "fn f(n: int) -> int:\n    return n\n"),
]
UNSAFE = [
    ("fn f(x: [b D]) -> [b D]:\n    return rellu(x)\n", "fn f(x: [b D]) -> [b D]:\n    return relu(x)\n"),
    (
        "dim Width = 3\n\nfn f(x: [b Width]) -> [b Widht]:\n    return x\n",
        "dim Width = 3\n\nfn f(x: [b Width]) -> [b Width]:\n    return x\n",
    ),
    (
        "model M:\n    param w: [D] = zeros\n\nfn g(mut m: M):\n    m.w = m.w + 1\n\nfn f(mut m: M):\n    g(m)\n",
        "model M:\n    param w: [D] = zeros\n\nfn g(mut m: M):\n    m.w = m.w + 1\n\nfn f(mut m: M):\n    g(mut m)\n",
    ),
]
HEAD = "devices cpu\n\ndim D = 4\n\n"


def mended(text: str, unsafe: bool = False) -> str:
    return fixed(Path("none.ss"), Source("none.ss", text), unsafe)[0]


@pytest.mark.parametrize(("wrong", "right"), SAFE)
def test_a_safe_fix(wrong: str, right: str) -> None:
    assert mended(HEAD + wrong) == HEAD + right


@pytest.mark.parametrize(("wrong", "right"), UNSAFE)
def test_an_unsafe_fix(wrong: str, right: str) -> None:
    assert mended(HEAD + wrong) == HEAD + wrong
    assert mended(HEAD + wrong, unsafe=True) == HEAD + right


def test_the_devices_line_is_put_in() -> None:
    assert mended("dim D = 4\n", unsafe=True) == "devices cpu\n\ndim D = 4\n"


def errors_of(text: str) -> int:
    session = Session(Path("none.ss"), "none.ss")
    session.source = Source("none.ss", text)
    return len(session.errors)


def test_no_fix_makes_a_program_worse() -> None:
    """Of every page's wrong program, fixes leave fewer errors than there were, or the text as it was."""
    changed = 0
    for code in codes():
        for program in explain(code).programs:
            for unsafe in (False, True):
                text = mended(program.text, unsafe)
                if text != program.text:
                    changed += 1
                    assert errors_of(text) < errors_of(program.text), (code, text)
    assert changed > 20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "a.ss").write_text(HEAD + SAFE[0][0])
    return tmp_path


def test_check_fix(folder: Path, capsys: Out) -> None:
    assert main(["check", "--diff", "a.ss"]) == 1
    assert "+fn f(x: [b D]) -> [b D]:" in capsys.readouterr().out
    assert (folder / "a.ss").read_text() == HEAD + SAFE[0][0]
    assert main(["check", "--fix", "a.ss"]) == 0
    assert (folder / "a.ss").read_text() == HEAD + SAFE[0][1]
    out = capsys.readouterr()
    assert out.out == "a.ss: no errors\n" and out.err.startswith("a.ss: leave `,` out\n")


def test_formats_for_tools(folder: Path, capsys: Out) -> None:
    assert main(["check", "--format", "github", "a.ss"]) == 1
    assert capsys.readouterr().out.startswith("::error file=a.ss,line=5,col=11,endColumn=12,title=shapescript E0116::")
    assert main(["check", "--format", "sarif", "a.ss"]) == 1
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert [each["ruleId"] for each in run["results"]] == ["E0116"]
    region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 5, "startColumn": 11, "endLine": 5, "endColumn": 12}
    assert main(["check", "--format", "json", "a.ss"]) == 1
    [first] = json.loads(capsys.readouterr().out)
    assert first["fixes"][0]["safe"] and first["fixes"][0]["edits"][0]["text"] == ""
