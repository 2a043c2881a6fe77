"""How the processes of workers are begun: copies of a fork server, or a clean interpreter for each.

Gives `ForkServer` and `Interpreters`, the two `Launcher`s, and `Process`, a worker's process as its supervisor holds
it. A worker starts from a clean interpreter that has nothing of the program's own. On Linux one such interpreter loads
torch once for all workers and copies itself (`fork_server.py`); elsewhere each worker loads it. Imports no torch: the
command starts the fork server before it loads torch itself, so that the two go on side by side.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shapescript.devices.workers.fork_server import LONGEST, SERVE
from shapescript.devices.workers.native import native
from shapescript.devices.workers.worker import BOOT, Start

FAREWELL = 5.0  # for a fork server to end its workers and itself


class Process(Protocol):
    """A worker's process."""

    @property
    def pid(self) -> int:
        """Its number; that of what will start it while it isn't there."""

    def poll(self) -> int | None:
        """Its exit status as `subprocess` has it, if it has gone."""


class Launcher(Protocol):
    """Begins the processes, and ends them."""

    def launch(self, starts: Sequence[Start]) -> Sequence[Process]:
        """The processes, which may still have to be started; the files in `starts` may be closed afterwards."""

    def begun(self) -> bool:
        """Whether all of them are there, or have been."""

    def files(self) -> list[int]:
        """Files that become ready when a process begins or has gone."""

    def end(self) -> None:
        """Ends the processes at once, and returns when they are gone; may be called again."""


def launcher_of(count: int, path: Sequence[str]) -> Launcher:
    """What begins so many workers here: a fork server, where workers end with the process that started them."""
    _, threads = share_of_cores(count)
    return ForkServer(threads, path) if native is not None and sys.platform == "linux" else Interpreters(threads, path)


def begun_ahead(count: int, folder: str | os.PathLike[str]) -> ForkServer | None:
    """A fork server that loads torch from now on, for a pool of so many workers that is made later.

    It goes with the thread that calls this. None where there is nothing to be done ahead.
    """
    launcher = launcher_of(count, search_path(folder))
    if not isinstance(launcher, ForkServer):
        return None
    launcher.start()
    return launcher


def share_of_cores(count: int) -> tuple[int, int]:
    """The cores of this machine, and how many threads each of so many workers gets."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores, max(1, cores // count)


def search_path(folder: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """Where this process finds modules now, the program's folder first."""
    path = [os.path.abspath(each) for each in sys.path]
    if folder is not None and (first := os.path.abspath(folder)) not in path:
        path.insert(0, first)
    return tuple(path)


def environment_of(threads: int) -> dict[str, str]:
    """The environment of a worker that has so many threads."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["SHAPESCRIPT_THREADS"] = str(threads)
    environment["PYTHONUNBUFFERED"] = "1"  # what an `extern fn` prints isn't lost when the worker is ended
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # an idle thread must leave its core to the other workers
    return environment


class Interpreters:
    """A clean interpreter for each worker."""

    def __init__(self, threads: int, path: Sequence[str]) -> None:
        self.threads = threads
        self.path = tuple(path)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._ends: list[int] = []

    def launch(self, starts: Sequence[Start]) -> Sequence[Process]:
        """Begins them all."""
        for each in starts:
            # -P: no module of the working folder can stand before the standard library's
            command = [sys.executable, "-P", "-c", BOOT, each.text(), *self.path]
            self.processes.append(clean(command, environment_of(self.threads), each.files()))
        self._ends = [file for process in self.processes if (file := pidfd(process.pid)) is not None]
        return self.processes

    def begun(self) -> bool:
        """At once."""
        return True

    def files(self) -> list[int]:
        """One for each, where the system has that."""
        return self._ends

    def end(self) -> None:
        """Kills and reaps them."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        while self._ends:
            os.close(self._ends.pop())


@dataclass
class Forked:
    """A worker that a fork server started."""

    server: ForkServer
    own: int | None = None
    status: int | None = None

    @property
    def pid(self) -> int:
        """Its number, or the fork server's."""
        return self.own or self.server.pid

    def poll(self) -> int | None:
        """Its exit status, which the fork server tells."""
        self.server.listen()
        return self.status


class ForkServer:
    """The process that loads torch once for all workers. `start` may come long before `launch`."""

    def __init__(self, threads: int, path: Sequence[str]) -> None:
        self.threads = threads
        self.path = tuple(path)
        self.workers: list[Forked] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        """Begins the process, if it isn't there. It goes with the thread that calls this."""
        if self._process is not None:
            return
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = environment_of(self.threads)
        # numpy's library of products has threads from its import on, and what has threads isn't copied
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")
        with theirs:
            file = theirs.fileno()
            command = [sys.executable, "-P", "-c", SERVE, str(file), str(os.getpid()), *self.path]
            self._process = clean(command, environment, [file])

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self._process is not None
        return self._process.pid

    def launch(self, starts: Sequence[Start]) -> Sequence[Process]:
        """Asks for the workers."""
        self.start()
        assert self._control is not None
        self.workers = [Forked(self) for _ in starts]
        try:
            for each in starts:
                socket.send_fds(self._control, [each.text().encode()], each.files())
        except ConnectionError:
            pass  # it has gone, as `listen` finds
        return self.workers

    def begun(self) -> bool:
        """Whether the process has told of each."""
        return all(worker.own is not None or worker.status is not None for worker in self.workers)

    def listen(self) -> None:
        """Takes in what the fork server has told. Where it has gone itself, its workers went with it."""
        while self._control is not None:
            try:
                text = self._control.recv(LONGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                text = b""
            if not text:
                self._gone()
                return
            told = json.loads(text)
            worker = self.workers[told["rank"]]
            worker.own = told.get("pid", worker.own)
            worker.status = told.get("status", worker.status)

    def _gone(self) -> None:
        assert self._process is not None and self._control is not None
        self._control.close()
        self._control = None
        status = self._process.wait()
        for worker in self.workers:
            if worker.status is None:
                worker.status = status or -signal.SIGKILL

    def files(self) -> list[int]:
        """The socket: a word on it says that a worker begins or has gone, its end that all have."""
        return [] if self._control is None else [self._control.fileno()]

    def end(self) -> None:
        """Tells the process to end its workers and itself; while it has none it is ended from here."""
        if self._control is not None:
            try:
                self._control.shutdown(socket.SHUT_RDWR)  # the other end sees it even if a copy of this process has one
            except OSError:
                pass  # it has gone
            self._control.close()
            self._control = None
        if self._process is None:
            return
        try:
            self._process.wait(FAREWELL if any(worker.own for worker in self.workers) else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers go with it
            self._process.wait()


def clean(command: Sequence[str], environment: dict[str, str], files: Sequence[int]) -> subprocess.Popen[bytes]:
    """Starts a process with these files and nothing to read.

    SIGINT is blocked in it until it ignores it: Ctrl-C is the controller's to answer.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, env=environment, pass_fds=files, stdin=subprocess.DEVNULL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pidfd(process: int) -> int | None:
    """A file that is ready when a process has gone, where the system has that."""
    if not hasattr(os, "pidfd_open") or sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(process)
    except OSError:
        return None
