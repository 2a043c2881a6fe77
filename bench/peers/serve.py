"""A peer's loop: blocks of steps as the bench asks for them.

Takes a `Trainer`; gives the time and the losses of each block. The loop over steps is the same for every peer, and
as lean as one would write it by hand: an order that is there already is cut into batches, and nothing waits for a
step but who looks at its loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bench.wire import DECAY, LEARNING_RATE, Block, Line


class Trainer(Protocol):
    """One way to train."""

    def step(self, index: Any) -> Any:
        """One step on the rows of this index; gives the loss, which needn't be there yet."""
        ...

    def look(self, loss: Any) -> float:
        """The loss of the whole batch, when it and the step that made it are done."""
        ...

    def set_rate(self, rate: float) -> None:
        """The learning rate from now on."""
        ...


def run_block(trainer: Trainer, block: Block, order: Any, batch: int, keep: Callable[[float], None]) -> float:
    """Runs one block, gives its last loss; `order` is what its seed makes of the examples, cut by rows."""
    loss: Any = None
    rate = LEARNING_RATE
    for first in range(0, block.steps * batch, batch):
        if block.mode == "rate":
            rate *= DECAY
            trainer.set_rate(rate)
        loss = trainer.step(order[first : first + batch])
        if block.mode == "print":
            print("loss", trainer.look(loss))
        elif block.mode == "watch":
            keep(trainer.look(loss))
    if block.mode == "rate":
        trainer.set_rate(LEARNING_RATE)
    return trainer.look(loss)


def serve(trainer: Trainer, orders: Any, batch: int) -> None:
    """Answers until the bench closes the line."""
    line = Line()
    while (block := line.next()) is not None:
        line.done(run_block(trainer, block, orders[block.seed], batch, line.losses.append))
