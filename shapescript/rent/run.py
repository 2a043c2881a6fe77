"""A run on a rented machine, as a whole: prepare, say what it can cost, rent, follow, end.

Takes a request whose program was checked; gives the exit status. Whatever happens, the machine is ended before this
returns: Modal ends an app's machines when the app ends and when its client is silent, and the machine ends itself when
nobody has been heard of for ten minutes.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from shapescript import __version__
from shapescript.rent.ask import Request, duration
from shapescript.rent.errors import INTERRUPTED, TRY_AGAIN, RentError
from shapescript.rent.files_back import FilesBack
from shapescript.rent.follow import GUEST_COMMAND, Following, Pace, started
from shapescript.rent.image import JOB, UPLOADED, WORK, make_image
from shapescript.rent.interrupts import Interrupts
from shapescript.rent.prices import AS_OF, cost, dollars
from shapescript.rent.recipe import Recipe, recipe
from shapescript.rent.say import Waiting, say
from shapescript.rent.service import Service, explained, first_line, open_service
from shapescript.rent.upload import IGNORE_FILE, LARGE, Upload, counted, find_files, size

TO_BRING_FILES = 600
"""Seconds that a machine may last beyond `--timeout`, to start and to send files back."""
UNHEARD = 600
"""Seconds after which a machine ends itself when nobody asks for its files any more."""


@dataclass
class Rental:
    """One run; `machine` is there once Modal has been asked for it."""

    request: Request
    service: Service
    recipe: Recipe
    upload: Upload
    back: FilesBack
    pace: Pace
    interrupts: Interrupts = field(default_factory=Interrupts)
    machine: Any = None
    began: float | None = None
    doing: str = "before anything was rented"
    last_words: str = ""

    def run(self) -> int:
        """Rents, runs, ends."""
        app = self.service.modal.App("shapescript-run")
        try:
            with self.interrupts, tempfile.TemporaryDirectory(prefix="shapescript-run-") as made:
                return self.in_app(app, Path(made))
        except KeyboardInterrupt:
            say("given up; nothing is rented any more" if self.machine is None else "stopped")
            return INTERRUPTED
        except Exception as error:
            why = explained(error, self.service, self.request, self.doing)
            if why is None:
                raise
            raise why from None

    def in_app(self, app: Any, made: Path) -> int:
        """The life of an app: when it ends, Modal ends what it started."""
        status, failure = INTERRUPTED, None
        with contextlib.ExitStack() as life:
            with Waiting("for Modal to answer"):
                secrets = self.secrets()
                life.enter_context(app.run())
            self.last_words = f"`modal app stop {app.app_id}` makes sure that nothing runs any more"
            self.interrupts.last_words = f"left without waiting for Modal's answer; {self.last_words}"
            try:
                status = self.on_machine(app, self.image(app, made), secrets)
            except KeyboardInterrupt:  # the app's end would keep it
                say("given up")
            except Exception as error:
                failure = error
            with self.interrupts.held():
                if not self.end():
                    self.leave(status, failure, made)
            if failure is not None:
                raise failure
        return status

    def leave(self, status: int, failure: Exception | None, made: Path) -> NoReturn:
        """Ends the process where Modal doesn't answer: the app's end would wait for an answer for ever."""
        if failure is not None:
            why = explained(failure, self.service, self.request, self.doing)
            say(f"error: {why if why is not None else first_line(failure)}")
            status = why.status if why is not None else TRY_AGAIN
        say(f"it ends when Modal, or the machine itself, notices that nobody is there; {self.last_words}")
        shutil.rmtree(made, ignore_errors=True)
        sys.stdout.flush()
        os._exit(status)

    def secrets(self) -> list[Any]:
        """The variables, and the secrets that Modal keeps, which it is asked for first: a wrong name costs nothing."""
        modal, found = self.service.modal, []
        for name in self.request.secrets:
            secret = modal.Secret.from_name(name)
            try:
                secret.hydrate()
            except self.service.errors.NotFoundError:
                raise RentError(
                    f"Modal keeps no secret `{name}`; `modal secret list` shows those it keeps, "
                    f"`modal secret create {name} KEY=value` makes it"
                ) from None
            found.append(secret)
        if self.request.variables:
            found.append(modal.Secret.from_dict(dict(self.request.variables)))
        return found

    def image(self, app: Any, made: Path) -> Any:
        """Uploads what is new and builds the image, if it isn't built already; the log goes to the standard error."""
        image = make_image(self.service.modal, self.recipe, self.upload, job(self.request, self.upload), made)
        self.doing = "uploading the program and building its image"
        since = time.monotonic()
        with Waiting("for the upload and the image, which takes minutes the first time"):
            with contextlib.redirect_stdout(sys.stderr), self.service.modal.enable_output():
                image.build(app)
        say(f"program uploaded and image ready after {duration(time.monotonic() - since)}")
        return image

    def on_machine(self, app: Any, image: Any, secrets: list[Any]) -> int:
        """Rents the machine and runs the program on it."""
        request = self.request
        self.doing = f"waiting for {request.machine}"
        since = time.monotonic()
        self.machine = self.service.modal.Sandbox.create(
            *GUEST_COMMAND,
            "keep",
            WORK,
            str(UNHEARD),
            app=app,
            image=image,
            gpu=str(request.machine),
            timeout=request.timeout + TO_BRING_FILES,
            secrets=secrets,
        )
        with Waiting(f"for {request.machine}"):
            process = self.machine.exec(*GUEST_COMMAND, "run", WORK, UPLOADED, JOB, text=False)
        self.began = time.monotonic()
        self.doing = "running the program"
        say(f"{request.machine} ready after {duration(self.began - since)}, the program starts")
        return Following(request, self.machine, process, self.back, self.interrupts, self.pace).follow()

    def end(self) -> bool:
        """Ends the machine and says what it cost; false if Modal doesn't confirm it within some seconds."""
        if self.machine is None:
            return True
        failed: list[str] = []

        def terminate() -> None:
            try:
                self.machine.terminate()
            except self.service.errors.NotFoundError:  # it is gone already
                return
            except Exception as error:
                failed.append(first_line(error))

        thread = started(terminate)
        thread.join(self.pace.grace)
        if thread.is_alive() or failed:
            say(f"Modal hasn't confirmed that the machine is ended ({failed[0] if failed else 'no answer'})")
            return False
        lasted = time.monotonic() - self.began if self.began is not None else 0.0
        spent = cost(self.request.machine.gpu, self.request.machine.count, lasted)
        say(f"machine ended after {duration(lasted)}, about {dollars(spent)}")
        return True


def job(request: Request, upload: Upload) -> dict[str, object]:
    """What the guest is to do."""
    words = ["python", "-P", "-m", "shapescript", "run", *request.options, request.program.name, *request.arguments]
    return {
        "command": words,
        "folders": upload.empty,
        "timeout": request.timeout,
        "timeout_words": f"the program ran for {duration(request.timeout)}, which is its --timeout, and is stopped",
    }


def rent(request: Request, packages: dict[str, str], pace: Pace | None = None) -> int:
    """Runs a program on a rented machine; the exit status.

    Raises:
        RentError: it can't be, or Modal failed; nothing is rented any more.
    """
    upload = find_files(request.program.parent)
    what = recipe(request.program.parent, packages)
    if request.dry_run:
        for line in would_do(request, upload, what):
            say(line)
    service = open_service()
    for line in warnings(upload):
        say(line)
    say(estimate(request))
    if request.dry_run:
        say("a dry run: nothing was uploaded, nothing rented")
        return 0
    return Rental(request, service, what, upload, FilesBack(upload.folder, upload.files), pace or Pace()).run()


def estimate(request: Request) -> str:
    """The most that a run can cost."""
    machine, longest = request.machine, request.timeout + TO_BRING_FILES
    most = cost(machine.gpu, machine.count, longest)
    return (
        f"{machine} costs at most about ${math.ceil(most * 100) / 100:.2f} for {duration(longest)} "
        f"(--timeout and {duration(TO_BRING_FILES)} to start and send files), an estimate by GPU prices of {AS_OF}; "
        "CPUs and memory are billed besides"
    )


def warnings(upload: Upload) -> Iterator[str]:
    """What may take long."""
    if upload.size > LARGE:
        largest = ", ".join(f"{name} {size(number)}" for name, number in upload.largest())
        yield (
            f"warning: the program's folder holds {size(upload.size)} to upload ({largest}); "
            f"{IGNORE_FILE} there, in the form of a .gitignore, leaves files out"
        )


def would_do(request: Request, upload: Upload, what: Recipe) -> Iterator[str]:
    """A run in words; of the variables the names alone."""
    yield f"folder: {upload.folder}, {counted(len(upload.files), 'file')}, {size(upload.size)}"
    if upload.left_out:
        shown = ", ".join(upload.left_out[:8]) + (", …" if len(upload.left_out) > 8 else "")
        yield f"left out: {shown}"
    yield f"machine: {request.machine}, Python {what.python}, torch {what.torch}, ShapeScript {__version__}, as here"
    if what.requirements is not None:
        yield "packages: those of requirements.txt"
    elif what.packages:
        yield f"packages: {', '.join(what.packages)}"
    if request.variables:
        yield f"variables: {', '.join(sorted(request.variables))}"
    if request.secrets:
        yield f"secrets: {', '.join(request.secrets)}"
    command = job(request, upload)["command"]
    assert isinstance(command, list)
    yield f"command: {' '.join(map(str, command))}"
