"""Datasets: what `x as Dataset[Example]` makes of a value from Python, and `shuffle`, `batches` and the rest.

Takes a torch `Dataset`, any sequence or iterable of items, or columns; gives batches, each a tensor for every field
of the `data`. Items are mappings with the fields' names, or tuples in their order; no other field may be there.

What an item holds is checked before it is used, and an error names the field, the item, what was expected and what
was found; `arrays.py` says what is converted. The order of a shuffle depends on the seed and on how many examples
there are, and on nothing else.

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
    in_tensors,
)
from shapescript.controller.dataset_reading import DROPPED, Reader, Step
from shapescript.controller.errors import DataError
from shapescript.controller.loaders import read_ahead
from shapescript.controller.reading_ahead import read_as_it_pays
from shapescript.devices.held import Somewhere
from shapescript.devices.python_draws import epoch_key, seed_example, seeded
from shapescript.devices.rows import rows_of

Order: TypeAlias = NDArray[np.int64]
Gather: TypeAlias = Callable[[Rows, Order, int, int], Mapping[str, Somewhere]]
"""Takes rows out of columns, which never change: those of an order's numbers from the first of two places up to the
other."""

__all__ = ["Batches", "Dataset", "FieldSpec", "TensorDataset", "Windows", "field_specs", "permutation"]


class UnknownLength(DataError, TypeError):
    """The length of an iterable; a `TypeError`, for `list` asks for a length and goes on without."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples of a `data`.

    Either `columns` has them all, already checked; or `source` gives them by number; or, with `order` None, it can
    only be gone through from its beginning, and `first` and `last` cut that. `steps` are applied to each, in order.
    `gather` takes rows of columns where they don't lie in this process. `salts` are the seeds of the shuffles, on
    which the random draws of Python code that makes examples depend.
    """

    checker: Checker
    source: Any
    order: Order | None
    columns: Rows | None = None
    steps: tuple[Step, ...] = ()
    first: int = 0
    last: int | None = None
    device: torch.device = field(default=torch.device("cpu"))
    gather: Gather | None = None
    salts: tuple[int, ...] = ()
    places: tuple[str, ...] = ()

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
        value = in_tensors(value)
        columns = columns_of(value)
        if columns is not None:
            rows = ready_columns(value, columns, checker, place)
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
            raise UnknownLength("this dataset is an iterable, which doesn't know how many examples it has")
        end = len(self.source) if self.last is None else min(len(self.source), self.last)
        return max(0, end - self.first)

    def __getitem__(self, place: int) -> Rows:
        """One example by its place in the order, for Python code that is handed a program's dataset."""
        numbers = self.numbered("indexed")
        found = self.reader(epoch_key(0, *self.salts)).rows(np.asarray([numbers[place]]))
        return {name: column[0] for name, column in found.items()}

    def shuffle(self, seed: int = 0) -> Dataset:
        """The same examples in another order, by the seed alone."""
        order = self.numbered("shuffled")[permutation(len(self), seed)]
        return replace(self, order=order, salts=(*self.salts, seed))

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
        return replace(self, steps=(*self.steps, Step(callable_for("map", function))))

    def filter(self, function: Callable[[Any], object]) -> Dataset:
        """The examples for which a Python function gives true; each is read once to find out, or as a stream goes by.

        The steps before it are gone through at that; where they draw at random, as for a first epoch.
        """
        step = Step(callable_for("filter", function), keeps=True)
        if self.order is None:
            return replace(self, source=Kept(replace(self, steps=(*self.steps, step))), steps=(), first=0, last=None)
        reader = replace(self.reader(0), steps=(*self.steps, step))
        return replace(self, order=reader.kept(self.order))

    def batches(self, n: int, drop_last: bool = False, workers: int | None = None) -> Batches:
        """The examples n at a time; the last batch may be shorter, or is left out with `drop_last`.

        `workers`: so many processes read ahead, 0 for none; the order and the examples are the same. Where it isn't
        said, one begins when Python code has taken long to make the examples.

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
        if workers is not None:
            not_negative("workers", workers)
        return Batches(self, n, drop_last, workers=workers)

    def numbered(self, what: str) -> Order:
        """The order, which a dataset that can only be gone through doesn't have."""
        if self.order is None:
            raise DataError(f"this dataset is an iterable: it can't be {what}; give it `__len__` and `__getitem__`")
        return self.order

    def reader(self, key: int) -> Reader:
        """What reads its examples, for the epoch of this key."""
        return Reader(self.checker, self.source, self.columns, self.steps, key)

    @property
    def lies_ready(self) -> bool:
        """Whether its rows are taken out of columns, and no Python code makes them."""
        return self.columns is not None and not self.steps

    def taken(self, first: int, end: int) -> Mapping[str, Somewhere]:
        """Rows of the columns."""
        assert self.columns is not None and self.order is not None
        if self.gather is not None:
            return self.gather(self.columns, self.order, first, end)
        numbers = self.order[first:end]
        if self.device.type == "cpu":
            return {name: rows_of(column, numbers) for name, column in self.columns.items()}
        index = torch.from_numpy(np.ascontiguousarray(numbers)).to(self.device)
        return {name: column.index_select(0, index) for name, column in self.columns.items()}

    def items(self, key: int) -> Iterator[object]:
        """The items of an iterable after the steps; gone on with within `seeded` alone."""
        reader = self.reader(key)
        seed_example(key, self.first)
        for number, item in enumerate(islice(self.source, self.first, self.last), self.first):
            made = reader.finished(item, number)
            if made is not DROPPED:
                yield made
            seed_example(key, number + 1)

    def stream(self, key: int, n: int) -> Iterator[Rows]:
        """The examples of an iterable n at a time, each once, and one warning if its length is wrong."""
        seen = 0
        items = self.items(key)
        while True:
            with seeded():
                part = list(islice(items, n))
            if part:
                yield self.reader(key).side_by_side(part, range(self.first + seen, self.first + seen + len(part)))
            seen += len(part)
            if len(part) < n:
                break
        if seen == 0 and self.first == 0 and self.last != 0:
            raise DataError(f"the dataset of `{self.checker.name}` has no examples")
        if isinstance(self.source, Sized) and seen != len(self):
            warnings.warn(
                f"the dataset says that it has {len(self)} examples, and gave {seen}; all were used", stacklevel=2
            )

    def on_device(self, rows: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Rows that were read, on the device."""
        return {name: tensor.to(self.device) for name, tensor in rows.items()}


@dataclass(frozen=True, eq=False)
class Kept:
    """The items of a stream that its filters let through; how many, only the end tells."""

    stream: Dataset

    def __iter__(self) -> Iterator[object]:
        return self.stream.items(0)


@dataclass(frozen=True, eq=False)
class Batches:
    """A dataset in batches, from batch `first` up to `last`; iterating gives the rows of each field.

    `key` is the epoch's, on which random draws of Python code depend; `workers` processes read ahead;
    None: as it pays.
    """

    dataset: Dataset
    n: int
    drop_last: bool = False
    first: int = 0
    last: int | None = None
    workers: int | None = None
    key: int = 0

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

    def for_epoch(self, seed: int, number: int) -> Batches:
        """The batches of a pass of a run: the draws of Python code are this pass's own."""
        return replace(self, key=epoch_key(seed, *self.dataset.salts, number))

    def __iter__(self) -> Iterator[Mapping[str, Somewhere]]:
        data = self.dataset
        if data.order is None:
            yield from self.streamed()
            return
        spans = [(batch * self.n, min((batch + 1) * self.n, len(data.order))) for batch in self.numbers()]
        if data.lies_ready:
            yield from (data.taken(first, end) for first, end in spans)
            return
        numbers = [data.order[first:end] for first, end in spans]
        reader = data.reader(self.key)
        ahead = read_as_it_pays(reader, numbers) if self.workers is None else read_ahead(reader, numbers, self.workers)
        with ahead as batches:
            yield from map(data.on_device, batches)

    def numbers(self) -> range:
        """The numbers of the batches."""
        return range(self.first, self.first + len(self))

    def streamed(self) -> Iterator[Mapping[str, Somewhere]]:
        """The batches of a dataset that can only be gone through."""
        batches = self.dataset.stream(self.key, self.n)
        for batch in count_from_zero() if self.last is None else range(self.last):
            part = next(batches, None)
            if part is None or (self.drop_last and len(next(iter(part.values()))) < self.n):
                return
            if batch >= self.first:
                yield self.dataset.on_device(part)


def not_negative(name: str, n: int) -> None:
    """Refuses a negative count."""
    if n < 0:
        raise DataError(f"`{name}` takes 0 or more, and this is {n}")


def permutation(count: int, seed: int) -> Order:
    """An order of `count` things by the seed: random words of Philox, whose bits numpy never changes, are sorted."""
    words = np.random.Philox(key=seed % 2**64).random_raw(count)
    return np.argsort(words, kind="stable").astype(np.int64)


def callable_for(what: str, function: object) -> Callable[[Any], object]:
    """A function that was handed to `map` or `filter`."""
    if not callable(function):
        raise DataError(f"`{what}` takes a Python function, and this is {type(function).__name__}")
    return function


def ready_columns(
    value: object, columns: Mapping[str, torch.Tensor] | Sequence[torch.Tensor], checker: Checker, place: torch.device
) -> Rows:
    """Columns checked and on the device; those of a `TensorDataset` are kept with it, the same ones each time."""
    key = (checker.fields, place)
    if isinstance(value, TensorDataset) and key in value.ready:
        return value.ready[key]
    rows = {name: column.to(place) for name, column in checker.columns(columns).items()}
    if isinstance(value, TensorDataset):
        value.ready[key] = rows
    return rows
