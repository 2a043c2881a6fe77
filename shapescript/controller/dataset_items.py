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
from numpy.typing import NDArray

from shapescript.controller.arrays import as_tensor, fitted, from_array, sizes_text
from shapescript.controller.errors import DataError
from shapescript.devices.dtypes import DTYPES
from shapescript.types.axes import show_axes
from shapescript.types.element import FLOATS
from shapescript.types.kinds import Tensor
from shapescript.types.size import SizeError
from shapescript.types.typed import DataInfo

Rows: TypeAlias = dict[str, torch.Tensor]


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
        self.ready: dict[object, Rows] = {}
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
    """Windows of a text's tokens: item i has `x`, `length` tokens from i * `stride`, and `y`, the same one place later.

    The tokens may be an array that lies in a file; nothing but what a batch needs is read. `names` are the fields'.
    """

    def __init__(self, tokens: object, length: int, stride: int = 1, names: tuple[str, str] = ("x", "y")) -> None:
        self.tokens = tokens if isinstance(tokens, (torch.Tensor, np.ndarray)) else as_tensor(tokens, "the tokens")
        self.length = length
        self.stride = stride
        self.names = names
        if length < 1 or stride < 1:
            what, number = ("a window holds", length) if length < 1 else ("the stride of windows is", stride)
            raise DataError(f"{what} one token or more, and this is {number}")
        if self.tokens.ndim != 1:
            raise DataError(
                f"the tokens of `Windows` should have one axis, and have shape {sizes_text(self.tokens.shape)}"
            )

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - self.length - 1) // self.stride + 1)

    def __getitem__(self, place: int) -> Rows:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return {name: column[0] for name, column in self.rows(np.asarray([place])).items()}

    def rows(self, numbers: NDArray[np.int64]) -> Rows:
        """The windows of these numbers."""
        places = numbers[:, None] * self.stride + np.arange(self.length + 1)
        if isinstance(self.tokens, np.ndarray):
            found = from_array(np.asarray(self.tokens[places]))
        else:
            found = self.tokens[torch.from_numpy(places)]
        return {self.names[0]: found[:, :-1], self.names[1]: found[:, 1:]}


def in_tensors(value: object) -> object:
    """A dataset of Hugging Face that gives lists, as one that gives tensors; anything else as it is."""
    if type(value).__module__.partition(".")[0] != "datasets" or not hasattr(value, "with_format"):
        return value
    asked: object = getattr(value, "format", None)
    if isinstance(asked, Mapping) and asked.get("type") is not None:
        return value
    made: object = value.with_format("torch")
    return made


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


def converted(spec: FieldSpec, value: torch.Tensor, where: str, rows: bool) -> torch.Tensor:
    """A field's value, or with `rows` a whole column of them, in the field's element.

    Raises:
        DataError: its shape, element or values aren't the field's.
    """
    shape = tuple(value.shape[1:] if rows else value.shape)
    if shape != spec.shape:
        expected = sizes_text(spec.shape)
        raise DataError(f"{where} should be {spec.written}, {expected}, and is {sizes_text(shape)}")
    return fitted(value, spec.element, where, spec.written, spec.refinement, spec.bound, DataError, rows)


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

    def named(self, value: object) -> object:
        """An item as a function over items gets it: a mapping, where it is one or has the fields in order."""
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, (tuple, list)) and len(value) == len(self.fields):
            return {spec.name: part for spec, part in zip(self.fields, value, strict=True)}
        return value

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
