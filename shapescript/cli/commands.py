"""What each command does: takes its parsed words, prints, gives the exit status."""

from __future__ import annotations

import argparse
import gc
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from shapescript import __version__
from shapescript.cli.program_arguments import Help, program_arguments
from shapescript.cli.program_files import sources
from shapescript.cli.rented import refuse_without_modal, run_rented
from shapescript.cli.usage import UsageError
from shapescript.diagnostics.formats import show
from shapescript.diagnostics.render import wants_colour
from shapescript.session import OverrideError, Session, open_session
from shapescript.source import Source

if TYPE_CHECKING:
    from shapescript.devices.workers.launching import ForkServer

CPP_MODULES = ["_core", "_executor", "_transport", "_cuda"]


def session_of(path: str, arguments: argparse.Namespace) -> Session:
    """The session of a file with the command line's overrides."""
    session = open_session(path, arguments.devices, dims_of(arguments.dim), getattr(arguments, "seed", 0))
    try:
        _ = session.typed  # raises where an override doesn't fit
    except OverrideError as error:
        raise UsageError(str(error)) from error
    return session


def session_of_text(source: Source, arguments: argparse.Namespace) -> Session:
    """The session of a text from the standard input; what it imports is looked for in the folder."""
    session = Session(Path(source.name), source.name, arguments.devices, dims_of(arguments.dim))
    session.source = source
    try:
        _ = session.typed
    except OverrideError as error:
        raise UsageError(str(error)) from error
    return session


def dims_of(words: list[str]) -> dict[str, int]:
    """The dims of `--dim D=128`."""
    dims: dict[str, int] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value.isdecimal():
            raise UsageError(f"`--dim {word}` should be a name and a whole number, as in `--dim D=128`")
        dims[name] = int(value)
    return dims


def check(arguments: argparse.Namespace) -> int:
    """Checks each file; the status is 1 if one has errors."""
    if arguments.unsafe_fixes and not (arguments.fix or arguments.diff):
        raise UsageError("`--unsafe-fixes` goes with `--fix`, which applies them, or `--diff`, which shows them")
    texts = list(sources(arguments.files))
    if not texts:
        raise UsageError(f"there is no program (`.ss`) in `{arguments.files[0]}`")
    arguments.files = [source.name for source in texts]
    if arguments.fix or arguments.diff:
        from shapescript.cli.fixing import fix

        if "-" in arguments.files:
            raise UsageError("`--fix` and `--diff` take files, not the standard input")
        if fix(arguments):
            return 1
    sessions = [
        session_of(source.name, arguments) if source.name != "-" else session_of_text(source, arguments)
        for source in texts
    ]
    found = [diagnostic for session in sessions for diagnostic in session.diagnostics]
    sys.stdout.write(show(found, arguments.format, wants_colour(sys.stdout, arguments.color)))
    if not found and arguments.format == "text":
        few = len(arguments.files) <= 3
        print(f"{', '.join(arguments.files) if few else f'{len(arguments.files)} programs'}: no errors")
    return 1 if any(session.errors for session in sessions) else 0


def run(arguments: argparse.Namespace) -> int:
    """Checks a program and calls its `main`; a `.py` is run as Python would."""
    if arguments.modal is not None:
        return run_rented(arguments, None if arguments.file.endswith(".py") else session_of(arguments.file, arguments))
    refuse_without_modal(arguments)
    if arguments.file.endswith(".py"):
        return run_python(arguments)
    session = session_of(arguments.file, arguments)
    if session.diagnostics:
        sys.stderr.write(show(session.diagnostics, arguments.format, wants_colour(sys.stderr, arguments.color)))
    if session.errors:
        return 1
    main = session.typed.functions.get("main")
    if main is None:
        if arguments.arguments:
            raise UsageError(f"`{arguments.file}` has no `main`, so nothing takes `{arguments.arguments[0]}`")
        print(f"{arguments.file}: no errors; it has no `main` to run", file=sys.stderr)
        return 0
    try:
        values = program_arguments(main, arguments.arguments, arguments.file)
    except Help as help:
        print(help)
        return 0
    if arguments.profile:
        return run_profiled(session, values, count=arguments.plan)
    return run_main(session, values, count=arguments.plan)


def run_profiled(session: Session, values: dict[str, object], count: bool) -> int:
    """Runs `main` and says where the time of its device functions went; a trace lies beside where it was called."""
    from shapescript.devices.profile import recording

    with recording() as profile:
        try:
            return run_main(session, values, count)
        finally:  # Ctrl-C is how a long training is looked at
            sys.stdout.flush()
            sys.stderr.write(profile.table())
            path = Path(session.path).with_suffix(".trace.json").name
            profile.write_trace(Path(path))
            print(f"{path}: a trace of each run, for https://ui.perfetto.dev", file=sys.stderr)


def run_main(session: Session, values: dict[str, object], count: bool = False) -> int:
    """Runs a checked program's `main`; `count`: says afterwards what was specialised."""
    launcher = begun_workers(session)
    try:
        with modules_kept():
            from shapescript.controller.errors import Error
            from shapescript.controller.run import run_program
        try:
            specialised = run_program(
                session.typed, session.placed.kinds, values, session.seed, session.path, launcher=launcher
            )
        except Error as error:
            sys.stdout.flush()
            print(f"error: {error}", file=sys.stderr)
            return 1
    finally:
        gc.unfreeze()
        if launcher is not None:
            launcher.end()
    if count:
        sys.stdout.flush()
        for name, often in specialised.items():
            times = "once" if often.times == 1 else f"{often.times} times"
            print(f"fn {name}: specialised {times}, {often.seconds:.2f} s", file=sys.stderr)
    return 0


@contextmanager
def modules_kept() -> Iterator[None]:
    """For imports: what they make stays, so that nothing of it is looked through for garbage, neither now nor later.

    Ctrl-C ends them. Where it comes while torch's part in C++ imports numpy, torch takes it for numpy's failure.
    """
    came = False

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.default_int_handler(number, frame)

    at_first = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT)
    if at_first is signal.default_int_handler:
        signal.signal(signal.SIGINT, heard)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if at_first is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


def begun_workers(session: Session) -> ForkServer | None:
    """What several devices' workers come from, begun before this process loads torch, so that both do side by side."""
    devices = session.typed.devices
    if devices is None or devices.count == 1:
        return None
    from shapescript.devices.workers.launching import begun_ahead

    return begun_ahead(devices.count, Path(session.path).resolve().parent)


def run_python(arguments: argparse.Namespace) -> int:
    """Runs a Python file with its own arguments, as `python FILE ARGS` does."""
    import runpy

    if arguments.devices is not None or arguments.dim:
        raise UsageError("`--devices` and `--dim` are for a `.ss`; in Python, `shapescript.load` takes both")
    if not Path(arguments.file).is_file():
        raise UsageError(f"there is no file `{arguments.file}`")
    sys.argv = [arguments.file, *arguments.arguments]
    sys.path.insert(0, str(Path(arguments.file).resolve().parent))
    runpy.run_path(arguments.file, run_name="__main__")
    return 0


def stubs(arguments: argparse.Namespace) -> int:
    """Writes the type stub of each program beside it; the status is 1 if one has errors."""
    from shapescript.python.stubs import write_stub

    status = 0
    for path in arguments.files:
        session = session_of(path, arguments)
        if session.errors:
            sys.stderr.write(show(session.diagnostics, arguments.format, wants_colour(sys.stderr, arguments.color)))
            status = 1
            continue
        print(write_stub(session))
    return status


def doctor(arguments: argparse.Namespace) -> int:
    """Says what is installed and found."""
    print(f"shapescript  {__version__}")
    print(f"python       {platform.python_version()}, {platform.system()} {platform.machine()}")
    for package in ("torch", "numpy", "ply", "safetensors", "tensorboard", "rich", "modal"):
        print(f"{package:<12} {installed(package)}")
    built = [name for name in CPP_MODULES if util.find_spec(f"shapescript.{name}") is not None]
    told = [f"{name} {'built' if name in built else 'not built'}" for name in CPP_MODULES]
    print(f"C++ modules  {', '.join(told)}")
    if not set(CPP_MODULES[:3]) <= set(built):
        print("             the results are the same without them, slower; SHAPESCRIPT_NATIVE=1 at a build says why")
    print(f"executor     {executors_here()}")
    tables = util.find_spec("shapescript.syntax._tables") is not None
    print(
        f"parser       {'tables built' if tables else 'tables made at each start: install the package to build them'}"
    )
    print(f"devices      {devices_here()}")
    return 0


def installed(package: str) -> str:
    """A package's version, or that it isn't there."""
    from importlib import metadata  # slow to load, and a check doesn't need it

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def executors_here() -> str:
    """What runs the tensor operations of each kind of device that is here."""
    if util.find_spec("torch") is None:
        return "none: torch isn't installed"
    import torch

    from shapescript.devices.executors import VARIABLE, UnknownExecutor, executor_name

    kinds = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    try:
        found = ", ".join(f"{executor_name(torch.device(kind))} on {kind}" for kind in kinds)
    except UnknownExecutor as error:
        return str(error)
    return f"{found} (by {VARIABLE})" if os.environ.get(VARIABLE) else found


def devices_here() -> str:
    """The devices that torch finds."""
    if util.find_spec("torch") is None:
        return "none: torch isn't installed"
    import torch

    found = [f"cpu ({torch.get_num_threads()} threads)"]
    if torch.backends.mps.is_available():
        found.append("mps")
    found += [f"cuda[{number}] {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]
    return ", ".join(found)
