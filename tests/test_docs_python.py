"""The pages about Python, data and checkpoints: their programs and their Python run, in order, and print what they say.

A block whose first line is `# name.ss` or `# name.py` is a file; other Python runs in one namespace a page; a `text`
block after it is what it prints.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", ["python", "data", "checkpoints"])
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("net", "rows", "noise"):  # of another page, or of another test
        sys.modules.pop(name, None)
    namespace: dict[str, object] = {}
    printed = ""
    ran = 0
    for kind, text in BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
        file = re.match(r"# (\w+\.(?:ss|py))\n", text)
        if file:
            (tmp_path / file[1]).write_text(text, encoding="utf-8")
            importlib.invalidate_caches()
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(text, f"{page}.md", "exec"), namespace)
            printed = output.getvalue().replace(f"{tmp_path}/", "")
            ran += 1
        elif kind == "text":
            assert printed == text
    assert ran >= 2
