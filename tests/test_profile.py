"""A profile: whose time is whose, that all of it is told, and that the trace is one that viewers read."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shapescript.cli import main
from shapescript.devices.profile import BETWEEN, MOST_RUNS, Profile, Recorded, Work

PROGRAM = """devices cpu

dim N = 300
dim D = 200

import python rows

model Line:
    param w: [N D] = kaiming
    param v: [D] = zeros

data Row:
    x: [N]

fn loss(m: Line, batch: [b] Row) -> [] f32:
    return mean(square(tanh(batch.x @ m.w) @ m.v - 1.0), over=b)

fn step(mut m: Line, mut opt: {kind}[Line], batch: [b] Row) -> [] f32:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn main():
    m = Line(seed=1)
    opt = {made}
    for batch in rows.rows() as Dataset[Row] |> batches(60):
        print(step(mut m, mut opt, batch))
"""
ROWS = """import torch

def rows():
    return torch.utils.data.TensorDataset(torch.rand(600, 300))
"""
UPDATE = PROGRAM.splitlines().index("    update(mut m, mut opt, g)") + 1


def run(folder: Path, *words: str, kind: str = "AdamW", made: str = "adamw(m, lr=0.01)") -> list[dict[str, object]]:
    """The events of a profiled run's trace."""
    (folder / "line.ss").write_text(PROGRAM.format(kind=kind, made=made))
    (folder / "rows.py").write_text(ROWS)
    assert main(["run", "--profile", *words, "line.ss"]) == 0
    found = json.loads((folder / "line.trace.json").read_text())
    assert set(found) == {"traceEvents", "displayTimeUnit"} and found["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, object]] = found["traceEvents"]
    return events


def expect_well_formed(events: list[dict[str, object]]) -> None:
    """The keys and phases of the trace-event format; slices of one thread lie one after another or within another."""
    for event in events:
        assert {"name", "ph", "pid", "tid"} <= set(event) and isinstance(event["name"], str)
        assert event["ph"] in ("X", "M")
        assert event["ph"] == "M" or (event["ts"] >= 0 and event["dur"] >= 0)  # type: ignore[operator]
    for device in {event["pid"] for event in events}:
        slices = [event for event in events if event["pid"] == device and event["ph"] == "X"]
        until = [float("inf")]
        for event in sorted(slices, key=lambda each: (each["ts"], -each["dur"])):  # type: ignore[operator]
            begin, end = float(str(event["ts"])), float(str(event["ts"])) + float(str(event["dur"]))
            while until[-1] <= begin + 1e-3:
                until.pop()
            assert end <= until[-1] + 1e-3
            until.append(end)


@pytest.mark.parametrize(("kind", "made"), [("AdamW", "adamw(m, lr=0.01)"), ("SGD", "sgd(m, lr=0.01)")])
def test_an_update_is_the_optimizers_at_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, made: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", "native")
    events = run(tmp_path, kind=kind, made=made)
    expect_well_formed(events)
    updates = [event for event in events if event.get("cat") == "optimizer"]
    assert updates and {event["name"] for event in updates} == {f"line.ss:{UPDATE} optimizer"}
    table = capsys.readouterr().err
    assert re.search(rf"line\.ss:{UPDATE}\s+optimizer\s+update\(mut m, mut opt, g\)", table)
    assert not re.search(rf"line\.ss:{UPDATE}\s+(elementwise|products)", table)


def test_every_device_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", "native")
    events = run(tmp_path, "--devices", "cpu[0 1]")
    expect_well_formed(events)
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}  # type: ignore[index]
    assert named == {"cpu[0]", "cpu[1]"}
    for device in (1, 2):
        kinds = {event["cat"] for event in events if event["pid"] == device}
        assert kinds >= {"run", "products", "elementwise", "optimizer", "sending"}
    # of two devices that meet, one comes first
    assert any(event["cat"] == "waiting" for event in events)
    table = capsys.readouterr().err
    assert "10 runs" in table and re.search(r"cpu\[0\]\s+cpu\[1\]", table)
    for kind in ("products", "elementwise", "optimizer", "waiting", "sending", BETWEEN):
        assert re.search(rf"^{kind} ", table, re.MULTILINE)


@pytest.mark.parametrize("devices", ["cpu", "cpu[0 1]"])
def test_ctrl_c_shows_what_was_recorded(devices: str, tmp_path: Path) -> None:
    endless = PROGRAM.replace("    for batch in", "    for epoch in 0..1_000_000:\n      for batch in")
    (tmp_path / "line.ss").write_text(endless.format(kind="SGD", made="sgd(m, lr=0.01)"))
    (tmp_path / "rows.py").write_text(ROWS)
    process = subprocess.Popen(
        [sys.executable, "-m", "shapescript", "run", "--profile", "--devices", devices, "line.ss"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent), "SHAPESCRIPT_EXECUTOR": "native"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.endswith("\ninterrupted\n")
    assert "optimizer" in errors and "Traceback" not in errors
    assert json.loads((tmp_path / "line.trace.json").read_text())["traceEvents"]


PRODUCT, SUM = Work("a.ss:1", "y = x @ w", "product", "contract"), Work("a.ss:1", "y = x @ w", "sending", "all_reduce")


def test_a_devices_time_is_told_without_a_gap() -> None:
    """From the first instruction to the last, but for what a plan's making takes."""
    profile = Profile()
    works = [PRODUCT, SUM]
    for begin in (1000, 2000, 3000):
        profile.add(works, [(0, begin, begin + 100, 0), (1, begin + 100, begin + 400, 250)])
    profile.add([PRODUCT], [(0, 9000, 9050, 0)])
    [parts] = profile.parts().values()
    spent: dict[str, int] = {}
    for part in parts:
        spent[part.kind] = spent.get(part.kind, 0) + part.end - part.begin
    assert spent == {"products": 350, "waiting": 750, "sending": 150, BETWEEN: 1200}
    assert sum(spent.values()) == 3400 - 1000 + 50
    assert all(before.end == part.begin for before, part in zip(parts[:-2], parts[1:-1], strict=True))


def test_the_last_runs_are_kept_and_the_table_says_so() -> None:
    recorded = Recorded()
    works = [PRODUCT]
    for number in range(MOST_RUNS + 5):
        recorded.add(works, [(0, number, number + 1, 0)])
    profile = Profile()
    profile.include({"cpu[0]": recorded})
    assert f"the last {MOST_RUNS} of {MOST_RUNS + 5} runs" in profile.table()
    assert len(list(profile.trace())) == 2 * MOST_RUNS + 2


def test_nothing_that_ran_is_told_in_words() -> None:
    assert Profile().table() == "nothing was recorded: no device function ran on the native executor\n"
