"""What a run of the bench found: plain data, as JSON has it.

`Result` is all of a run; `Measured` is one contestant in one workload. Times are in seconds, memory in bytes; a list
has a value a round. `status` is "ran", "not available" or "failed", with the reason in `why`: nothing that didn't run
has a figure.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import Summary, best_of


@dataclass
class Measured:
    """One contestant."""

    name: str
    group: str
    ours: bool = False
    status: str = "ran"
    why: str = ""
    times: dict[str, list[float]] = field(default_factory=dict)
    """Seconds per step, by mode."""
    losses: list[float] = field(default_factory=list)
    first_step: float | None = None
    """From its command to its first step, the first time in this run: whatever it compiles isn't in a cache."""
    starts: list[float] = field(default_factory=list)
    """The same later, alone and one after another; a compiler's cache on the disk is warm."""
    compiling: float | None = None
    """How much longer the first step took than a later one."""
    specialised: float | None = None
    """What ShapeScript says it took to compile the step."""
    memory: int | None = None
    worker_memory: int | None = None
    block: int = 0

    @property
    def step(self) -> Summary | None:
        """Seconds per step."""
        return Summary.of(self.times["plain"]) if self.times.get("plain") else None


@dataclass
class WorkloadResult:
    """All contestants of a workload."""

    name: str
    words: str
    reference: str = ""
    """Whose losses the others were compared with."""
    imports: list[float] = field(default_factory=list)
    """What torch's import took, in the rounds of the starts."""
    contestants: list[Measured] = field(default_factory=list)

    def group(self, name: str) -> list[Measured]:
        """Those of a group that have step times."""
        return [each for each in self.contestants if each.group == name and each.step is not None]

    def best(self, *groups: str) -> Measured | None:
        """The fastest of some groups."""
        found = {each.name: each for name in groups for each in self.group(name)}
        if not found:
            return None
        return found[best_of({name: each.step.median for name, each in found.items() if each.step is not None})]


@dataclass
class Result:
    """A run of the bench."""

    machine: dict[str, str]
    settings: dict[str, Any]
    workloads: list[WorkloadResult] = field(default_factory=list)
    commands: dict[str, list[float]] = field(default_factory=dict)
    """What whole commands took: a check, a bare Python, torch's import."""

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Result:
        """What `write` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        workloads = [
            WorkloadResult(**{**each, "contestants": [Measured(**one) for one in each["contestants"]]})
            for each in found.pop("workloads")
        ]
        return Result(**found, workloads=workloads)
