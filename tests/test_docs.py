"""The pages of docs/: every program checks, every built-in has a page whose example checks, links lead somewhere.

Pages that are read from top to bottom are run by test_docs_run.py and test_docs_python.py.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from shapescript.placement.place import place
from shapescript.session import Session
from shapescript.source import Source
from shapescript.syntax.parse import parse
from shapescript.types.check_builtins import BUILTINS
from shapescript.types.check_expressions import BUILTIN_NAMES
from shapescript.types.checker import check_program
from shapescript.types.operations import MAKERS, OPERATIONS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
PROGRAMS = [
    (page.name, number, text)
    for page in sorted(DOCS.glob("*.md"))
    for number, (kind, text) in enumerate(FENCE.findall(page.read_text(encoding="utf-8")))
    if kind in ("", "shapescript") and re.match(r"(# \w+\.ss\n)?devices ", text) and "# wrong.ss" not in text
]


def messages(name: str, text: str) -> list[str]:
    source = Source(name, text)
    parsed = parse(source)
    assert not parsed.diagnostics
    typed = check_program(source, parsed, Session(DOCS / name, name).load_module)
    return [error.message for error in [*typed.errors, *place(typed).diagnostics]]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_reference", DOCS / "build_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_reference"] = module
    spec.loader.exec_module(module)
    return module


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 12


@pytest.mark.parametrize(("page", "number", "text"), PROGRAMS, ids=[f"{page}-{number}" for page, number, _ in PROGRAMS])
def test_the_program_checks(page: str, number: int, text: str) -> None:
    assert messages(page, text) == []


def test_every_built_in_has_a_page(reference: ModuleType) -> None:
    pages = reference.pages()
    for name in {*BUILTIN_NAMES, *BUILTINS, *OPERATIONS, *MAKERS}:
        page = pages[f"reference/{name}.md"]
        assert page.startswith(f"# {name}\n") and f"({name}.md)" in pages["reference/index.md"]
        assert re.search(rf"\b{name}\b", reference.example(name).shown) or name in ("topk", "add"), (
            "the example uses it"
        )


def test_every_example_checks(reference: ModuleType) -> None:
    _, written = reference.written_examples()
    assert set(written) <= set(reference.names())
    assert messages("reference_examples.ss", reference.EXAMPLES.read_text(encoding="utf-8")) == []
    for name in reference.names():
        if name not in written:
            assert messages("example.ss", reference.example(name).whole) == [], name


def test_links_lead_somewhere(reference: ModuleType) -> None:
    made = {*reference.pages(), "errors/index.md"}
    for page in [*DOCS.glob("*.md"), *(DOCS / "errors").glob("*.md")]:
        prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
        for link in re.findall(r"\]\(([^)#:\s]+)[^):]*\)", prose):
            assert (page.parent / link).exists() or link in made, f"{page.name} links to {link}"


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the site's generator isn't installed: pip install -e '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "reference" / "softmax.html").is_file()
    error = (tmp_path / "site" / "errors" / "E0301.html").read_text(encoding="utf-8")
    assert '<span class="k">fn</span>' in error, "programs have the lexer's colours"
