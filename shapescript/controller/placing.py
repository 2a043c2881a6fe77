"""Where a program's tensors are and its graphs run: one device in this process, or several with a worker each.

Gives `Place`, what the controller's domain stands on, and `OneDevice`. `several_devices.py` has the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

import torch

from shapescript.controller.datasets import Gather
from shapescript.controller.errors import Error
from shapescript.devices.executors import UnknownExecutor, executor_name, make_executor
from shapescript.devices.runner import Border, LocalRunner, Runner
from shapescript.ir.graph import Graph


class Place(Protocol):
    """Devices; `device` is where a tensor of the controller's own is made."""

    device: torch.device

    @property
    def gather(self) -> Gather | None:
        """What takes rows of a dataset's columns where they lie with workers; None where the controller has them."""

    def runner(self, graph: Graph, border: Border) -> Runner:
        """What runs a graph here."""

    def finish(self) -> None:
        """Waits until all that was asked for is done, and raises what went wrong."""

    def close(self) -> None:
        """Gives the devices back, whatever they do."""


class OneDevice:
    """A device of this process."""

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._made: WeakSet[LocalRunner] = WeakSet()
        self._make: Callable[[Graph, Border], LocalRunner] = self._executor
        self.gather: Gather | None = None
        try:
            recorded = executor_name(self.device) == "captured"
        except UnknownExecutor as error:
            raise Error(str(error)) from None
        if recorded:
            from shapescript.devices.captured.hang import longest_step
            from shapescript.devices.captured.runner import Recorder

            try:
                longest_step()
            except ValueError as error:
                raise Error(str(error)) from None
            recorder = Recorder(self.device)
            self._make, self.gather = recorder.runner, recorder.rows

    def _executor(self, graph: Graph, border: Border) -> LocalRunner:
        return LocalRunner(make_executor(graph, self.device, replaces=border.replaces))

    def runner(self, graph: Graph, border: Border) -> Runner:
        """An executor."""
        made = self._make(graph, border)
        self._made.add(made)
        return made

    def finish(self) -> None:
        """A GPU may still be at work; else all is done at once."""
        for runner in list(self._made):
            runner.finish()

    def close(self) -> None:
        """A GPU's recordings are freed while CUDA is still there."""
        for runner in list(self._made):
            runner.close()
