"""From the words of a command line to a command's function, and from what it raises to an exit status."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence

from shapescript import __version__
from shapescript.cli.rented import rent_options
from shapescript.cli.tools import SUMMARY as TOOLS_SUMMARY
from shapescript.cli.tools import TOOLS, add_tools, later
from shapescript.cli.usage import UsageError
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.diagnostics.formats import FORMATS, show
from shapescript.diagnostics.render import wants_colour
from shapescript.diagnostics.suggest import nearest
from shapescript.source import SourceError

Command = Callable[[argparse.Namespace], int]

COMMANDS = ("check", "run", "plan", "stubs", "explain", "doctor", *TOOLS)
SUMMARY = f"""\
commands:
  check FILE...                  check programs, run nothing
  run [OPTIONS] FILE [ARGS]      check a program, then call its `main` with ARGS
  plan FILE [FUNCTION]           where each function runs, and why
  stubs FILE...                  write FILE.pyi, from which editors complete `import FILE`
  explain CODE                   what an error means, with a program that has it
{TOOLS_SUMMARY}\
  doctor                         versions, devices, and what the build has

examples:
  shapescript check train.ss
  shapescript run train.ss 3
  shapescript run --devices 'cpu[0 1 2]' --dim D=128 train.ss --epochs 3
  shapescript explain E0301

`shapescript COMMAND --help` says more. `shapescript FILE ARGS` is `shapescript run FILE ARGS`.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and gives its exit status."""
    try:
        return dispatch(joined_devices(list(sys.argv[1:] if argv is None else argv)))
    except SystemExit as stop:  # argparse ends so, after its own words
        return stop.code if isinstance(stop.code, int) else 2
    except (UsageError, SourceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # who read the output has gone; nothing may be flushed to it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    finally:
        if argv is None:  # the process ends: the memory goes with it, and needn't be looked through for cycles
            gc.freeze()


def joined_devices(words: list[str]) -> list[str]:
    """The words with those of `--devices cpu[0 1 2]`, up to the `]`, made one."""
    out: list[str] = []
    rest = iter(words)
    for word in rest:
        out.append(word)
        if word == "--devices":
            value = next(rest, None)
            if value is None:
                break
            out.append(value)
        if (word == "--devices" or word.startswith("--devices=")) and "[" in out[-1]:
            while "]" not in out[-1] and (more := next(rest, None)) is not None:
                out[-1] += " " + more
            if "]" not in out[-1]:
                raise UsageError(f"`[` is never closed in `{out[-1]}`: write `--devices 'cpu[0 1 2]'`")
    return out


def dispatch(words: list[str]) -> int:
    """Finds the command that the first word names; a file's name or an option of `run` means `run`."""
    if not words:
        sys.stdout.write(f"usage: shapescript COMMAND ...\n\n{SUMMARY}")
        return 2
    first = words[0]
    if first in ("-h", "--help", "help"):
        sys.stdout.write(f"usage: shapescript COMMAND ...\n\nShapeScript {__version__}\n\n{SUMMARY}")
        return 0
    if first == "--version":
        print(f"shapescript {__version__}")
        return 0
    if first not in COMMANDS:
        if first.endswith((".ss", ".py")) or first.startswith("--") or os.path.exists(first):
            words = ["run", *words]
        else:
            close = nearest(first, COMMANDS)
            raise UsageError(f"there is no command `{first}`" + (f"; did you mean `{close}`?" if close else ""))
    arguments, unknown = parser().parse_known_args(words)
    if unknown:
        close = nearest(unknown[0].partition("=")[0], command_options()[words[0]])
        hint = f"; did you mean `{close}`?" if close and unknown[0].startswith("-") else ""
        raise UsageError(f"`shapescript {words[0]}` doesn't take `{unknown[0]}`{hint}")
    command: Command = arguments.command
    try:
        return command(arguments)
    except ProgramError as error:
        return report_error(error, arguments)


def report_error(error: ProgramError, arguments: argparse.Namespace) -> int:
    """Says a mistake that was met while a program ran."""
    sys.stdout.flush()
    colour = wants_colour(sys.stderr, arguments.color)
    sys.stderr.write(show([error.diagnostic], arguments.format, colour))
    return 1


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    from shapescript.cli import commands

    top = argparse.ArgumentParser(prog="shapescript", add_help=False)
    parts = top.add_subparsers(required=True)

    def add(name: str, command: Command, doc: str, example: str) -> argparse.ArgumentParser:
        part = parts.add_parser(
            name,
            description=doc,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        part.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colours (auto)")
        part.add_argument("--format", choices=FORMATS, default="text", help="how errors are written (text)")
        part.set_defaults(command=command)
        return part

    part = add("check", commands.check, "Checks programs without running them.", "shapescript check train.ss")
    part.add_argument("--fix", action="store_true", help="first apply the fixes that are safe")
    part.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff, the others too")
    part.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    part.add_argument("files", nargs="+", metavar="FILE", help="a program, a folder of them, or - for the input")
    overrides(part)
    part = add(
        "run",
        commands.run,
        "Checks a program, then calls its `main` with ARGS, by position or as `--name value`.\n"
        "`shapescript run FILE --help` shows what `main` takes.",
        "shapescript run --devices 'cpu[0 1 2]' --seed 7 train.ss --epochs 3",
    )
    overrides(part)
    part.add_argument("--plan", action="store_true", help="say afterwards what was compiled, and how often")
    part.add_argument("--profile", action="store_true", help="say where time went, and write a trace of it")
    part.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of every random draw (0)")
    rent_options(part)
    part.add_argument("file", metavar="FILE")
    rest = part.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS")
    rest.required = False  # or argparse names it where the file is missing
    part = add(
        "plan", later("plan", "plan"), "Shows where each function runs, and why.", "shapescript plan train.ss step"
    )
    overrides(part)
    part.add_argument("--html", metavar="PAGE", help="write the plan as a page, with the values in colours")
    part.add_argument("--facts", action="store_true", help=argparse.SUPPRESS)  # for the language server
    part.add_argument("file", metavar="FILE")
    part.add_argument("function", nargs="?", metavar="FUNCTION")
    part = add("stubs", commands.stubs, "Writes a type stub, net.pyi, beside each net.ss.", "shapescript stubs net.ss")
    part.add_argument("files", nargs="+", metavar="FILE")
    overrides(part)
    part = add("explain", later("explaining", "explain"), "Explains an error's code.", "shapescript explain E1901")
    part.add_argument("code", metavar="CODE")
    add("doctor", commands.doctor, "Says the versions, the devices and what the build has.", "shapescript doctor")
    add_tools(add)
    return top


def command_options() -> dict[str, list[str]]:
    """The options of each command, for a shell that completes them."""
    [parts] = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return {
        name: sorted(word for action in part._actions for word in action.option_strings if word.startswith("--"))
        for name, part in parts.choices.items()
    }


def overrides(part: argparse.ArgumentParser) -> None:
    """The options that take the place of a program's own lines."""
    part.add_argument("--devices", metavar="SPEC", help="in the place of the `devices` line: 'cpu[0 1 2]'")
    part.add_argument(
        "--dim", action="append", default=[], metavar="NAME=N", help="in the place of a dim's value; may be repeated"
    )
