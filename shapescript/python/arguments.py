"""The arguments of a call from Python: lined up with the parameters, and made the controller's values.

Takes a function and what Python hands over; gives values by the parameters' names. Every error names the argument and
says what was asked for and what was found: `ArgumentError` for the wrong kind of thing, `ShapeError` for axes, sizes
and elements, `DeviceError` for a tensor that lies elsewhere, `DataError` for values out of range and for datasets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from shapescript.controller.arrays import as_tensor, fitted, plain_number, sizes_text
from shapescript.controller.dataset_items import field_specs
from shapescript.controller.datasets import Dataset as Examples
from shapescript.controller.errors import ArgumentError, DataError, DeviceError, ShapeError
from shapescript.controller.from_python import HostDataset
from shapescript.devices.dtypes import dtype_of
from shapescript.diagnostics.suggest import nearest
from shapescript.python.handle import Handle
from shapescript.specialise.frame import solved
from shapescript.specialise.values import BatchValue, DeviceTensor, GradientsValue, ModelValue, OptimizerValue, Value
from shapescript.types.axes import ANY_AXES, Axis, show_axes
from shapescript.types.kinds import (
    Batch,
    Dataset,
    Gradients,
    Host,
    ModelList,
    ModelOf,
    Optimizer,
    Tensor,
    TupleOf,
    Type,
)
from shapescript.types.size import SizeError
from shapescript.types.typed import FunctionInfo

if TYPE_CHECKING:
    from shapescript.python.runtime import Runtime


def bind(info: FunctionInfo, positional: Sequence[object], named: Mapping[str, object]) -> dict[str, object]:
    """What is handed over, by the parameters' names.

    Raises:
        ArgumentError: one is missing, too many, or given twice.
    """
    names = [parameter.name for parameter in info.parameters]
    if len(positional) > len(names):
        takes = f"{len(names)} argument{'s' if len(names) != 1 else ''}"
        listed = f": {', '.join(names)}" if names else ""
        raise ArgumentError(f"`{info.name}` takes {takes}{listed}; {len(positional)} are given")
    bound = dict(zip(names, positional, strict=False))
    for name, value in named.items():
        if name not in names:
            close = nearest(name, names)
            hint = f"; did you mean `{close}`?" if close else f"; it takes {', '.join(names) or 'nothing'}"
            raise ArgumentError(f"`{info.name}` has no parameter `{name}`{hint}")
        if name in bound:
            raise ArgumentError(f"`{name}` of `{info.name}` is given twice")
        bound[name] = value
    for parameter in info.parameters:
        if parameter.name not in bound and parameter.default is None:
            raise ArgumentError(f"`{info.name}` also needs `{parameter.name}`, {parameter.type}")
    return bound


def check_mut(given: object, of: Type, where: str) -> None:
    """A `mut` argument must be something that a call can change.

    Raises:
        ArgumentError: it is a number, or an array.
    """
    if isinstance(of, Host) or (isinstance(of, Tensor) and not isinstance(given, torch.Tensor)):
        raise ArgumentError(
            f"{where} is `mut`, and {type(given).__name__} can't be changed by a call: "
            "hand over a torch tensor, or let the function return the new value"
        )


class Arguments:
    """One call's arguments; `known` are the sizes of dims, and of the axis variables that arguments have told."""

    def __init__(self, runtime: Runtime, axes: Mapping[str, Axis] | None = None) -> None:
        self.runtime = runtime
        self.axes = axes or {}
        self.known: dict[str, int] = dict(runtime.domain.dims)
        self.told: dict[str, str] = {}

    def values(self, info: FunctionInfo, bound: Mapping[str, object]) -> dict[str, Value]:
        """The controller's values; those that tell an axis variable's size come before the tensors that use it."""
        parameters = [parameter for parameter in info.parameters if parameter.name in bound]
        found: dict[str, Value] = {}
        for parameter in sorted(parameters, key=lambda each: isinstance(each.type, (Tensor, Batch, TupleOf))):
            where = f"`{parameter.name}` of `{info.name}`"
            given = bound[parameter.name]
            if parameter.mut:
                check_mut(given, parameter.type, where)
            value = found[parameter.name] = self.convert(given, parameter.type, where)
            if parameter.name in self.axes and isinstance(value, int):
                self.learn(parameter.name, value, where)
        return found

    def learn(self, name: str, size: int, where: str) -> None:
        """Keeps an axis variable's size, and which argument told it."""
        self.known[name] = size
        self.told[name] = where

    def convert(self, value: object, of: Type, where: str) -> Value:
        """One value as its parameter's type."""
        match of:
            case Host():
                return host(value, of, where)
            case Tensor():
                return self.tensor(value, of, where)
            case Batch():
                return self.batch(value, of, where)
            case TupleOf():
                return self.tuple(value, of, where)
            case Dataset():
                return self.dataset(value, of, where)
            case ModelOf():
                return self.model(value, of, where)
            case Optimizer():
                held = self.owned(value, OptimizerValue, where, str(of))
                assert isinstance(held, OptimizerValue)
                if held.kind != of.kind or not self.fits(held.type, of.model):
                    raise ArgumentError(f"{where} is {of}, and this is {held.kind}[{held.type}]")
                return held
            case Gradients():
                held = self.owned(value, GradientsValue, where, str(of))
                assert isinstance(held, GradientsValue)
                if not self.fits(held.type, of.model):
                    raise ArgumentError(f"{where} is {of}, and this is Grads[{held.type}]")
                return held
        return value

    # --- containers

    def owned(self, value: object, kind: type, where: str, written: str) -> Value:
        """The value of a handle that this program made."""
        if not isinstance(value, Handle) or not isinstance(value._value, kind):
            raise ArgumentError(f"{where} is {written}, and this is {type(value).__name__}{advice(value, written)}")
        if value._runtime is not self.runtime:
            raise ArgumentError(
                f"{where} belongs to another loaded program, `{value._runtime.name}`; "
                "each `load` has models of its own: `load_state_dict` takes the values over"
            )
        held: Value = value._value
        return held

    def fits(self, given: ModelOf | ModelList, wanted: ModelOf | ModelList) -> bool:
        """Whether a model, or a list of models, is of the kind asked for; its dims tell axis variables."""
        if isinstance(given, ModelList) or isinstance(wanted, ModelList):
            if not isinstance(given, ModelList) or not isinstance(wanted, ModelList):
                return False
            return self.tells(wanted.length, given.length) and self.fits(given.model, wanted.model)
        return given.declaration is wanted.declaration and all(
            self.tells(mine, theirs) for mine, theirs in zip(wanted.arguments, given.arguments, strict=True)
        )

    def tells(self, mine: Axis, theirs: Axis) -> bool:
        """Whether an axis of a model is as long as asked for; an axis variable learns how long it is."""
        size = theirs.size.evaluate(self.known)
        if mine.name in self.axes and mine.name is not None and mine.name not in self.known:
            self.learn(mine.name, size, "the model")
            return True
        return mine.size.evaluate(self.known) == size

    def model(self, value: object, of: ModelOf, where: str) -> ModelValue:
        """A model."""
        held = self.owned(value, ModelValue, where, str(of))
        assert isinstance(held, ModelValue)
        if not self.fits(held.type, of):
            raise ArgumentError(f"{where} is {of}, and this is {held.type}")
        return held

    def tuple(self, value: object, of: TupleOf, where: str) -> tuple[Value, ...]:
        """A tuple of as many values."""
        if not isinstance(value, (tuple, list)) or len(value) != len(of.items):
            found = f"{len(value)} values" if isinstance(value, (tuple, list)) else type(value).__name__
            raise ArgumentError(f"{where} is a tuple of {len(of.items)}, {of}, and this is {found}")
        parts = zip(value, of.items, strict=True)
        return tuple(self.convert(item, kind, f"part {at} of {where}") for at, (item, kind) in enumerate(parts))

    def dataset(self, value: object, of: Dataset, where: str) -> HostDataset:
        """A dataset."""
        info = self.runtime.program.data_of[of.data]
        try:
            found = Examples.of(value, of.data.name, field_specs(info, self.known), self.runtime.device)
        except DataError as error:
            raise DataError(f"{where} is {of}: {error}") from None
        return HostDataset(found, of)

    def batch(self, value: object, of: Batch, where: str) -> BatchValue:
        """A batch of this data, or a mapping of its fields."""
        if isinstance(value, Handle):
            held = self.owned(value, BatchValue, where, str(of))
            assert isinstance(held, BatchValue)
            if held.data is not of.data:
                raise ArgumentError(f"{where} is {of}, and this is a batch of {held.data.name}")
            return held
        if not isinstance(value, Mapping):
            fields = ", ".join(f"{name}=..." for name in self.runtime.program.data_of[of.data].fields)
            raise ArgumentError(
                f"{where} is {of}, and this is {type(value).__name__}; make one: `{of.data.name}({fields})`"
            )
        return self.make_batch(value, of, where)

    def make_batch(self, fields: Mapping[str, object], of: Batch, where: str) -> BatchValue:
        """A batch of its fields' tensors, which have as many rows each."""
        info = self.runtime.program.data_of[of.data]
        for name in fields:
            if name not in info.fields:
                close = nearest(name, list(info.fields))
                hint = f"; did you mean `{close}`?" if close else f"; its fields are {', '.join(info.fields)}"
                raise ArgumentError(f"{where}: `{of.data.name}` has no field `{name}`{hint}")
        made: dict[str, object] = {}
        rows = Axis.named("batch", batch=True)
        count: tuple[int, str] | None = None
        for name, member in info.fields.items():
            if name not in fields:
                raise ArgumentError(f"{where} also needs the field `{name}`, {member.type}")
            kind = member.type
            assert isinstance(kind, Tensor)
            wanted = Tensor((of.axis, *kind.axes), kind.element)
            tensor = self.tensor(fields[name], wanted, f"`{name}` of {where}", {of.axis.name or ""})
            length = tensor.shape[0]
            if count is not None and length != count[0]:
                raise ShapeError(
                    f"`{name}` of {where} has {length} rows, and `{count[1]}` has {count[0]}: "
                    "a batch has as many of each field"
                )
            count = (length, name)
            made[name] = DeviceTensor(tensor.held, (rows, *kind.axes), kind.element, {"batch": length})
        return BatchValue(of.data, rows, made)

    # --- tensors

    def tensor(self, value: object, of: Tensor, where: str, free: set[str] = frozenset()) -> DeviceTensor:  # type: ignore[assignment]
        """A tensor of the parameter's axes and element; the sizes of axes named in `free` are anything."""
        if isinstance(value, Handle):
            raise ArgumentError(f"{where} is {of}, and this is {type(value).__name__}")
        try:
            data = as_tensor(value, where)
        except DataError as error:
            reason = str(error).rpartition(": ")[2]
            raise ArgumentError(f"{where} is {of}, and this is {type(value).__name__}: {reason}") from None
        element = of.element
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not of.axes:
            if element.is_float:
                data = data.to(dtype_of(element))
        if isinstance(value, torch.Tensor):
            check_device(value, self.runtime.device, where)
        self.check_sizes(data, of, where, free)
        try:
            bound = None if element.bound is None else element.bound.evaluate(self.known)
        except SizeError:
            bound = None
        data = fitted(data, element.name, where, str(of), element.refinement, bound, ShapeError)
        if not isinstance(value, torch.Tensor):
            data = data.to(self.runtime.device)
        axes = tuple(Axis("?", Axis.named("?").size) for _ in data.shape)
        return DeviceTensor(data, axes, element)

    def check_sizes(self, data: torch.Tensor, of: Tensor, where: str, free: set[str]) -> None:
        """Is each axis as long as it should be?"""
        shape = tuple(data.shape)
        if ANY_AXES in of.axes:
            at = of.axes.index(ANY_AXES)
            rest = len(shape) - len(of.axes) + 1
            if rest < 0:
                raise ShapeError(self.misfit(of, shape, where))
            pairs = [*zip(of.axes[:at], shape, strict=False), *zip(of.axes[at + 1 :], shape[at + rest :], strict=True)]
        else:
            if len(shape) != len(of.axes):
                raise ShapeError(self.misfit(of, shape, where))
            pairs = list(zip(of.axes, shape, strict=True))
        for axis, length in pairs:
            if axis.name in free:
                continue
            for atom, size in solved(axis.size, length, self.known).items():
                if atom in self.axes:
                    self.learn(atom, size, where)
        for axis, length in pairs:
            if axis.name in free:
                continue
            try:
                wanted = axis.size.evaluate(self.known)
            except SizeError:
                continue
            if wanted != length:
                teller = self.told.get(axis.name or "")
                by = f" by {teller}" if teller and teller != where else ""
                detail = f": axis `{axis}` should be {wanted}{by}, and is {length}"
                raise ShapeError(self.misfit(of, shape, where) + detail)

    def misfit(self, of: Tensor, shape: Sequence[int], where: str) -> str:
        """Both sides of a shape that isn't what was asked for."""
        return f"{where} should be {of}{self.sizes_of(of)}, and is {sizes_text(shape)}"

    def sizes_of(self, of: Tensor) -> str:
        """The sizes of a type's axes, those that are known by their numbers: `, b x 64`."""
        if not of.axes:
            return ""
        words = []
        for axis in of.axes:
            try:
                words.append(str(axis.size.evaluate(self.known)))
            except SizeError:
                words.append(str(axis))
        shown = " x ".join(words)
        return "" if shown == show_axes(of.axes)[1:-1] else f", {shown}"


def check_device(tensor: torch.Tensor, device: torch.device, where: str) -> None:
    """A tensor handed in must be on the program's device: it isn't moved.

    Raises:
        DeviceError: it is elsewhere.
    """
    same = tensor.device.type == device.type
    if same and device.type == "cuda":
        same = tensor.device.index == (device.index or 0)
    if not same:
        raise DeviceError(
            f'{where} is on `{tensor.device}`, and the program runs on `{device}`: hand over `x.to("{device}")`'
        )


def host(value: object, of: Host, where: str) -> Value:
    """A number, a bool or a string; numpy's and torch's scalars are theirs."""
    found = plain_number(value)
    match of.name:
        case "bool" if isinstance(found, bool):
            return found
        case "int" if isinstance(found, int) and not isinstance(found, bool):
            return found
        case "float" if isinstance(found, (int, float)) and not isinstance(found, bool):
            return float(found)
        case "str" if isinstance(found, str):
            return found
    shown = f", {value!r}" if isinstance(value, (bool, int, float, str)) else ""
    raise ArgumentError(f"{where} is {of}, and this is {type(value).__name__}{shown}")


def advice(value: object, written: str) -> str:
    """What helps where something else than a handle is given."""
    if isinstance(value, torch.nn.Module):
        return f"; a model of the program is made with `{written.split('[')[0]}(seed=0)`, and takes a `state_dict`"
    if isinstance(value, torch.optim.Optimizer):
        return "; make one with `shapescript.adamw(m, lr=...)`"
    return ""
