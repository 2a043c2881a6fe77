"""Files of weights: whole or not at all, and every name that doesn't fit is named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shapescript.controller import checkpoint
from shapescript.controller import checkpoint_files as files
from shapescript.controller.checkpoint_files import Draws
from shapescript.controller.errors import CheckpointError
from shapescript.specialise.values import DeviceTensor, ModelValue, OptimizerValue
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import F32
from shapescript.types.kinds import ModelOf

KIND = ModelOf(tree.Model(0, 0, "M", 0, [], []))


def tensor(*shape: int, value: float = 0.0) -> DeviceTensor:
    axes = tuple(Axis.named(name) for name in "ABC"[: len(shape)])
    return DeviceTensor(torch.full(shape, value), axes, F32)


def model(value: float = 0.0, rows: int = 2) -> ModelValue:
    inner = [ModelValue(KIND, {"w": tensor(3, value=value + i)}) for i in range(2)]
    return ModelValue(KIND, {"w1": tensor(rows, 3, value=value), "blocks": inner})


def optimizer(of: ModelValue, step: float, lr: float = 0.1) -> OptimizerValue:
    state: dict[str, dict[str, object]] = {"first": {"w1": tensor(2, 3, value=step)}}
    options: dict[str, object] = {"lr": lr, "betas": (0.9, 0.999), "decay_axes": None}
    return OptimizerValue("AdamW", KIND, options, state, {"w1": tensor(value=step)})


def values(of: object) -> dict[str, object]:
    found = {}
    for place in checkpoint.places(of):
        value = place.value
        found[place.name] = value.data.tolist() if isinstance(value, DeviceTensor) else value
    return found


def test_names_are_plain() -> None:
    assert list(values(model())) == ["w1", "blocks.0.w", "blocks.1.w"]


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    checkpoint.save(model(5.0), path)
    other = model()
    checkpoint.load(other, path)
    assert values(other) == values(model(5.0))


def test_a_checkpoint_keeps_numbers_steps_and_what_draws_depend_on(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    m = model(1.0)
    draws = Draws(seed=3, calls=42, passes={"main:12": 2})
    checkpoint.save_checkpoint(path, {"m": m, "opt": optimizer(m, 30.0), "step": 7, "best": 0.5}, draws)
    m2 = model()
    opt2 = optimizer(m2, 0.0, lr=0.3)
    given, found = checkpoint.load_checkpoint(path, {"m": m2, "opt": opt2, "step": 0, "best": 9.0})
    assert (given["step"], given["best"], found) == (7, 0.5, draws)
    assert values(m2) == values(m)
    assert values(opt2) == values(optimizer(m, 30.0))
    assert opt2.options["betas"] == (0.9, 0.999)


def test_what_does_not_fit_is_listed_and_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    wrong = model(5.0, rows=4)
    wrong.fields["extra"] = tensor(1)
    del wrong.fields["blocks"]
    checkpoint.save(wrong, path)
    target = model()
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(target, path)
    assert str(caught.value).splitlines()[1:] == [
        "  `w1` should be [A B], 2 x 3, and is 4 x 3 in the file",
        "  `blocks.0.w` is missing: [A], 3",
        "  `blocks.1.w` is missing: [A], 3",
        "  `extra` is in the file, 1, and nothing here has this name",
    ]
    assert values(target) == values(model())


def test_a_broadcast_is_not_a_fit(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    checkpoint.save(model(rows=1), path)
    with pytest.raises(CheckpointError, match="2 x 3, and is 1 x 3"):
        checkpoint.load(model(), path)


def test_a_shared_part_is_stored_once(tmp_path: Path) -> None:
    shared = ModelValue(KIND, {"w": tensor(3, value=2.0)})
    whole = ModelValue(KIND, {"a": shared, "b": shared})
    path = tmp_path / "m.safetensors"
    checkpoint.save(whole, path)
    assert list(files.read(path).tensors) == ["a.w"]
    shared.fields["w"] = tensor(3)
    checkpoint.load(whole, path)
    assert whole.fields["b"] is whole.fields["a"]
    assert values(whole) == {"a.w": [2.0, 2.0, 2.0]}


def test_a_failure_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    checkpoint.save(model(1.0), path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="can't be written: No space left"):
            checkpoint.save(model(2.0), path)
    other = model()
    checkpoint.load(other, path)
    assert values(other) == values(model(1.0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.safetensors"]


def test_only_its_own_leftovers_are_removed(tmp_path: Path) -> None:
    gone = 2**22 + 12345  # no process has such a number
    for name in (
        f".m.safetensors.{gone}.shapescript-part",
        f".other.{gone}.shapescript-part",
        ".m.safetensors.x",
        "mine",
    ):
        (tmp_path / name).write_text("")
    checkpoint.save(model(), tmp_path / "m.safetensors")
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert left == sorted([f".other.{gone}.shapescript-part", ".m.safetensors.x", "mine", "m.safetensors"])


def test_a_broken_or_missing_file_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no file"):
        checkpoint.load(model(), tmp_path / "no.safetensors")
    path = tmp_path / "cut.safetensors"
    checkpoint.save(model(), path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match="isn't a whole safetensors file"):
        checkpoint.load(model(), path)


def test_another_element_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    m = model()
    old = m.fields["w1"]
    assert isinstance(old, DeviceTensor)
    m.fields["w1"] = replace(old, held=old.data.double())
    checkpoint.save(m, path)
    with pytest.raises(CheckpointError, match="`w1` should hold f32, and holds f64 in the file"):
        checkpoint.load(model(), path)
