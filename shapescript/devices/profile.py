"""Where a run's time goes: by line of the program and kind of work, on each device.

Gives `recording`, within which executors that can do so note each instruction's time in a `Profile`, and what a profile
is shown as: a table, and a trace in the format that Perfetto and Chrome open. The last runs are kept, so that a long
program can be recorded.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

KINDS = {
    "product": "products",
    "tiles": "elementwise",
    "optimizer": "optimizer",
    "move": "moving",
    "fill": "moving",
    "gather": "moving",
    "scatter": "moving",
    "random": "random",
    "check": "checks",
    "call": "calls of torch",
    "sending": "sending",
    "waiting": "waiting",
}
"""The word for each kind of instruction."""
BETWEEN = "between runs"
"""What isn't an instruction's: the program's own code, batches that are put together, commands on their way."""
MOST_RUNS = 2000


@dataclass(frozen=True)
class Work:
    """One instruction as it is shown: its place in the program, its kind, and the operations it stands for."""

    place: str
    text: str
    kind: str
    operations: str


class Timing(NamedTuple):
    """An instruction in one run, in nanoseconds; `waited` is how long of its time it did for other devices."""

    instruction: int
    begin: int
    end: int
    waited: int


class Run(NamedTuple):
    """A run of a plan; `first`: what came before it was the making of the plan."""

    plan: int
    first: bool
    timings: Sequence[Timing]

    @property
    def begin(self) -> int:
        """When its first instruction began."""
        return self.timings[0].begin

    @property
    def end(self) -> int:
        """When its last instruction ended."""
        return self.timings[-1].end


@dataclass
class Recorded:
    """What one device ran: the instructions of each plan, and the last runs."""

    plans: list[Sequence[Work]] = field(default_factory=list)
    runs: deque[Run] = field(default_factory=lambda: deque(maxlen=MOST_RUNS))
    count: int = 0

    def add(self, works: Sequence[Work], timings: Sequence[tuple[int, int, int, int]]) -> None:
        """Notes a run."""
        if not timings:
            return
        plan = next((number for number, each in enumerate(self.plans) if each is works), len(self.plans))
        first = plan == len(self.plans)
        if first:
            self.plans.append(works)
        self.runs.append(Run(plan, first, [Timing(*each) for each in timings]))
        self.count += 1


class Part(NamedTuple):
    """Some time of a device's: of an instruction, or between two runs."""

    kind: str
    work: Work
    begin: int
    end: int


NO_WORK = Work("", "", "", "")


class Profile:
    """What was recorded, by device; of workers when they have told it."""

    def __init__(self) -> None:
        self.own = Recorded()
        self._told: dict[str, Recorded] = {}

    def add(self, works: Sequence[Work], timings: Sequence[tuple[int, int, int, int]]) -> None:
        """Notes a run in this process: each instruction's number, beginning, end, and how long it waited."""
        self.own.add(works, timings)

    def include(self, told: Mapping[str, Recorded]) -> None:
        """Takes in what the workers of these devices have recorded."""
        self._told = dict(told)

    @property
    def devices(self) -> Mapping[str, Recorded]:
        """What there is to show."""
        return self._told or {"this process": self.own}

    def parts(self) -> dict[str, list[Part]]:
        """Each device's time, from its first run that is kept to its last, in order."""
        return {name: list(parts_of(recorded)) for name, recorded in self.devices.items()}

    # --- as a table

    def table(self, most: int = 30) -> str:
        """The time of each kind on each device, and of each line, the longest first."""
        found = self.parts()
        recorded = list(self.devices.values())
        if not any(each.runs for each in recorded):
            return "nothing was recorded: no device function ran on the native executor\n"
        runs, count = len(recorded[0].runs), recorded[0].count
        kinds = {name: totals(parts, lambda part: (part.kind,)) for name, parts in found.items()}
        in_all = {name: sum(of.values()) for name, of in kinds.items()}
        kept = f"the last {runs} of {count} runs" if count > runs else f"{runs} run{'s' if runs > 1 else ''}"
        lines = [f"microseconds of a run, on average over {kept}", ""]
        names = list(found)
        if self._told:
            lines.append(" " * 16 + "".join(f"{name:>18}" for name in names))
        for (kind,) in dict(longest(sum_of(kinds.values()))):
            spent = [(kinds[name].get((kind,), 0), in_all[name]) for name in names]
            lines.append(f"{kind:<16}" + "".join(f"{each / runs / 1e3:10.1f} {each / of:6.1%} " for each, of in spent))
        lines.append(f"{'in all':<16}" + "".join(f"{of / runs / 1e3:10.1f}        " for of in in_all.values()))
        lines.append("")
        by_line = longest(
            sum_of(totals(parts, lambda part: (part.work.place, part.work.text, part.kind)) for parts in found.values())
        )
        total = sum(in_all.values())
        width = max(len(str(place)) for (place, _, _), _ in by_line)
        for (place, text, kind), spent_here in by_line[:most]:
            mean = spent_here / runs / len(names) / 1e3
            lines.append(f"{mean:10.1f} {spent_here / total:6.1%}  {place:{width}}  {kind:14}  {text}")
        if len(by_line) > most:
            lines.append(f"and {len(by_line) - most} more")
        return "".join(line.rstrip() + "\n" for line in lines)

    # --- as a trace

    def write_trace(self, path: Path) -> None:
        """Writes a trace in Chrome's format, which Perfetto opens too: a process for each device."""
        path.write_text(json.dumps({"traceEvents": list(self.trace()), "displayTimeUnit": "ns"}), encoding="utf-8")

    def trace(self) -> Iterator[dict[str, object]]:
        """The events of a trace; times are in microseconds from the first run."""
        found = self.parts()
        start = min((parts[0].begin for parts in found.values() if parts), default=0)

        def event(device: int, name: str, category: str, begin: int, end: int) -> dict[str, object]:
            of = {"name": name, "cat": category, "ph": "X", "pid": device, "tid": 1}
            return {**of, "ts": (begin - start) / 1e3, "dur": (end - begin) / 1e3}

        for device, (name, recorded) in enumerate(self.devices.items(), 1):
            for kind, told in (("process_name", name), ("thread_name", "runs")):
                of = {"name": kind, "cat": "__metadata", "ph": "M", "ts": 0, "pid": device, "tid": 1}
                yield {**of, "args": {"name": told}}
            for run in recorded.runs:
                yield event(device, "run", "run", run.begin, run.end)
            for part in found[name]:
                if part.work is NO_WORK:
                    continue
                named = f"{part.work.place} {part.kind}".strip()
                said = {"line": part.work.text, "operations": part.work.operations}
                yield {**event(device, named, part.kind, part.begin, part.end), "args": said}


def parts_of(recorded: Recorded) -> Iterator[Part]:
    """A device's time, one after another; an instruction that waited in two parts."""
    before: int | None = None
    for run in recorded.runs:
        if before is not None and not run.first:
            yield Part(BETWEEN, NO_WORK, before, run.begin)
        works = recorded.plans[run.plan]
        for instruction, begin, end, waited in run.timings:
            work = works[instruction]
            if waited:
                yield Part(KINDS["waiting"], work, begin, begin + waited)
            yield Part(KINDS[work.kind], work, begin + waited, end)
        before = run.end


def totals(parts: Iterable[Part], key: Callable[[Part], tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """The nanoseconds of parts that have a key in common."""
    found: Counter[tuple[str, ...]] = Counter()
    for part in parts:
        found[key(part)] += part.end - part.begin
    return found


def sum_of(each: Iterable[Counter[tuple[str, ...]]]) -> Counter[tuple[str, ...]]:
    """The sums of totals."""
    found: Counter[tuple[str, ...]] = Counter()
    for one in each:
        found.update(one)
    return found


def longest(of: Counter[tuple[str, ...]]) -> list[tuple[tuple[str, ...], int]]:
    """The greatest first."""
    return of.most_common()


_current: ContextVar[Profile | None] = ContextVar("profile", default=None)


def current_profile() -> Profile | None:
    """Where instructions are noted now, if anywhere."""
    return _current.get()


@contextmanager
def recording() -> Iterator[Profile]:
    """Notes what is run within."""
    profile = Profile()
    token = _current.set(profile)
    try:
        yield profile
    finally:
        _current.reset(token)


def record() -> None:
    """Notes what this process runs from now on."""
    _current.set(Profile())
