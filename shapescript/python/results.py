"""What Python gets back: torch tensors that stay valid, and handles of models, optimizers, gradients and batches.

Takes the controller's values; gives Python's. A tensor that Python gets is its own: neither the next step nor a
write into it changes the other's. A model that comes out of a function is the same handle each time.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from shapescript.controller.arrays import sizes_text
from shapescript.controller.errors import ArgumentError
from shapescript.controller.from_python import HostDataset
from shapescript.controller.host_batches import HostBatches
from shapescript.python.handle import Handle, own_copy
from shapescript.python.handles import Batch, Gradients, Optimizer
from shapescript.python.models import Model
from shapescript.specialise.values import BatchValue, DeviceTensor, GradientsValue, ModelValue, OptimizerValue, Value

if TYPE_CHECKING:
    from shapescript.python.runtime import Runtime


class Results:
    """Makes Python's values for one runtime, and keeps the handles that are in use."""

    def __init__(self, runtime: Runtime) -> None:
        self.owner = weakref.ref(runtime)
        self.handles: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()

    def of(self, value: Value) -> object:
        """One value."""
        match value:
            case DeviceTensor():
                return own_copy(value)
            case ModelValue() | OptimizerValue() | GradientsValue() | BatchValue():
                return self.handle(value)
            case HostDataset():
                return value.examples
            case HostBatches():
                return value.batches
            case tuple():
                return tuple(self.of(part) for part in value)
            case list():
                return [self.of(part) for part in value]
        return value

    def handle(self, value: ModelValue | OptimizerValue | GradientsValue | BatchValue) -> Handle:
        """The handle of a container, the same one as long as someone has it."""
        known = self.handles.get(id(value))
        if known is not None and known._value is value:
            return known
        runtime = self.owner()
        assert runtime is not None
        made: Handle
        match value:
            case ModelValue():
                made = Model._of(runtime, value)
            case OptimizerValue():
                made = Optimizer(runtime, value)
            case GradientsValue():
                made = Gradients(runtime, value)
            case BatchValue():
                made = Batch(runtime, value)
        self.handles[id(value)] = made
        return made


def changed_in_place(given: object, now: Value, name: str, function: str) -> None:
    """Puts what a call left in a `mut` parameter into the tensor that was handed over.

    Raises:
        ArgumentError: the shape is another one now.
    """
    if not isinstance(now, DeviceTensor) or not isinstance(given, torch.Tensor):
        return
    if given.shape != now.data.shape:
        raise ArgumentError(
            f"`{name}` of `{function}` is `mut`, and the call left another shape in it, {sizes_text(now.data.shape)}, "
            f"than the tensor that was handed over, {sizes_text(given.shape)}: let the function return it"
        )
    if any(step == 0 and size > 1 for step, size in zip(given.stride(), given.shape, strict=True)):
        raise ArgumentError(
            f"`{name}` of `{function}` is `mut`, and the tensor that was handed over is an expanded view, whose values "
            "share memory: hand over `x.clone()`"
        )
    with torch.no_grad():
        given.copy_(now.data)
