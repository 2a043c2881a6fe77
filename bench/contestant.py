"""A contestant: a process that trains when asked, and sleeps otherwise.

Takes a command and its environment; gives `Contestant`, which starts it, asks it for blocks by the line of `wire.py`,
and ends it and all that it started. What it prints goes to a file, whose last line is the reason when it can't run.
Which contestants there are is in `contestants.py`.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.wire import ANSWERS, COMMANDS, FOLDER, Answer, Block, decode_answer, encode

ROOT = Path(__file__).resolve().parent.parent
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "XLA_FLAGS")
SAMPLE_SECONDS = 0.1
END_SECONDS = 20.0


class Unavailable(Exception):
    """This contestant can't run here, and says why: a package or a device isn't there."""


class Failed(Exception):
    """This contestant should run and doesn't."""


@dataclass(frozen=True)
class Entry:
    """Who takes part.

    Entries of one `group` are one contestant with different settings, and the best of them stands for all.
    `ours` is ShapeScript, where the first process is no worker if `workers` are more than one.
    """

    name: str
    group: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    workers: int = 1
    ours: bool = False


class Contestant:
    """A running contestant; `started` is when its command was given."""

    def __init__(self, entry: Entry, data: Path, folder: Path) -> None:
        self.entry = entry
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        commands, self.to = os.pipe()
        self.answers, answers = os.pipe()
        environment = {name: value for name, value in os.environ.items() if name not in THREADS}
        environment.update(entry.environment)
        environment[COMMANDS], environment[ANSWERS], environment[FOLDER] = str(commands), str(answers), str(data)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.buffer = b""
        self.log = folder / "stderr.txt"
        with open(folder / "stdout.txt", "wb") as output, open(self.log, "wb") as errors:
            self.started = time.perf_counter()
            # a group of its own: Ctrl-C is the bench's to handle, and all that this starts ends with it
            self.process = subprocess.Popen(
                entry.command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                pass_fds=(commands, answers),
                start_new_session=True,
            )
        os.close(commands)
        os.close(answers)

    def ask(self, block: Block, timeout: float = 600.0, sample: Callable[[int], object] | None = None) -> Answer:
        """Has a block run; `sample` is called with the process's number now and then while it does.

        Raises:
            Unavailable: it can't run here.
            Failed: it ended, or didn't answer in time.
        """
        try:
            os.write(self.to, encode(block))
        except BrokenPipeError:
            raise self.ended() from None
        until = time.perf_counter() + timeout
        while b"\n" not in self.buffer:
            left = until - time.perf_counter()
            if left <= 0:
                raise Failed(f"no answer within {timeout:.0f} s")
            ready, _, _ = select.select([self.answers], [], [], min(left, SAMPLE_SECONDS) if sample else left)
            if ready:
                read = os.read(self.answers, 65536)
                if not read:
                    raise self.ended()
                self.buffer += read
            elif sample is not None:
                sample(self.process.pid)
        line, _, self.buffer = self.buffer.partition(b"\n")
        return decode_answer(line)

    def ended(self) -> Exception:
        """Why it ended."""
        try:
            status = self.process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            return Failed("it closed its line and runs on")
        return reason(status, self.log.read_text(errors="replace"), self.entry.ours)

    def stop(self) -> None:
        """Ends it: its line is closed, which it sees; what doesn't end by itself is killed."""
        for pipe in (self.to, self.answers):
            if pipe >= 0:
                os.close(pipe)
        self.to = self.answers = -1
        try:
            self.process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self) -> None:
        """Ends what is left of its group at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def specialised(self) -> float | None:
        """The seconds that ShapeScript says it took to compile `step`, once it has ended."""
        found = re.search(r"^fn step: .*?([\d.]+) s$", self.log.read_text(errors="replace"), re.MULTILINE)
        return float(found.group(1)) if found else None


def reason(status: int, errors: str, ours: bool) -> Exception:
    """What a contestant's end means, by its last words."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    last = lines[-1] if lines else f"it ended with status {status}"
    if ours:
        # a device that isn't there, or an option of `devices` that can't be run, is told in one line
        said = next((line for line in lines if line.startswith("error")), last)
        return (Unavailable if "devices" in said else Failed)(said.removeprefix("error: "))
    if last.startswith(("ModuleNotFoundError", "ImportError")):
        return Unavailable(last.partition(": ")[2])
    return Failed(last)
