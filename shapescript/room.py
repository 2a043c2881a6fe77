"""Room on Python's stack for walks of the deepest tree that the parser lets through.

Nesting is bounded, but a chain such as `a + b + c ...` may have a thousand links, each a few calls deep for what walks
a tree by calling itself. While someone needs it, whatever the thread, the interpreter's limit is higher.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

DEEPEST = 20_000


@dataclass
class _Users:
    """How many need the room now, and the limit that was there before the first of them."""

    count: int = 0
    before: int = 0


_LOCK = threading.Lock()
_USERS = _Users()


@contextmanager
def room() -> Iterator[None]:
    """While it lasts, calls may be nested deeper."""
    with _LOCK:
        if not _USERS.count:
            _USERS.before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_USERS.before, DEEPEST))
        _USERS.count += 1
    try:
        yield
    finally:
        with _LOCK:
            _USERS.count -= 1
            if not _USERS.count:
                sys.setrecursionlimit(_USERS.before)
