"""Processes that read examples ahead, in the order of the batches.

`read_ahead` takes a reader and the numbers of each batch; gives the batches in that order. Without workers it reads
each when it is asked for. With them, batch i is read by process i modulo their number, each from a clean interpreter
that has a copy of the reader and nothing else of the caller's; two batches a process are on the way. What is read is
the same with any number of them: an example's random draws depend on its number and the epoch. The copy is made when
the first pass over a dataset begins, and serves the passes after it.

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


MOST_IDLE = 2
_idle: list[Idle] = []


@contextmanager
def read_ahead(reader: Reader, numbers: Sequence[Numbers], workers: int) -> Iterator[Iterator[Rows]]:
    """The batches of these numbers in order.

    The processes of a pass that came to its end wait for the next one over the same dataset; others are ended.
    """
    loaders = loaders_for(reader, min(workers, len(numbers))) if workers and len(numbers) > 1 else []
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
        if complete and not any(loader.asked for loader in loaders):
            _idle.append(Idle(reader, loaders))
            while len(_idle) > MOST_IDLE:
                end(_idle.pop(0).loaders)
        else:
            end(loaders)


def loaders_for(reader: Reader, count: int) -> list[Loader]:
    """So many processes that have a copy of this reader, waiting ones or new; none where it can't be copied."""
    for at, idle in enumerate(_idle):
        if len(idle.loaders) == count and idle.reader.reads_as(reader):
            return _idle.pop(at).loaders
    picture = pickled(reader)
    if picture is None:
        return []
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


def pickled(reader: Reader) -> bytes | None:
    """A reader for another process; None, with a warning that says why, where it can't be copied to one."""
    import cloudpickle

    columns = reader.columns
    if columns is not None and any(column.device.type != "cpu" for column in columns.values()):
        reader = replace(reader, columns={name: column.cpu() for name, column in columns.items()})
    try:
        return bytes(cloudpickle.dumps(reader))
    except Exception as error:
        kind = type(reader.source).__name__
        warnings.warn(
            f"the dataset `{kind}` can't be copied to a loader process, so it is read in this one: {error}; "
            "what it holds should be picklable: open files and connections in `__getitem__`, or leave out `workers`",
            stacklevel=2,
        )
        return None


class Loader:
    """A process that reads. It has no part in the terminal's Ctrl-C: the one that started it ends it."""

    def __init__(self) -> None:
        self.asked = 0
        command = [sys.executable, "-m", "shapescript.controller.loader_process"]
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

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
        assert self.process.stdout is not None
        text = read_message(self.process.stdout)
        if text is None:
            code = self.process.wait()
            how = f"signal {-code}, {signal.Signals(-code).name}" if code < 0 else f"status {code}"
            raise DataError(f"a loader process ended ({how}) while it read examples")
        self.asked -= 1
        found = pickle.loads(text)
        if isinstance(found, BaseException):
            raise found
        return {name: unpacked(*packed) for name, packed in found.items()}

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
