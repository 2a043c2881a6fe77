"""Memory of a step that someone else looks at: an output that took an input's place is handed out as it lies there.

Gives `Lent`. Before a run writes to such memory, whoever still holds the tensor gets a copy of its own under the same
tensor: two models that one function trains in turn don't write over each other.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence

import torch


class Lent:
    """The tensors that were handed out, by the place of the input whose memory they have."""

    def __init__(self) -> None:
        self._tensors: dict[int, weakref.ref[torch.Tensor]] = {}

    def hand_out(self, place: int, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, remembered."""
        self._tensors[place] = weakref.ref(tensor)
        return tensor

    def take_back(self, inputs: Sequence[object], given_up: Collection[int]) -> None:
        """Before a run: what is still held elsewhere moves away, but for a place's own tensor that is given up."""
        for place, reference in list(self._tensors.items()):
            tensor = reference()
            if tensor is not None and not (inputs[place] is tensor and place in given_up):
                tensor.set_(tensor.clone())  # type: ignore[call-overload]
            if tensor is None or inputs[place] is not tensor:
                del self._tensors[place]
