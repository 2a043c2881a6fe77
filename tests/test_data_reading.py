"""Reading examples: loader processes keep the order and leave nothing behind; Python's draws are an example's own."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import shapescript
from shapescript.controller import loaders
from shapescript.controller.datasets import Batches, Dataset, FieldSpec, TensorDataset
from shapescript.controller.errors import DataError

FIELDS = (FieldSpec("x", (2,), "f32", "[D]"), FieldSpec("y", (), "i64", "[] Index[C]", "Index", 3))


class Noisy:
    """Items with draws of each generator."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> dict[str, object]:
        drawn = torch.rand(()) + 10.0 * random.random()
        return {"x": torch.stack([torch.tensor(float(place)), drawn + 100.0 * np.random.rand()]), "y": place % 3}


class Broken(Noisy):
    def __getitem__(self, place: int) -> dict[str, object]:
        if place == 5:
            raise KeyError("no five")
        return super().__getitem__(place)


class Dying(Noisy):
    def __getitem__(self, place: int) -> dict[str, object]:
        if place == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(place)


def batches(source: object, size: int = 4, workers: int = 0, seed: int = 0, number: int = 0) -> Batches:
    data = Dataset.of(source, "Example", FIELDS).shuffle(seed)
    return data.batches(size, workers=workers).for_epoch(0, number)


def rows(of: Batches) -> list[list[float]]:
    return [row for batch in of for row in torch.as_tensor(batch["x"]).tolist()]


def children() -> set[str]:
    """The processes that this one has started and that are there."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.add(folder.name)
    return found


def test_draws_are_repeatable_and_differ_by_example_and_epoch() -> None:
    first, again, other = (rows(batches(Noisy(9), number=number)) for number in (0, 0, 1))
    assert first == again
    assert {row[0] for row in first} == {row[0] for row in other} == set(map(float, range(9)))
    assert not {row[1] for row in first} & {row[1] for row in other}
    assert len({row[1] for row in first}) == 9


def test_draws_do_not_depend_on_the_batch_that_an_example_is_in() -> None:
    assert rows(batches(Noisy(9), 4)) == rows(batches(Noisy(9), 2))


def test_reading_does_not_disturb_the_programs_own_draws() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    alone = (random.random(), np.random.rand(), torch.rand(()).item())
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    rows(batches(Noisy(9)))
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == alone


def test_loader_processes_change_nothing_and_are_gone_afterwards() -> None:
    class Local(Noisy):  # neither a local class nor a lambda is in the way
        pass

    def read(workers: int) -> list[list[float]]:
        data = Dataset.of(Local(23), "Example", FIELDS).shuffle(1).map(lambda item: {**item, "x": item["x"] * 2})
        return rows(data.batches(4, workers=workers).for_epoch(0, 0))

    before = children()
    assert read(2) == read(0)
    loaders.end_idle()
    assert children() == before


def test_loaders_serve_the_next_epochs_too() -> None:
    data = Dataset.of(Noisy(10), "Example", FIELDS)
    before = children()
    found, processes = [], []
    for number in range(3):
        order = data.shuffle(number)
        found.append(rows(order.batches(4, workers=1).for_epoch(0, number)))
        processes.append(children() - before)
        assert found[-1] == rows(order.batches(4).for_epoch(0, number))
    assert len(processes[0]) == 1 and processes[0] == processes[1] == processes[2]
    loaders.end_idle()
    assert children() == before


def test_a_loop_that_is_left_early_ends_its_loaders() -> None:
    before = children()
    loop = iter(batches(Noisy(23), workers=1))
    next(loop)
    assert len(children()) == len(before) + 1
    del loop
    gc.collect()
    assert children() == before


def test_what_a_dataset_raises_in_a_loader_is_raised_here() -> None:
    before = children()
    with pytest.raises(KeyError, match="no five") as caught:
        rows(batches(Broken(8), workers=1))
    assert any("while item 5 of the dataset was read" in note for note in caught.value.__notes__)
    assert any(note.endswith('raise KeyError("no five")') for note in caught.value.__notes__)
    assert children() == before


def test_a_loader_that_is_killed_is_an_error_and_no_hang() -> None:
    with pytest.raises(DataError, match="a loader process ended .*SIGKILL"):
        rows(batches(Dying(8), workers=1))


def test_what_cannot_be_copied_is_read_here_with_one_message() -> None:
    class Holding(Noisy):
        def __init__(self, count: int) -> None:
            super().__init__(count)
            self.lock = threading.Lock()

    source = Holding(6)
    with pytest.warns(UserWarning, match="the dataset `Holding` can't be copied to a loader process") as caught:
        found = rows(batches(source, workers=1))
    assert len(caught) == 1
    assert found == rows(batches(Noisy(6)))


def test_ctrl_c_leaves_no_loader_behind(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(
        "import sys, time\n"
        "from shapescript.controller.datasets import Dataset, FieldSpec\n"
        "class Slow:\n"
        "    def __len__(self): return 1000\n"
        "    def __getitem__(self, i):\n"
        "        time.sleep(0.05)\n"
        "        return {'x': float(i)}\n"
        "data = Dataset.of(Slow(), 'Row', (FieldSpec('x', (), 'f32', '[]'),))\n"
        "for batch in data.batches(2, workers=2):\n"
        "    print('batch', flush=True)\n"
    )
    # a shell in the background ignores SIGINT, and its children would
    running = subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert running.stdout is not None and running.stdout.readline() == "batch\n"
    found = descendants(running.pid)
    assert len(found) == 2
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert errors.count("KeyboardInterrupt") == 1
    assert not [pid for pid in found if is_there(pid)]


def test_loaders_of_a_killed_program_end_by_themselves(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(
        "from shapescript.controller.datasets import Dataset, FieldSpec\n"
        "data = Dataset.of([{'x': float(i)} for i in range(1000)], 'Row', (FieldSpec('x', (), 'f32', '[]'),))\n"
        "for batch in data.batches(2, workers=1):\n"
        "    print('batch', flush=True)\n"
        "    input()\n"
    )
    running = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert running.stdout is not None and running.stdout.readline() == "batch\n"
    [loader] = descendants(running.pid)
    running.kill()
    running.wait()
    assert running.stdin is not None
    running.stdin.close()
    running.stdout.close()
    for _ in range(100):
        if not is_there(loader):
            return
        time.sleep(0.05)
    pytest.fail("the loader process is still there")


def descendants(pid: int) -> list[int]:
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and parent(int(folder.name)) == pid
    ]


def parent(pid: int) -> int | None:
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def is_there(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_filter_leaves_examples_out_before_they_are_batched() -> None:
    source = [([float(i), 0.0], i % 3) for i in range(10)]

    def even(item: dict[str, list[float]]) -> bool:
        return item["x"][0] % 2 == 0

    data = Dataset.of(source, "Example", FIELDS).filter(even)
    assert len(data) == 5
    assert [row[0] for row in rows(data.batches(4))] == [0, 2, 4, 6, 8]
    with pytest.raises(DataError, match="has no examples"):
        data.filter(lambda item: False).batches(4)


def test_a_filter_of_a_stream() -> None:
    class Stream:
        def __iter__(self) -> Iterator[object]:
            return iter([([float(i), 0.0], i % 3) for i in range(10)])

    data = Dataset.of(Stream(), "Example", FIELDS).filter(lambda item: item["y"] == 0)
    assert [row[0] for row in rows(data.batches(3))] == [0, 3, 6, 9]
    assert [row[0] for row in rows(data.take(2).batches(3))] == [0, 3]
    assert [row[0] for row in rows(data.skip(1).batches(2).take(1))] == [3, 6]


def test_a_map_takes_items_of_another_form() -> None:
    data = Dataset.of([5, 6], "Example", FIELDS).map(lambda item: {"x": [float(item), 1.0], "y": 0})
    assert rows(data.batches(2)) == [[5.0, 1.0], [6.0, 1.0]]


def test_torch_asks_for_several_items_at_once() -> None:
    class Several(Noisy):
        def __getitems__(self, places: list[int]) -> list[dict[str, object]]:
            return [{"x": torch.tensor([float(place), len(places)]), "y": 0} for place in places]

    assert {row[1] for row in rows(batches(Several(8), 4))} == {4.0}


def test_read_only_arrays_are_taken_without_a_copy_or_a_warning() -> None:
    array = np.arange(8, dtype=np.float32).reshape(4, 2)
    array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = TensorDataset(x=array, y=np.zeros(4, np.uint8))
    assert data.columns["x"].data_ptr() == array.ctypes.data
    assert rows(batches(data)) and array.sum() == 28


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.random(),
        lambda: random.gauss(0, 1),
        lambda: np.random.randn(),
        lambda: np.random.permutation(9)[0],
        lambda: torch.rand(()).item(),
        lambda: torch.randperm(9)[0].item(),
    ],
)
def test_every_way_to_draw_is_seen(draw: Callable[[], float]) -> None:
    """A batch is read without seeds as long as nothing is drawn: the third example alone draws."""

    def changed(item: dict[str, object]) -> dict[str, object]:
        return {"x": [float(item["y"]), draw() if item["y"] == 2 else 0.0], "y": item["y"]}  # type: ignore[arg-type]

    source = [([0.0, 0.0], i % 3) for i in range(12)]
    data = Dataset.of(source, "Example", FIELDS).map(changed)
    found = [[row[1] for row in rows(data.batches(6).for_epoch(0, number)) if row[0] == 2] for number in (0, 0, 1)]
    assert found[0] == found[1] and all(map(any, found))
    assert found[0] != found[2] and len(found[0]) == 4
    assert [row[1] for row in rows(data.batches(4).for_epoch(0, 0)) if row[0] == 2] == found[0]


FAULTS = """devices cpu

dim D = 2

import python faults

data Row:
    x: [D]

fn over(kind: str):
    for batch in faults.items(kind) as Dataset[Row] |> map(faults.change) |> batches(2):
        print(batch.x)

fn visit():
    for item in faults.counted():
        print(item)
"""
FAULTS_CODE = """def items(kind):
    return [{"x": [0.0, 1.0], "kind": kind}, {"x": [0.0], "kind": kind}]

def change(item):
    if item["kind"] == "raise":
        raise KeyError("this one")
    return {"x": item["x"]}

def counted():
    yield 1
    raise KeyError("no two")
"""


def test_what_goes_wrong_in_a_loop_is_said_at_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "faults.py").write_text(FAULTS_CODE)
    (tmp_path / "loops.ss").write_text(FAULTS)
    with shapescript.load(tmp_path / "loops.ss") as loops:
        with pytest.raises(
            DataError, match=r"(?s)item 1 of the dataset: `x` of `Row` should be \[D\], 2, and is 1.*:11:"
        ):
            loops.over("shape")
        with pytest.raises(
            shapescript.RunError, match="(?s)raised KeyError: 'this one'.*loops.ss:11.*`change` mapped"
        ) as caught:
            loops.over("raise")
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(shapescript.RunError, match="(?s)KeyError: 'no two'.*loops.ss:15"):
            loops.visit()
        assert capsys.readouterr().out == "1\n"
