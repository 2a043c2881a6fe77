"""Reading ahead that nobody asked for: the same batches, whoever reads them."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from shapescript.controller import loaders, reading_ahead
from shapescript.controller.datasets import Batches, Dataset, FieldSpec

FIELDS = (FieldSpec("x", (2,), "f32", "[2]"),)


class Slow:
    """Examples with random numbers, and which process made them in `readers`, by a file that it appends to."""

    def __init__(self, count: int, log: str) -> None:
        self.count, self.log, self.shift = count, log, 0.0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> dict[str, object]:
        with open(self.log, "a") as log:
            print(os.getpid(), file=log)
        return {"x": [place + self.shift, random.random()]}


class OwnGenerator(Slow):
    """Draws from a generator that it keeps: what an example is depends on what was read before."""

    def __init__(self, count: int, log: str) -> None:
        super().__init__(count, log)
        self.generator = torch.Generator().manual_seed(1)

    def __getitem__(self, place: int) -> dict[str, object]:
        x = super().__getitem__(place)["x"]
        return {"x": [x[0], float(torch.rand((), generator=self.generator))]}  # type: ignore[index]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes are begun after the first batch, however little it took, and waited for."""
    monkeypatch.setattr(reading_ahead, "LONG", 0.0)
    monkeypatch.setattr(reading_ahead, "SHARE", 0.0)

    def waited(loader: loaders.Loader) -> bool:
        loader.open()
        return True

    monkeypatch.setattr(loaders.Loader, "would_answer", waited)
    yield
    loaders.end_idle()


def rows(of: Batches) -> list[list[float]]:
    return [row for batch in of for row in torch.as_tensor(batch["x"]).tolist()]


def batches(source: object, number: int = 0, workers: int | None = None) -> Batches:
    data = Dataset.of(source, "Example", FIELDS)
    return data.shuffle(number).batches(4, workers=workers).for_epoch(0, number)


def readers(log: str) -> set[int]:
    with open(log) as file:
        return {int(line) for line in file}


def test_a_process_reads_what_would_have_been_read_here(tmp_path: object) -> None:
    log = f"{tmp_path}/log"
    source = Slow(30, log)
    for number in range(3):
        ahead = rows(batches(source, number))
        others = readers(log) - {os.getpid()}
        assert len(others) == 1, "one process, which goes on in the next pass"
        assert ahead == rows(batches(source, number, workers=0))


def test_a_generator_of_its_own_is_read_here(tmp_path: object) -> None:
    log = f"{tmp_path}/log"
    ahead = [rows(batches(source, number)) for source in [OwnGenerator(30, log)] for number in range(2)]
    here = [rows(batches(source, number, workers=0)) for source in [OwnGenerator(30, log)] for number in range(2)]
    assert ahead == here
    assert not loaders._idle


def test_a_dataset_that_is_changed_between_passes_is_copied_anew(tmp_path: object) -> None:
    source = Slow(30, f"{tmp_path}/log")
    first = rows(batches(source))
    source.shift = 100.0
    second = rows(batches(source))
    assert second == [[x + 100.0, y] for x, y in first]


def test_what_cannot_be_copied_is_read_here_without_a_word(tmp_path: object, recwarn: pytest.WarningsRecorder) -> None:
    source = Slow(30, f"{tmp_path}/log")
    source.lock = threading.Lock()  # type: ignore[attr-defined]
    found = rows(batches(source))
    assert found == rows(batches(Slow(30, f"{tmp_path}/log")))
    assert not recwarn.list


def test_what_is_done_to_columns_is_read_ahead_too(tmp_path: object) -> None:
    def moved(item: dict[str, object]) -> dict[str, object]:
        return {"x": item["x"] * 2.0 + random.random()}  # type: ignore[operator]

    data = Dataset.of({"x": torch.arange(60.0).reshape(30, 2)}, "Example", FIELDS).map(moved)
    ahead = rows(data.batches(4).for_epoch(0, 1))
    assert len(loaders._idle) == 1
    assert ahead == rows(data.batches(4, workers=0).for_epoch(0, 1))


def test_a_loop_that_is_left_ends_its_processes(tmp_path: object) -> None:
    source = Slow(30, f"{tmp_path}/log")
    for number, _ in enumerate(batches(source)):
        if number == 5:
            break
    others = readers(f"{tmp_path}/log") - {os.getpid()}
    assert len(others) == 1
    until = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{process}") for process in others):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_reading_that_takes_little_begins_no_process(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "LONG", 1e9)
    rows(batches(Slow(30, f"{tmp_path}/log")))
    assert readers(f"{tmp_path}/log") == {os.getpid()}
