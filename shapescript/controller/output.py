"""What a running program shows: `print`, `log`, and how far a loop has come.

`print` writes values in plain words to the standard output. `log` writes to a folder of the run, `runs/<name>/`:
`metrics.csv` (step, name, value) and TensorBoard's event files, made when the first value is logged. On a terminal a
bar shows the loop over batches with steps a second, the last logged values and the time that is left; elsewhere the
logged values come now and then as plain lines on the standard error, so that the output stays the program's own.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import numpy as np
import torch

from shapescript.controller.waiting import Waiting
from shapescript.devices.held import Held, Somewhere

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 5.0
CONTROL = {character: f"\\x{character:02x}" for character in (*range(9), *range(11, 32), 127)}


# --- values as text --------------------------------------------------------------------------------------------------


def text_of(value: object) -> str:
    """A value as `print` shows it: numbers and strings as they are, tensors as their numbers in brackets."""
    match value:
        case bool() | np.bool_():
            return "true" if value else "false"
        case str():
            return value
        case torch.Tensor():
            return tensor_text(value)
        case tuple():
            return "(" + ", ".join(map(text_of, value)) + ("," if len(value) == 1 else "") + ")"
        case range():
            return f"{value.start}..{value.stop}"
        case None:
            return "nothing"
        case Held():
            return tensor_text(value.fetch())
    return str(value)


def tensor_text(tensor: torch.Tensor) -> str:
    """A tensor: a scalar with all its digits, others with four after the point, shortened in the middle if large."""
    data = tensor.detach().cpu()
    if data.dtype in (torch.bfloat16, torch.float16):
        data = data.float()
    array = data.numpy()
    if array.ndim == 0:
        return text_of(bool(array)) if array.dtype == np.bool_ else number_text(array[()])
    if array.dtype == np.bool_:
        return np.array2string(array, separator=", ", threshold=1000, formatter={"bool": text_of})
    return np.array2string(array, precision=4, separator=", ", threshold=1000)


def number_text(number: Any) -> str:
    """A scalar with as many digits as tell it from its neighbours."""
    return str(number)


# --- a run's output --------------------------------------------------------------------------------------------------


class Output:
    """Where one run prints and logs. `close` ends it; it may be called twice."""

    def __init__(
        self, name: str, folder: str | Path = "runs", stream: TextIO | None = None, errors: TextIO | None = None
    ) -> None:
        self.name = name
        self.folder = Path(folder)
        self._stream = stream
        self._errors = errors
        self.log_files: LogFiles | None = None
        self.counts: dict[str, int] = {}
        self.latest: dict[str, float] = {}
        self.bars: Bars | None = Bars() if self.stream.isatty() and self.errors.isatty() else None
        self.started = time.monotonic()
        self.last_line = -SECONDS_BETWEEN_LINES
        self.shown_step = -1
        self.waiting = Waiting()

    @property
    def stream(self) -> TextIO:
        """Where lines go: what the standard output is now, which Python may exchange (a notebook does)."""
        return sys.stdout if self._stream is None else self._stream

    @property
    def errors(self) -> TextIO:
        """Where what isn't the program's own output goes."""
        return sys.stderr if self._errors is None else self._errors

    def print(self, *values: object) -> None:
        """One line of the program's output; it waits for values that are being computed, in its place."""
        self.waiting.put(values, lambda: self._print(values))

    def _print(self, values: Sequence[object]) -> None:
        line = " ".join(map(text_of, values))
        if self.bars is not None and self.bars.showing:
            self.bars.print(line.translate(CONTROL))
        else:
            self.stream.write(line + "\n")
            self.stream.flush()

    def show(self, name: str, value: object) -> None:
        """What `show` in a device function prints: the name and the value."""
        self.print(name, value)

    def log(self, name: str, value: float | Somewhere, step: int | None = None) -> None:
        """Keeps a metric's value; without a step its own count is the step, from 0."""
        at = self.counts.get(name, 0) if step is None else int(step)
        self.counts[name] = at + 1
        self.waiting.put((value,), lambda: self._log(name, value, at))

    def _log(self, name: str, value: float | Somewhere, at: int) -> None:
        number = float(value.fetch() if isinstance(value, Held) else value)
        self.latest[name] = number
        if self.log_files is None:
            self.log_files = LogFiles(free_folder(self.folder, self.name))
        self.log_files.write(name, number, at)
        if self.bars is not None:
            self.bars.values(self.latest)
        elif time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self.plain_line(at)

    def plain_line(self, step: int) -> None:
        """The latest values in one line."""
        elapsed = time.monotonic() - self.started
        values = "  ".join(f"{name} {value:.6g}" for name, value in self.latest.items())
        self.errors.write(f"step {step}  {values}  {elapsed:.0f} s\n")
        self.errors.flush()
        self.last_line = time.monotonic()
        self.shown_step = step

    def track(self, batches: Iterable[T], total: int | None) -> Iterator[T]:
        """The same batches, with a bar on a terminal while they are gone through."""
        if self.bars is None:
            yield from batches
            return
        with self.bars.loop(total) as advance:
            for batch in batches:
                yield batch
                advance()

    def close(self, complete: bool = True) -> None:
        """Ends the bar and writes what is still held back; after a fault (not `complete`), what is there of it."""
        if complete:
            self.waiting.finish()
        else:
            self.waiting.give_up()
        if self.bars is not None:
            self.bars.close()
        elif self.latest:
            last = max(self.counts.values()) - 1
            if last != self.shown_step:
                self.plain_line(last)
        if self.log_files is not None:
            self.log_files.close()
            self.log_files = None


def free_folder(folder: Path, name: str) -> Path:
    """A new folder for a run: `runs/name`, or `runs/name-2` and so on where that is taken."""
    number = 1
    while True:
        place = folder / (name if number == 1 else f"{name}-{number}")
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        return place


class LogFiles:
    """The files of a run's metrics."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.folder = folder
        self.file = open(folder / "metrics.csv", "w", buffering=1, newline="", encoding="utf-8")
        self.rows = csv.writer(self.file)
        self.rows.writerow(["step", "name", "value"])
        self.events = EventFileWriter(str(folder))

    def write(self, name: str, value: float, step: int) -> None:
        """Adds a value to both."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self.rows.writerow([step, name, repr(value)])
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
        self.events.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Writes all to the disk."""
        self.file.close()
        self.events.close()


class Bars:
    """The bars of loops over batches, one under another, on a terminal; gone when the outermost loop ends."""

    def __init__(self) -> None:
        self.progress: Any = None
        self.depth = 0
        self.text = ""
        self.tasks: list[Any] = []

    @property
    def showing(self) -> bool:
        """Is there a bar on the screen?"""
        return self.progress is not None

    def loop(self, total: int | None) -> BarLoop:
        """A bar for a loop of so many rounds, or of an unknown number."""
        return BarLoop(self, total)

    def start(self, total: int | None) -> Any:
        """Adds a bar; the first makes the display."""
        if self.progress is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TextColumn("{task.fields[values]}"),
            )
            self.progress = Progress(*columns, TimeRemainingColumn(), transient=True)
            self.progress.start()
        task = self.progress.add_task("", total=total, rate="", values=self.text)
        self.tasks.append(task)
        return task

    def advance(self, task: Any, done: int, since: float) -> None:
        """One round more."""
        rate = done / max(time.monotonic() - since, 1e-9)
        self.progress.update(task, advance=1, rate=f"{rate:.1f} steps/s", values=self.text)

    def stop(self, task: Any) -> None:
        """Takes a bar away, and the display with the last one."""
        if self.progress is None:
            return
        self.progress.remove_task(task)
        self.tasks.remove(task)
        if not self.tasks:
            self.close()

    def values(self, latest: dict[str, float]) -> None:
        """The logged values to show beside the bar."""
        from rich.markup import escape

        self.text = escape("  ".join(f"{name} {value:.4g}" for name, value in latest.items()))

    def print(self, line: str) -> None:
        """A line above the bars."""
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Gives the terminal back."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
            self.tasks = []


class BarLoop:
    """One loop's bar, while the loop runs."""

    def __init__(self, bars: Bars, total: int | None) -> None:
        self.bars = bars
        self.total = total
        self.done = 0
        self.since = time.monotonic()

    def __enter__(self) -> BarLoop:
        self.task = self.bars.start(self.total)
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop(self.task)

    def __call__(self) -> None:
        self.done += 1
        self.bars.advance(self.task, self.done, self.since)
