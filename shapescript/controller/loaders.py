"""Processes that read examples ahead, in the order of the batches.

`read_ahead` takes a reader and the numbers of each batch; gives the batches in that order, read by so many processes:
batch i by process i modulo their number, each from a clean interpreter that has a copy of the reader and nothing else
of the caller's; two batches a process are on the way. What is read is the same with any number of them: an example's
random draws depend on its number and the epoch. The copy is made when the first pass over a dataset begins, and serves
the passes after it. Where no number was asked for, `reading_ahead.py` decides.

A process ends when its pipe closes, which happens however this one ends; at a fault, Ctrl-C, or where a loop is left
early, it is ended at once. What goes wrong in one comes out here as it was raised.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from select import select
from typing import Any, BinaryIO

import torch

from shapescript.controller.dataset_items import Rows
from shapescript.controller.dataset_reading import Numbers, Reader
from shapescript.controller.errors import DataError

AHEAD = 2
LENGTH = 8


@dataclass(frozen=True)
class Idle:
    """Processes that wait for the next pass over the dataset that they have a copy of."""

    reader: Reader
    loaders: list[Loader]
    digest: bytes | None = None
    """Of the copy, where the processes weren't asked for: they read on only while a new copy would be the same."""


MOST_IDLE = 2
_idle: list[Idle] = []


@contextmanager
def read_ahead(reader: Reader, numbers: Sequence[Numbers], workers: int) -> Iterator[Iterator[Rows]]:
    """The batches of these numbers in order.

    The processes of a pass that came to its end wait for the next one over the same dataset; others are ended.
    """
    loaders = asked_loaders(reader, min(workers, len(numbers))) if workers and len(numbers) > 1 else []
    if not loaders:
        yield map(reader.rows, numbers)
        return
    complete = False
    try:
        for loader in loaders:
            loader.begin(reader.key)
        yield in_order(loaders, numbers)
        complete = True
    finally:
        if complete:
            keep_idle(Idle(reader, loaders))
        else:
            end(loaders)


def keep_idle(idle: Idle) -> None:
    """Lets processes wait for the next pass; those that still read are ended."""
    if any(loader.asked for loader in idle.loaders):
        end(idle.loaders)
        return
    _idle.append(idle)
    while len(_idle) > MOST_IDLE:
        end(_idle.pop(0).loaders)


def take_idle(reader: Reader, asked: int | None) -> Idle | None:
    """The processes that have a copy of this reader: so many, or those that weren't asked for."""
    for at, idle in enumerate(_idle):
        fits = idle.digest is not None if asked is None else idle.digest is None and len(idle.loaders) == asked
        if fits and idle.reader.reads_as(reader):
            return _idle.pop(at)
    return None


def asked_loaders(reader: Reader, count: int) -> list[Loader]:
    """So many processes that have a copy of this reader, waiting ones or new; none where it can't be copied."""
    idle = take_idle(reader, count)
    if idle is not None:
        return idle.loaders
    try:
        picture = pickled(reader)
    except Exception as error:
        kind = type(reader.source).__name__
        warnings.warn(
            f"the dataset `{kind}` can't be copied to a loader process, so it is read in this one: {error}; "
            "what it holds should be picklable: open files and connections in `__getitem__`, or leave out `workers`",
            stacklevel=2,
        )
        return []
    return new_loaders(picture, count)


def new_loaders(picture: bytes, count: int) -> list[Loader]:
    """So many new processes with a copy of a reader."""
    loaders: list[Loader] = []
    try:
        for _ in range(count):
            loaders.append(Loader())
            loaders[-1].send(picture)
    except BaseException:
        end(loaders)
        raise
    return loaders


def end(loaders: Sequence[Loader]) -> None:
    """Ends processes."""
    for loader in loaders:
        loader.end()


def end_idle() -> None:
    """Ends the processes that wait; a loaded program that is closed does, and the interpreter's end."""
    while _idle:
        end(_idle.pop().loaders)


atexit.register(end_idle)


def in_order(loaders: Sequence[Loader], numbers: Sequence[Numbers]) -> Iterator[Rows]:
    """Asks ahead, and gives the batches in their order."""
    asked: deque[Loader] = deque()
    coming = iter(enumerate(numbers))

    def ask() -> None:
        batch = next(coming, None)
        if batch is not None:
            loader = loaders[batch[0] % len(loaders)]
            loader.ask(batch[1])
            asked.append(loader)

    for _ in range(AHEAD * len(loaders)):
        ask()
    while asked:
        rows = asked.popleft().answer()
        ask()
        yield rows


def pickled(reader: Reader) -> bytes:
    """A reader for another process.

    Raises:
        Exception: it can't be copied; which kind, what it holds decides.
    """
    import cloudpickle

    columns = reader.columns
    if columns is not None and any(column.device.type != "cpu" for column in columns.values()):
        reader = replace(reader, columns={name: column.cpu() for name, column in columns.items()})
    return bytes(cloudpickle.dumps(reader))


class Loader:
    """A process that reads. It has no part in the terminal's Ctrl-C: the one that started it ends it."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_open = False
        command = [sys.executable, "-m", "shapescript.controller.loader_process"]
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def would_answer(self) -> bool:
        """Whether it has begun to answer, or has ended: whether `open` comes back at once."""
        assert self.process.stdout is not None
        return self.is_open or bool(select([self.process.stdout], [], [], 0)[0])

    def open(self) -> None:
        """Waits until it has its copy.

        Raises:
            DataError: the process ended.
            Exception: what kept it from making its copy.
        """
        if not self.is_open:
            self.is_open = True
            self.receive()

    def begin(self, key: int) -> None:
        """Says which epoch begins."""
        self.send(pickle.dumps(key))

    def ask(self, numbers: Numbers) -> None:
        """Asks for a batch."""
        self.asked += 1
        self.send(pickle.dumps(numbers))

    def answer(self) -> Rows:
        """The batch that was asked for first.

        Raises:
            DataError: the process ended.
            Exception: what the dataset raised.
        """
        self.open()
        found = self.receive()
        self.asked -= 1
        return {name: unpacked(*packed) for name, packed in found.items()}

    def receive(self) -> Any:
        """What it sent first."""
        assert self.process.stdout is not None
        text = read_message(self.process.stdout)
        if text is None:
            code = self.process.wait()
            how = f"signal {-code}, {signal.Signals(-code).name}" if code < 0 else f"status {code}"
            raise DataError(
                f"a loader process ended ({how}) while it read examples; with `workers=0` they are read in the "
                "program's own process"
            )
        found = pickle.loads(text)
        if isinstance(found, BaseException):
            self.asked = max(0, self.asked - 1)
            raise found
        return found

    def send(self, message: bytes) -> None:
        """Writes a message: the reader first, then keys of epochs and numbers of examples."""
        assert self.process.stdin is not None
        try:
            write_message(self.process.stdin, message)
        except BrokenPipeError:
            pass  # `answer` says how it ended

    def end(self) -> None:
        """Ends the process at once."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass  # what was still to be written to it
        self.process.wait()


def packed(tensor: torch.Tensor) -> tuple[Any, bool]:
    """A tensor as an array, and whether it is bf16, which numpy hasn't got."""
    half = tensor.dtype is torch.bfloat16
    return (tensor.view(torch.int16) if half else tensor).numpy(), half


def unpacked(array: Any, half: bool) -> torch.Tensor:
    """The tensor of an array that came."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if half else tensor


def write_message(stream: BinaryIO | Any, message: bytes) -> None:
    """A message with its length before it."""
    stream.write(len(message).to_bytes(LENGTH, "little"))
    stream.write(message)
    stream.flush()


def read_message(stream: BinaryIO | Any) -> bytes | None:
    """A message; None where the other end is closed."""
    length = stream.read(LENGTH)
    if len(length) < LENGTH:
        return None
    size = int.from_bytes(length, "little")
    message: bytes = stream.read(size)
    return message if len(message) == size else None
