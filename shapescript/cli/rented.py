"""`run --modal`: the options of a run on a rented GPU, and what is settled here before anything is rented.

Takes the parsed words of `run`; checks the program and `main`'s arguments as a run here would, and hands the rest to
`rent`. Its errors become the command line's.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shapescript.cli.program_arguments import Help, program_arguments
from shapescript.cli.usage import UsageError
from shapescript.diagnostics.formats import show
from shapescript.diagnostics.render import wants_colour

if TYPE_CHECKING:
    from shapescript.rent.ask import Request
    from shapescript.session import Session

ONLY_WITH_MODAL = ("timeout", "env", "secret", "dry_run")


def rent_options(part: argparse.ArgumentParser) -> None:
    """The options of a run on a rented machine."""
    options = part.add_argument_group("on a rented GPU (docs/modal.md)")
    options.add_argument(
        "--modal", type=gpu_word, metavar="GPU[:N]", help="run on N GPUs of Modal's: T4, A10, L40S, A100, H100:3, …"
    )
    options.add_argument("--timeout", metavar="TIME", help="end the program after 90s, 10m, 2h (1h)")
    options.add_argument("--env", action="append", metavar="KEY[=VALUE]", help="pass a variable on; may be repeated")
    options.add_argument("--secret", action="append", metavar="NAME", help="pass a secret of Modal's; may be repeated")
    options.add_argument("--dry-run", action="store_true", help="check and say what would be done, rent nothing")


def gpu_word(word: str) -> str:
    """The word after `--modal`; a program there is a GPU forgotten."""
    if word.endswith((".ss", ".py")):
        raise argparse.ArgumentTypeError(f"a GPU stands before the program: `--modal T4 {word}`")
    return word


def refuse_without_modal(arguments: argparse.Namespace) -> None:
    """An option for a rented machine, where none is rented."""
    for name in ONLY_WITH_MODAL:
        if getattr(arguments, name):
            option = name.replace("_", "-")
            raise UsageError(f"`--{option}` is for a rented GPU, as in `--modal T4 --{option} …`")


def run_rented(arguments: argparse.Namespace, session: Session | None) -> int:
    """Runs a program on a rented machine. `session`: of a `.ss`, with the command line's overrides."""
    from shapescript.rent.check import check_program
    from shapescript.rent.errors import RentError
    from shapescript.rent.run import rent

    path = Path(arguments.file)
    try:
        request = request_of(arguments)
        if session is None and (arguments.devices is not None or arguments.dim):
            raise UsageError("`--devices` and `--dim` are for a `.ss`; in Python, `shapescript.load` takes both")
        if not path.is_file():
            raise UsageError(f"there is no file `{arguments.file}`")
        if session is not None and not session.errors and not takes(session, arguments):
            return 0
        checked = check_program(path.resolve(), arguments.file, request.machine, session)
        if checked.diagnostics:
            colour = wants_colour(sys.stderr, arguments.color)
            sys.stderr.write(show(checked.diagnostics, arguments.format, colour))
        for problem in checked.problems:
            print(f"error: {problem}", file=sys.stderr)
        if checked.bad:
            return 1
        for note in checked.notes:
            print(f"warning: {note}", file=sys.stderr)
        return rent(request, checked.packages)
    except RentError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status


def takes(session: Session, arguments: argparse.Namespace) -> bool:
    """Whether the program has a `main` to run, with arguments that it takes; says so if not, or what it takes."""
    main = session.typed.functions.get("main")
    if main is None:
        if arguments.arguments:
            raise UsageError(f"`{arguments.file}` has no `main`, so nothing takes `{arguments.arguments[0]}`")
        print(f"{arguments.file}: no errors; it has no `main` to run", file=sys.stderr)
        return False
    try:
        program_arguments(main, arguments.arguments, arguments.file)
    except Help as help:
        print(help)
        return False
    return True


def request_of(arguments: argparse.Namespace) -> Request:
    """What is asked for, in values."""
    from shapescript.rent import ask

    return ask.Request(
        machine=ask.machine(arguments.modal),
        program=Path(arguments.file).resolve(),
        arguments=tuple(arguments.arguments),
        options=options_there(arguments),
        timeout=ask.seconds(arguments.timeout) if arguments.timeout is not None else ask.Request.timeout,
        variables=ask.variables(arguments.env or (), os.environ),
        secrets=ask.secret_names(arguments.secret or ()),
        dry_run=arguments.dry_run,
    )


def options_there(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The options of `run` that the program is started with there."""
    words: list[str] = []
    if wants_colour(sys.stderr, arguments.color):
        words += ["--color", "always"]
    if arguments.format != "text":
        words += ["--format", arguments.format]
    if arguments.devices is not None:
        words += ["--devices", arguments.devices]
    for dim in arguments.dim:
        words += ["--dim", dim]
    if arguments.seed:
        words += ["--seed", str(arguments.seed)]
    if arguments.plan:
        words.append("--plan")
    return tuple(words)
