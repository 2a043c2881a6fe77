"""Training on real data, against values that were computed independently in f64.

scikit-learn's digits, in the order of the file: 1437 rows train in batches of 64, so 23 steps an epoch, the last of 29
rows; 360 rows test. The net is 64 -> 32 -> 10 with relu and a fixed start; every program prints its values to all
digits.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent / "oracles"
STEPS = 23  # of an epoch

# the values are known to ten decimals
IN_F64 = {"rel": 1e-9, "abs": 1e-10}
IN_F32 = {"rel": 1e-5, "abs": 0.0}
# the gradient of the bias before batch_norm is 0 but for rounding, which AdamW magnifies to whole steps in f32
ONLY_STEPS_IN_F32 = ("o6",)


@dataclass(frozen=True)
class Oracle:
    """The values of one program: losses at steps 1 to 3, at the last step of some epochs, and at the end."""

    name: str
    epochs: int
    first: tuple[float, ...]
    last: dict[int, float]
    norm: float | None
    train: tuple[float, int]
    test: tuple[float | None, int]
    weights: tuple[float, float] | None


ORACLES = (
    Oracle(
        "o1",
        5,
        (2.3027163767, 2.2987821715, 2.2925668355),
        {1: 2.2232774626, 2: 2.0989578554, 5: 1.4502680506},
        0.2240493555,
        (1.3956907948, 981),
        (1.4163506490, 244),
        (23.705402927, 16.8079937252),
    ),
    Oracle(
        "o2",
        5,
        (2.3025876701, 2.1964314957, 2.0906232400),
        {1: 1.3423955317, 2: 0.8159617500, 5: 0.2321098522},
        1.1620229779,
        (0.2465532542, 1378),
        (0.4568965899, 315),
        (-2.3054128565, 10.6925165886),
    ),
    Oracle(
        "o4",
        5,
        (2.3027163767, 2.2500052122, 2.1865196117),
        {1: 1.1592951271, 2: 0.4244116786, 5: 0.1090658027},
        0.2240493555,
        (0.3497352221, 1271),
        (0.7085168483, 292),
        (50.5321034591, 138.8396321572),
    ),
    Oracle(
        "o5",
        5,
        (2.3027163767, 2.2842414873, 2.2550134021),
        {1: 1.8581356360, 2: 1.3448514885, 5: 0.5793036563},
        0.2240493555,
        (0.5559757154, 1256),
        (0.7067496124, 297),
        (41.3245491107, 33.5542698242),
    ),
    # no sums of the weights: the gradient of the bias before batch_norm is 0 but for rounding, which AdamW magnifies
    Oracle(
        "o6",
        5,
        (2.3025876701, 2.0558531226, 1.8219845632),
        {1: 0.7582775048, 2: 0.1501583093, 5: 0.0223356056},
        1.1620229779,
        (0.0471417205, 1429),
        (0.3175572514, 324),
        None,
    ),
    Oracle(
        "o7",
        1,
        (2.3027163767, 2.2499991696, 2.1864903862),
        {1: 1.1582254644},
        0.2240493555,
        (1.0587726908, 1081),
        (1.1180846576, 266),
        (36.8394958564, 34.6697583157),
    ),
    Oracle("o8", 30, (2.3025850930,), {}, None, (0.1231181557, 1403), (None, 322), None),
)


def notes(program: Path) -> dict[str, list[float]]:
    """What a program noted, by name, in order."""
    done = subprocess.run([sys.executable, "-m", "shapescript", str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return noted(done.stdout)


def noted(output: str) -> dict[str, list[float]]:
    """The notes of an output."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in output.splitlines():
        if line.startswith("note "):
            name, value = json.loads(line.removeprefix("note "))
            found[name].append(value)
    return found


def check_steps(oracle: Oracle, found: dict[str, list[float]], close: dict[str, float]) -> None:
    losses = found["loss"]
    assert len(losses) == STEPS * oracle.epochs
    assert losses[: len(oracle.first)] == pytest.approx(oracle.first, **close)
    at_ends = {epoch: losses[STEPS * epoch - 1] for epoch in oracle.last}
    assert at_ends == pytest.approx(oracle.last, **close)
    if oracle.norm is not None:
        assert found["norm"][0] == pytest.approx(oracle.norm, **close)


def check_end(oracle: Oracle, found: dict[str, list[float]], close: dict[str, float]) -> None:
    assert found["train loss"] == pytest.approx([oracle.train[0]], **close)
    assert found["train right"] == [oracle.train[1]]
    if oracle.test[0] is not None:
        assert found["test loss"] == pytest.approx([oracle.test[0]], **close)
    assert found["test right"] == [oracle.test[1]]
    if oracle.weights is not None:
        assert [*found["sum"], *found["squares"]] == pytest.approx(oracle.weights, **close)


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: str(oracle.name))
def test_training_gives_the_values_computed_independently(oracle: Oracle) -> None:
    found = notes(FOLDER / f"{oracle.name}.ss")
    check_steps(oracle, found, IN_F64)
    check_end(oracle, found, IN_F64)


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: str(oracle.name))
def test_the_same_programs_in_f32(oracle: Oracle, tmp_path: Path) -> None:
    text = (FOLDER / f"{oracle.name}.ss").read_text()
    assert "f64" in text
    shutil.copy(FOLDER / "oracle.py", tmp_path)
    (tmp_path / f"{oracle.name}.ss").write_text(text.replace("f64", "f32"))
    found = notes(tmp_path / f"{oracle.name}.ss")
    check_steps(oracle, found, IN_F32)
    if oracle.name not in ONLY_STEPS_IN_F32:
        check_end(oracle, found, IN_F32)


def test_every_program_has_its_values() -> None:
    assert sorted(path.stem for path in FOLDER.glob("o*.ss")) == [oracle.name for oracle in ORACLES]
