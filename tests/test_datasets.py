"""Datasets: order, batches, and the words for items that aren't what their data says."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from shapescript.controller.datasets import Dataset, FieldSpec, TensorDataset, Windows, permutation
from shapescript.controller.errors import DataError

FIELDS = (FieldSpec("x", (2,), "f32", "[D]"), FieldSpec("y", (), "i64", "[] Index[C]", "Index", 3))


def columns(count: int) -> TensorDataset:
    return TensorDataset(x=torch.arange(2.0 * count).reshape(count, 2), y=torch.arange(count) % 3)


def items(count: int) -> list[tuple[list[float], int]]:
    return [([2.0 * i, 2.0 * i + 1], i % 3) for i in range(count)]


def dataset(count: int) -> Dataset:
    return Dataset.of(columns(count), "Example", FIELDS)


def numbers(data: Dataset, size: int = 4) -> list[int]:
    return [int(row[0]) // 2 for batch in data.batches(size) for row in batch["x"]]


@pytest.mark.parametrize("count", range(1, 14))
def test_every_example_comes_once_in_order(count: int) -> None:
    for value in (columns(count), items(count)):
        data = Dataset.of(value, "Example", FIELDS)
        assert numbers(data) == list(range(count))
        assert len(data.batches(4)) == -(-count // 4) == len(list(data.batches(4)))


def test_a_shuffle_is_by_the_seed_alone() -> None:
    first, again, other = (numbers(dataset(20).shuffle(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other) == list(range(20))
    assert numbers(dataset(20).shuffle(1), 7) == first
    assert permutation(8, 0).tolist() == permutation(8, 0).tolist()


def test_the_order_of_a_shuffle_never_changes() -> None:
    words = np.random.Philox(key=7).random_raw(6)
    assert permutation(6, 7).tolist() == sorted(range(6), key=lambda i: words[i])


def test_take_skip_and_split() -> None:
    assert numbers(dataset(10).skip(2).take(3)) == [2, 3, 4]
    assert [len(batch["y"]) for batch in dataset(10).batches(4).skip(1)] == [4, 2]
    assert [len(batch["y"]) for batch in dataset(10).batches(4).take(1)] == [4]
    first, second = dataset(10).split(0.9, seed=3)
    assert (len(first), len(second)) == (9, 1)
    assert sorted(numbers(first) + numbers(second)) == list(range(10))


def test_drop_last_leaves_out_the_short_batch() -> None:
    assert [len(batch["y"]) for batch in dataset(10).batches(4, drop_last=True)] == [4, 4]


def test_a_map_changes_items_as_they_are_read() -> None:
    def doubled(item: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {**item, "x": item["x"] * 2}

    assert numbers(dataset(3).map(doubled)) == [0, 2, 4]


def test_float64_becomes_float32() -> None:
    data = Dataset.of([(np.array([1.0, 2.0]), np.int32(1))], "Example", FIELDS)
    [batch] = data.batches(2)
    assert batch["x"].dtype == torch.float32
    assert batch["y"].dtype == torch.int64


class Stream:
    """An iterable of items whose `__len__` may be wrong."""

    def __init__(self, count: int, said: int) -> None:
        self.count, self.said = count, said

    def __len__(self) -> int:
        return self.said

    def __iter__(self) -> Iterator[tuple[list[float], int]]:
        return iter(items(self.count))


def test_an_iterable_is_read_once_in_its_order() -> None:
    data = Dataset.of(Stream(10, 10), "Example", FIELDS)
    assert numbers(data, 2) == list(range(10))
    assert numbers(data.skip(3).take(4), 3) == [3, 4, 5, 6]
    with pytest.raises(DataError, match="can't be shuffled"):
        data.shuffle(0)


def test_a_wrong_length_is_said_once_and_all_is_used() -> None:
    with pytest.warns(UserWarning, match="says that it has 8 examples, and gave 10"):
        assert numbers(Dataset.of(Stream(10, 8), "Example", FIELDS)) == list(range(10))


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"x": [1.0, 2.0]}, "item 1 has no `y`"),
        ({"x": [1.0, 2.0], "y": 1, "z": 3}, "item 1 has a field `z`, which `Example` hasn't"),
        (([1.0, 2.0],), "item 1 has 1 parts, and `Example` has 2"),
        (([1.0, 2.0, 3.0], 1), "item 1 of the dataset: `x` of `Example` should be [D], 2, and is 3"),
        (([1, 2], 1), "`x` of `Example` should be [D], elements f32, and holds i64"),
        (([1.0, 2.0], 1.0), "`y` of `Example` should be [] Index[C], elements i64, and holds f32"),
        (([1.0, 2.0], [1]), "`y` of `Example` should be [] Index[C], one value, and is 1"),
        (([1.0, 2.0], 3), "should be [] Index[C], whole numbers in 0..3, and holds 3"),
        (("no", 1), "item 1 of the dataset: `x` of `Example` is str, which isn't a tensor"),
        (5, "item 1 is int; it should be a mapping or a tuple of `Example`'s fields: `x`, `y`"),
    ],
)
def test_an_item_that_is_not_an_example_is_named(item: object, words: str) -> None:
    data = Dataset.of([([0.0, 0.0], 0), item], "Example", FIELDS)
    with pytest.raises(DataError) as caught:
        list(data.batches(4))
    assert words in str(caught.value)


def test_a_label_out_of_range_in_a_column_names_its_row() -> None:
    value = TensorDataset(x=torch.zeros(3, 2), y=torch.tensor([0, 1, -1]))
    with pytest.raises(DataError, match=r"column `y` of `Example` .* holds -1 in row 2"):
        Dataset.of(value, "Example", FIELDS)


def test_nothing_is_an_error_before_the_first_step() -> None:
    with pytest.raises(DataError, match="has no examples"):
        dataset(0).batches(4)
    with pytest.raises(DataError, match="nothing is left"):
        dataset(3).batches(4, drop_last=True)
    with pytest.raises(DataError, match="has no examples"):
        list(Dataset.of(Stream(0, 0), "Example", FIELDS).batches(4))


def test_columns_of_different_lengths() -> None:
    with pytest.raises(DataError, match="`x` 3, `y` 2"):
        TensorDataset(x=torch.zeros(3, 2), y=torch.zeros(2))


def test_windows_of_a_text() -> None:
    windows = Windows(torch.arange(6), 3)
    assert len(windows) == 3
    assert windows[2]["x"].tolist() == [2, 3, 4]
    assert windows[2]["y"].tolist() == [3, 4, 5]
