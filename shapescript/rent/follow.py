"""A program on the rented machine, from its start to its end: its output, its files, Ctrl-C, and a lost machine.

Takes the machine and what was asked; gives the exit status. Every call that may wait for the network is made in a
thread of its own, so that a signal is answered at once.
"""

from __future__ import annotations

import os
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, Any

from shapescript.rent.ask import Request, duration
from shapescript.rent.errors import FILES_LOST, INTERRUPTED, TRY_AGAIN
from shapescript.rent.files_back import FilesBack
from shapescript.rent.image import GUEST, WORK
from shapescript.rent.interrupts import Interrupts
from shapescript.rent.say import Waiting, say
from shapescript.rent.service import first_line
from shapescript.rent.upload import counted, size

GUEST_COMMAND = ("python", "-I", GUEST)
KILLED, OUT_OF_BOUNDS = 137, 139


@dataclass(frozen=True)
class Pace:
    """How often things are looked at, in seconds."""

    files: float = 30
    watch: float = 10
    silence: float = 300
    """How long Modal may not answer before the machine is given up."""
    grace: float = 10
    """How long the program has to end after Ctrl-C."""


@dataclass
class Following:
    """What the threads have found out so far."""

    request: Request
    machine: Any
    process: Any
    back: FilesBack
    interrupts: Interrupts
    pace: Pace
    over: threading.Event = field(default_factory=threading.Event)
    status: int | None = None
    lost: str | None = None
    reader_gone: bool = False
    torn: str | None = None
    arrived: int = 0
    heard: float = field(default_factory=time.monotonic)
    packing: threading.Lock = field(default_factory=threading.Lock)

    def guest(self, *words: str) -> Any:
        """Starts a command of the guest's."""
        return self.machine.exec(*GUEST_COMMAND, words[0], WORK, *words[1:], text=False)

    # --- what runs in threads ----------------------------------------------------------------------------------------

    def pump(self, source: Iterable[bytes], target: IO[bytes]) -> None:
        """Passes one stream on as it comes."""
        try:
            for chunk in source:
                try:
                    target.write(chunk)
                    target.flush()
                except BrokenPipeError:  # `| head` has seen enough; nothing may be flushed to it at exit
                    os.dup2(os.open(os.devnull, os.O_WRONLY), target.fileno())
                    self.reader_gone = True
                    self.over.set()
                    return
        except Exception as error:  # of many kinds; whether the machine is lost, `wait` and `watch` say
            self.torn = first_line(error)

    def wait(self) -> None:
        """Waits for the program's end."""
        try:
            self.status = self.process.wait()
        except Exception as error:
            self.give_up(first_line(error))
        self.over.set()

    def watch(self) -> None:
        """Asks whether the machine is still there: what waits for a lost one may wait for ever."""
        told = False
        while not self.over.wait(self.pace.watch):
            try:
                ended = self.machine.poll()
            except Exception as error:
                if not told:
                    told = True
                    say(
                        f"Modal doesn't answer ({first_line(error)}); the program may still run, so this goes on trying"
                    )
                continue
            self.heard, told = time.monotonic(), False
            if ended is not None:  # the program's own end may be on its way
                if not self.over.wait(self.pace.watch):
                    self.give_up("the machine has ended")

    def give_up(self, why: str) -> None:
        """The machine is lost."""
        self.lost = self.lost or why
        self.over.set()

    def bring_regularly(self) -> None:
        """Brings files while the program runs, so that a lost machine costs the last seconds only."""
        while not self.over.wait(self.pace.files):
            try:
                self.bring("live")
            except Exception as error:  # the next round, or the end, brings them
                if not self.over.is_set():
                    say(f"files couldn't be brought back just now ({first_line(error)}); trying again")

    def bring(self, when: str) -> None:
        """One pack; it counts once all of it has arrived."""
        with self.packing:
            process = self.guest("pack", when, str(self.arrived))
            complaint: list[bytes] = []
            reader = threading.Thread(target=lambda: complaint.extend(process.stderr), daemon=True)
            reader.start()
            failed_before = dict(self.back.failed)
            number = self.back.take(process.stdout)
            code = process.wait()
            reader.join(self.pace.grace)
            if code:
                raise tarfile.TarError(b"".join(complaint).decode(errors="replace").strip().rpartition("\n")[2])
            if number and self.back.failed == failed_before:  # what couldn't be written is sent again
                self.arrived += 1

    # --- the main thread ---------------------------------------------------------------------------------------------

    def follow(self) -> int:
        """Passes everything on until the program ends, the machine is lost, or the user has had enough."""
        pumps = [
            started(lambda: self.pump(self.process.stdout, sys.stdout.buffer)),
            started(lambda: self.pump(self.process.stderr, sys.stderr.buffer)),
        ]
        started(self.wait)
        started(self.watch)
        started(self.bring_regularly)
        with self.interrupts.held():
            while not self.over.wait(0.1) and not self.interrupts.count:
                if (quiet := time.monotonic() - self.heard) > self.pace.silence:
                    self.give_up(f"no answer from Modal for {duration(quiet)}")
            if self.interrupts.count or self.reader_gone:
                return self.stopped(pumps)
            for thread in pumps:
                thread.join(self.pace.grace if self.lost is None else 1)
            if self.status is None:
                return self.machine_lost()
            if self.torn is not None:
                say(f"some of the program's output may be missing ({self.torn})")
            self.say_signal()
            complete = self.last_files()
            return self.status if complete or self.status else FILES_LOST

    def stopped(self, pumps: list[threading.Thread]) -> int:
        """Ctrl-C: the program gets it too, and its files come back; a second Ctrl-C ends the machine at once."""
        if not self.reader_gone:
            say("stopping the program; once more ends the machine at once, with what it hasn't sent back")
        ended = self.until_ended("INT", self.pace.grace) or self.until_ended("KILL", self.pace.grace)
        if ended and self.interrupts.count < 2:
            for thread in pumps:
                thread.join(1)
            self.last_files()
        return INTERRUPTED if self.interrupts.count else 1

    def until_ended(self, name: str, limit: float) -> bool:
        """Sends the program a signal and waits for its end, but not past a second Ctrl-C."""
        if self.interrupts.count > 1:
            return False
        started(lambda: self.attempt(lambda: self.guest("stop", name).wait()))
        until = time.monotonic() + limit
        while time.monotonic() < until and self.interrupts.count < 2:
            if self.status is not None or self.lost is not None:
                return self.status is not None
            time.sleep(0.05)
        return False

    def attempt(self, action: Callable[[], object]) -> bool:
        """Does what may fail because the machine is gone, and says so then."""
        try:
            action()
        except Exception as error:
            say(f"the machine doesn't answer ({first_line(error)})")
            return False
        return True

    def last_files(self) -> bool:
        """The files that are left; false if some didn't come."""
        done = threading.Event()
        worked: list[bool] = []

        def bring() -> None:
            worked.append(self.attempt(lambda: self.bring("end")))
            done.set()

        before = self.interrupts.count
        started(bring)
        with Waiting("for the program's files"):
            while not done.wait(0.1):
                if self.interrupts.count > before:
                    return False
        if self.back.names:
            say(f"{self.names_back()}, {size(self.back.size)}")
        for name, why in self.back.failed.items():
            say(f"`{name}` couldn't be written here: {why}")
        return worked == [True] and not self.back.failed

    def machine_lost(self) -> int:
        """What is known of a machine that is gone."""
        say(f"the machine was lost ({self.lost}); what it sent back until then is here")
        say(self.names_back())
        say("the same command starts anew, from the last checkpoint if the program loads it")
        return TRY_AGAIN

    def names_back(self) -> str:
        """The files that came back, the latest first."""
        names = [*reversed(self.back.names)]
        shown = ", ".join(f"`{name}`" for name in names[:5]) + (", …" if len(names) > 5 else "")
        return f"{counted(len(names), 'file')} back" + (f": {shown}" if names else "")

    def say_signal(self) -> None:
        """A program that is killed can't say so itself."""
        if self.status == KILLED:
            say("the program was killed (SIGKILL), most often because the machine's memory was full")
        elif self.status == OUT_OF_BOUNDS:
            say("the program crashed (SIGSEGV)")


def started(action: Callable[[], object]) -> threading.Thread:
    """A thread that runs an action, and doesn't keep the process from ending."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread
