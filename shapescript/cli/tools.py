"""The commands beside those that check and run: their words, and where each is done.

`add_tools` is called by `main.parser`; a command's module is imported when it is called.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

TOOLS = ("fmt", "new", "watch", "lsp", "completion")
SUMMARY = """\
  fmt FILE...                    write programs in the one style
  new NAME                       a project that trains at once
  watch [RUN]                    the curves of a run, while it goes on
  lsp                            the language server, which editors start
  completion SHELL               completes commands in bash, zsh or fish
"""
Command = Callable[[argparse.Namespace], int]


class Add(Protocol):
    """What adds a command to the parser: its name, what it does, a description and an example."""

    def __call__(self, name: str, command: Command, doc: str, example: str) -> argparse.ArgumentParser:
        """The parser of the command's words."""


def later(module: str, name: str) -> Command:
    """A command that is imported when it is called."""

    def command(arguments: argparse.Namespace) -> int:
        function: Command = getattr(import_module(f"shapescript.cli.{module}"), name)
        return function(arguments)

    return command


def add_tools(add: Add) -> None:
    """Adds the commands of this file."""
    part = add(
        "fmt",
        later("formatting", "fmt"),
        "Writes programs in the one style. A folder stands for every `.ss` below it, `-` for the standard input.",
        "shapescript fmt --check .",
    )
    part.add_argument("--check", action="store_true", help="change nothing; status 1 if a file would change")
    part.add_argument("--diff", action="store_true", help="change nothing; show what would")
    part.add_argument("files", nargs="+", metavar="FILE")
    part = add(
        "lsp", later("language_server", "lsp"), "The language server, which an editor starts.", "shapescript lsp"
    )
    part.add_argument("--stdio", action="store_true", help="the standard input and output, as always")
    part = add("new", later("new_project", "new"), "Makes a project that trains at once.", "shapescript new moons")
    part.add_argument("name", metavar="NAME")
    part = add(
        "watch",
        later("watching", "watch"),
        "Shows the curves of a run while it goes on; RUN is its folder or its name below `runs`, the newest if none is "
        "given.",
        "shapescript watch --png loss.png",
    )
    part.add_argument("--once", action="store_true", help="show what is there and end")
    part.add_argument("--png", metavar="FILE", help="write the curves as a picture when it ends (needs matplotlib)")
    part.add_argument("run", nargs="?", metavar="RUN")
    part = add(
        "completion",
        later("completion", "completion"),
        "Prints a script by which a shell completes commands, options and files.",
        'eval "$(shapescript completion bash)"',
    )
    part.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")
