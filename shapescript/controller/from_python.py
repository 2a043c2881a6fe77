"""`value as type` for values of Python: what is checked, and what becomes a tensor.

Takes a value, a type and the frame in which its axes mean something; gives the value as the evaluator has it. Rank,
sizes, the kind of element and the range of an `Index` are checked. A size that isn't known yet is learned from the
value. Widths change (`f64` to `f32`, as numpy makes them), kinds don't: a float is no whole number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from shapescript.controller.arrays import from_array, plain_number
from shapescript.controller.dataset_items import field_specs
from shapescript.controller.datasets import Batches as DatasetBatches
from shapescript.controller.datasets import Dataset as Examples
from shapescript.controller.datasets import Gather
from shapescript.controller.errors import Error
from shapescript.controller.host_batches import HostBatches, Loops
from shapescript.devices.dtypes import dtype_of
from shapescript.source import Span
from shapescript.specialise.domain import problem
from shapescript.specialise.frame import Frame, relabelled
from shapescript.specialise.values import BatchValue, DeviceTensor, GradientsValue, ModelValue, OptimizerValue, Value
from shapescript.types.axes import Axis, show_axes
from shapescript.types.element import Element
from shapescript.types.kinds import (
    Batch,
    Batches,
    Dataset,
    Gradients,
    Host,
    ModelOf,
    Optimizer,
    Tensor,
    TupleOf,
    Type,
)
from shapescript.types.size import SizeError
from shapescript.types.typed import TypedProgram

KINDS: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "bool": (bool,), "str": (str,)}


class FromPython:
    """Gives Python values their types."""

    def __init__(self, program: TypedProgram, sizes: Mapping[str, int], device: torch.device) -> None:
        self.program = program
        self.sizes = sizes
        self.device = device

    def convert(self, frame: Frame, value: Value, of: Type, span: Span) -> Value:
        """The value as `of`.

        Raises:
            ProgramError: it isn't of that type.
        """
        match of:
            case Host():
                return self._host(value, of, span)
            case Tensor():
                return self.tensor(frame, value, of, span)
            case TupleOf():
                return self._tuple(frame, value, of, span)
            case Dataset():
                return self._dataset(value, of, span)
            case Batches() if isinstance(value, HostBatches):
                return value
            case Batch():
                return self._batch(frame, value, of, span)
            case ModelOf() if isinstance(value, ModelValue) and value.type.declaration is of.declaration:
                return value
            case Optimizer() if isinstance(value, OptimizerValue):
                return value
            case Gradients() if isinstance(value, GradientsValue):
                return value
        raise problem("E2113", f"this is `{type(value).__name__}`, and {of} is asked for", span)

    def _host(self, value: Value, of: Host, span: Span) -> Value:
        value = plain_number(value)
        if isinstance(value, DeviceTensor) and value.data.numel() == 1:
            value = value.data.item()
        if not isinstance(value, KINDS[of.name]) or (isinstance(value, bool) and of.name in ("int", "float")):
            raise problem("E2113", f"this is `{type(value).__name__}`, and `{of.name}` is asked for", span)
        return float(value) if of.name == "float" and isinstance(value, int) else value

    def _tuple(self, frame: Frame, value: Value, of: TupleOf, span: Span) -> Value:
        if not isinstance(value, (tuple, list)) or len(value) != len(of.items):
            found = f"{len(value)} values" if isinstance(value, (tuple, list)) else f"`{type(value).__name__}`"
            raise problem("E2113", f"a tuple of {len(of.items)} is asked for, and this is {found}", span)
        return tuple(self.convert(frame, item, kind, span) for item, kind in zip(value, of.items, strict=True))

    def _dataset(self, value: Value, of: Dataset, span: Span) -> Value:
        info = self.program.data_of[of.data]
        try:
            found = Examples.of(value, of.data.name, field_specs(info, self.sizes), self.device)
        except Error as error:
            raise problem("E2113", str(error), span) from error
        return HostDataset(found, of)

    def _batch(self, frame: Frame, value: Value, of: Batch, span: Span) -> Value:
        if isinstance(value, BatchValue):
            return value
        if not isinstance(value, Mapping):
            raise problem("E2113", f"a batch is a mapping of its fields, and this is `{type(value).__name__}`", span)
        info = self.program.data_of[of.data]
        fields: dict[str, object] = {}
        for name, member in info.fields.items():
            if name not in value:
                raise problem("E2113", f"there is no field `{name}`", span)
            kind = member.type
            assert isinstance(kind, Tensor)
            fields[name] = self.tensor(frame, value[name], Tensor((of.axis, *kind.axes), kind.element), span)
        return BatchValue(of.data, frame.axis(of.axis), fields)

    # --- tensors

    def tensor(self, frame: Frame, value: Value, of: Tensor, span: Span) -> DeviceTensor:
        """A tensor of numbers that Python gave."""
        element = frame.element(of.element)
        if isinstance(value, DeviceTensor):
            data = value.data
        else:
            data = self._data(value, of, span)
        data = self._of_element(data, element, of, span)
        axes = frame.axes_of(of.axes)
        if data.dim() != len(axes):
            shape = " ".join(map(str, data.shape))
            raise problem("E2113", f"`{show_axes(of.axes)}` is asked for, and this has the sizes [{shape}]", span)
        made = relabelled(
            frame.domain, DeviceTensor(data, (Axis("?", axes[0].size),) * data.dim() if axes else (), element), axes
        )
        assert isinstance(made, DeviceTensor)
        self._check_sizes(made, of, span)
        self._check_range(made, element, of, span)
        return made

    def _data(self, value: Value, of: Tensor, span: Span) -> torch.Tensor:
        if isinstance(value, torch.Tensor):
            if value.device.type != self.device.type:
                message = f"this tensor is on `{value.device}`, and the program runs on `{self.device}`"
                raise problem("E2113", message, span, helps=(f'hand over `x.to("{self.device}")`',))
            return value.detach()
        try:
            array = np.asarray(value)
            if array.dtype == object:
                raise ValueError("it isn't numbers of one shape")
            return from_array(array).to(self.device)
        except (TypeError, ValueError) as error:
            message = f"this is `{type(value).__name__}`, which is no `{of}`: {error}"
            raise problem("E2113", message, span) from error

    def _of_element(self, data: torch.Tensor, element: Element, of: Tensor, span: Span) -> torch.Tensor:
        wanted = dtype_of(element)
        if data.dtype == wanted:
            return data
        whole = not data.dtype.is_floating_point and data.dtype is not torch.bool
        fits = data.dtype.is_floating_point if element.is_float else (whole and element.is_whole)
        if not fits or (data.dtype is torch.bool) != element.is_bool:
            held = str(data.dtype).removeprefix("torch.")
            raise problem("E2113", f"`{of}` is asked for, and this holds {held}", span)
        return data.to(wanted)

    def _check_sizes(self, made: DeviceTensor, of: Tensor, span: Span) -> None:
        for axis, written, length in zip(made.axes, of.axes, made.data.shape, strict=True):
            try:
                wanted = axis.size.evaluate({**made.sizes, **self.sizes})
            except SizeError:
                continue
            if wanted != length:
                shape = " ".join(map(str, made.data.shape))
                raise problem(
                    "E2113",
                    f"axis `{written}` is {wanted} long, and this has {length} there",
                    span,
                    (f"`{of}` is asked for, and this has the sizes [{shape}]",),
                )

    def _check_range(self, made: DeviceTensor, element: Element, of: Tensor, span: Span) -> None:
        if not made.data.numel():
            return
        if element.refinement == "Index" and element.bound is not None:
            try:
                bound = element.bound.evaluate({**self.sizes, **made.sizes})
            except SizeError:
                return
            self._check_between(made, 0, bound - 1, of, span)
        elif element.refinement == "NonNeg":
            self._check_between(made, 0, None, of, span)
        elif element.refinement == "Prob":
            self._check_between(made, 0, 1, of, span)

    def _check_between(self, made: DeviceTensor, least: int, most: int | None, of: Tensor, span: Span) -> None:
        low, high = made.data.min().item(), made.data.max().item()
        if low < least or (most is not None and high > most):
            wrong = low if low < least else high
            raise problem("E2113", f"`{of}` is asked for, and {wrong} is among the values", span)


class HostDataset:
    """Examples of a data, as the evaluator has them."""

    def __init__(self, examples: Examples, of: Dataset) -> None:
        self.examples = examples
        self.of = of

    def __len__(self) -> int:
        return len(self.examples)

    def on(self, gather: Gather | None) -> Examples:
        """The examples, whose columns lie where `gather` takes rows."""
        return replace(self.examples, gather=gather)

    def like(self, result: object, loops: Loops, span: Span) -> HostDataset | HostBatches:
        """What a built-in at a place of the program made of the examples: other examples, or batches."""
        if isinstance(result, DatasetBatches):
            return HostBatches(result, loops.data_of[self.of.data], loops, span)
        assert isinstance(result, Examples)
        return HostDataset(result, self.of)
