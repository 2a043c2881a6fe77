"""Starts the workers, watches them, and ends them all when one fails.

Takes a launcher and what each worker is started with; a thread of its own does the rest, so that the controller's
other threads may wait for values or be busy. It sees a worker that exits, one that is stopped or hangs as a whole, and
one that reports an error. Then it lets the others finish what came before, ends the group, and says what was first. A
step that takes long isn't a fault: a worker's heartbeat is a thread of its own, which runs whatever the step does.

Doesn't know what commands mean.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shapescript.devices.workers.channel import Channel
from shapescript.devices.workers.failure import STOPPED, state_of, words_for_exit, words_for_silence
from shapescript.devices.workers.launching import Launcher, Process
from shapescript.devices.workers.reports import Answer, Failed, ReportReader
from shapescript.devices.workers.worker import Start

TICK = 0.1
GRACE = 4.0  # at most, for the others to finish the commands before the one that failed
FAREWELL = 0.2  # for idle workers to go by themselves
LOST_GRACE = 3.0  # for the cause to be seen after a worker says that another doesn't answer


@dataclass
class Heart:
    """When a worker was last seen to run, and how often its heart had beaten then."""

    since: float
    beats: int = 0

    def silent(self, now: float, state: str | None, beats: int) -> float:
        """For how long it hasn't run; no beats at all are those of one that is starting, or has no heart."""
        if state not in STOPPED and (beats == 0 or beats != self.beats):
            self.since, self.beats = now, beats
        return now - self.since


@dataclass(frozen=True)
class Fault:
    """What ended the group: which worker, at which command, and its report or the words for it."""

    rank: int
    number: int
    report: Failed | None
    words: str = ""


class Supervisor:
    """`started` is set when there is a process for each worker, `fault` at most once.

    `stop` ends all workers at once, and may be called from anywhere, again and again.
    """

    def __init__(
        self,
        launcher: Launcher,
        starts: Sequence[Start],
        reports: Sequence[socket.socket],
        channel: Channel,
        beats: Callable[[int], int] | None,
        deadline: float,
        started: Callable[[], None],
    ) -> None:
        self._launcher = launcher
        self._channel = channel
        self._beats = beats
        self._deadline = deadline
        self._started = started
        self._readers = [ReportReader(each) for each in reports]
        self.processes: Sequence[Process] = ()
        self.fault: Fault | None = None
        self.answers: dict[int, dict[int, object]] = {}
        self._heard: set[int] = set()
        self.news = threading.Condition()
        self._stopping = threading.Event()
        self._closing = threading.Lock()
        self.started = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._live, args=(starts,), name="shapescript-workers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the workers, and returns when they are gone."""
        with self._closing:
            if not self._stopping.is_set():
                self._stopping.set()
                os.write(self._wake_write, b".")
                self._thread.join()
                os.close(self._wake_read)
                os.close(self._wake_write)

    def wait_for_fault(self) -> Fault | None:
        """What ended the group, which has ended; None if it was stopped."""
        with self.news:
            self.news.wait_for(lambda: self.fault is not None or not self._thread.is_alive())
        return self.fault

    # --- the thread

    def _live(self, starts: Sequence[Start]) -> None:
        try:
            try:
                self.processes = self._launcher.launch(starts)
            finally:
                self._started()
            fault = self._watch()
            if fault is not None:
                self._end(fault)
        except Exception as error:
            words = f"its supervision failed: {type(error).__name__}: {error}"
            self.fault = self.fault or Fault(len(self.processes), 0, None, words)
        finally:
            self._channel.end()
            self._let_go()
            self._launcher.end()
            self.started.set()
            with self.news:
                self.news.notify_all()

    def _let_go(self) -> None:
        """Workers that have nothing to do go by themselves when the channel ends, and what they printed is out."""
        until = time.monotonic() + FAREWELL
        while time.monotonic() < until and any(process.poll() is None for process in self.processes):
            time.sleep(FAREWELL / 50)

    def _watch(self) -> Fault | None:
        """Until something is wrong, or `stop`."""
        hearts = [Heart(time.monotonic()) for _ in self.processes]
        looked = time.monotonic()
        poll = select.poll()
        for file in (self._wake_read, *self._launcher.files(), *(reader.source.fileno() for reader in self._readers)):
            poll.register(file, select.POLLIN)
        while not self._stopping.is_set():
            poll.poll(1000 * TICK)
            fault = self._reported() or self._exited()
            if fault is not None:
                return fault
            if self._launcher.begun():
                self.started.set()
            now = time.monotonic()
            if now - looked > 10 * TICK:  # this process itself didn't run
                hearts = [Heart(now, heart.beats) for heart in hearts]
            looked = now
            for rank, (process, heart) in enumerate(zip(self.processes, hearts, strict=True)):
                state = state_of(process.pid)
                silence = heart.silent(now, state, self._beats(rank) if self._beats is not None else 0)
                if silence > self._deadline:
                    words = words_for_silence(state, silence)
                    return Fault(rank, self._channel.finished(rank) + 1, None, words)
        return None

    def _reported(self) -> Fault | None:
        """Reads what has come; a fault is that of the first command, then of the first device."""
        faults: list[Fault] = []
        for rank, reader in enumerate(self._readers):
            reports, _ = reader.read()
            for report in reports:
                if isinstance(report, Answer):
                    with self.news:
                        self.answers.setdefault(report.number, {})[rank] = report.value
                        self.news.notify_all()
                else:
                    self._heard.add(rank)
                    faults.append(Fault(rank, report.number, report))
        return min(faults, key=urgency, default=None)

    def _exited(self) -> Fault | None:
        for rank, process in enumerate(self.processes):
            status = process.poll()
            if status is not None:
                return self._reported() or Fault(rank, self._channel.finished(rank) + 1, None, words_for_exit(status))
        return None

    def _end(self, fault: Fault) -> None:
        """Lets the others finish what came before, and looks for something that was earlier."""
        until = time.monotonic() + (LOST_GRACE if is_lost(fault) else GRACE)
        gone = {fault.rank}
        while time.monotonic() < until and not self._stopping.is_set():
            other = self._reported()
            for rank, process in enumerate(self.processes):
                status = process.poll()
                if status is not None and rank not in gone:
                    gone.add(rank)
                    other = other or Fault(rank, self._channel.finished(rank) + 1, None, words_for_exit(status))
            if other is not None:
                gone.add(other.rank)
                if urgency(other) < urgency(fault) and (other.report is not None or is_lost(fault)):
                    fault = other
            behind = [
                rank
                for rank in range(len(self.processes))
                if rank not in gone and self._channel.finished(rank) < fault.number - 1
            ]
            if not behind and not is_lost(fault):
                break
            self._stopping.wait(TICK / 20)
        with self.news:
            self.fault = self._silent_one(fault) or fault

    def _silent_one(self, fault: Fault) -> Fault | None:
        """The only worker that hasn't said that it waits, where the others do: it is whom they wait for."""
        silent = set(range(len(self.processes))) - self._heard
        if not is_lost(fault) or len(silent) != 1:
            return None
        (rank,) = silent
        if self._channel.finished(rank) >= fault.number:
            return Fault(rank, fault.number, None, "it finished the step without the others, who wait for it")
        return Fault(rank, fault.number, None, "it doesn't finish the step, and the others wait for it")


def urgency(fault: Fault) -> tuple[bool, int, int]:
    """What comes first: a cause before its consequences, an early command before a late one."""
    return is_lost(fault), fault.number, fault.rank


def is_lost(fault: Fault) -> bool:
    """Whether it only says that another worker doesn't answer."""
    return fault.report is not None and fault.report.lost
