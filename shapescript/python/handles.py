"""Optimizers' states, gradients and batches as objects of Python."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, overload

import torch

from shapescript.controller import checkpoint, weights
from shapescript.controller.arrays import plain_number, sizes_text
from shapescript.controller.errors import ArgumentError
from shapescript.diagnostics.suggest import nearest
from shapescript.python.arguments import Arguments
from shapescript.python.handle import Handle, own_copy
from shapescript.specialise.expressions import on_gradients
from shapescript.specialise.values import BatchValue, DeviceTensor, GradientsValue, OptimizerValue
from shapescript.types.axes import Axis, show_axes
from shapescript.types.kinds import Batch as BatchType
from shapescript.types.typed import DataInfo

if TYPE_CHECKING:
    from shapescript.python.runtime import Runtime


OF_PYTORCH: Mapping[str, str] = {
    "step": "a function of the program steps, by `update(mut m, mut opt, g)`",
    "zero_grad": "gradients are values: `value_and_grad` gives them anew each time",
    "param_groups": "its numbers are `opt.options`, and `opt.lr` may be set",
    "defaults": "its numbers are `opt.options`, and `opt.lr` may be set",
    "add_param_group": "`update(mut m.head, mut fast, g.head)` trains a part with an optimizer of its own",
    "state": "`opt.state_dict()` gives its tensors and numbers",
}
"""What a user of PyTorch may look for in an optimizer, and where it is here."""


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

    def __getattr__(self, name: str) -> NoReturn:
        hint = OF_PYTORCH.get(name, "it has lr, options, steps, state_dict and load_state_dict")
        raise AttributeError(f"an optimizer's state has no `{name}`: {hint}", name=name, obj=self)

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

    def __getitem__(self, path: str) -> torch.Tensor:
        """The gradient of a param by its path, as in `g["blocks.0.w"]`."""
        found = self.state_dict()
        if path not in found:
            close = nearest(path, list(found)) if isinstance(path, str) else None
            hint = f"; did you mean `{close}`?" if close else f": {', '.join(found)}"
            raise KeyError(f"the gradients have no `{path}`{hint}")
        return found[path]

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
        number = plain_number(by)
        return self._with("*", self._value, float(number)) if isinstance(number, (int, float)) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, by: object) -> Gradients:
        number = plain_number(by)
        return self._with("/", self._value, float(number)) if isinstance(number, (int, float)) else NotImplemented

    def __neg__(self) -> Gradients:
        return self._with("*", self._value, -1.0)

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

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    @overload
    def __getitem__(self, at: str) -> torch.Tensor: ...

    @overload
    def __getitem__(self, at: slice) -> Batch: ...

    def __getitem__(self, at: str | slice) -> torch.Tensor | Batch:
        """A field by its name, or a batch of some of the rows, `batch[:8]`."""
        if isinstance(at, slice):
            return self._rows(at)
        if not isinstance(at, str):
            raise TypeError(f"a batch is asked for a field's name, or for rows as in `batch[:8]`, not for {at!r}")
        if at not in self._value.fields:
            raise KeyError(f"a batch of `{self._value.data.name}` has no field `{at}`: {', '.join(self._value.fields)}")
        with self._runtime.running():
            return own_copy(self._value.fields[at])

    def _rows(self, at: slice) -> Batch:
        with self._runtime.running():
            fields = {name: own_copy(part)[at] for name, part in self._value.fields.items()}
            of = BatchType(self._value.data, Axis.named("batch", batch=True))
            value = Arguments(self._runtime).make_batch(fields, of, f"`{self._value.data.name}`")
            made = self._runtime.results.handle(value)
        assert isinstance(made, Batch)
        return made

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
