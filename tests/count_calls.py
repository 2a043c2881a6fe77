"""How much work a call does, as a count that is the same on every machine and under any load.

Speed itself is measured in `bench/`. What a test can hold is how work grows: twice the text, at most about twice the
calls of Python and C functions.
"""

import sys
from collections.abc import Callable
from types import FrameType

__all__ = ["calls_of"]


def calls_of(action: Callable[[], object]) -> int:
    """The number of functions, in Python and in C, that `action` calls in this thread."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count
