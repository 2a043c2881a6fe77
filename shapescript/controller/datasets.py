"""Datasets: what `x as Dataset[Example]` makes of a value from Python, and `shuffle`, `batches` and the rest.

Takes a torch `Dataset`, any sequence or iterable of items, or columns; gives batches, each a tensor for every field
of the `data`. Items are mappings with the fields' names, or tuples in their order; no other field may be there.

What an item holds is checked before it is used, and an error names the field, the item, what was expected and what
was found. A field of f32 takes f32, and f64 is converted, because numpy and Python make f64 of every number; nothing
else is converted between floats. A field of whole numbers takes any element of whole numbers whose values fit. The
order of a shuffle depends on the seed and on how many examples there are, and on nothing else.

A dataset is never changed: each operation gives a new one over the same source.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import count as count_from_zero
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from shapescript.controller.dataset_items import (
    Checker,
    FieldSpec,
    Rows,
    TensorDataset,
    Windows,
    columns_of,
    field_specs,
)
from shapescript.controller.errors import DataError
from shapescript.devices.held import Somewhere

Order: TypeAlias = NDArray[np.int64]
Gather: TypeAlias = Callable[[Rows, Order], Mapping[str, Somewhere]]
"""Takes the rows of these numbers out of columns, which never change."""

__all__ = ["Batches", "Dataset", "FieldSpec", "TensorDataset", "Windows", "field_specs", "permutation"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples of a `data`.

    Either `columns` has them all, already checked; or `source` gives them by number; or, with `order` None, it can
    only be gone through from its beginning, and `first` and `last` cut that. `maps` are applied to each, in order.
    `gather` takes rows of columns where they don't lie in this process.
    """

    checker: Checker
    source: Any
    order: Order | None
    columns: Rows | None = None
    maps: tuple[Callable[[Any], object], ...] = ()
    first: int = 0
    last: int | None = None
    device: torch.device = field(default=torch.device("cpu"))
    gather: Gather | None = None

    @staticmethod
    def of(value: object, data: str, fields: Sequence[FieldSpec], device: torch.device | str = "cpu") -> Dataset:
        """The dataset of a `data` that a Python value means; columns are checked at once, items as they are read.

        Raises:
            DataError: the value is no dataset, or its columns aren't the fields.
        """
        checker = Checker(data, tuple(fields))
        place = torch.device(device)
        if isinstance(value, Dataset):
            if value.checker.fields != checker.fields:
                raise DataError(f"this is a dataset of `{value.checker.name}`, not of `{data}`")
            return value
        columns = columns_of(value)
        if columns is not None:
            rows = {name: column.to(place) for name, column in checker.columns(columns).items()}
            count = len(next(iter(rows.values()))) if rows else 0
            return Dataset(checker, None, np.arange(count), rows, device=place)
        if isinstance(value, Sized) and hasattr(value, "__getitem__") and not isinstance(value, str):
            return Dataset(checker, value, np.arange(len(value)), device=place)
        if isinstance(value, Iterable) and not isinstance(value, str):
            return Dataset(checker, value, None, device=place)
        kind = type(value).__name__
        raise DataError(
            f"{kind} isn't a dataset: it should have `__len__` and `__getitem__`, or be an iterable of items"
        )

    def __len__(self) -> int:
        if self.order is not None:
            return len(self.order)
        if not isinstance(self.source, Sized):
            raise DataError("this dataset is an iterable, which doesn't know how many examples it has")
        end = len(self.source) if self.last is None else min(len(self.source), self.last)
        return max(0, end - self.first)

    def shuffle(self, seed: int = 0) -> Dataset:
        """The same examples in another order, by the seed alone."""
        return replace(self, order=self.numbered("shuffled")[permutation(len(self), seed)])

    def take(self, n: int) -> Dataset:
        """The first n examples."""
        not_negative("take", n)
        if self.order is not None:
            return replace(self, order=self.order[:n])
        end = self.first + n
        return replace(self, last=end if self.last is None else min(end, self.last))

    def skip(self, n: int) -> Dataset:
        """All but the first n examples."""
        not_negative("skip", n)
        return replace(self, order=self.order[n:]) if self.order is not None else replace(self, first=self.first + n)

    def split(self, part: float, seed: int = 0) -> tuple[Dataset, Dataset]:
        """The examples in two parts, drawn by the seed: the first has `part` of them, rounded to the nearest."""
        if not 0.0 < part < 1.0:
            raise DataError(f"`split` takes a part between 0 and 1, as in `split(0.9)`, and this is {part}")
        mixed = self.numbered("split")[permutation(len(self), seed)]
        cut = int(len(mixed) * part + 0.5)
        return replace(self, order=np.sort(mixed[:cut])), replace(self, order=np.sort(mixed[cut:]))

    def map(self, function: Callable[[Any], object]) -> Dataset:
        """Each example as a Python function changes it when it is read; it takes and gives a mapping of the fields."""
        return replace(self, maps=(*self.maps, function))

    def batches(self, n: int, drop_last: bool = False) -> Batches:
        """The examples n at a time; the last batch may be shorter, or is left out with `drop_last`.

        Raises:
            DataError: there wouldn't be a single batch.
        """
        if n < 1:
            raise DataError(f"a batch holds one example or more, and this is {n}")
        if self.order is not None and len(self.order) == 0:
            raise DataError(f"the dataset of `{self.checker.name}` has no examples")
        if self.order is not None and drop_last and len(self.order) < n:
            raise DataError(
                f"the dataset of `{self.checker.name}` has {len(self.order)} examples, fewer than a batch of {n}, "
                "and `drop_last` leaves out the short one: nothing is left"
            )
        return Batches(self, n, drop_last)

    def numbered(self, what: str) -> Order:
        """The order, which a dataset that can only be gone through doesn't have."""
        if self.order is None:
            raise DataError(f"this dataset is an iterable: it can't be {what}; give it `__len__` and `__getitem__`")
        return self.order

    def rows(self, start: int, stop: int) -> Mapping[str, Somewhere]:
        """The examples from place `start` up to `stop` of the order, side by side."""
        assert self.order is not None
        numbers = self.order[start:stop]
        if self.columns is not None and not self.maps:
            if self.gather is not None:
                return self.gather(self.columns, numbers)
            index = torch.from_numpy(np.ascontiguousarray(numbers)).to(self.device)
            return {name: column.index_select(0, index) for name, column in self.columns.items()}
        return self.stacked([self.example(int(number)) for number in numbers])

    def example(self, number: int) -> Rows:
        """One example by its number in the source.

        Raises:
            DataError: there is none of this number, although the dataset's length says so.
        """
        if self.columns is not None:
            item: object = {name: column[number] for name, column in self.columns.items()}
        else:
            try:
                item = self.source[number]
            except IndexError as error:
                length = len(self.source)
                raise DataError(
                    f"the dataset says that it has {length} examples, but gives no item {number}"
                ) from error
            except Exception as error:
                error.add_note(f"while item {number} of the dataset was read")
                raise
        return self.finished(item, number)

    def finished(self, item: object, number: int) -> Rows:
        """An item after the maps, checked."""
        for function in self.maps:
            fields = self.checker.by_name(item, f"item {number}")
            try:
                item = function(dict(fields))
            except Exception as error:
                name = getattr(function, "__name__", "the function")
                error.add_note(f"while `{name}` was mapped over item {number} of the dataset")
                raise
        return self.checker.item(item, number)

    def stacked(self, examples: Sequence[Rows]) -> Rows:
        """Examples side by side, on the device."""
        names = [spec.name for spec in self.checker.fields]
        return {name: torch.stack([example[name] for example in examples]).to(self.device) for name in names}

    def stream(self) -> Iterator[Rows]:
        """The examples of an iterable, each once, and one warning if its length is wrong."""
        seen = 0
        for number, item in enumerate(islice(self.source, self.first, self.last), self.first):
            seen += 1
            yield self.finished(item, number)
        if seen == 0 and self.first == 0 and self.last != 0:
            raise DataError(f"the dataset of `{self.checker.name}` has no examples")
        if isinstance(self.source, Sized) and seen != len(self):
            warnings.warn(
                f"the dataset says that it has {len(self)} examples, and gave {seen}; all were used", stacklevel=2
            )


@dataclass(frozen=True, eq=False)
class Batches:
    """A dataset in batches, from batch `first` up to `last`; iterating gives the rows of each field."""

    dataset: Dataset
    n: int
    drop_last: bool = False
    first: int = 0
    last: int | None = None

    def __len__(self) -> int:
        count = len(self.dataset)
        total = count // self.n if self.drop_last else -(-count // self.n)
        end = total if self.last is None else min(total, self.last)
        return max(0, end - self.first)

    def known_length(self) -> int | None:
        """How many batches there are, or None for an iterable that doesn't say."""
        known = self.dataset.order is not None or isinstance(self.dataset.source, Sized)
        return len(self) if known else None

    def take(self, n: int) -> Batches:
        """The first n batches."""
        not_negative("take", n)
        end = self.first + n
        return replace(self, last=end if self.last is None else min(end, self.last))

    def skip(self, n: int) -> Batches:
        """All but the first n batches; their examples aren't read."""
        not_negative("skip", n)
        return replace(self, first=self.first + n)

    def __iter__(self) -> Iterator[Mapping[str, Somewhere]]:
        if self.dataset.order is None:
            yield from self.streamed()
            return
        count = len(self.dataset)
        for batch in range(self.first, self.first + len(self)):
            yield self.dataset.rows(batch * self.n, min(count, (batch + 1) * self.n))

    def streamed(self) -> Iterator[Rows]:
        """The batches of a dataset that can only be gone through."""
        examples = self.dataset.stream()
        for batch in count_from_zero() if self.last is None else range(self.last):
            part = list(islice(examples, self.n))
            if not part or (self.drop_last and len(part) < self.n):
                return
            if batch >= self.first:
                yield self.dataset.stacked(part)


def not_negative(name: str, n: int) -> None:
    """Refuses a negative count."""
    if n < 0:
        raise DataError(f"`{name}` takes 0 or more, and this is {n}")


def permutation(count: int, seed: int) -> Order:
    """An order of `count` things by the seed: random words of Philox, whose bits numpy never changes, are sorted."""
    words = np.random.Philox(key=seed % 2**64).random_raw(count)
    return np.argsort(words, kind="stable").astype(np.int64)
