"""What runs on the rented machine, beside the program: of the standard library alone, by itself.

    guest.py keep WORK SECONDS          ends, and the machine with it, once nobody has been heard of for so long
    guest.py run WORK UPLOADED JOB      copies the upload to WORK and runs the program there; its exit status
    guest.py stop WORK INT|KILL         sends the program a signal
    guest.py pack WORK live|end NUMBER  a tar of what changed, on the standard output

`run` runs the program in a process group of its own, with its output unbuffered and nothing to read, and ends it after
its time: SIGINT, so that it can save, then SIGKILL; the status then is 124. Each `pack` is a sign of life from the
one who rents. It is told the number of the last pack that arrived whole: what a later one held is sent again. While
the program runs (`live`) a file comes only when it is complete: no process has it open for writing and it has been at
rest for a second, or it is of a kind that only grows, a log.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

GRACE = 10.0
REST = 1_000_000_000
GROWING = (".csv", ".jsonl", ".log", ".out", ".tsv", ".txt")
MEGABYTE = 1 << 20

Stamps = dict[str, list[int]]


class State:
    """The notes that the commands leave for each other, beside the program's folder."""

    def __init__(self, work: Path) -> None:
        self.folder = work.parent / ".shapescript-run"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.alive = self.folder / "alive"
        self.process = self.folder / "process"
        self.stopped = self.folder / "stopped"

    def pack(self, number: int) -> Path:
        """What the one who rents has once the pack of this number arrived; 0 is what it uploaded."""
        return self.folder / f"pack-{number}.json"


def keep(work: Path, limit: float) -> int:
    """Waits until there has been no sign of life for `limit` seconds."""
    state = State(work)
    state.alive.touch()
    while time.time() - state.alive.stat().st_mtime < limit:
        time.sleep(min(5.0, limit / 4))
    return 0


def run(work: Path, uploaded: Path, job_file: Path) -> int:
    """Runs the program."""
    job = json.loads(job_file.read_text(encoding="utf-8"))
    state = State(work)
    state.alive.touch()
    work.mkdir(parents=True, exist_ok=True)
    if uploaded.is_dir():
        shutil.copytree(uploaded, work, dirs_exist_ok=True, copy_function=copy_to_change)
    for name in job["folders"]:
        (work / name).mkdir(parents=True, exist_ok=True)
    state.pack(0).write_text(json.dumps({name: stamp(path) for name, path in files(work)}))
    if state.stopped.exists():
        return 128 + signal.SIGINT
    process = subprocess.Popen(
        job["command"],
        cwd=work,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    state.process.write_text(str(process.pid))
    if state.stopped.exists():
        send(process.pid, state.stopped.read_text())
    timeout = float(job["timeout"])
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        print(f"modal: {job['timeout_words']}", file=sys.stderr, flush=True)
        end(process)
        code = 124
    send(process.pid, "KILL")  # what it left behind, which would hold its output open
    return 128 - code if code < 0 else code


def copy_to_change(source: str, target: str) -> str:
    """Copies a file that the program may change: the upload can't be written to, its copy can."""
    shutil.copyfile(source, target)
    os.chmod(target, os.stat(source).st_mode | 0o200)
    return target


def end(process: subprocess.Popen[bytes]) -> None:
    """Gives a program that ran out of time a chance to save."""
    send(process.pid, "INT")
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        send(process.pid, "KILL")
        process.wait()


def send(process: int, name: str) -> None:
    """Sends a signal to the program and its children, if they are still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.Signals[f"SIG{name}"])


def stop(work: Path, name: str) -> int:
    """Sends the program a signal; one that hasn't begun yet won't."""
    state = State(work)
    state.stopped.write_text(name)
    if state.process.exists():
        send(int(state.process.read_text()), name)
    return 0


def files(work: Path) -> Iterator[tuple[str, Path]]:
    """The files below a folder that can go back, by their names from there."""
    for folder, folders, names in os.walk(work):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(work).as_posix(), path


def stamp(path: Path) -> list[int]:
    """How a change of a file is seen."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def pack(work: Path, live: bool, arrived: int) -> int:
    """Writes a tar of the files that changed since the pack number `arrived`; it is itself the next."""
    state = State(work)
    begun = state.pack(arrived).exists()  # else the copy of the upload isn't complete
    have: Stamps = json.loads(state.pack(arrived).read_text()) if begun else {}
    being_written = open_files() if live else set()
    output = cast("IO[bytes]", Lively(sys.stdout.buffer, state))
    with tarfile.open(fileobj=output, mode="w|", bufsize=MEGABYTE) as archive:
        for name, path in files(work) if begun else ():
            with contextlib.suppress(FileNotFoundError):  # it may go at any moment
                now = stamp(path)
                if have.get(name) == now or (live and not complete(path, now, being_written)):
                    continue
                if add(archive, name, path, now, state.folder if live else None):
                    have[name] = now
    if begun:
        state.pack(arrived + 1).write_text(json.dumps(have))
        if arrived:
            state.pack(arrived - 1).unlink(missing_ok=True)
    return 0


def complete(path: Path, now: list[int], being_written: set[str]) -> bool:
    """Can this file be taken while the program runs?"""
    if path.suffix in GROWING or "tfevents" in path.name:
        return True
    return time.time_ns() - now[1] > REST and os.path.realpath(path) not in being_written


def add(archive: tarfile.TarFile, name: str, path: Path, now: list[int], room: Path | None) -> bool:
    """Adds one file as it is at one moment; with `room` for a copy, false if it changed in the meantime."""
    with open(path, "rb") as file, contextlib.ExitStack() as held:
        source: IO[bytes] = file
        entry = archive.gettarinfo(arcname=name, fileobj=file)
        if room is not None:  # the size stands before the bytes, and the program is still writing
            source = held.enter_context(tempfile.TemporaryFile(dir=room))
            shutil.copyfileobj(file, source, MEGABYTE)
            if stamp(path) != now and path.suffix not in GROWING and "tfevents" not in path.name:
                return False
            entry.size = source.tell()
            source.seek(0)
        archive.addfile(entry, source)
    return True


def open_files() -> set[str]:
    """The files that some process has open for writing."""
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process that ended, or another user's
            for link in os.listdir(process / "fd"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    flags = (process / "fdinfo" / link).read_text().partition("flags:")[2].split()[0]
                    if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                        found.add(os.readlink(process / "fd" / link))
    return found


class Lively:
    """A file to write to, where each write is a sign of life: a large checkpoint may take longer than the limit."""

    def __init__(self, file: IO[bytes], state: State) -> None:
        self.file = file
        self.state = state
        self.state.alive.touch()

    def write(self, data: bytes) -> int:
        self.state.alive.touch()
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.flush()


def main(words: list[str]) -> int:
    command, work, *rest = words
    place = Path(work)
    if command == "keep":
        return keep(place, float(rest[0]))
    if command == "run":
        return run(place, Path(rest[0]), Path(rest[1]))
    if command == "stop":
        return stop(place, rest[0])
    if command == "pack":
        return pack(place, rest[0] == "live", int(rest[1]))
    raise SystemExit(f"guest.py: no command `{command}`")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
