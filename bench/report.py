"""A run's results as text: a table for each workload, the goals, and the machine.

Takes a `Result`; gives lines for a terminal (`text`) or for a page in Markdown (`markdown`). What didn't run is told
with its reason, in the place where its figures would stand.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.goals import Verdict, verdicts
from bench.measure import Summary, ratio
from bench.results import Measured, Result, WorkloadResult

HEAD = ("", "a step", "quartiles", "of eager", "first step", "again", "compiling", "memory")
LEGEND = (
    "a step: the median of the rounds ({rounds}), all contestants taking turns; of eager: the ratio of medians to "
    "eager PyTorch's better setting; first step: from the command, nothing compiled before; again: the same later, "
    "with a compiler's cache; compiling: what the first step took beyond a later one; memory: the peak of all its "
    "processes, mapped files aside. * is the best setting of its kind."
)


def time_text(seconds: float) -> str:
    """A time of a step in µs or ms, with three digits."""
    micro = seconds * 1e6
    if micro < 10000:
        return f"{micro:.0f} µs"
    return f"{micro / 1e3:.1f} ms"


def seconds_text(seconds: float | None) -> str:
    """A time that one waits, in s."""
    return "" if seconds is None else f"{seconds:.2f} s"


def memory_text(count: int | None) -> str:
    """Bytes in MB."""
    return "" if count is None else f"{count / 1e6:.0f} MB"


def row_of(workload: WorkloadResult, one: Measured) -> tuple[str, ...]:
    """A contestant's figures."""
    step = one.step
    if step is None:
        return (one.name, f"{one.status}: {one.why}" if one.why else "not timed")
    eager = workload.best("eager")
    best = workload.best(one.group)
    star = " *" if best is one and len(workload.group(one.group)) > 1 else ""
    return (
        one.name + star,
        time_text(step.median),
        f"{time_text(step.low)} - {time_text(step.high)}",
        "" if eager is None else f"{ratio(one.times['plain'], eager.times['plain']).median:.2f}",
        seconds_text(one.first_step),
        seconds_text(Summary.of(one.starts).median if one.starts else None),
        seconds_text(one.compiling),
        memory_text(one.memory),
    )


def extra_rows(workload: WorkloadResult) -> list[tuple[str, ...]]:
    """What looking at losses and changing the learning rate cost."""
    words = {"print": "printing each loss", "rate": "a new learning rate each step"}
    found: list[tuple[str, ...]] = []
    for one in workload.contestants:
        for mode, what in words.items():
            if one.times.get(mode) and one.times.get("plain"):
                change = ratio(one.times[mode], one.times["plain"])
                found.append((f"{one.name}: {what}", f"{100 * (change.median - 1):+.1f} %", spread(change, 100, "%")))
    return found


def spread(change: Summary, scale: float, unit: str) -> str:
    """The quartiles of a change."""
    return f"{scale * (change.low - 1):+.1f} - {scale * (change.high - 1):+.1f} {unit}"


def goal_row(verdict: Verdict) -> tuple[str, ...]:
    """A goal beside what was found."""
    most = f"{verdict.goal.most:g}"
    if verdict.found is None:
        return (verdict.goal.workload, verdict.words, most, "", "", "not measured")
    found = verdict.found
    quartiles = "" if found.count == 1 else f"{found.low:.3f} - {found.high:.3f}"
    missed = found.median / verdict.goal.most
    return (
        verdict.goal.workload,
        verdict.words,
        most,
        f"{found.median:.3f}",
        quartiles,
        "met" if verdict.met else f"missed, {missed:.2f} times as much",
    )


def command_rows(result: Result) -> list[tuple[str, ...]]:
    """What whole commands took."""
    found: list[tuple[str, ...]] = []
    check = result.commands.get("shapescript check")
    for name, times in result.commands.items():
        summary = Summary.of(times)
        share = "" if check is None else f"a check is {Summary.of(check).median / summary.median:.2f} of it"
        found.append((name, f"{summary.median:.3f} s", f"{summary.low:.3f} - {summary.high:.3f} s", share))
    return found


def sections(result: Result) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Each table: its title, its head and its rows."""
    found: list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = []
    for workload in result.workloads:
        rows = [row_of(workload, one) for one in workload.contestants]
        found.append((f"{workload.name}: {workload.words}", HEAD, rows))
        if extra := extra_rows(workload):
            found.append((f"{workload.name}: what a step costs more", ("", "the median", "quartiles"), extra))
    if result.commands:
        found.append(("Commands", ("", "median", "quartiles", ""), command_rows(result)))
    if rows := [goal_row(each) for each in verdicts(result)]:
        found.append(("Goals: ratios", ("", "", "at most", "found", "quartiles", ""), rows))
    return found


def about(result: Result) -> list[str]:
    """The machine, the versions, the date."""
    return [f"{name}: {value}" for name, value in result.machine.items()]


def legend(result: Result) -> str:
    """What the columns are."""
    counts = {one.step.count for workload in result.workloads for one in workload.contestants if one.step is not None}
    return LEGEND.format(rounds=" or ".join(map(str, sorted(counts))) or "none")


def text(result: Result) -> str:
    """For a terminal."""
    parts = []
    for title, head, rows in sections(result):
        parts.append("\n".join([title, *aligned([head, *rows])]))
    parts.append(legend(result))
    parts.append("\n".join(about(result)))
    return "\n\n".join(parts) + "\n"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows in columns; a last cell may be as long as it is."""
    widths: dict[int, int] = {}
    for row in rows:
        for place, cell in enumerate(row[:-1]):
            widths[place] = max(widths.get(place, 0), len(cell))
    lines = []
    for row in rows:
        cells = [cell.ljust(widths.get(place, 0)) if place + 1 < len(row) else cell for place, cell in enumerate(row)]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def markdown(result: Result) -> str:
    """For a page."""
    parts = ["\n".join(f"- {line}" for line in about(result))]
    for title, head, rows in sections(result):
        lines = [f"### {title}", "", cells(head), cells(["---"] * len(head))]
        lines += [cells([*row, *[""] * (len(head) - len(row))]) for row in rows]
        parts.append("\n".join(lines))
    parts.append(legend(result).replace("*", "\\*"))
    return "\n\n".join(parts) + "\n"


def cells(row: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in row) + " |"
