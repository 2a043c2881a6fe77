"""`python -m bench`: ShapeScript beside PyTorch and JAX, in one run; and what a check costs.

Takes options; writes `results.json`, `report.txt` and `steps.png` into a folder, prints the report, and with `--page`
fills the table of a page. The status is 1 where a contestant failed, or its losses aren't the others'.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from bench.commands import measure_commands
from bench.compare import Settings, compare, say, starts_of
from bench.contestant import ROOT, Entry
from bench.contestants import entries_of
from bench.machine import described, machine
from bench.page import fill
from bench.report import text
from bench.results import Result
from bench.workloads import WORKLOADS

QUICK = Settings(rounds=3, seconds=0.2, starts=0, longest=45.0)
SLOW_TO_START = ["DDP, gloo, compiled"]
"""Whom a quick run leaves out: each process compiles for half a minute, and is no faster than without."""


ENDING = (signal.SIGINT, signal.SIGTERM)


def interrupted(number: int, frame: object) -> None:
    """Ends the run; a second signal doesn't keep the first from ending the contestants and clearing up."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures ShapeScript beside PyTorch and JAX, all in one run, taking turns.",
        epilog="example: python -m bench --quick --only ShapeScript eager",
    )
    parser.add_argument("--quick", action="store_true", help="the first workload, few short rounds: two minutes or so")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--only", nargs="+", metavar="WORD", help="contestants whose name has one of these words")
    parser.add_argument("--without", nargs="+", metavar="WORD", default=[], help="none whose name has one of these")
    parser.add_argument("--rounds", type=int, help="rounds of steps (9; quick: 3)")
    parser.add_argument("--seconds", type=float, help="how long a block of steps is, about (0.5; quick: 0.2)")
    parser.add_argument("--starts", type=int, help="starts for the time to the first step (3; quick: 0)")
    parser.add_argument("--devices", choices=("cpu", "cuda", "all"), default="all", help="on what to compare")
    parser.add_argument("--no-commands", action="store_true", help="don't measure what a check costs")
    parser.add_argument("--list", action="store_true", help="say who would take part, and end")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench", help="the folder of the results")
    parser.add_argument("--page", type=Path, help="a page in Markdown whose table is filled, docs/performance.md")
    given = parser.parse_args(words)
    if (given.rounds is not None and given.rounds < 1) or (given.starts is not None and given.starts < 0):
        parser.error("--rounds is 1 or more, and --starts 0 or more")
    return given


def settings_of(given: argparse.Namespace) -> Settings:
    """How thoroughly to measure."""
    base = QUICK if given.quick else Settings()
    return Settings(
        base.rounds if given.rounds is None else given.rounds,
        base.seconds if given.seconds is None else given.seconds,
        base.starts if given.starts is None else given.starts,
        base.longest,
    )


def chosen(entries: list[Entry], only: list[str] | None, without: list[str]) -> list[Entry]:
    """The entries that the options leave."""

    def has(entry: Entry, words: list[str]) -> bool:
        return any(word.lower() in entry.name.lower() for word in words)

    return [entry for entry in entries if (only is None or has(entry, only)) and not has(entry, without)]


def main(words: list[str] | None = None) -> int:
    """Measures and reports."""
    given = parsed(words)
    settings = settings_of(given)
    here = machine()
    kinds = [kind for kind in ("cpu", "cuda") if given.devices in (kind, "all") and (kind == "cpu" or here.gpus)]
    if not kinds:
        print("torch finds no NVIDIA GPU here", file=sys.stderr)
        return 2
    without = [*given.without, *(SLOW_TO_START if given.quick and not given.only else [])]
    names = given.workloads or (list(WORKLOADS)[:1] if given.quick else list(WORKLOADS))
    plan = {
        name: chosen(
            [entry for kind in kinds for entry in entries_of(WORKLOADS[name], here, kind)], given.only, without
        )
        for name in names
    }
    if given.list or not any(plan.values()):
        for name, entries in plan.items():
            print(name, *(f"  {entry.name}" for entry in entries), sep="\n")
        return 0 if given.list else 2
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's modules are compiled once, not at each start
    for number in ENDING:  # a shell's background jobs ignore Ctrl-C unless told
        signal.signal(number, interrupted)
    result = Result(described(), {"rounds": settings.rounds, "seconds": settings.seconds, "starts": settings.starts})
    try:
        measure(result, plan, settings, with_commands=not given.no_commands)
    except KeyboardInterrupt:
        finished = ", ".join(workload.name for workload in result.workloads)
        print(f"interrupted; what is finished: {finished or 'nothing'}", file=sys.stderr)
        if result.workloads:
            write(result, given)
        return 130
    return write(result, given)


def measure(result: Result, plan: dict[str, list[Entry]], settings: Settings, with_commands: bool) -> None:
    """Fills a result."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        # what torch.compile compiles is kept for this run, so that its first time is one
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(scratch) / "inductor")
        if with_commands:
            say("commands")
            result.commands = measure_commands(settings.rounds)
        for name, entries in plan.items():
            folder = Path(scratch) / name
            found = compare(WORKLOADS[name], entries, folder, settings)
            result.workloads.append(found)
            starts_of(entries, found, folder, settings)


def write(result: Result, given: argparse.Namespace) -> int:
    """Writes and prints what was found."""
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    result.write(out / "results.json")
    report = text(result)
    (out / "report.txt").write_text(report, encoding="utf-8")
    print(report)
    try:
        from bench.plot import draw

        draw(result, out / "steps.png")
    except ModuleNotFoundError as error:
        print(f"no picture: {error.name} isn't installed; `pip install shapescript[bench]` brings it", file=sys.stderr)
    if given.page is not None:
        fill(given.page, result)
    everyone = [one for workload in result.workloads for one in workload.contestants]
    failed = [one for one in everyone if one.status == "failed"]
    for one in failed:
        print(f"failed: {one.name}: {one.why}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
