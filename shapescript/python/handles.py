"""Optimizers' states, gradients and batches as objects of Python."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from shapescript.controller import checkpoint, weights
from shapescript.controller.arrays import sizes_text
from shapescript.controller.errors import ArgumentError
from shapescript.python.arguments import Arguments
from shapescript.python.handle import Handle, own_copy
from shapescript.specialise.expressions import on_gradients
from shapescript.specialise.values import BatchValue, DeviceTensor, GradientsValue, OptimizerValue
from shapescript.types.axes import Axis, show_axes
from shapescript.types.kinds import Batch as BatchType
from shapescript.types.typed import DataInfo

if TYPE_CHECKING:
    from shapescript.python.runtime import Runtime


class Optimizer(Handle):
    """An optimizer's state for a model. `lr` may be set; a rate that changes each step is `update`'s `lr=`."""

    def __init__(self, runtime: Runtime, value: OptimizerValue) -> None:
        self._hold(runtime, value)

    @property
    def options(self) -> dict[str, object]:
        """Its numbers: lr, betas, weight_decay and so on."""
        return dict(self._value.options)

    @property
    def lr(self) -> object:
        """The learning rate."""
        return self._value.options["lr"]

    @lr.setter
    def lr(self, rate: float) -> None:
        if isinstance(rate, bool) or not isinstance(rate, (int, float)):
            raise ArgumentError(f"`lr` is a number, and this is {type(rate).__name__}")
        with self._runtime.running():
            self._value.options["lr"] = float(rate)

    @property
    def steps(self) -> int:
        """How many updates it has made."""
        with self._runtime.running():
            return int(next(iter(self._value.step.values())).data.item())

    def state_dict(self) -> OrderedDict[str, object]:
        """Its tensors and numbers by plain names: `first.w1`, `options.lr`, `steps.step`."""
        with self._runtime.running():
            found = [(place.name, place.value) for place in checkpoint.places(self._value)]
            return OrderedDict(
                (name, own_copy(value) if isinstance(value, DeviceTensor) else value) for name, value in found
            )

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Takes over what `state_dict` gave.

        Raises:
            CheckpointError: a name is missing or too many, or isn't of the same form; nothing was changed.
        """
        with self._runtime.running():
            weights.take_over(self._value, state, "the state_dict", None)

    def __repr__(self) -> str:
        value: OptimizerValue = self._value
        options = ", ".join(f"{name}={number}" for name, number in value.options.items())
        return f"{value.kind}[{value.type}]({options}) after {self.steps} steps"


class Gradients(Handle):
    """What `value_and_grad` gives; it has the model's fields. Gradients add and scale."""

    def __init__(self, runtime: Runtime, value: GradientsValue) -> None:
        self._hold(runtime, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        fields = self._value.fields
        if name not in fields:
            raise AttributeError(f"the gradients have no `{name}`: it isn't trained, or there is none")
        part = fields[name]
        with self._runtime.running():
            if isinstance(part, DeviceTensor):
                return own_copy(part)
            if isinstance(part, list):
                return tuple(self._runtime.results.handle(each) for each in part)
            return self._runtime.results.handle(part)

    def state_dict(self) -> OrderedDict[str, torch.Tensor]:
        """All gradients by the names of their params."""
        with self._runtime.running():
            found = [(place.name, place.value) for place in checkpoint.places(self._value)]
            return OrderedDict((name, own_copy(value)) for name, value in found if isinstance(value, DeviceTensor))

    def _with(self, op: str, *values: object) -> Gradients:
        with self._runtime.running():
            result = on_gradients(self._runtime.evaluator, op, list(values))
            assert isinstance(result, GradientsValue)
            made = self._runtime.results.handle(result)
        assert isinstance(made, Gradients)
        return made

    def __add__(self, other: object) -> Gradients:
        return self._with("+", self._value, other._value) if isinstance(other, Gradients) else NotImplemented

    def __radd__(self, other: object) -> Gradients:
        return self if other == 0 else NotImplemented  # so that `sum` works

    def __sub__(self, other: object) -> Gradients:
        return self._with("-", self._value, other._value) if isinstance(other, Gradients) else NotImplemented

    def __mul__(self, by: object) -> Gradients:
        return self._with("*", self._value, float(by)) if isinstance(by, (int, float)) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, by: object) -> Gradients:
        return self._with("/", self._value, float(by)) if isinstance(by, (int, float)) else NotImplemented

    def __repr__(self) -> str:
        return f"Grads[{self._value.type}] of {', '.join(self._value.fields)}"


class Batch(Handle):
    """Examples side by side; the fields are attributes."""

    _program: Runtime
    _info: DataInfo

    def __init__(self, runtime: Runtime, value: BatchValue) -> None:
        self._hold(runtime, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._value.fields:
            raise AttributeError(f"a batch of `{self._value.data.name}` has no field `{name}`")
        with self._runtime.running():
            return own_copy(self._value.fields[name])

    def __len__(self) -> int:
        return int(next(iter(self._value.fields.values())).shape[0])

    def keys(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(self._value.fields)

    def __getitem__(self, name: str) -> torch.Tensor:
        if not isinstance(name, str) or name not in self._value.fields:
            raise KeyError(name)
        with self._runtime.running():
            return own_copy(self._value.fields[name])

    def __repr__(self) -> str:
        parts = [
            f"{name}: {show_axes(part.axes)} {sizes_text(part.shape)} {part.element}"
            for name, part in self._value.fields.items()
        ]
        return f"[{len(self)}] {self._value.data.name}({', '.join(parts)})"


class MadeBatch(Batch):
    """A batch that Python makes: the base of the classes that `data_class` gives."""

    def __init__(self, *values: object, **fields: object) -> None:
        runtime, info = self._program, self._info
        if values:
            names = list(info.fields)
            example = ", ".join(f"{name}=..." for name in names)
            raise ArgumentError(f"the fields of `{info.name}` are given by name: `{info.name}({example})`")
        with runtime.running():
            of = BatchType(info.node, Axis.named("batch", batch=True))
            self._hold(runtime, Arguments(runtime).make_batch(fields, of, f"`{info.name}`"))
        runtime.results.handles[id(self._value)] = self


def data_class(runtime: Runtime, info: DataInfo) -> type[MadeBatch]:
    """The class of a data: called with the fields' tensors, it makes a batch."""
    text = info.source.text[info.node.start : info.node.end].rstrip()
    return type(
        info.name,
        (MadeBatch,),
        {"_program": runtime, "_info": info, "__doc__": text, "__module__": runtime.name},
    )
