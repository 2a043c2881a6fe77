"""Puts a run's table into a page: between two comments, so that the words around it stay a person's."""

from __future__ import annotations

from pathlib import Path

from bench.report import markdown
from bench.results import Result

BEGIN = "<!-- made by `python -m bench --page`: begin -->"
END = "<!-- made by `python -m bench --page`: end -->"


def fill(path: Path, result: Result) -> None:
    """Writes the table into the page.

    Raises:
        ValueError: the page hasn't got the two comments.
    """
    path.write_text(filled(path.read_text(encoding="utf-8"), markdown(result)), encoding="utf-8")


def filled(page: str, table: str) -> str:
    """A page with another table."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page should have the lines `{BEGIN}` and `{END}`")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"
