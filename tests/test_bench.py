"""The bench: its measuring on contestants that are made up, its report, and that all who train alike are compared.

Nothing here looks at how fast anything is.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench import measure
from bench.__main__ import chosen, parsed, settings_of
from bench.compare import Settings, compare, starts_of
from bench.contestant import ROOT, Contestant, Entry, Failed, Unavailable, reason
from bench.contestants import Machine, entries_of
from bench.goals import Goal, other_goals, step_goals, verdicts
from bench.measure import Summary, calibrate, disagreement, one_round, ratio, steps_for, turned
from bench.memory import Memory, rollup
from bench.page import BEGIN, END, filled
from bench.report import markdown, text, time_text
from bench.results import Measured, Result, WorkloadResult
from bench.wire import Answer, Block, decode_answer, decode_block, encode
from bench.workloads import EPOCHS, WORKLOADS, Workload, make_files

MACHINE = Machine(cores=2)
SMALL = Workload("small", "mlp", 64, 1280, "the chapter's program on few examples")


class Fake:
    """A contestant whose steps take just so long."""

    def __init__(self, step: float, first: float = 0.0) -> None:
        self.step = step
        self.slow = first
        self.asked: list[Block] = []

    def ask(self, block: Block) -> Answer:
        self.asked.append(block)
        seconds, self.slow = block.steps * self.step + self.slow, 0.0
        return Answer(seconds, 1.0)


# --- measuring -------------------------------------------------------------------------------------------------------


def test_a_summary_is_the_median_and_the_quartiles() -> None:
    assert Summary.of([3.0, 1.0, 2.0, 5.0, 4.0]) == Summary(3.0, 2.0, 4.0, 5)
    assert Summary.of([7.0]) == Summary(7.0, 7.0, 7.0, 1)
    with pytest.raises(ValueError, match="nothing"):
        Summary.of([])


def test_a_ratio_is_of_medians_and_its_spread_of_rounds() -> None:
    found = ratio([1.0, 2.0, 9.0], [2.0, 4.0, 4.0])
    assert found.median == 2.0 / 4.0
    assert (found.low, found.high) == (0.5, pytest.approx((0.5 + 2.25) / 2))
    with pytest.raises(ValueError, match="same rounds"):
        ratio([1.0], [1.0, 2.0])


def test_the_order_turns_and_each_round_has_everybody() -> None:
    rounds = [turned("abc", number) for number in range(6)]
    assert rounds[0] == ["a", "b", "c"] and rounds[1] == ["a", "c", "b"]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert {order[0] for order in rounds} == {"a", "b", "c"}
    assert turned([], 3) == []


def test_blocks_are_as_long_as_asked_and_no_longer_than_an_epoch() -> None:
    assert steps_for(0.5, 0.001, 960) == 500
    assert steps_for(0.5, 0.00001, 960) == 960
    assert steps_for(0.5, 3.0, 960) == 2
    slow_at_first = Fake(0.01, first=10.0)
    assert calibrate(slow_at_first, 0.5, 960) == 50


def test_a_round_warms_up_and_times_the_mode() -> None:
    fake = Fake(0.01)
    assert one_round(fake, "print", 9, 50) == pytest.approx(0.01)
    assert [(block.mode, block.steps) for block in fake.asked] == [("plain", 5), ("print", 50)]
    assert all(0 <= block.seed < EPOCHS for block in fake.asked)


def test_losses_that_differ_are_told() -> None:
    losses: dict[str, Sequence[float]] = {
        "right": [2.0, 1.0],
        "as right": [2.0 * (1 + measure.TOLERANCE / 2), 1.0],
        "wrong": [2.0, 1.0 + 3 * measure.TOLERANCE],
        "nan": [2.0, math.nan],
        "short": [2.0],
    }
    found = disagreement(losses, "right")
    assert sorted(found) == ["nan", "short", "wrong"]
    assert "step 1" in found["wrong"]


def test_messages_come_back_as_they_were() -> None:
    block, answer = Block("rate", 3, 20), Answer(0.25, 1.5, [2.0, 1.5])
    assert decode_block(encode(block)) == block
    assert decode_answer(encode(answer)) == answer
    with pytest.raises(ValueError, match="mode"):
        Block("fast", 0, 1)


def test_memory_counts_what_was_taken_and_not_mapped_files() -> None:
    assert rollup("Rss: 900 kB\nPss: 800 kB\nPss_Anon: 20 kB\nPss_File: 700 kB\nPss_Shmem: 5 kB\n") == 25 * 1024
    memory = Memory()
    memory.each = {1: 500, 2: 200, 3: 300}
    assert memory.largest_worker(controller=1) == 300 and memory.largest_worker(None) == 500


# --- contestants -----------------------------------------------------------------------------------------------------

PUPPET = """
import sys
from bench.wire import Line
line = Line()
while (block := line.next()) is not None:
    if block.seed == 7:
        sys.exit("out of luck")
    line.losses += [2.0] * block.steps if block.mode == "watch" else []
    line.done(LOSS)
"""


def puppet(name: str, group: str, loss: str = "2.0", code: str = PUPPET) -> Entry:
    return Entry(name, group, (sys.executable, "-c", code.replace("LOSS", loss)), {})


def test_a_contestant_answers_and_ends(tmp_path: Path) -> None:
    contestant = Contestant(puppet("puppet", "eager"), tmp_path, tmp_path / "it")
    answer = contestant.ask(Block("watch", 0, 3))
    assert (answer.loss, answer.losses) == (2.0, [2.0] * 3) and answer.seconds >= 0
    contestant.stop()
    assert contestant.process.returncode == 0


def test_a_contestant_that_dies_or_hangs_is_failed(tmp_path: Path) -> None:
    dying = Contestant(puppet("dying", "eager"), tmp_path, tmp_path / "dying")
    with pytest.raises(Failed, match="out of luck"):
        dying.ask(Block("plain", 7, 3))
    dying.stop()
    hanging = Contestant(puppet("hanging", "eager", code="import time; time.sleep(60)"), tmp_path, tmp_path / "hanging")
    with pytest.raises(Failed, match="no answer"):
        hanging.ask(Block("plain", 0, 3), timeout=0.1)
    hanging.kill()
    assert hanging.process.returncode is not None


def test_why_a_contestant_ended() -> None:
    ours = "error: `devices cpu[0 1]`: a program can't be run on several devices yet\nfn step: specialised 0 times"
    assert isinstance(reason(1, ours, ours=True), Unavailable)
    assert isinstance(reason(1, "error: a line of the program went wrong", ours=True), Failed)
    missing = reason(1, "Traceback\nModuleNotFoundError: No module named 'jax'", ours=False)
    assert isinstance(missing, Unavailable) and str(missing) == "No module named 'jax'"
    assert isinstance(reason(1, "Traceback\nValueError: no", ours=False), Failed)
    assert "status -9" in str(reason(-9, "", ours=False))


def test_a_comparison_sets_aside_who_fails_and_who_trains_otherwise(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    entries = [
        puppet("eager 1", "eager"),
        puppet("other losses", "jax", code=PUPPET.replace("[2.0]", "[2.1]")),
        puppet("not there", "compile", code="import nothing_of_this_name"),
        Entry("ours", "ours-1", puppet("", "").command, {}, ours=True),
    ]
    settings = Settings(rounds=2, seconds=0.0, starts=1)
    result = compare(SMALL, entries, tmp_path / "run", settings)
    found = {one.name: one for one in result.contestants}
    assert {name: one.status for name, one in found.items()} == {
        "eager 1": "ran",
        "other losses": "failed",
        "not there": "not available",
        "ours": "ran",
    }
    assert "`eager 1` has 2" in found["other losses"].why and found["other losses"].step is None
    assert result.reference == "eager 1"
    assert {mode: len(times) for mode, times in found["ours"].times.items()} == {"plain": 2, "print": 2, "rate": 2}
    starts_of(entries, result, tmp_path / "run", settings)
    assert len(found["ours"].starts) == len(result.imports) == 1 and not found["not there"].starts


def test_one_trains_as_the_other(tmp_path: Path) -> None:
    """ShapeScript by its command and PyTorch: the same losses over 20 steps, in each mode."""
    data = tmp_path / "data"
    data.mkdir()
    make_files(SMALL, data)
    entries = {entry.group: entry for entry in entries_of(SMALL, MACHINE) if entry.group in ("ours-1", "eager")}
    losses: dict[str, Sequence[float]] = {}
    for group, entry in entries.items():
        contestant = Contestant(entry, data, tmp_path / group)
        try:
            first = contestant.ask(Block("watch", 0, 17)).losses
            after = [contestant.ask(Block(mode, 1, 1)).loss for mode in ("plain", "print", "rate")]
            losses[group] = [*first, *after]
        finally:
            contestant.stop()
        printed = (tmp_path / group / "stdout.txt").read_text().split()
        assert printed[0] == "loss" and float(printed[1]) == pytest.approx(after[1], rel=1e-6)
    assert disagreement(losses, "eager") == {}
    assert losses["eager"][0] > losses["eager"][16] > 0


# --- who takes part --------------------------------------------------------------------------------------------------


def test_each_group_of_the_goals_has_contestants() -> None:
    groups = {entry.group for workload in WORKLOADS.values() for entry in entries_of(workload, MACHINE)}
    asked = {group for goal in (*step_goals(), *other_goals()) for group in (goal.ours, *goal.theirs)}
    assert asked <= groups


def test_every_command_names_files_that_are_there() -> None:
    for workload in WORKLOADS.values():
        for kind in ("cpu", "cuda"):
            entries = entries_of(workload, Machine(cores=2, gpus=3), kind)
            assert len({entry.name for entry in entries}) == len(entries)
            for entry in entries:
                files = [word for word in entry.command if word.endswith(".ss")]
                modules = [word for word in entry.command if word.startswith("bench.")]
                assert len(files) + len(modules) == 1
                assert all(Path(file).is_file() for file in files)
                assert all((ROOT / module.replace(".", "/")).with_suffix(".py").is_file() for module in modules)


@pytest.mark.parametrize("program", ["mlp", "gpt"])
def test_a_sharded_program_differs_by_its_devices_alone(program: str) -> None:
    folder = ROOT / "bench" / "programs"
    plain = (folder / f"{program}.ss").read_text().partition("\ndevices cpu\n")
    sharded = (folder / f"{program}_sharded.ss").read_text().partition("\ndevices cpu[0 1 2]\n    shard params\n")
    assert plain[2] and plain[2] == sharded[2]


def test_options() -> None:
    entries = entries_of(WORKLOADS["mlp64"], MACHINE)
    kept = chosen(entries, ["shapescript", "jax"], ["shard"])
    assert {entry.group for entry in kept} == {"ours-1", "ours-2", "ours-3", "jax", "jax-2", "jax-3"}
    assert settings_of(parsed(["--quick", "--rounds", "5"])).rounds == 5
    assert settings_of(parsed(["--quick"])).starts == 0
    with pytest.raises(SystemExit):
        parsed(["--workloads", "mlp"])


# --- the report ------------------------------------------------------------------------------------------------------


def result() -> Result:
    """A run of two rounds."""

    def one(name: str, group: str, plain: list[float], **more: object) -> Measured:
        return replace(Measured(name, group, times={"plain": plain}), **more)  # type: ignore[arg-type]

    ours = one("ShapeScript cpu", "ours-1", [0.0004, 0.0006], ours=True, memory=100, first_step=3.0, specialised=0.5)
    ours.times["print"] = [0.00042, 0.00063]
    ours.starts = [3.0, 3.2]
    contestants = [
        ours,
        one("eager, 1 thread", "eager", [0.001, 0.003], memory=200),
        one("eager, 2 threads", "eager", [0.001, 0.001], memory=400),
        Measured("ShapeScript cpu[0 1]", "ours-2", ours=True, status="not available", why="no *such* device"),
    ]
    workload = WorkloadResult("mlp64", "the chapter's program", contestants=contestants, imports=[2.0, 2.0])
    return Result({"processor": "slow"}, {"rounds": 2}, [workload], {"shapescript check": [0.1], "import torch": [1.0]})


def test_goals_are_met_missed_or_not_measured() -> None:
    goals = [
        Goal("mlp64", "ours-1", ("eager",), 0.55),
        Goal("mlp64", "ours-1", ("eager",), 0.45),
        Goal("mlp64", "ours-2", ("eager",), 9.0),
        Goal("mlp64", "ours-1", ("ours-1",), 1.06, "print"),
        Goal("mlp64", "ours-1", ("ours-1",), 1.0, "rate"),
        Goal("mlp64", "ours-1", (), 1.56, "start"),
        Goal("mlp64", "ours-1", ("eager",), 0.5, "memory"),
        Goal("mlp64", "ours-1", (), 0.4, "compiling"),
        Goal("gpt", "ours-1", (), 1.0, "compiling"),
    ]
    found = verdicts(result(), goals)
    assert [verdict.met for verdict in found] == [True, False, None, True, None, True, True, False]
    assert found[0].found is not None and found[0].found.median == pytest.approx(0.5)
    assert found[5].found is not None and found[5].found.median == pytest.approx(1.55)


def test_the_report_says_all_and_leaves_out_no_reason() -> None:
    words = text(result())
    lines = words.splitlines()
    assert re.search(r"ShapeScript cpu +500 µs +450 µs - 550 µs +0\.50", words)
    assert any(line.startswith("  eager, 2 threads *") for line in lines), "the better setting is marked"
    assert any("not available: no *such* device" in line for line in lines)
    assert "ShapeScript cpu: printing each loss" in words and "+5.0 %" in words
    assert "not measured" in words and "processor: slow" in words
    assert [time_text(seconds) for seconds in (0.0005, 0.0123)] == ["500 µs", "12.3 ms"]


def test_the_table_goes_between_the_comments_of_a_page() -> None:
    table = markdown(result())
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    new = filled(page, table)
    assert new.startswith("before") and new.endswith("after\n") and "old" not in new
    assert "| ShapeScript cpu | 500 µs |" in new and "no \\*such\\* device" in new
    assert filled(new, table) == new
    with pytest.raises(ValueError, match="should have"):
        filled("nothing here", table)
    widths = {line.count("|") for line in new.splitlines() if line.startswith("| ShapeScript cpu")}
    assert widths <= {9, 4, 7}
    assert BEGIN in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


def test_results_come_back_from_json(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    result().write(path)
    assert Result.read(path) == result()
    assert json.loads(path.read_text())["workloads"][0]["contestants"][1]["times"]["plain"] == [0.001, 0.003]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from bench.plot import draw

    draw(result(), tmp_path / "steps.png")
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")
