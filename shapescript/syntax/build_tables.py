"""Writes `_tables.py` beside this file: `python -m shapescript.syntax.build_tables [PATH]`.

Run when the package is built. Ends with status 1, and writes nothing, if the grammar has a fault.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shapescript.syntax import tables


def main(arguments: list[str]) -> int:
    """Writes the tables to the path given, or beside this file."""
    path = Path(arguments[0]) if arguments else Path(__file__).with_name("_tables.py")
    try:
        text = tables.written(tables.build())
    except tables.GrammarFault as fault:
        print(f"the grammar has faults:\n{fault}", file=sys.stderr)
        return 1
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
