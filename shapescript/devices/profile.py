"""Where a run's time goes: by line of the program and kind of work.

Gives `recording`, within which executors that can do so note each instruction's time in a `Profile`, and what a profile
is shown as: a table, and a trace in the format that Perfetto and Chrome open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

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
}
"""The word for each kind of instruction."""


@dataclass(frozen=True)
class Work:
    """One instruction as it is shown: its place in the program, its kind, and the operations it stands for."""

    place: str
    text: str
    kind: str
    operations: str


@dataclass(frozen=True)
class Event:
    """One instruction's time in one run, in nanoseconds."""

    work: Work
    begin: int
    end: int


@dataclass
class Profile:
    """What was recorded: the instructions in order, and the runs they belong to."""

    events: list[Event] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, works: Sequence[Work], timings: Sequence[tuple[int, int, int]]) -> None:
        """Notes a run: for each instruction its number, beginning and end."""
        self.events.extend(Event(works[number], begin, end) for number, begin, end in timings)
        if timings:
            self.runs.append((timings[0][1], timings[-1][2]))

    def table(self, most: int = 30) -> str:
        """The time of each line and kind, the longest first."""
        if not self.events:
            return "nothing was recorded: no device function ran on the native executor\n"
        total = sum(event.end - event.begin for event in self.events)
        by_line = self._totals(lambda event: (event.work.place, event.work.text, KINDS[event.work.kind]))
        by_kind = self._totals(lambda event: (KINDS[event.work.kind],))
        runs = len(self.runs)
        lines = [f"{total / runs / 1e3:.1f} µs a run in instructions, {runs} runs", ""]
        lines += [f"{spent / total:6.1%} {spent / runs / 1e3:10.1f} µs  {kind}" for (kind,), spent in by_kind.items()]
        lines.append("")
        width = max(len(place) for place, _, _ in by_line)
        for (place, text, kind), spent in list(by_line.items())[:most]:
            row = f"{spent / total:6.1%} {spent / runs / 1e3:10.1f} µs  {place:{width}}  {kind:14}  {text}"
            lines.append(row.rstrip())
        if len(by_line) > most:
            lines.append(f"and {len(by_line) - most} more")
        return "\n".join(lines) + "\n"

    def _totals(self, key: Callable[[Event], tuple[str, ...]]) -> Mapping[tuple[str, ...], int]:
        totals: dict[tuple[str, ...], int] = {}
        for event in self.events:
            of = key(event)
            totals[of] = totals.get(of, 0) + event.end - event.begin
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    def write_trace(self, path: Path) -> None:
        """Writes a trace in Chrome's format, which Perfetto opens too."""
        start = self.runs[0][0] if self.runs else 0
        events: list[dict[str, object]] = [
            {"name": "run", "ph": "X", "pid": 1, "tid": 1, "ts": (begin - start) / 1e3, "dur": (end - begin) / 1e3}
            for begin, end in self.runs
        ]
        events += [
            {
                "name": f"{event.work.place} {event.work.kind}".strip(),
                "cat": KINDS[event.work.kind],
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": (event.begin - start) / 1e3,
                "dur": (event.end - event.begin) / 1e3,
                "args": {"line": event.work.text, "operations": event.work.operations},
            }
            for event in self.events
        ]
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")


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
