"""README.md keeps its word: its program checks, the slips it names are found, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def program() -> str:
    """The ShapeScript program of the README: its only block without a language."""
    (found,) = re.findall(r"^```\n(devices .*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return str(found)


def check(path: Path, text: str) -> subprocess.CompletedProcess[str]:
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "shapescript", "check", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_program_checks(tmp_path: Path) -> None:
    done = check(tmp_path / "linear.ss", program())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("right", "slip"), [("over=C", "over=b"), ("batch.pixels @ m.w", "m.w @ batch.pixels")])
def test_the_slips_it_names_are_errors_with_a_place_and_both_axes(tmp_path: Path, right: str, slip: str) -> None:
    assert right in program()
    done = check(tmp_path / "slip.ss", program().replace(right, slip))
    assert done.returncode == 1, done.stdout + done.stderr
    words = done.stdout + done.stderr
    assert "slip.ss:15:" in words
    assert "`b`" in words and re.search(r"`C`|`Index\[C\]`", words)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
