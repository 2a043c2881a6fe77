"""A chain of a thousand operators or pipes is checked, formatted, compiled, differentiated, run, and edited."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs import codes

from shapescript.cli.main import main
from shapescript.editor.analysis import Analysis, text_on_disk
from shapescript.editor.hover import hover
from shapescript.room import room
from shapescript.source import Source
from shapescript.syntax.formatter import format_source

LINKS = 1000
PROGRAM = f"""devices cpu

dim D = 4

model M:
    param w: [D] = ones

fn loss(m: M) -> []:
    return sum(m.w{" + m.w" * LINKS}, over=D)

fn piped(x: [D]) -> [D]:
    return x{" |> abs" * LINKS}

fn slope(m: M) -> ([], Grads[M]):
    l, g = value_and_grad(loss, m)
    return l, g

fn main():
    m = M(seed=0)
    l, g = slope(m)
    print(l, norm(g), sum(piped(m.w), over=D))
    print(1{" + 1" * LINKS})
"""


def test_a_long_chain_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "long.ss"
    path.write_text(PROGRAM)
    before = sys.getrecursionlimit()
    assert main(["run", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["4004.0 2002.0 4.0", "1001"]
    assert sys.getrecursionlimit() == before


def test_a_long_chain_is_checked_formatted_and_shown(tmp_path: Path) -> None:
    assert codes(PROGRAM.removeprefix("devices cpu\n")) == []
    formatted = format_source(Source("long.ss", PROGRAM))
    assert format_source(Source("long.ss", formatted)) == formatted
    with room():
        analysis = Analysis(tmp_path / "long.ss", PROGRAM, text_on_disk, "utf-16")
        assert analysis.diagnostics() == []
        assert hover(analysis, PROGRAM.index("m.w + m.w") + 2) is not None
        analysis.update(PROGRAM.replace("m.w + m.w", "m.w - m.w", 1))
        assert analysis.diagnostics() == []
