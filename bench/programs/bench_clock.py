"""The bench's hand in a `.ss` program: which block of steps to run next, and the clock around it.

Nothing here is called from step to step but in the mode `watch`, which isn't timed: a block's loop is the loop that a
user would write, and the clock is read before it and after it.
"""

from __future__ import annotations

from bench.wire import Block, Line

_line = Line()
_block = Block("plain", 0, 0)


def asked() -> bool:
    """Waits for a block; False when there are no more."""
    global _block
    found = _line.next()
    if found is not None:
        _block = found
    return found is not None


def mode() -> str:
    """The block's mode."""
    return _block.mode


def seed() -> int:
    """The block's seed."""
    return _block.seed


def steps() -> int:
    """The block's steps."""
    return _block.steps


def loss(value: float) -> None:
    """Keeps one step's loss for the answer."""
    _line.losses.append(value)


def done(value: float) -> None:
    """The block is over, and this is its last loss."""
    _line.done(value)
