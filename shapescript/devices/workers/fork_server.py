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
    ranks: dict[int, int] = {}  # by the file that becomes ready when the worker has gone
    poll = select.poll()
    poll.register(control, select.POLLIN)
    try:
        while True:
            for file, _ in poll.poll():
                if file in ranks:
                    poll.unregister(file)
                    control.send(json.dumps({"rank": ranks.pop(file), "status": status_of(file)}).encode())
                    os.close(file)
                    continue
                text, files, _, _ = socket.recv_fds(control, LONGEST, MOST_FILES)
                if not text:
                    return
                start = Start.of(text.decode()).with_files(files, os.getpid())
                pid = os.fork()
                if pid == 0:
                    control.close()
                    for each in ranks:
                        os.close(each)
                    work(start, alone)
                end = os.pidfd_open(pid)
                ranks[end] = start.rank
                poll.register(end, select.POLLIN)
                control.send(json.dumps({"rank": start.rank, "pid": pid}).encode())
                for each in files:
                    os.close(each)
    except ConnectionError:
        pass  # the controller has gone
    finally:
        for file in ranks:
            signal.pidfd_send_signal(file, signal.SIGKILL)
            status_of(file)


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


def status_of(end: int) -> int:
    """Waits for a worker; its exit status as `subprocess` has it."""
    result = os.waitid(os.P_PIDFD, end, os.WEXITED)
    assert result is not None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
