"""A GPU that doesn't finish a step any more.

Gives `Hang`, and how long a step may take. Imports nothing, so that whoever tells of it needs no module for GPUs.
"""

from __future__ import annotations

import os

VARIABLE = "SHAPESCRIPT_STEP_DEADLINE"
LONGEST_STEP = 60.0
"""Seconds after which a step that isn't finished is a hang; what several devices do together may be one for ever."""


class Hang(Exception):
    """The device doesn't finish a step; its process can't be used any more."""


def longest_step(otherwise: float = LONGEST_STEP) -> float:
    """The seconds that a step may take, by the environment or `otherwise`.

    Raises:
        ValueError: the environment asks for something that is no number of seconds.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return otherwise
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"{VARIABLE} is `{text}`; it should be a number of seconds, such as 60")
    return seconds
