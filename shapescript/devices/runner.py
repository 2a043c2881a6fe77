"""What runs a graph for the controller: one device in this process, or several elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from shapescript.devices.held import Somewhere
from shapescript.devices.random_key import RandomKey
from shapescript.ir.graph import Graph


@dataclass(frozen=True)
class Border:
    """What is known of a graph's inputs and outputs besides their types.

    `owners` says of each input what it belongs to: `model`, `gradients`, `optimizer`, `batch` or `value`; `names` is
    what it is called, `m.w1`. `replaces` has, by the number of an output, the number of the input whose place it takes
    after the run.
    """

    owners: tuple[str, ...]
    names: tuple[str, ...]
    replaces: Mapping[int, int]


class Runner(Protocol):
    """A graph, ready to run. Inputs and outputs lie where the runner's devices are."""

    def run(
        self,
        inputs: Sequence[Somewhere],
        counts: Mapping[str, int] | None,
        key: RandomKey | None,
        given_up: Collection[int] = (),
    ) -> Sequence[Somewhere]:
        """The outputs; `given_up` are inputs that nobody needs after the run, whose memory may be used."""


MakeRunner: TypeAlias = Callable[[Graph, Border], Runner]


class Executes(Protocol):
    """An executor of one device."""

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        counts: Mapping[str, int] | None = None,
        key: RandomKey | None = None,
        given_up: Collection[int] = (),
    ) -> list[torch.Tensor]:
        """The outputs; `given_up` are inputs that nobody needs after the run, whose memory may be used."""


def taken_by(executor: Executes, inputs: Sequence[Somewhere]) -> list[torch.Tensor]:
    """Inputs as an executor takes them: what is held elsewhere is fetched, unless the executor can do with it."""
    takes = getattr(executor, "takes", None)
    # what an executor says that it takes is a tensor to it
    return [
        each if isinstance(each, torch.Tensor) or (takes is not None and takes(each)) else each.fetch()  # type: ignore[misc]
        for each in inputs
    ]


class LocalRunner:
    """An executor in this process; an input that is held elsewhere is fetched."""

    def __init__(self, executor: Executes) -> None:
        self.executor = executor

    def run(
        self,
        inputs: Sequence[Somewhere],
        counts: Mapping[str, int] | None,
        key: RandomKey | None,
        given_up: Collection[int] = (),
    ) -> Sequence[Somewhere]:
        """The outputs."""
        return self.executor.run(taken_by(self.executor, inputs), counts, key, given_up)

    def finish(self) -> None:
        """Waits for what is still being done, and raises what it met."""
        finish = getattr(self.executor, "finish", None)
        if finish is not None:
            finish()

    def close(self) -> None:
        """Lets go of what the executor holds besides memory."""
        close = getattr(self.executor, "close", None)
        if close is not None:
            close()
