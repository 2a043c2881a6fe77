"""`shapescript fmt`: writes programs in the one style, or says which aren't.

Takes files, folders (every `.ss` below) or `-` for the standard input, whose text comes out on the standard output.
A file with errors is left as it is, with its errors, and the others are still formatted. The status is 1 where
`--check` or `--diff` finds a file that would change, or where a text has errors.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from pathlib import Path

from shapescript.cli.program_files import sources
from shapescript.diagnostics.formats import show
from shapescript.diagnostics.render import wants_colour
from shapescript.source import Source, SourceError
from shapescript.syntax.formatter import CannotFormat, format_source


def fmt(arguments: argparse.Namespace) -> int:
    """Formats files, or checks that they are."""
    changed: list[str] = []
    failed = 0
    files = list(sources(arguments.files))
    for source in files:
        try:
            text = format_source(source)
        except CannotFormat as error:
            failed += 1
            refuse(error, source, arguments)
            continue
        if source.name == "-" and not (arguments.check or arguments.diff):
            sys.stdout.write(text)
            sys.stdout.flush()
            continue
        if text == source.text:
            continue
        changed.append(source.name)
        if arguments.diff:
            sys.stdout.write(difference(source, text))
        elif not arguments.check:
            write(source.name, text)
    say(changed, failed, len(files), arguments)
    return 1 if failed or changed and (arguments.check or arguments.diff) else 0


def write(name: str, text: str) -> None:
    """Puts the new text in the file's place, whole or not at all."""
    path = Path(name).resolve()  # a link stays one
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        mode = path.stat().st_mode
        new.write_bytes(text.encode("utf-8"))
        new.chmod(mode)
        os.replace(new, path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise SourceError(f"`{name}` can't be written: {error.strerror or error}") from None


def refuse(error: CannotFormat, source: Source, arguments: argparse.Namespace) -> None:
    """Says why a text isn't formatted."""
    if error.diagnostics:
        sys.stderr.write(show(error.diagnostics, arguments.format, wants_colour(sys.stderr, arguments.color)))
    else:
        print(f"error: {error}", file=sys.stderr)


def difference(source: Source, text: str, what: str = "formatted") -> str:
    """The change, as `diff -u` shows it."""
    lines = difflib.unified_diff(
        source.text.splitlines(keepends=True),
        text.splitlines(keepends=True),
        source.name,
        f"{source.name} ({what})",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def say(changed: list[str], failed: int, count: int, arguments: argparse.Namespace) -> None:
    """What was done, in a line for each file that is concerned, and one for all."""
    would = arguments.check or arguments.diff
    if arguments.check and not arguments.diff:
        for name in changed:
            print(f"would change {name}", file=sys.stderr)
    if "-" in arguments.files and not would:
        return
    left = count - len(changed) - failed
    parts = [
        f"{files(len(changed))} {'would change' if would else 'changed'}" if changed else "",
        f"{files(left)} in the style already" if left or not count else "",
        f"{files(failed)} left alone, with errors" if failed else "",
    ]
    print(", ".join(part for part in parts if part), file=sys.stderr)


def files(count: int) -> str:
    """So many files, in words."""
    return "1 file" if count == 1 else f"{count} files"
