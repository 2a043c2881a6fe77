"""A process that loads once what every worker needs, and copies itself for each: a fork server.

It is a clean interpreter with one thread, so that a copy is what a fresh interpreter is after the same imports; where
an import has started threads, which a copy wouldn't have, each worker is an interpreter of its own after all. Takes,
over the socket whose other end `launching.ForkServer` holds, a `Start` and the files for each worker; tells which
processes there are and how each ended. Ends when the controller does, and its workers with it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import NoReturn

from shapescript.devices.workers.worker import BOOT, SET_DEATH_SIGNAL, Start, begin, leave_interrupts, tell_system

SERVE = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from shapescript.devices.workers.fork_server import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
"""What Python is given to run: the number of the socket, that of the parent, and where modules are found."""
LONGEST = 1 << 16
MOST_FILES = 16


def main(number: int, parent: int) -> None:
    """Serves until the controller's end of the socket is closed."""
    leave_interrupts()
    tell_system(SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it went before the line above
    gc.disable()  # what is imported stays: there is nothing to collect
    load()
    gc.freeze()  # a collection in a worker would write to what it shares with the others
    gc.enable()
    serve(socket.socket(fileno=number))
    os._exit(0)


def load() -> None:
    """Imports what workers need to run plans; none of it may start a thread."""
    import torch

    from shapescript.devices.executors import UnknownExecutor, executor_name
    from shapescript.devices.workers import serve  # noqa: F401  (it is to be there)

    try:
        if executor_name(torch.device("cpu")) == "native":
            from shapescript.devices.native import executor  # noqa: F401
    except UnknownExecutor:
        pass  # the controller says so


def serve(control: socket.socket) -> None:
    """Starts the workers that are asked for, and tells of their ends, until nothing more can be asked."""
    alone = len(os.listdir("/proc/self/task")) == 1
    ended, wake = os.pipe()  # a byte comes when a worker has gone
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ranks: dict[int, int] = {}  # by the process
    poll = select.poll()
    for file in (control.fileno(), ended):
        poll.register(file, select.POLLIN)
    try:
        while True:
            ready = {file for file, _ in poll.poll()}
            if ended in ready:
                os.read(ended, LONGEST)
                for pid, rank in list(ranks.items()):
                    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                        del ranks[pid]
                        tell(control, rank=rank, status=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            if control.fileno() not in ready:
                continue
            text, files, _, _ = socket.recv_fds(control, LONGEST, MOST_FILES)
            if not text:
                return
            start = Start.of(text.decode()).with_files(files, os.getpid())
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for file in (control.detach(), ended, wake):
                    os.close(file)
                work(start, alone)
            ranks[pid] = start.rank
            tell(control, rank=start.rank, pid=pid)
            for file in files:
                os.close(file)
    except ConnectionError:
        pass  # the controller has gone
    finally:
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)  # nobody else has its number: it wasn't waited for
        for pid in ranks:
            os.waitpid(pid, 0)


def tell(control: socket.socket, **what: int) -> None:
    """Says something of a worker."""
    control.send(json.dumps(what).encode())


def work(start: Start, alone: bool) -> NoReturn:
    """Is a worker, in a copy of a process that had one thread alone; else becomes an interpreter of its own."""
    try:
        if not alone:
            for each in start.files():
                os.set_inheritable(each, True)
            os.execv(sys.executable, [sys.executable, "-P", "-c", BOOT, start.text(), *sys.path])
        begin(start)
    except BaseException:
        traceback.print_exc()
    os._exit(1)
