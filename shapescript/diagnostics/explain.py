"""What an error code means, at length.

Reads `CODE.md`: a heading with the code and its title, what is wrong, then two programs in fences of backticks, the
first of which shows the error, the second the same mended (an error met while running shows when the first is run).
The pages lie in `docs/errors/` of the project; a built
package carries them as `shapescript/errors/`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shapescript.diagnostics.codes import codes
from shapescript.diagnostics.suggest import nearest

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = (PACKAGE / "errors", PACKAGE.parent / "docs" / "errors")
FENCE = re.compile(r"^```(?:shapescript)?(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Program:
    """A program of a page, and the files that stand beside it, by name."""

    text: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Explanation:
    """A page about a code. A fence with a file's name gives a file beside the next program."""

    code: str
    text: str

    @property
    def programs(self) -> list[Program]:
        """The programs of the page, in order: the wrong one, then the mended one."""
        found: list[Program] = []
        files: dict[str, str] = {}
        for name, body in FENCE.findall(self.text):
            if name:
                files[name] = body
            else:
                found.append(Program(body, files))
                files = {}
        return found


class NoExplanation(Exception):
    """There is no such code; `str(error)` is a line for the user."""


def explain(code: str) -> Explanation:
    """The page of a code, in any spelling of its letter.

    Raises:
        NoExplanation: the code isn't one of ShapeScript's, or its page is missing.
    """
    wanted = code.strip().upper().removeprefix("ERROR[").removeprefix("WARNING[").rstrip("]:")
    for folder in FOLDERS:
        path = folder / f"{wanted}.md"
        if re.fullmatch(r"[EW]\d{4}", wanted) and path.is_file():
            return Explanation(wanted, path.read_text(encoding="utf-8"))
    known = codes()
    if wanted in known:
        return Explanation(wanted, f"# {wanted}: {known[wanted]}\n")
    close = nearest(wanted, known)
    hint = f"; did you mean {close}, {known[close]}?" if close else ""
    raise NoExplanation(f"there is no error `{code}`{hint}")
