"""How a file of weights lies on the disk: safetensors, whole or not at all.

A file is written beside its place under another name, brought to the disk and renamed, so that whatever happens, a
power cut too, the path holds the old values or the new, whole. The numbers that stand beside the tensors are JSON
under `shapescript` in the file's metadata; nothing in a file can run. `write_soon` copies nothing and waits for
nothing: a thread writes while the program goes on, one file at a time in the order of the calls, and a file that is
read, or written again, is waited for first. With `keep`, a path is a folder of numbered files, the newest the highest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from shapescript.controller.errors import CheckpointError

METADATA = "shapescript"
NUMBERED = re.compile(r"(\d{6,})\.safetensors")


@dataclass(frozen=True)
class Draws:
    """What random draws depend on: the run's seed, the calls so far, and how often each loop over data began."""

    seed: int = 0
    calls: int = 0
    passes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Contents:
    """What a file holds: tensors and numbers by name, and what draws depend on (`None`: not kept)."""

    tensors: Mapping[str, torch.Tensor]
    numbers: Mapping[str, object]
    draws: Draws | None = None


# --- writing ---------------------------------------------------------------------------------------------------------


def write(path: str | Path, what: Contents) -> None:
    """Writes a file as a whole or not at all.

    Raises:
        CheckpointError: it can't be written; what was at the path before is still there.
    """
    wait_for(path)
    place = Path(path)
    if place.exists() and not place.is_file():
        kind = "a folder" if place.is_dir() else "a device or a pipe"
        raise CheckpointError(f"`{path}` can't be written: {kind} is there, not a file")
    _write(place, what)


def _write(place: Path, what: Contents) -> None:
    temporary = place.with_name(f".{place.name}.{os.getpid()}.shapescript-part")
    draws = None if what.draws is None else asdict(what.draws)
    metadata = {METADATA: json.dumps({"numbers": what.numbers, "draws": draws})}
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place)
        save_file(dict(what.tensors), temporary, metadata)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, place)
        sync_folder(place.parent)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"`{place}` can't be written: {reason}") from error
    finally:
        if temporary.exists():
            temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Brings a rename to the disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(place: Path) -> None:
    """Removes what a save of this very path left when its process was killed."""
    pattern = re.compile(re.escape(f".{place.name}.") + r"(\d+)\.shapescript-part")
    for other in place.parent.iterdir():
        found = pattern.fullmatch(other.name)
        if found and int(found[1]) != os.getpid() and not is_running(int(found[1])):
            other.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether a process of this number is there; yes, if it isn't ours to ask."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# --- a folder of the last ones ---------------------------------------------------------------------------------------


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints of a folder by their numbers, the newest last."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := NUMBERED.fullmatch(path.name))]
    return sorted(found)


def _write_next(folder: Path, what: Contents, keep: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = numbered(folder)
    except OSError as error:
        raise CheckpointError(f"`{folder}` can't be a folder of checkpoints: {error.strerror or error}") from error
    last = there[-1][0] if there else 0
    for _, path in there:
        remove_leftovers(path)
    _write(folder / f"{last + 1:06}.safetensors", what)
    for _, path in there[: max(0, len(there) + 1 - keep)]:
        path.unlink(missing_ok=True)


# --- beside the next steps -------------------------------------------------------------------------------------------

_lock = Lock()
_pending: dict[Path, Future[None]] = {}
_writers: list[ThreadPoolExecutor] = []


def _forget_in_a_copy() -> None:
    """A process that was copied from this one hasn't got its thread."""
    global _lock
    _lock = Lock()
    _pending.clear()
    _writers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_a_copy)


def _writer() -> ThreadPoolExecutor:
    if not _writers:
        _writers.append(ThreadPoolExecutor(max_workers=1, thread_name_prefix="shapescript-checkpoints"))
    return _writers[0]


def write_soon(path: str | Path, what: Contents, keep: int | None = None) -> None:
    """Writes a file, or the next one of a folder, while the program goes on.

    Raises:
        CheckpointError: the last one of this path couldn't be written, or something else is at the path.
    """
    wait_for(path)
    place = Path(path).absolute()
    if keep is not None and (isinstance(keep, bool) or keep < 1):
        raise CheckpointError(f"`keep` is how many checkpoints stay, 1 or more, and this is {keep}")
    if keep is None and place.exists() and not place.is_file():
        helps = "; with `keep=3` it holds the last three" if place.is_dir() else ""
        raise CheckpointError(f"`{path}` can't be written: it isn't a file{helps}")
    if keep is not None and place.exists() and not place.is_dir():
        raise CheckpointError(f"with `keep`, `{path}` is a folder of checkpoints, and a file is there")
    job = _writer().submit(_write, place, what) if keep is None else _writer().submit(_write_next, place, what, keep)
    with _lock:
        _pending[place] = job


def wait_for(path: str | Path) -> None:
    """Waits until what was written to a path is there, or to a folder that it is in.

    Raises:
        CheckpointError: it couldn't be written.
    """
    place = Path(path).absolute()
    for key in (place, place.parent):
        with _lock:
            job = _pending.get(key)
        if job is not None:
            _finish(key, job)


def finish() -> None:
    """Waits for all that is being written; a program's end does.

    Raises:
        CheckpointError: one couldn't be written.
    """
    with _lock:
        jobs = dict(_pending)
    failed: CheckpointError | None = None
    for key, job in jobs.items():
        try:
            _finish(key, job)
        except CheckpointError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _finish(key: Path, job: Future[None]) -> None:
    try:
        job.result()
    finally:
        if job.done():
            with _lock:
                if _pending.get(key) is job:
                    del _pending[key]


# --- reading ---------------------------------------------------------------------------------------------------------


def read_newest(path: str | Path) -> Contents:
    """All that a file holds; of a folder, its newest file."""
    wait_for(path)
    place = Path(path)
    if not place.is_dir():
        return read(path)
    there = numbered(place)
    if not there:
        raise CheckpointError(f"there is no checkpoint in the folder `{path}`")
    return read(there[-1][1])


def read(path: str | Path) -> Contents:
    """All that a file holds; one that another program wrote has tensors alone.

    Raises:
        CheckpointError: there is no such file, or it isn't whole.
    """
    wait_for(path)
    if not Path(path).is_file():
        raise CheckpointError(f"there is no file `{path}`")
    try:
        with safe_open(str(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            metadata = file.metadata() or {}
        return Contents(tensors, *described(metadata.get(METADATA, "{}")))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"`{path}` isn't a whole safetensors file: {error}") from error


def described(text: str) -> tuple[dict[str, object], Draws | None]:
    """The numbers and the draws that a file's metadata has.

    Raises:
        ValueError: it isn't what `write` writes.
    """
    kept = json.loads(text)
    if not isinstance(kept, dict) or not isinstance(kept.get("numbers", {}), dict):
        raise ValueError("its description is no mapping")
    draws = kept.get("draws")
    if draws is None:
        return kept.get("numbers", {}), None
    if not isinstance(draws, dict) or not isinstance(draws.get("passes"), dict):
        raise ValueError("what it says of random draws is no mapping")
    counts = [draws.get("seed"), draws.get("calls"), *draws["passes"].values()]
    if not all(isinstance(count, int) and not isinstance(count, bool) for count in counts):
        raise ValueError("what it says of random draws isn't whole numbers")
    return kept.get("numbers", {}), Draws(draws["seed"], draws["calls"], draws["passes"])
