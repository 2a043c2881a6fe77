"""The commands beside those that check and run: their words, and where each is done.

`add_tools` is called by `main.parser`; a command's module is imported when it is called.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

TOOLS = ("fmt", "lsp")
SUMMARY = """\
  fmt FILE...                    write programs in the one style
  lsp                            the language server, which editors start
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
