"""A run's step times as a picture: bars with quartiles, a panel a workload. Needs matplotlib, of the extra `bench`."""

from __future__ import annotations

from pathlib import Path

from bench.measure import Summary
from bench.results import Measured, Result, WorkloadResult

OURS, THEIRS = "#1b6ca8", "#b0b7bf"


def draw(result: Result, path: Path) -> None:
    """Writes the PNG.

    Raises:
        ModuleNotFoundError: matplotlib isn't installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [(workload, bars_of(workload)) for workload in result.workloads]
    shown = [(workload, bars) for workload, bars in shown if bars]
    if not shown:
        return
    heights = [1.2 + 0.3 * len(bars) for _, bars in shown]
    figure, panels = pyplot.subplots(
        len(shown), 1, figsize=(9, sum(heights)), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for (workload, bars), panel in zip(shown, panels[:, 0], strict=True):
        places = range(len(bars))
        medians = [summary.median * 1e3 for _, summary in bars]
        below = [(summary.median - summary.low) * 1e3 for _, summary in bars]
        above = [(summary.high - summary.median) * 1e3 for _, summary in bars]
        colours = [OURS if one.ours else THEIRS for one, _ in bars]
        panel.barh(places, medians, xerr=[below, above], color=colours, error_kw={"linewidth": 1, "capsize": 2})
        panel.set_yticks(places, [one.name for one, _ in bars])
        panel.invert_yaxis()
        panel.set_xlabel("ms per step: median and quartiles")
        panel.set_title(f"{workload.name}: {workload.words}", loc="left", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
        for place, (median, high) in enumerate(zip(medians, above, strict=True)):
            panel.text(median + high, place, f"  {median:.3g}", va="center", fontsize=8)
        panel.margins(x=0.1)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def bars_of(workload: WorkloadResult) -> list[tuple[Measured, Summary]]:
    """Each contestant at its best setting, the fastest first."""
    best = {one.group: workload.best(one.group) for one in workload.contestants}
    found = [(one, one.step) for one in best.values() if one is not None]
    kept = [(one, step) for one, step in found if step is not None]
    return sorted(kept, key=lambda bar: bar[1].median)
