"""Batches as a program's loop sees them: each a `BatchValue` of tensors on the device.

A loop that begins over batches is a pass of its place in the program: the draws of Python code that makes examples are
the pass's own. The output shows how far a loop has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from shapescript.controller.datasets import Batches
from shapescript.devices.held import Somewhere
from shapescript.specialise.values import BatchValue, DeviceTensor
from shapescript.types.axes import Axis
from shapescript.types.kinds import Tensor
from shapescript.types.typed import DataInfo

if TYPE_CHECKING:
    from shapescript.controller.host_domain import HostDomain


class HostBatches:
    """The batches of a dataset, gone through in order; `place` is where the program made them."""

    def __init__(self, batches: Batches, info: DataInfo, domain: HostDomain, place: str) -> None:
        self.batches = batches
        self.info = info
        self.domain = domain
        self.place = place

    def __len__(self) -> int:
        return len(self.batches)

    def like(self, result: object, domain: HostDomain, place: str) -> HostBatches:
        """Others of these batches."""
        assert isinstance(result, Batches)
        return HostBatches(result, self.info, domain, self.place)

    def __iter__(self) -> Iterator[BatchValue]:
        passes = self.domain.passes
        batches = self.batches.for_epoch(self.domain.seed, passes.next(self.place))
        with passes.loop((self.place, *batches.dataset.places)):
            for rows in self.domain.output.track(batches, batches.known_length()):
                yield self.batch(rows)

    def batch(self, rows: Mapping[str, Somewhere]) -> BatchValue:
        """One batch."""
        axis = Axis.named("batch", batch=True)
        fields: dict[str, object] = {}
        for name, member in self.info.fields.items():
            kind = member.type
            assert isinstance(kind, Tensor)
            count = {"batch": int(rows[name].shape[0])}
            fields[name] = DeviceTensor(rows[name], (axis, *kind.axes), kind.element, count)
        return BatchValue(self.info.node, axis, fields)
