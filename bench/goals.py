"""What the project wants of its own figures, as ratios of medians in one run; and what a run says about it.

A goal says which groups are compared in which workload, by which figure, and how large the ratio may be. A goal whose
contestants didn't run is "not measured", never met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.measure import Summary, ratio
from bench.results import Measured, Result, WorkloadResult

IMPORT_TORCH = "import torch"


@dataclass(frozen=True)
class Goal:
    """`ours` against the fastest of `theirs` is to be `most` or less."""

    workload: str
    ours: str
    theirs: tuple[str, ...]
    most: float
    figure: str = "step"
    """step; print or rate, against one's own plain steps; start, against torch's import; memory; worker memory;
    compiling, in seconds."""


@dataclass(frozen=True)
class Verdict:
    """A goal and what was found; `found` is None where it wasn't measured."""

    goal: Goal
    words: str
    found: Summary | None

    @property
    def met(self) -> bool | None:
        """Is it?"""
        return None if self.found is None else self.found.median <= self.goal.most


def step_goals() -> list[Goal]:
    """Steps against peers."""
    one = ("eager", "compile", "jax")
    return [
        Goal("mlp64", "ours-1", ("eager",), 0.55),
        Goal("mlp64", "ours-1", ("compile",), 0.75),
        Goal("mlp64", "ours-1", ("jax",), 0.85),
        Goal("mlp64", "ours-3", ("ddp-3",), 0.15),
        Goal("mlp64", "ours-3", ("jax-3",), 0.40),
        Goal("mlp64", "ours-3", ("ours-1",), 1.3),
        Goal("mlp64", "ours-2", ("ddp-2",), 0.17),
        Goal("mlp64", "ours-3-shard", ("fsdp-3",), 0.25),
        Goal("mlp4096", "ours-3", ("ddp-3",), 0.72),
        Goal("mlp4096", "ours-2", ("ddp-2",), 0.75),
        Goal("mlp4096", "ours-1", ("compile",), 0.90),
        Goal("gpt", "ours-1", one, 0.90),
        Goal("gpt", "ours-2", ("ddp-2",), 0.75),
        Goal("gpt", "ours-3-shard", ("fsdp-3",), 0.80),
    ]


def other_goals() -> list[Goal]:
    """What else a user waits for or pays."""
    found = []
    for workload in ("mlp64", "mlp4096", "gpt"):
        found += [
            Goal(workload, "ours-1", ("ours-1",), 1.05, "print"),
            Goal(workload, "ours-1", ("ours-1",), 1.02, "rate"),
            Goal(workload, "ours-1", ("eager",), 1.0, "memory"),
        ]
    found += [
        Goal("mlp64", "ours-1", (), 1.5, "start"),
        Goal("mlp64", "ours-3", (), 2.5, "start"),
        Goal("gpt", "ours-1", (), 1.0, "compiling"),
    ]
    found += [Goal(name, "ours-3-shard", ("fsdp-3",), 1.0, "worker memory") for name in ("mlp64", "gpt")]
    return found


def verdicts(result: Result, goals: Sequence[Goal] | None = None) -> list[Verdict]:
    """What a run says about the goals of its workloads."""
    by_name = {workload.name: workload for workload in result.workloads}
    chosen = [*step_goals(), *other_goals()] if goals is None else goals
    return [
        verdict(goal, by_name[goal.workload], imports_of(result, by_name[goal.workload]))
        for goal in chosen
        if goal.workload in by_name
    ]


def imports_of(result: Result, workload: WorkloadResult) -> list[float]:
    """What torch's import took: in the same rounds as the starts, or else among the commands."""
    return workload.imports or result.commands.get(IMPORT_TORCH, [])


def verdict(goal: Goal, workload: WorkloadResult, import_torch: Sequence[float]) -> Verdict:
    """What a workload's figures say about a goal."""
    ours = workload.best(goal.ours)
    theirs = workload.best(*goal.theirs)
    ours_name = ours.name if ours else name_of(workload, goal.ours)
    theirs_name = theirs.name if theirs else " or ".join(name_of(workload, group) for group in goal.theirs)
    words = {
        "step": f"{ours_name} / {theirs_name}",
        "print": f"{ours_name}: printing each loss / not",
        "rate": f"{ours_name}: a new learning rate each step / not",
        "start": f"{ours_name}: from command to first step / {IMPORT_TORCH}",
        "memory": f"{ours_name} / {theirs_name}: peak memory",
        "worker memory": f"{ours_name} / {theirs_name}: peak memory of the largest worker",
        "compiling": f"{ours_name}: compiling the step, in s",
    }[goal.figure]
    return Verdict(goal, words, None if ours is None else found_for(goal, ours, theirs, import_torch))


def name_of(workload: WorkloadResult, group: str) -> str:
    """A name for a group of which nobody ran."""
    return next((each.name for each in workload.contestants if each.group == group), group)


def found_for(goal: Goal, ours: Measured, theirs: Measured | None, import_torch: Sequence[float]) -> Summary | None:
    """The figure of a goal, where all of it was measured."""
    if goal.figure == "step":
        return None if theirs is None else ratio(ours.times["plain"], theirs.times["plain"])
    if goal.figure in ("print", "rate"):
        times = ours.times.get(goal.figure)
        return ratio(times, ours.times["plain"]) if times else None
    if goal.figure == "start":
        starts = ours.starts or ([] if ours.first_step is None else [ours.first_step])
        if not starts or not import_torch:
            return None
        if len(starts) == len(import_torch):
            return ratio(starts, import_torch)
        return single(Summary.of(starts).median / Summary.of(import_torch).median)
    if goal.figure == "compiling":
        return None if ours.specialised is None else single(ours.specialised)
    pair = (
        (ours.memory, theirs.memory if theirs else None)
        if goal.figure == "memory"
        else (ours.worker_memory, theirs.worker_memory if theirs else None)
    )
    return single(pair[0] / pair[1]) if pair[0] and pair[1] else None


def single(value: float) -> Summary:
    """A figure without a spread."""
    return Summary(value, value, value, 1)
