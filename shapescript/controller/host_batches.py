"""Batches as a program's loop sees them: each a `BatchValue` of tensors on the device."""

from __future__ import annotations

from collections.abc import Iterator

from shapescript.controller.datasets import Batches
from shapescript.controller.output import Output
from shapescript.specialise.values import BatchValue, DeviceTensor
from shapescript.types.axes import Axis
from shapescript.types.kinds import Tensor
from shapescript.types.typed import DataInfo


class HostBatches:
    """The batches of a dataset, gone through in order; `output` shows how far a loop has come."""

    def __init__(self, batches: Batches, info: DataInfo, output: Output) -> None:
        self.batches = batches
        self.info = info
        self.output = output

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[BatchValue]:
        axis = Axis.named("batch", batch=True)
        for rows in self.output.track(self.batches, self.batches.known_length()):
            fields: dict[str, object] = {}
            for name, member in self.info.fields.items():
                kind = member.type
                assert isinstance(kind, Tensor)
                count = {"batch": int(rows[name].shape[0])}
                fields[name] = DeviceTensor(rows[name], (axis, *kind.axes), kind.element, count)
            yield BatchValue(self.info.node, axis, fields)
