"""Examples read by their numbers, put side by side, and checked.

Takes a source of items and the functions that are mapped over them; gives the rows of a batch. A `Reader` holds all
that reading needs and nothing of the order, so that it can be copied to a loader process. Items are put side by side
first and checked together; only where that fails is each looked at, so that the error names the item.

To seed the generators for each example takes longer than to read a small one. So a batch is read without at first,
and if something was drawn, or raised, it is read again, seeded, and so is all that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shapescript.controller.arrays import from_array
from shapescript.controller.dataset_items import Checker, FieldSpec, Rows, converted
from shapescript.controller.errors import DataError
from shapescript.devices.python_draws import Watch, seed_example, seeded

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Step:
    """A function over items: one that changes each (`map`), or one that says whether it stays (`filter`)."""

    function: Callable[[Any], object]
    keeps: bool = False

    @property
    def name(self) -> str:
        """What messages call it."""
        return getattr(self.function, "__name__", type(self.function).__name__)


@dataclass
class Drawing:
    """Whether the items of a source draw at random, as far as is known."""

    seen: bool = False


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads the items of a source; `key` is the epoch's, on which their random draws depend."""

    checker: Checker
    source: Any
    columns: Rows | None = None
    steps: tuple[Step, ...] = ()
    key: int = 0
    drawing: Drawing = field(default_factory=Drawing)

    def reads_as(self, other: Reader) -> bool:
        """Whether another reader differs in the epoch alone."""
        steps = [(step.function, step.keeps) for step in self.steps]
        return (
            self.source is other.source
            and self.columns is other.columns
            and self.checker == other.checker
            and steps == [(step.function, step.keeps) for step in other.steps]
        )

    def copied(self) -> Reader:
        """One that reads the same, of no epoch in particular, and that knows nothing of what was read."""
        return replace(self, key=0, drawing=Drawing())

    # --- by number

    def rows(self, numbers: Numbers) -> Rows:
        """The examples of these numbers side by side."""
        if not self.steps:
            if self.columns is not None:
                index = torch.from_numpy(np.ascontiguousarray(numbers))
                return {name: column.index_select(0, index) for name, column in self.columns.items()}
            if hasattr(self.source, "rows"):
                try:
                    return self.checker.columns(self.source.rows(numbers))
                except DataError:
                    pass  # said again below, by item
        return self.side_by_side(self.items(numbers), numbers)

    def items(self, numbers: Numbers) -> list[object]:
        """The items of these numbers after the steps; their draws are their own."""
        with seeded():
            if self.columns is None and not self.steps and hasattr(self.source, "__getitems__"):
                seed_example(self.key, int(numbers[0]) if len(numbers) else 0)
                return list(self.source.__getitems__(numbers.tolist()))
            if not self.drawing.seen:
                found = self.undrawn(numbers.tolist())
                if found is not None:
                    return found
                self.drawing.seen = True
            return list(map(self.seeded_item, numbers.tolist()))

    def seeded_item(self, number: int) -> object:
        """An item after the steps, with its own draws."""
        seed_example(self.key, number)
        return self.finished(self.item(number), number)

    def undrawn(self, numbers: Sequence[int]) -> list[object] | None:
        """Items after the steps; None if one drew at random, or raised: the first one soon tells of most sources."""
        watch = Watch()
        found = []
        for number in numbers:
            try:
                found.append(self.finished(self.item(number), number))
            except Exception:
                return None  # raised again where it is read again, unless it depends on the draws
            if len(found) == 1 and watch.moved():
                return None
        return None if watch.moved() else found

    def item(self, number: int) -> object:
        """One item as the source has it.

        Raises:
            DataError: there is none of this number, although the dataset's length says so.
        """
        if self.columns is not None:
            return {name: column[number] for name, column in self.columns.items()}
        try:
            return self.source[number]
        except IndexError as error:
            length = len(self.source)
            if number < length:
                message = f"the dataset says that it has {length} examples, but gives no item {number}"
                raise DataError(f"{message} ({error})" if str(error) else message) from error
            raise
        except Exception as error:
            error.add_note(f"while item {number} of the dataset was read")
            raise

    def finished(self, item: object, number: int) -> object:
        """An item after the steps; `DROPPED` where one of them leaves it out."""
        for step in self.steps:
            try:
                result = step.function(self.checker.named(item))
                if step.keeps:
                    if not bool(result):
                        return DROPPED
                else:
                    item = result
            except Exception as error:
                what = "filtered" if step.keeps else "mapped over"
                error.add_note(f"while `{step.name}` {what} item {number} of the dataset")
                raise
        return item

    def kept(self, numbers: Numbers) -> Numbers:
        """Those of these numbers whose items no filter leaves out."""
        with seeded():
            stay = []
            for number in numbers.tolist():
                if self.seeded_item(number) is not DROPPED:
                    stay.append(number)
        return np.asarray(stay, dtype=np.int64)

    # --- side by side

    def side_by_side(self, items: Sequence[object], numbers: Sequence[int] | Numbers) -> Rows:
        """Items as the fields' tensors, checked.

        Raises:
            DataError: an item isn't what its data says; the message names it.
        """
        rows: Rows = {}
        names = {spec.name for spec in self.checker.fields}
        by_name = all(type(item) is dict and item.keys() == names for item in items)
        if by_name:
            try:
                for spec in self.checker.fields:
                    values = [item[spec.name] for item in items]  # type: ignore[index]
                    rows[spec.name] = converted(spec, stacked(values, spec), f"`{spec.name}`", rows=True)
                return rows
            except (DataError, TypeError, ValueError, RuntimeError):
                rows = {}  # what is wrong is said by item, below
        examples = [self.checker.item(item, int(number)) for item, number in zip(items, numbers, strict=True)]
        return {spec.name: torch.stack([each[spec.name] for each in examples]) for spec in self.checker.fields}


class Dropped:
    """The mark of an item that a filter leaves out."""


DROPPED = Dropped()


def stacked(values: Sequence[Any], spec: FieldSpec) -> torch.Tensor:
    """Values of one field side by side, where all are of one kind.

    Raises:
        TypeError: they aren't; each has to be looked at.
    """
    kind = type(values[0])
    if any(type(value) is not kind for value in values):
        raise TypeError("values of several kinds")
    if kind is torch.Tensor:
        if any(value.dtype != values[0].dtype for value in values):
            raise TypeError("values of several elements")
        return torch.stack(list(values)).detach()
    if kind is np.ndarray or issubclass(kind, np.generic):
        if any(value.dtype != values[0].dtype for value in values):
            raise TypeError("values of several elements")
        return from_array(np.stack(values) if kind is np.ndarray else np.asarray(values))
    if kind in (int, bool):
        return torch.tensor(values)
    raise TypeError("plain numbers and lists take the field's element each by itself")
