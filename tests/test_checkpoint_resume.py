"""Runs that are stopped and go on: bit-equal losses, folders of the last checkpoints, files that can't be loaded."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kill_training
import pytest
import torch

import shapescript
from shapescript.controller import checkpoint, checkpoint_files
from shapescript.controller.checkpoint_files import Draws
from shapescript.controller.errors import CheckpointError

MODEL = """devices cpu

dim D = 4

model Inner:
    param w: [D] = normal(std=1.0)

model Net:
    param w1: [D D] = normal(std=1.0)
    param b: [D] = zeros
    blocks: [2] Inner
    state seen: [] i64 = zeros

fn loss(m: Net, x: [b D]) -> []:
    return mean(square(x @ m.w1 + m.b), over=[b D])

fn step(mut m: Net, mut opt: AdamW[Net], x: [b D]) -> []:
    l, g = value_and_grad(loss, m, x)
    update(mut m, mut opt, g)
    return l

fn keep_last(m: Net, path: str, count: int):
    for i in 0..count:
        save_checkpoint(path, m, i, keep=3)

fn load_number(mut m: Net, path: str) -> int:
    i = 0
    load_checkpoint(path, mut m, mut i)
    return i
"""


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "net.ss").write_text(MODEL)
    with shapescript.load(tmp_path / "net.ss") as module:
        yield module


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOSSES", "")
    kill_training.write_program(tmp_path)
    return tmp_path


def test_a_run_that_goes_on_is_bit_equal(folder: Path) -> None:
    kill_training.run(folder, "whole.txt")
    expected = kill_training.losses(folder / "whole.txt")
    assert len(expected) == kill_training.STEPS
    rates = [float(expected[step].split()[0]) for step in range(kill_training.STEPS)]
    assert rates == [0.01] * 9 + [0.001] * 12
    for stop in (2, 8, 14, 20):  # within an epoch, just after its end, before the rate drops and after
        for name in ("run.ckpt", "parts.txt"):
            (folder / name).unlink(missing_ok=True)
        kill_training.run(folder, "parts.txt", stop=stop)
        kill_training.run(folder, "parts.txt", resume=True)
        assert kill_training.losses(folder / "parts.txt") == expected, stop
    kill_training.run(folder, "loaders.txt", workers=1)
    assert kill_training.losses(folder / "loaders.txt") == expected


def test_killed_at_random_moments_it_goes_on_bit_equal() -> None:
    command = [sys.executable, kill_training.__file__, "--times", "3", "--seed", str(random.randrange(2**30))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_a_folder_keeps_the_last(net: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    m = net.Net(seed=1)
    net.keep_last(m, str(path), 5)
    assert net.load_number(net.Net(seed=2), str(path)) == 4
    assert sorted(file.name for file in path.iterdir()) == [f"{i:06}.safetensors" for i in (3, 4, 5)]
    other = net.Net(seed=3)
    assert shapescript.load_checkpoint(path / "000003.safetensors", m=other, i=0) == {"i": 2}
    assert torch.equal(other.w1, m.w1)


def test_a_checkpoint_from_python(net: Any, tmp_path: Path) -> None:
    m = net.Net(seed=1)
    opt = shapescript.adamw(m, lr=0.1)
    x = torch.ones(3, 4)
    for _ in range(3):
        net.step(m, opt, x)
    shapescript.save_checkpoint(tmp_path / "c", m=m, opt=opt, step=3, best=float("inf"))
    kept = m.w1
    net.step(m, opt, x)  # beside the writing
    other, state = net.Net(seed=2), None
    state = shapescript.adamw(other, lr=0.5)
    assert shapescript.load_checkpoint(tmp_path / "c", m=other, opt=state, step=0, best=0.0) == {
        "step": 3,
        "best": float("inf"),
    }
    assert torch.equal(other.w1, kept)
    assert (state.steps, state.lr) == (3, 0.1)
    shapescript.load_checkpoint(tmp_path / "c", m=m, opt=opt, step=0, best=0.0)
    shapescript.load_checkpoint(tmp_path / "c", m=other, opt=state, step=0, best=0.0)
    assert torch.equal(net.step(other, state, x), net.step(m, opt, x))


def test_a_failure_beside_the_steps_is_said_at_the_next_one(net: Any, tmp_path: Path) -> None:
    m = net.Net(seed=1)
    place = tmp_path / "file"
    place.write_text("")
    shapescript.save_checkpoint(place / "inside", m=m)
    with pytest.raises(CheckpointError, match="can't be written"):
        shapescript.save_checkpoint(place / "inside", m=m)
    shapescript.save_checkpoint(place / "inside", m=m)
    with pytest.raises(CheckpointError, match="can't be written"):
        net.close()


def test_names_that_do_not_fit_are_all_listed_and_nothing_is_loaded(net: Any, tmp_path: Path) -> None:
    m = net.Net(seed=1)
    before = m.state_dict()
    state = m.state_dict()
    state["w1"] = torch.zeros(1, 4)
    state["extra"] = torch.zeros(2)
    del state["b"]
    with pytest.raises(CheckpointError) as caught:
        m.load_state_dict(state)
    assert str(caught.value).splitlines()[1:] == [
        "  `w1` should be [D D], 4 x 4, and is 1 x 4 there",
        "  `b` is missing: [D], 4",
        "  `extra` is there, 2, and nothing here has this name",
    ]
    assert all(torch.equal(before[name], value) for name, value in m.state_dict().items())


def test_a_pytorch_file_loads_by_a_map_of_names(net: Any, tmp_path: Path) -> None:
    linear = torch.nn.Linear(4, 4)
    rest = {"blocks.0.w": torch.ones(4), "blocks.1.w": torch.ones(4), "seen": torch.tensor(3)}
    torch.save({"state_dict": {**linear.state_dict(), **rest}}, tmp_path / "m.pt")
    m = net.Net(seed=1)
    m.load(tmp_path / "m.pt", names={"w1": "weight.T", "b": "bias"})
    x = torch.rand(3, 4)
    assert torch.allclose(x @ m.w1 + m.b, linear(x))
    with pytest.raises(CheckpointError, match="has no `weigth`, which is to be `w1`; it has `weight`"):
        m.load(tmp_path / "m.pt", names={"w1": "weigth.T", "b": "bias"})


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch hostile-code-ran",)


def test_nothing_in_a_file_can_run(net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"w1": Hostile()}, tmp_path / "m.pt")
    (tmp_path / "p.pt").write_bytes(pickle.dumps(Hostile(), protocol=2))
    (tmp_path / "p.safetensors").write_bytes(pickle.dumps(Hostile(), protocol=2))
    for name in ("m.pt", "p.pt", "p.safetensors"):
        with pytest.raises(CheckpointError):
            net.Net(seed=1).load(name)
    assert not (tmp_path / "hostile-code-ran").exists()


def header(described: object, data: bytes = b"") -> bytes:
    text = json.dumps(described).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        struct.pack("<Q", 2**62) + b"{}",
        header({"w1": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}),
        header({"w1": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 64]}}, b"\0" * 64),
        header({"w1": {"dtype": "F32", "shape": [4, 4], "data_offsets": [-64, 64]}}, b"\0" * 64),
        header({"__metadata__": {"shapescript": "[" * 100_000}}),
        header({"__metadata__": {"shapescript": '{"numbers": [1]}'}}),
        header({"__metadata__": {"shapescript": '{"draws": {"seed": "x", "calls": 1, "passes": {}}}'}}),
        header({"__metadata__": {"shapescript": '{"draws": {"seed": 1, "calls": 1, "passes": {"a": null}}}'}}),
    ],
)
def test_a_hostile_or_cut_file_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(CheckpointError, match="isn't a whole safetensors file"):
        checkpoint_files.read(tmp_path / "c")


def test_every_prefix_of_a_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c"
    checkpoint_files.write(path, checkpoint_files.Contents({"w": torch.ones(3)}, {"step": 1}, Draws(1, 2, {"a": 3})))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            checkpoint_files.read(path)


def test_a_program_whose_checkpoint_does_not_fit_says_so(net: Any, tmp_path: Path) -> None:
    m = net.Net(seed=1)
    shapescript.save_checkpoint(tmp_path / "c", model=m, i=3)
    with pytest.raises(CheckpointError, match="(?s)nothing was changed.*`m.w1` is missing.*`model.w1`") as caught:
        net.load_number(m, str(tmp_path / "c"))
    assert "load_checkpoint(path, mut m, mut i)" in str(caught.value)


def test_places_of_one_model_are_shared(net: Any) -> None:
    m = net.Net(seed=1)
    assert list(m.state_dict()) == ["w1", "b", "blocks.0.w", "blocks.1.w", "seen"]
    assert [name for name, _ in m.named_parameters()] == ["w1", "b", "blocks.0.w", "blocks.1.w"]
    assert [place.name for place in checkpoint.places(m._value)] == list(m.state_dict())
