"""The tutorial and the page of side-by-side programs run from top to bottom, and print what they say.

A block whose first line is `# name.ss` or `# name.py` is a file; `sh` blocks are commands of `shapescript`, called in
this process; Python runs in one namespace a page. A `text` block is what the block before it prints, where `...` stands
for anything.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from shapescript.cli import main

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
PEERS = ("einops", "jax")


def output_of(kind: str, text: str, page: str, namespace: dict[str, object]) -> str:
    """What a block of commands or of Python prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()):
        if kind == "python":
            exec(compile(text, f"{page}.md", "exec"), namespace)
        else:
            for line in text.splitlines():
                command, *words = shlex.split(line)
                assert command == "shapescript"
                main(words)
    return output.getvalue()


@pytest.mark.parametrize(("page", "most"), [("tutorial", 7), ("coming-from", 4)])
def test_the_page_runs(page: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    namespace: dict[str, object] = {}
    printed, ran = "", 0
    for kind, text in BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
        file = re.match(r"# ([\w]+\.(?:ss|py))\n", text)
        absent = [name for name in PEERS if f"import {name}" in text or f"from {name}" in text]
        if file:
            (tmp_path / file[1]).write_text(text, encoding="utf-8")
            importlib.invalidate_caches()
            sys.modules.pop(file[1].removesuffix(".py"), None)
        elif kind in ("python", "sh") and all(importlib.util.find_spec(name) for name in absent):
            printed = output_of(kind, text, page, namespace)
            ran += 1
        elif kind == "text":
            matches = doctest.OutputChecker().check_output(text, printed, doctest.ELLIPSIS)
            assert matches, f"it should print\n{text}\nand prints\n{printed}"
    for name in ("digits",):
        if name not in before:
            sys.modules.pop(name, None)
    assert ran >= most
