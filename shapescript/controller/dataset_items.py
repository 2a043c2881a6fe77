"""The items of a dataset: what they may be, and how they are checked.

Gives `FieldSpec`, a field of a `data` with a run's sizes; the two sources that ShapeScript brings itself,
`TensorDataset` and `Windows`; and `Checker`, which turns what Python gives into the fields' tensors. Doesn't know
order or batches: `datasets.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from shapescript.controller.errors import DataError
from shapescript.devices.dtypes import DTYPES
from shapescript.types.axes import show_axes
from shapescript.types.element import FLOATS, WHOLES
from shapescript.types.kinds import Tensor
from shapescript.types.size import SizeError
from shapescript.types.typed import DataInfo

Rows: TypeAlias = dict[str, torch.Tensor]

ELEMENT_OF = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class FieldSpec:
    """A field of a `data` with the sizes of a run: `bound` is the N of `Index[N]`, `written` its type as written."""

    name: str
    shape: tuple[int, ...]
    element: str
    written: str
    refinement: str | None = None
    bound: int | None = None


def field_specs(data: DataInfo, sizes: Mapping[str, int]) -> tuple[FieldSpec, ...]:
    """The fields of a data in their order.

    Raises:
        DataError: a field's size has no value in `sizes`, or can't be.
    """
    specs = []
    for info in data.fields.values():
        kind = info.type
        if not isinstance(kind, Tensor):
            raise DataError(f"field `{info.name}` of `{data.name}` is {kind}, and a dataset holds tensors")
        bound = kind.element.bound
        try:
            shape = tuple(axis.size.evaluate(sizes) for axis in kind.axes)
            top = None if bound is None else bound.evaluate(sizes)
        except SizeError as error:
            raise DataError(f"field `{info.name}` of `{data.name}`, {show_axes(kind.axes)}: {error}") from None
        specs.append(FieldSpec(info.name, shape, kind.element.name, str(kind), kind.element.refinement, top))
    return tuple(specs)


# --- sources ---------------------------------------------------------------------------------------------------------


class TensorDataset:
    """Columns: a tensor (or an array, or a list of numbers) for each field, example i in row i of each."""

    def __init__(self, **columns: object) -> None:
        if not columns:
            raise DataError("a `TensorDataset` needs a tensor for each field, as in `TensorDataset(pixels=x, digit=y)`")
        self.columns = {name: as_tensor(value, f"column `{name}`") for name, value in columns.items()}
        for name, column in self.columns.items():
            if column.ndim == 0:
                raise DataError(f"column `{name}` is a single value; its first axis should be the examples")
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"`{name}` {length}" for name, length in lengths.items())
            raise DataError(f"the columns of a `TensorDataset` have different numbers of rows: {listed}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, place: int) -> Rows:
        return {name: column[place] for name, column in self.columns.items()}


class Windows:
    """Windows of a text's tokens: item i has `x`, tokens i up to i + length, and `y`, the same one place later."""

    def __init__(self, tokens: object, length: int) -> None:
        self.tokens = as_tensor(tokens, "the tokens")
        self.length = length
        if length < 1:
            raise DataError(f"a window holds one token or more, and this is {length}")
        if self.tokens.ndim != 1:
            raise DataError(
                f"the tokens of `Windows` should have one axis, and have shape {sizes_text(self.tokens.shape)}"
            )

    def __len__(self) -> int:
        return max(0, len(self.tokens) - self.length)

    def __getitem__(self, place: int) -> Rows:
        if not 0 <= place < len(self):
            raise IndexError(place)
        end = place + self.length
        return {"x": self.tokens[place:end], "y": self.tokens[place + 1 : end + 1]}


def columns_of(value: object) -> Mapping[str, torch.Tensor] | Sequence[torch.Tensor] | None:
    """The columns of a value that has columns; those of torch's own `TensorDataset` have no names."""
    if isinstance(value, TensorDataset):
        return value.columns
    if isinstance(value, torch.utils.data.TensorDataset):
        return value.tensors
    if isinstance(value, Mapping):
        return TensorDataset(**{str(name): column for name, column in value.items()}).columns
    return None


# --- checks ----------------------------------------------------------------------------------------------------------


def as_tensor(value: object, where: str) -> torch.Tensor:
    """A tensor of a number, a list of numbers, an array or a tensor; not a copy where it needn't be.

    Raises:
        DataError: it is none of these.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, np.ndarray) and (not value.flags.writeable or any(step < 0 for step in value.strides)):
        value = value.copy()  # torch can't share these
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{where} is {type(value).__name__}, which isn't a tensor: {error}") from None


def sizes_text(shape: Sequence[int]) -> str:
    """Sizes as a reader counts them: `8 x 8`, or `one value`."""
    return " x ".join(map(str, shape)) if len(shape) else "one value"


def converted(spec: FieldSpec, value: torch.Tensor, where: str, rows: bool) -> torch.Tensor:
    """A field's value, or with `rows` a whole column of them, in the field's element.

    Raises:
        DataError: its shape, element or values aren't the field's.
    """
    shape = tuple(value.shape[1:] if rows else value.shape)
    if shape != spec.shape:
        expected = sizes_text(spec.shape)
        raise DataError(f"{where} should be {spec.written}, {expected}, and is {sizes_text(shape)}")
    found = ELEMENT_OF.get(value.dtype, str(value.dtype))
    dtype = DTYPES[spec.element]
    if found != spec.element:
        to_f32 = spec.element == "f32" and found == "f64"
        whole = spec.element in WHOLES and found in WHOLES
        if not to_f32 and not whole:
            hint = "; convert it where the dataset makes it" if {found, spec.element} <= {*FLOATS, *WHOLES} else ""
            raise DataError(f"{where} should be {spec.written}, elements {spec.element}, and holds {found}{hint}")
    check_values(spec, value, where, rows)
    return value.to(dtype)


def check_values(spec: FieldSpec, value: torch.Tensor, where: str, rows: bool) -> None:
    """Are whole numbers in their range, and refined floats in theirs?"""
    low, high = limits(spec, value.dtype)
    if (low is None and high is None) or value.numel() == 0:
        return
    wrong = torch.zeros(value.shape, dtype=torch.bool, device=value.device)
    if low is not None:
        wrong |= ~(value >= low)  # NaN is wrong too
    if high is not None:
        wrong |= ~(value <= high)
    if not bool(wrong.any()):
        return
    place = torch.nonzero(wrong)[0].tolist()
    bad = value[tuple(place)].item()
    number = f" in row {place[0]}" if rows else ""
    if spec.bound is not None:
        raise DataError(f"{where} should be {spec.written}, whole numbers in 0..{spec.bound}, and holds {bad}{number}")
    expected = f"from {low} to {high}" if high is not None else f"{low} or more"
    raise DataError(f"{where} should be {spec.written}, {expected}, and holds {bad}{number}")


def limits(spec: FieldSpec, found: torch.dtype) -> tuple[int | float | None, int | float | None]:
    """The least and the greatest value that a field takes, where its element alone doesn't see to it."""
    if spec.bound is not None:
        return 0, spec.bound - 1
    if spec.refinement is not None:
        return 0.0, 1.0 if spec.refinement == "Prob" else None
    if spec.element in WHOLES and found != DTYPES[spec.element]:
        about = torch.iinfo(DTYPES[spec.element])
        return about.min, about.max
    return None, None


@dataclass(frozen=True)
class Checker:
    """Turns what Python gives for one example into its fields' tensors."""

    name: str
    fields: tuple[FieldSpec, ...]

    def item(self, value: object, number: int) -> Rows:
        """The fields of item `number`.

        Raises:
            DataError: a field is missing, too many, or isn't what it should be.
        """
        found = self.by_name(value, f"item {number}")
        rows: Rows = {}
        for spec in self.fields:
            where = f"item {number} of the dataset: `{spec.name}` of `{self.name}`"
            given = found[spec.name]
            tensor = as_tensor(given, where)
            if isinstance(given, (int, float)) and not isinstance(given, bool) and spec.element in FLOATS:
                tensor = torch.tensor(given, dtype=DTYPES[spec.element])  # a plain number has no element of its own
            rows[spec.name] = converted(spec, tensor, where, rows=False)
        return rows

    def columns(self, value: Mapping[str, torch.Tensor] | Sequence[torch.Tensor]) -> Rows:
        """The fields of all examples at once.

        Raises:
            DataError: as for an item.
        """
        found = self.by_name(value, "the dataset")
        rows: Rows = {}
        for spec in self.fields:
            column = found[spec.name]
            assert isinstance(column, torch.Tensor)
            rows[spec.name] = converted(spec, column, f"column `{spec.name}` of `{self.name}`", rows=True)
        return rows

    def by_name(self, value: object, where: str) -> Mapping[str, object]:
        """What a mapping or a tuple has for each field, and nothing besides."""
        names = [spec.name for spec in self.fields]
        listed = ", ".join(f"`{name}`" for name in names)
        if isinstance(value, Mapping):
            missing = [name for name in names if name not in value]
            extra = [str(name) for name in value if name not in names]
            if missing:
                has = ", ".join(f"`{name}`" for name in value) or "nothing"
                raise DataError(f"{where} has no `{missing[0]}`: `{self.name}` has {listed}, and here is {has}")
            if extra:
                raise DataError(
                    f"{where} has a field `{extra[0]}`, which `{self.name}` hasn't: its fields are {listed}"
                )
            return value
        if not isinstance(value, (tuple, list)):
            if len(names) == 1:
                return {names[0]: value}
            kind = type(value).__name__
            raise DataError(f"{where} is {kind}; it should be a mapping or a tuple of `{self.name}`'s fields: {listed}")
        if len(value) != len(names):
            raise DataError(f"{where} has {len(value)} parts, and `{self.name}` has {len(names)}: {listed}")
        return dict(zip(names, value, strict=True))
