"""`shapescript watch RUN`: the curves of a run in the terminal while it goes on, and as a picture at its end.

Reads `metrics.csv`, which a run writes line by line; needs neither torch nor the run's program. It ends by Ctrl-C.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shapescript.cli.usage import UsageError
from shapescript.diagnostics.suggest import nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
REFRESH = 0.5
QUIET = 10.0
"""Seconds without a new value after which the run is said to be quiet."""
Curve = list[tuple[int, float]]


def watch(arguments: argparse.Namespace) -> int:
    """Shows a run until it is stopped."""
    folder = folder_of(arguments.run)
    if arguments.png is not None:
        needs_matplotlib()
    if arguments.once:
        from rich.console import Console

        Console().print(page(folder, Console().width), highlight=False)
    else:
        follow(folder)
    if arguments.png is not None:
        draw(folder, arguments.png)
        print(f"{arguments.png} is written")
    return 0


def follow(folder: Path) -> None:
    """Shows the curves anew as values come; Ctrl-C ends it."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(page(folder, console.width), refresh=True)
                time.sleep(REFRESH)
    except KeyboardInterrupt:
        return


def folder_of(run: str | None) -> Path:
    """The folder of a run."""
    runs = Path("runs")
    known = [path.parent for path in runs.glob("*/metrics.csv")] if runs.is_dir() else []
    if run is None:
        if not known:
            raise UsageError("there is no run in `runs` here: `log` in a program makes one, or name its folder")
        return max(known, key=lambda path: (path / "metrics.csv").stat().st_mtime)
    for folder in (Path(run), runs / run):
        if (folder / "metrics.csv").is_file():
            return folder
    close = nearest(run, [path.name for path in known])
    raise UsageError(f"there is no run `{run}`" + (f"; did you mean `{close}`?" if close else ""))


def read(folder: Path) -> dict[str, Curve]:
    """The values of each metric; a line that is being written is left for the next time."""
    curves: dict[str, Curve] = {}
    text = (folder / "metrics.csv").read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    for row in csv.reader(whole.splitlines()[1:]):
        try:
            step, name, value = int(row[0]), row[1], float(row[2])
        except (ValueError, IndexError):
            continue
        curves.setdefault(name, []).append((step, value))
    return curves


def page(folder: Path, width: int) -> str:
    """All curves as text."""
    from rich.markup import escape

    curves = read(folder)
    age = time.time() - (folder / "metrics.csv").stat().st_mtime
    state = "" if age < QUIET else f", no new value for {age:.0f} s"
    lines = [f"[bold]{escape(str(folder))}[/bold]{state}"]
    if not curves:
        lines.append("no values yet")
    for name, curve in curves.items():
        lines += ["", *(escape(line) for line in plot(name, curve, max(20, min(width, 100))))]
    return "\n".join(lines)


def plot(name: str, curve: Curve, width: int, height: int = 8) -> list[str]:
    """A curve in dots of braille, with its least and greatest value beside it."""
    finite = [(step, value) for step, value in curve if math.isfinite(value)]
    last = curve[-1]
    head = f"{name}  {last[1]:.6g} at step {last[0]}"
    odd = len(curve) - len(finite)
    if odd:
        head += f"  ({odd} values are nan or infinite)"
    if not finite:
        return [head]
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    labels = [f"{high:.4g}", f"{low:.4g}"]
    side = max(map(len, labels))
    columns = max(10, width - side - 2)
    rows = dots(finite, columns, height, low, high)
    margins = [labels[0], *[""] * (height - 2), labels[1]]
    return [head, *(f"{margin:>{side}} {row}" for margin, row in zip(margins, rows, strict=True))]


def dots(curve: Sequence[tuple[int, float]], columns: int, height: int, low: float, high: float) -> list[str]:
    """The dots of a curve: two columns and four rows to a character."""
    first, last = curve[0][0], curve[-1][0]
    wide, tall = 2 * columns, 4 * height
    cells = [[0] * columns for _ in range(height)]
    for step, value in curve:
        x = round((step - first) / max(last - first, 1) * (wide - 1))
        y = round((high - value) / (high - low) * (tall - 1)) if high > low else tall // 2
        x = min(max(x, 0), wide - 1)
        cells[y // 4][x // 2] |= BRAILLE[x % 2][y % 4]
    return ["".join(chr(0x2800 + cell) for cell in row).rstrip("\u2800") for row in cells]


def needs_matplotlib() -> None:
    """Says at once what a picture needs."""
    from importlib import util

    if util.find_spec("matplotlib") is None:
        raise UsageError("a picture needs matplotlib: pip install 'shapescript[plots]'")


def draw(folder: Path, file: str) -> None:
    """The curves as a PNG, written whole or not at all."""
    new = f"{file}.{os.getpid()}"
    try:
        figure_of(read(folder), folder.name).savefig(new, format="png", dpi=120)
        os.replace(new, file)
    except OSError as error:
        raise UsageError(f"`{file}` can't be written: {error.strerror}") from None


def figure_of(curves: Mapping[str, Curve], title: str = "") -> Figure:
    """Curves one under another."""
    from matplotlib.figure import Figure

    count = max(1, len(curves))
    figure = Figure(figsize=(8, 0.8 + 2.4 * count), layout="constrained")
    figure.suptitle(title)
    for number, (name, curve) in enumerate(curves.items(), 1):
        axes = figure.add_subplot(count, 1, number)
        axes.plot([step for step, _ in curve], [value for _, value in curve], linewidth=1.2)
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
        if number == count:
            axes.set_xlabel("step")
    return figure
