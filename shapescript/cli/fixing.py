"""`shapescript check --fix`: applies what would mend a program's errors, or shows it.

Takes the files of a command line; a file is checked again after each round, as one mistake can hide another, until
nothing more can be done. Only safe fixes are applied unless `--unsafe-fixes` asks for the others. A file that changed
is written whole. Gives what was applied; the check that follows says what is left.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shapescript.cli.formatting import difference, write
from shapescript.diagnostics.diagnostic import Fix
from shapescript.diagnostics.fixes import apply
from shapescript.session import Session
from shapescript.source import Source, read_source

MOST_ROUNDS = 50


def fix(arguments: argparse.Namespace) -> bool:
    """Mends the files of the command line; whether a file would change that wasn't written."""
    would = False
    for name in arguments.files:
        before = read_source(name)
        text, applied = fixed(Path(name), before, arguments.unsafe_fixes)
        if text == before.text:
            continue
        if arguments.diff:
            sys.stdout.write(difference(before, text, "fixed"))
            would = True
            continue
        write(name, text)
        for each in applied:
            print(f"{name}: {each.title}", file=sys.stderr)
    return would


def fixed(path: Path, source: Source, unsafe: bool) -> tuple[str, list[Fix]]:
    """A program's text after its fixes, and these in the order in which they were applied."""
    applied: list[Fix] = []
    for _ in range(MOST_ROUNDS):
        session = Session(path, source.name)
        session.source = source
        text, taken = apply(source, session.diagnostics, unsafe)
        if not taken or text == source.text:
            break
        applied += taken
        source = Source(source.name, text)
    return source.text, applied
