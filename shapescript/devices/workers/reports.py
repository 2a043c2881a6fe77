"""What a worker says over its socket besides that commands are finished: a failure, or an answer; framed and pickled.

Gives the messages, and their sending and reading. Sockets carry the memory of datasets the other way.
"""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass
from typing import TypeAlias

from shapescript.diagnostics.diagnostic import Diagnostic

LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Failed:
    """A command raised: a mistake of the program has a diagnostic, anything else is told by the words.

    `lost` says that another device didn't answer, which is a consequence of something else.
    """

    number: int
    diagnostic: Diagnostic | None
    words: str
    lines: tuple[str, ...] = ()
    lost: bool = False


@dataclass(frozen=True)
class Answer:
    """What was asked by a command."""

    number: int
    value: object


Report: TypeAlias = Failed | Answer


def send_report(to: socket.socket, report: Report) -> None:
    """Sends one."""
    data = pickle.dumps(report)
    to.sendall(LENGTH.pack(len(data)) + data)


class ReportReader:
    """The reports that come over a socket, which is read without waiting."""

    def __init__(self, source: socket.socket) -> None:
        self.source = source
        self._data = bytearray()

    def read(self) -> tuple[list[Report], bool]:
        """Those that are whole by now, and whether more may come."""
        more = True
        while True:
            try:
                data = self.source.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                more = False
                break
            self._data += data
        found: list[Report] = []
        while len(self._data) >= LENGTH.size:
            end = LENGTH.size + int(LENGTH.unpack_from(self._data)[0])
            if len(self._data) < end:
                break
            found.append(pickle.loads(memoryview(bytes(self._data[LENGTH.size : end]))))
            del self._data[:end]
        return found, more
