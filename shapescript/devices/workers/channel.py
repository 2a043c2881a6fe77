"""The way of commands from the controller to all workers, and of the word that one is finished.

Two ways, with the same meaning: `SharedChannel`, a ring in shared memory in C++, and `SocketChannel`, which needs none.
Commands are numbered from 1, and each worker finishes them in order. Waiting ends with `Ended` when the group is ended.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import TYPE_CHECKING, Protocol

from shapescript.devices.workers.native import native

if TYPE_CHECKING:
    from shapescript._transport import Link

LENGTH = struct.Struct("<I")
NAP = 0.05


class Ended(Exception):
    """The group of workers was ended by a fault."""


class Channel(Protocol):
    """The controller's end."""

    def post(self, command: bytes) -> int:
        """Tells all workers; gives the command's number."""

    def finished(self, rank: int) -> int:
        """The number of the last command that a worker has finished."""

    def wait(self, rank: int, number: int) -> None:
        """Returns when a worker has finished a command."""

    def end(self) -> None:
        """Ends all waiting, here and in the workers."""


class Reader(Protocol):
    """A worker's end."""

    def take(self) -> bytes:
        """The next command."""

    def finish(self, number: int) -> None:
        """Says that a command is finished."""


class SharedChannel:
    """The controller's end of a ring in shared memory."""

    longest = native.Link.longest if native is not None else 0

    def __init__(self, link: Link) -> None:
        self.link = link
        self._number = 0

    def post(self, command: bytes) -> int:
        """Tells all workers; waits where the ring is full."""
        assert native is not None
        try:
            self.link.post(command)
        except native.Ended as error:
            raise Ended from error
        self._number += 1
        return self._number

    def finished(self, rank: int) -> int:
        """The number of the last command that a worker has finished."""
        return self.link.finished(rank)

    def wait(self, rank: int, number: int) -> None:
        """Returns when a worker has finished a command; the GIL is free meanwhile."""
        assert native is not None
        try:
            self.link.wait(rank, number)
        except native.Ended as error:
            raise Ended from error

    def end(self) -> None:
        """Ends all waiting."""
        self.link.end()


class SharedReader:
    """A worker's end of a ring in shared memory."""

    def __init__(self, link: Link, rank: int) -> None:
        self.link = link
        self.rank = rank

    def take(self) -> bytes:
        """The next command."""
        assert native is not None
        try:
            return self.link.take(self.rank)
        except native.Ended as error:
            raise Ended from error

    def finish(self, number: int) -> None:
        """Says that a command is finished."""
        self.link.finish(self.rank, number)


class SocketChannel:
    """The controller's end of a socket for each worker."""

    longest = 1 << 18

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._finished = [0] * len(sockets)
        self._number = 0
        self._ended = False

    def post(self, command: bytes) -> int:
        """Tells all workers; waits where one is far behind."""
        data = memoryview(LENGTH.pack(len(command)) + command)
        for each in self._sockets:
            rest = data
            while rest:
                if self._ended:
                    raise Ended
                _, ready, _ = select.select([], [each], [], NAP)
                try:
                    rest = rest[each.send(rest, socket.MSG_DONTWAIT) :] if ready else rest
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._lost(error)
        self._number += 1
        return self._number

    def finished(self, rank: int) -> int:
        """The number of the last command that a worker has finished."""
        try:
            self._finished[rank] += len(self._sockets[rank].recv(4096, socket.MSG_DONTWAIT))
        except (BlockingIOError, ConnectionError):
            pass  # nothing new; whoever waits finds out that it has gone
        return self._finished[rank]

    def wait(self, rank: int, number: int) -> None:
        """Returns when a worker has finished a command."""
        while self.finished(rank) < number:
            if self._ended:
                raise Ended
            ready, _, _ = select.select([self._sockets[rank]], [], [], NAP)
            if ready and self.finished(rank) < number:
                time.sleep(NAP / 50)  # a closed socket is always ready; the supervisor ends the group

    def end(self) -> None:
        """Ends all waiting."""
        self._ended = True

    def _lost(self, error: OSError) -> None:
        """A worker has gone: the supervisor sees it too, and says why."""
        while not self._ended:
            time.sleep(NAP / 10)
        raise Ended from error


class SocketReader:
    """A worker's end of a socket."""

    def __init__(self, own: socket.socket) -> None:
        self._socket = own
        self._file = own.makefile("rb")

    def take(self) -> bytes:
        """The next command."""
        head = self._file.read(LENGTH.size)
        if len(head) < LENGTH.size:
            raise Ended
        return self._file.read(int(LENGTH.unpack(head)[0]))

    def finish(self, number: int) -> None:
        """Says that a command is finished: commands are finished in order, so a byte will do."""
        self._socket.sendall(b".")
