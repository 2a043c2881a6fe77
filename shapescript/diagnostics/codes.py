"""Every error code with its short title, collected from the stages that give them.

Each stage keeps a table `CODES` beside its code. The tables are read when first asked for, from the modules' files
by name, so that no stage is run for it and nothing heavy is imported; one code in two tables is a mistake of the
project, which raises.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def tables() -> list[Path]:
    """The files that hold a table: `codes.py` or `codes_*.py` of any stage."""
    found = [*PACKAGE.glob("*/codes.py"), *PACKAGE.glob("*/codes_*.py")]
    return sorted(path for path in found if path != Path(__file__).resolve())


@lru_cache(maxsize=1)
def codes() -> dict[str, str]:
    """All codes in their order, each with its title."""
    found: dict[str, str] = {}
    for path in tables():
        for code, title in table(path).items():
            if code in found and found[code] != title:
                raise ValueError(f"{code} stands in two tables, the second is {path}")
            found[code] = title
    return dict(sorted(found.items()))


def table(path: Path) -> dict[str, str]:
    """The `CODES` of one file, which is a literal; empty if the file has none."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0] if isinstance(node.targets[0], ast.Name) else None
        if isinstance(target, ast.Name) and target.id == "CODES" and isinstance(node, (ast.Assign, ast.AnnAssign)):
            assert node.value is not None
            return dict(ast.literal_eval(node.value))
    return {}
