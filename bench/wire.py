"""The line between the bench and a contestant: what is asked, what is answered, and by which clock.

A contestant is a process that trains. It gets two pipes, by number in `BENCH_COMMANDS` and `BENCH_ANSWERS`; each line
on them is JSON. It is asked for a block: a mode, a seed and a number of steps; the answer has the seconds that the
block took by the contestant's own clock, from the moment it was read to the moment its last loss was known. Between
two blocks it sleeps. This module is loaded by every contestant, so it needs the standard library alone; what starts
contestants and asks them is in `contestant.py`.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import Any

COMMANDS = "BENCH_COMMANDS"
ANSWERS = "BENCH_ANSWERS"
FOLDER = "BENCH_FOLDER"

MODES = ("plain", "print", "watch", "rate")
"""Only the last loss is looked at; each is printed; each is looked at and told; the learning rate changes each step."""

LEARNING_RATE = 3e-4
DECAY = 0.9999
"""By what the learning rate of the mode `rate` is multiplied at each step of a block."""


@dataclass(frozen=True)
class Block:
    """What is asked: `steps` steps of the epoch that `seed` shuffles."""

    mode: str
    seed: int
    steps: int

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"a block's mode is one of {', '.join(MODES)}, and this is {self.mode!r}")


@dataclass(frozen=True)
class Answer:
    """What came of it; `losses` has each step's where the mode is `watch`."""

    seconds: float
    loss: float
    losses: list[float] = field(default_factory=list)


def encode(message: Block | Answer) -> bytes:
    """A message as one line."""
    return (json.dumps(asdict(message)) + "\n").encode()


def decode_block(line: str | bytes) -> Block:
    """What `encode` made of a block."""
    return Block(**json.loads(line))


def decode_answer(line: str | bytes) -> Answer:
    """What `encode` made of an answer."""
    found: dict[str, Any] = json.loads(line)
    return Answer(**found)


class Line:
    """The contestant's end."""

    def __init__(self) -> None:
        missing = [name for name in (COMMANDS, ANSWERS) if name not in os.environ]
        if missing:
            raise RuntimeError("this program is run by `python -m bench`, which asks it for steps")
        self.commands = os.fdopen(int(os.environ[COMMANDS]), "r", encoding="utf-8")
        self.answers = int(os.environ[ANSWERS])
        self.losses: list[float] = []
        self.began = 0.0

    def next(self) -> Block | None:
        """Waits for a block and starts the clock; None when there are no more."""
        line = self.commands.readline()
        self.losses = []
        if not line:
            return None
        block = decode_block(line)
        self.began = time.perf_counter()
        return block

    def done(self, loss: float) -> None:
        """Stops the clock and answers."""
        seconds = time.perf_counter() - self.began
        os.write(self.answers, encode(Answer(seconds, loss, self.losses)))
