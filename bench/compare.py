"""A workload's comparison: all contestants started, their losses compared, and their rounds run.

Takes a workload, the entries, and the settings; gives a `WorkloadResult`. One after another, each contestant is started
and asked for its first step, whose losses are kept and whose memory is looked at; those that run stay, asleep, and take
turns in the rounds. A contestant that can't run is kept with its reason; one whose losses differ is failed and timed no
further.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.commands import seconds_of
from bench.contestant import Contestant, Entry, Failed, Unavailable
from bench.goals import IMPORT_TORCH
from bench.measure import Asked, calibrate, disagreement, one_round, rest, turned
from bench.memory import Memory
from bench.results import Measured, WorkloadResult
from bench.wire import Block
from bench.workloads import Workload, make_files

WATCHED = 20
REFERENCES = ("eager", "compile", "jax", "ours-1")
OUR_MODES = ("plain", "print", "rate")


@dataclass(frozen=True)
class Settings:
    """How thoroughly to measure."""

    rounds: int = 9
    seconds: float = 0.5
    """How long a block is, about."""
    starts: int = 3
    """How often each contestant is started once more, for the time to its first step."""
    longest: float = 3600.0
    """After so many seconds of rounds, two rounds or more, no other is begun: a busy machine mustn't take all day."""


def say(words: str) -> None:
    """What is being done, for who waits."""
    print(words, file=sys.stderr, flush=True)


@contextmanager
def stopped(running: list[Contestant]) -> Iterator[None]:
    """Ends the contestants in `running` however this goes."""
    try:
        yield
    except BaseException:  # Ctrl-C too: nobody is asked to end in peace
        for contestant in running:
            contestant.kill()
        raise
    finally:
        for contestant in running:
            contestant.stop()


def compare(workload: Workload, entries: Sequence[Entry], folder: Path, settings: Settings) -> WorkloadResult:
    """The whole comparison of a workload; its files go to `folder`."""
    result = WorkloadResult(workload.name, workload.words)
    data = folder / "data"
    data.mkdir(parents=True)
    say(f"{workload.name}: {workload.words}")
    make_files(workload, data)
    running: list[Contestant] = []
    measured: dict[str, Measured] = {}
    with stopped(running):
        for number, entry in enumerate(entries):
            one = Measured(entry.name, entry.group, entry.ours)
            result.contestants.append(one)
            started = began(workload, entry, one, data, folder / f"{number}", running)
            say(f"  {entry.name}: " + (f"first step after {one.first_step:.1f} s" if started else told(one)))
            if started:
                measured[entry.name] = one
        result.reference = check_losses(measured)
        taking_part = {each.entry.name: each for each in running if measured[each.entry.name].status == "ran"}
        rounds_of(workload, taking_part, measured, settings)
    for contestant in running:
        one = measured[contestant.entry.name]
        one.specialised = contestant.specialised() if contestant.entry.ours else None
    return result


def told(one: Measured) -> str:
    """Why it didn't run."""
    return f"{one.status}: {one.why}"


def began(workload: Workload, entry: Entry, one: Measured, data: Path, folder: Path, running: list[Contestant]) -> bool:
    """Starts a contestant, has it run the steps whose losses are compared; adds it to `running` if it does."""
    memory = Memory()
    contestant = Contestant(entry, data, folder)
    running.append(contestant)
    try:
        first = contestant.ask(Block("watch", 0, 1), sample=memory.sample)
        one.first_step = time.perf_counter() - contestant.started
        steps = min(WATCHED, workload.steps_of_epoch) - 1
        memory.sample(contestant.process.pid)
        others = contestant.ask(Block("watch", 1, steps), sample=memory.sample)
        memory.sample(contestant.process.pid)
    except (Unavailable, Failed) as error:
        running.remove(contestant)
        contestant.stop()
        set_aside(one, error)
        return False
    one.losses = [*first.losses, *others.losses]
    one.compiling = max(0.0, first.seconds - others.seconds / steps)
    one.memory = memory.total
    one.worker_memory = memory.largest_worker(contestant.process.pid if entry.ours and entry.workers > 1 else None)
    return True


def set_aside(one: Measured, error: Exception) -> None:
    """A contestant that takes no further part: none of its figures stays."""
    one.status = "not available" if isinstance(error, Unavailable) else "failed"
    one.why = str(error)
    one.times = {}


def check_losses(measured: dict[str, Measured]) -> str:
    """Fails those that don't train like the reference, whose name it gives."""
    order = [one for group in REFERENCES for one in measured.values() if one.group == group]
    if not order:
        return ""
    reference = order[0].name
    for name, words in disagreement({name: one.losses for name, one in measured.items()}, reference).items():
        set_aside(measured[name], Failed(words))
        say(f"  {name}: {told(measured[name])}")
    return reference


def rounds_of(
    workload: Workload, contestants: dict[str, Contestant], measured: dict[str, Measured], settings: Settings
) -> None:
    """The rounds: each contestant in turn, ours in each mode."""
    asked: dict[str, Asked] = dict(contestants)

    def each(doing: Callable[[str], None], order: Sequence[str]) -> None:
        for name in order:
            if measured[name].status != "ran":
                continue
            rest()
            try:
                doing(name)
            except (Unavailable, Failed) as error:
                set_aside(measured[name], error)
                say(f"  {name}: {told(measured[name])}")

    def prepare(name: str) -> None:
        measured[name].block = calibrate(asked[name], settings.seconds, workload.steps_of_epoch)

    each(prepare, list(asked))
    until = time.perf_counter() + settings.longest
    for number in range(settings.rounds):
        if number >= 2 and time.perf_counter() > until:
            say(f"  no more rounds: those so far took {settings.longest:.0f} s")
            break
        say(f"  round {number + 1} of {settings.rounds}")

        def turn(name: str, number: int = number) -> None:
            one = measured[name]
            modes = turned(OUR_MODES, number) if one.ours or one.group == "eager" else ["plain"]
            for mode in modes:
                one.times.setdefault(mode, []).append(one_round(asked[name], mode, number, one.block))

        each(turn, turned(list(asked), number))


def starts_of(entries: Sequence[Entry], result: WorkloadResult, folder: Path, settings: Settings) -> None:
    """From command to first step, each contestant alone and in turn, and torch's import in the same rounds."""
    by_name = {one.name: one for one in result.contestants if one.status == "ran"}
    command = [sys.executable, "-c", IMPORT_TORCH]
    for number in range(settings.starts):
        say(f"  start {number + 1} of {settings.starts}")
        result.imports.append(seconds_of(command))
        for entry in turned([entry for entry in entries if entry.name in by_name], number):
            one = by_name[entry.name]
            if one.status != "ran":
                continue
            contestant = Contestant(entry, folder / "data", folder / f"start-{entry.group}")
            running = [contestant]
            try:
                with stopped(running):
                    contestant.ask(Block("watch", 0, 1))
                    one.starts.append(time.perf_counter() - contestant.started)
            except (Unavailable, Failed) as error:
                set_aside(one, error)
                say(f"  {entry.name}: {told(one)}")
