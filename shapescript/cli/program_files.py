"""The programs that a command line names: files, folders of them, and the standard input.

Takes the words; gives texts, each under the name by which messages call it. A folder stands for every `.ss` below it,
but for what lies in hidden folders; `-` stands for the standard input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from shapescript.source import Source, read_source, source_of


def sources(names: list[str]) -> Iterator[Source]:
    """The texts, in the order of the words and then of their names."""
    for name in names:
        if name == "-":
            yield source_of(sys.stdin.buffer.read(), "-")
        elif os.path.isdir(name):
            for path in sorted(Path(name).rglob("*.ss")):
                if not any(part.startswith(".") for part in path.relative_to(name).parts):
                    yield read_source(path)
        else:
            yield read_source(name)
