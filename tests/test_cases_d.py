"""Data loading and batching, case by case: what others got wrong, and the right answer.

The numbers of the tests are those of a list of public reports. D10's loader processes are in test_data_reading.py.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import data_code
import numpy as np
import pytest
import torch
from programs import Program
from several import devices

import shapescript
from shapescript.controller.datasets import Dataset, FieldSpec
from shapescript.controller.errors import DataError
from shapescript.diagnostics.diagnostic import ProgramError

COUNTS = (1, 2, 3)
ROWS = """
dim D = 3
import python data_code
model Net:
    param w: [D] = ones
data Row:
    x: [D]
    id: [] i64
fn loss(m: Net, batch: [b] Row) -> []:
    return mean(batch.x @ m.w, over=b)
fn epochs(count: int, size: int, epochs: int):
    data = data_code.examples(count) as Dataset[Row]
    m = Net(seed=0)
    for epoch in 0..epochs:
        for batch in data |> shuffle |> batches(size):
            l = loss(m, batch)
            data_code.note(whole(batch.id))
fn by_seed(count: int, size: int, epochs: int):
    data = data_code.examples(count) as Dataset[Row]
    for epoch in 0..epochs:
        for batch in data |> shuffle(seed=epoch) |> batches(size):
            data_code.note(whole(batch.id))
fn streamed(count: int, size: int) -> float:
    data = data_code.stream(count) as Dataset[Row]
    m = Net(seed=0)
    total = 0.0
    for batch in data |> batches(size):
        total = total + float(loss(m, batch)) * len(batch)
        data_code.note(whole(batch.id))
    return total
fn claimed(count: int, said: int):
    for batch in data_code.claiming(count, said) as Dataset[Row] |> batches(10):
        data_code.note(whole(batch.id))
fn counted(count: int, size: int) -> int:
    n = 0
    for batch in data_code.examples(count) as Dataset[Row] |> batches(size):
        n = n + len(batch)
    return n
"""


def program(count: int = 1, seed: int = 0) -> Program:
    data_code.forget()
    return Program(ROWS, seed=seed, place=devices(count))


def used() -> list[int]:
    return [number for batch in data_code.seen for number in batch]


# --- D2 D3 D12: the order is new each epoch, and the same on any devices ---


@pytest.mark.parametrize("function", ["epochs", "by_seed"])
def test_d2_each_epoch_has_an_order_of_its_own(function: str) -> None:
    program(seed=5).call(function, 20, 6, 2)
    first, second = used()[:20], used()[20:]
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    again = program(seed=5)
    again.call(function, 20, 6, 2)
    assert used() == first + second


def test_d2_the_seed_of_the_run_decides_an_order_without_a_seed() -> None:
    orders = []
    for seed in (1, 2):
        program(seed=seed).call("epochs", 20, 6, 1)
        orders.append(used())
    assert orders[0] != orders[1]


@pytest.mark.parametrize("count", COUNTS)
def test_d3_d12_batch_k_holds_the_same_examples_on_any_devices(count: int) -> None:
    program(1).call("epochs", 200, 64, 2)
    expected = [list(batch) for batch in data_code.seen]
    assert [len(batch) for batch in expected] == [64, 64, 64, 8] * 2
    program(count).call("epochs", 200, 64, 2)
    assert data_code.seen == expected


# --- D4 D5 D6: everything once, nothing lost ---


@pytest.mark.parametrize("count", COUNTS)
def test_d4_an_iterable_is_read_once(count: int) -> None:
    total = program(count).call("streamed", 10, 2)
    assert data_code.seen == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert data_code.made == list(range(10))
    expected = sum(float(torch.as_tensor(item["x"]).sum()) for item in data_code.examples(10))
    assert total == pytest.approx(expected, rel=1e-5)


def test_d5_a_wrong_length_is_said_once_and_every_item_is_used() -> None:
    for said in (78, 30):
        with pytest.warns(UserWarning, match=f"says that it has {said} examples, and gave 45; all were used") as caught:
            program().call("claimed", 45, said)
        assert len(caught) == 1
        assert used() == list(range(45))


def test_d6_an_evaluation_counts_every_row() -> None:
    of = program()
    assert of.call("counted", 360, 64) == 360
    data = Dataset.of([(float(i),) for i in range(360)], "Row", (FieldSpec("x", (), "f32", "[]"),)).batches(64)
    assert [len(torch.as_tensor(batch["x"])) for batch in data][-1] == 40


# --- D7 D8 D9: what arrays are ---

FIELDS = (FieldSpec("x", (3,), "f32", "[D]"), FieldSpec("y", (), "i64", "[] Index[C]", "Index", 3))


def batch_of(x: object, y: object) -> dict[str, torch.Tensor]:
    [found] = Dataset.of(shapescript.TensorDataset(x=x, y=y), "Row", FIELDS).batches(9)
    return {name: torch.as_tensor(column) for name, column in found.items()}


def test_d7_a_big_endian_array_has_its_values() -> None:
    big = np.array([[1, 2, 3]], dtype=">f4")
    assert batch_of(big, np.array([2], dtype=">i2"))["x"].tolist() == [[1.0, 2.0, 3.0]]
    [found] = Dataset.of([(big[0], 1)], "Row", FIELDS).batches(1)
    assert torch.as_tensor(found["x"]).tolist() == [[1.0, 2.0, 3.0]]


def test_d8_a_read_only_or_mapped_array_works_and_is_never_written(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    array.tofile(tmp_path / "x.bin")
    mapped = np.memmap(tmp_path / "x.bin", np.float32, "r", shape=(2, 3))
    array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (array, mapped):
            found = batch_of(given, [0, 1])
            found["x"] += 1
    assert array.sum() == 15 and np.fromfile(tmp_path / "x.bin", np.float32).sum() == 15


def test_d9_f64_is_taken_as_f32_and_any_whole_numbers_as_classes() -> None:
    x = np.array([[0.1, 0.2, 0.3]])
    found = batch_of(x, np.array([2]))
    assert found["x"].dtype is torch.float32 and torch.equal(found["x"], torch.tensor(x).float())
    for kind in (np.int32, np.int64, np.uint8, np.int8, np.uint16, np.uint64):
        assert batch_of(x, np.array([2], dtype=kind))["y"].tolist() == [2]
    for wrong, words in ((x.astype(np.float16), "holds f16"), (x.astype(np.int32), "holds i32")):
        with pytest.raises(DataError, match=f"elements f32, and {words}"):
            batch_of(wrong, [0])
    with pytest.raises(DataError, match="elements i64, and holds f64"):
        batch_of(x, np.array([1.0]))


# --- D10 D11: what can't be ---


def test_d10_a_dataset_may_hold_tensors_of_its_own_device() -> None:
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    [found] = Dataset.of([(torch.ones(3, device=kind), 1)], "Row", FIELDS, kind).batches(1)
    assert torch.as_tensor(found["x"]).device.type == kind


def test_d11_nothing_to_train_on_is_an_error_before_the_first_step() -> None:
    with pytest.raises(ProgramError, match="the dataset of `Row` has no examples"):
        program().call("epochs", 0, 4, 1)
    assert data_code.seen == []
    data = Dataset.of([([0.0] * 3, i % 3) for i in range(9)], "Row", FIELDS)
    kept = data.filter(lambda item: item["y"] == 1).batches(2)
    assert [len(torch.as_tensor(batch["y"])) for batch in kept] == [2, 1], "a filter comes before the batches"
