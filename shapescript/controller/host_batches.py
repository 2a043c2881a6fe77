"""Batches as a program's loop sees them: each a `BatchValue` of tensors on the device.

A loop that begins over batches is a pass of its place in the program: the draws of Python code that makes examples are
the pass's own. The output shows how far a loop has come.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shapescript.controller.datasets import Batches
from shapescript.controller.errors import Error, WorkerError
from shapescript.controller.output import Output
from shapescript.controller.passes import Passes
from shapescript.controller.python_modules import python_error
from shapescript.devices.held import Somewhere
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.source import Span
from shapescript.specialise.domain import problem
from shapescript.specialise.values import BatchValue, DeviceTensor
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import Tensor
from shapescript.types.typed import DataInfo


@dataclass(frozen=True)
class Loops:
    """What loops over batches need of a run: the fields of its data, how often each began, where progress is shown."""

    data_of: Mapping[tree.Data, DataInfo]
    passes: Passes
    output: Output


class HostBatches:
    """The batches of a dataset, gone through in order; `span` is where the program made them."""

    def __init__(self, batches: Batches, info: DataInfo, loops: Loops, span: Span) -> None:
        self.batches = batches
        self.info = info
        self.loops = loops
        self.span = span
        self.axis = Axis.named("batch", batch=True)
        self.types: dict[str, Tensor] = {}
        for name, member in info.fields.items():
            assert isinstance(member.type, Tensor)
            self.types[name] = Tensor((self.axis, *member.type.axes), member.type.element)

    def __len__(self) -> int:
        return len(self.batches)

    def like(self, result: object, loops: Loops, span: Span) -> HostBatches:
        """Others of these batches."""
        assert isinstance(result, Batches)
        return HostBatches(result, self.info, loops, self.span)

    def __iter__(self) -> Iterator[BatchValue]:
        """The batches.

        Raises:
            ProgramError: an example isn't what its data says, or Python code that makes it raised.
        """
        passes = self.loops.passes
        place = place_of(self.span)
        batches = self.batches.for_epoch(passes.seed, passes.next(place))
        with passes.loop((place, *batches.dataset.places)):
            rows = iter(self.loops.output.track(batches, batches.known_length()))
            while (batch := self.read(rows)) is not None:
                yield batch

    def read(self, rows: Iterator[Mapping[str, Somewhere]]) -> BatchValue | None:
        """The next batch; None after the last."""
        try:
            found = next(rows, None)
        except (ProgramError, WorkerError):
            raise
        except Error as error:
            message, *notes = map(str.strip, str(error).splitlines())
            raise problem("E2113", message, self.span, notes) from error
        except Exception as error:
            raise python_error(error, self.span, "the dataset") from error
        return None if found is None else self.batch(found)

    def batch(self, rows: Mapping[str, Somewhere]) -> BatchValue:
        """One batch."""
        fields: dict[str, object] = {}
        for name, of in self.types.items():
            held = rows[name]
            fields[name] = DeviceTensor(held, of.axes, of.element, {"batch": int(held.shape[0])})
        return BatchValue(self.info.node, self.axis, fields)


def place_of(span: Span) -> str:
    """A place of the program for `Passes`: its end, for the calls of a pipe all start where it starts."""
    line, column = span.source.position(span.end)
    return f"{os.path.basename(span.source.name)}:{line}:{column}"
