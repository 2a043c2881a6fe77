"""`shapescript explain CODE`: the page of an error, with the checker's own words about the page's wrong program.

Takes a page (diagnostics/explain.py); gives its text, in colours where asked. An error that is met only while a
program runs has no words of the checker's, and the page stays as it is: nothing is run here.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pygments import highlight
from pygments.formatters import TerminalFormatter

from shapescript.cli.usage import UsageError
from shapescript.colours import ShapeScriptLexer
from shapescript.diagnostics.explain import FENCE, Explanation, NoExplanation, Program
from shapescript.diagnostics.explain import explain as explanation_of
from shapescript.diagnostics.render import Paint, render, wants_colour
from shapescript.session import Session

INDENT = "    "
ESCAPE = re.compile(r"\x1b\[[\d;]*m")


def explain(arguments: argparse.Namespace) -> int:
    """Prints the page of a code."""
    try:
        page = explanation_of(arguments.code)
    except NoExplanation as error:
        raise UsageError(str(error)) from error
    sys.stdout.write(rendered(page, wants_colour(sys.stdout, arguments.color)))
    return 0


def words_about(program: Program, colour: bool = False) -> str:
    """What the checker says about a page's program; empty where it says nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in {**program.files, "program.ss": program.text}.items():
            (folder / file).write_text(text, encoding="utf-8")
        diagnostics = Session(folder / "program.ss", "program.ss").diagnostics
        return "\n".join(render(diagnostic, colour) for diagnostic in diagnostics)


def rendered(page: Explanation, colour: bool = False) -> str:
    """The page for a terminal: programs indented, and after the first what the checker says about it."""
    return "\n".join(part.rstrip("\n") + "\n" for part in parts(page, Paint(colour)) if part.strip())


def parts(page: Explanation, paint: Paint) -> Iterator[str]:
    """The paragraphs and the blocks of a page, in order."""
    end = programs = 0
    for fence in FENCE.finditer(page.text):
        between = prose(page.text[end : fence.start()], paint)
        end = fence.end()
        file, text = fence.groups()
        yield between or ("Mended:" if programs == 1 and not file else "")
        code = highlight(text, ShapeScriptLexer(), TerminalFormatter()) if paint.colour else text
        yield (f"{file}:\n\n" if file else "") + indented(code)
        if file:
            continue
        programs += 1
        words = words_about(page.programs[0], paint.colour) if programs == 1 else ""
        if words:
            yield "The checker says:"
            yield indented(words)
    yield prose(page.text[end:], paint)


def indented(text: str) -> str:
    """A block's lines, moved to the right; empty ones stay empty."""
    return "".join(INDENT + line if ESCAPE.sub("", line).strip() else line for line in text.splitlines(keepends=True))


def prose(text: str, paint: Paint) -> str:
    """Paragraphs: in colours a heading and code stand out, without they keep their marks."""
    if not paint.colour:
        return text.strip("\n")
    text = re.sub(r"^#+ (.*)$", lambda found: paint("bold", found[1]), text.strip("\n"), flags=re.M)
    return re.sub(r"`([^`\n]+)`", lambda found: paint("help", found[1]), text)
