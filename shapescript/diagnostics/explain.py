"""What an error code means, at length.

Reads `CODE.md`: a heading with the code and its title, what is wrong, then two programs in fences of backticks, the
first of which shows the error, the second the same mended. The pages lie in `docs/errors/` of the project; a built
package carries them as `shapescript/errors/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from shapescript.diagnostics.codes import codes
from shapescript.diagnostics.suggest import nearest

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = (PACKAGE / "errors", PACKAGE.parent / "docs" / "errors")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Explanation:
    """A page about a code; `files` are those that the programs import, by name, as in "```python augment.py"."""

    code: str
    text: str

    @property
    def programs(self) -> list[str]:
        """The ShapeScript programs of the page, in order: the wrong one, then the mended one."""
        return [body for language, body in FENCE.findall(self.text) if language in ("", "shapescript")]


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
