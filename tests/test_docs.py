"""Every program in the pages of docs/ checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shapescript.placement.place import place
from shapescript.session import Session
from shapescript.source import Source
from shapescript.syntax.parse import parse
from shapescript.types.checker import check_program

DOCS = Path(__file__).resolve().parent.parent / "docs"
PROGRAMS = [
    (page.name, number, text)
    for page in sorted(DOCS.glob("*.md"))
    for number, text in enumerate(re.findall(r"^```\n(devices .*?)^```$", page.read_text(), re.M | re.S))
]


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 3


@pytest.mark.parametrize(("page", "number", "text"), PROGRAMS, ids=[f"{page}-{number}" for page, number, _ in PROGRAMS])
def test_the_program_checks(page: str, number: int, text: str) -> None:
    source = Source(page, text)
    parsed = parse(source)
    assert not parsed.diagnostics
    typed = check_program(source, parsed, Session(DOCS / page, page).load_module)
    found = [*typed.errors, *place(typed).diagnostics]
    assert not found, [error.message for error in found]
