"""Diagnostics as text for people, with the lines of the source that they point at.

Takes `Diagnostic`s; gives text, with colours only if asked (`wants_colour` decides for a stream). What stands in the
source is shown as a terminal would place it: tabs widened, wide characters counted as two columns, combining ones as
none, and characters that would change the terminal or the order of the text replaced. A span over several lines is
underlined on its first one, up to the line's end.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.source import Source

TAB = 4
RESET = "\x1b[0m"
STYLES = {
    "error": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "frame": "\x1b[1;34m",
    "bold": "\x1b[1m",
    "help": "\x1b[1;36m",
}


@dataclass(frozen=True)
class Mark:
    """A label on one line of the source: the columns of the screen it underlines, from 0, up to `last`."""

    first: int
    last: int
    primary: bool
    words: str


class Paint:
    """Puts colours around text, or nothing at all."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, style: str, text: str) -> str:
        return f"{STYLES[style]}{text}{RESET}" if self.colour and text else text


def wants_colour(stream: TextIO, choice: str = "auto") -> bool:
    """Whether to colour what goes to `stream`: `choice` is `always`, `never` or `auto` (a terminal, no `NO_COLOR`)."""
    if choice != "auto":
        return choice == "always"
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def render_all(diagnostics: Sequence[Diagnostic], colour: bool = False) -> str:
    """All diagnostics, one after another, and at the end how to learn more; empty for none."""
    if not diagnostics:
        return ""
    parts = [render(diagnostic, colour) for diagnostic in diagnostics]
    return "\n".join([*parts, more_information(diagnostics)]) + "\n"


def more_information(diagnostics: Sequence[Diagnostic]) -> str:
    """The closing line, which names each code once."""
    codes = list(dict.fromkeys(diagnostic.code for diagnostic in diagnostics))
    if len(codes) == 1:
        return f"For more information about {codes[0]}, run `shapescript explain {codes[0]}`."
    listed = ", ".join(codes[:-1]) + " and " + codes[-1]
    return f"For more information about {listed}, run `shapescript explain {codes[0]}`, and so on."


def render(diagnostic: Diagnostic, colour: bool = False) -> str:
    """One diagnostic, ended by a line break."""
    paint = Paint(colour)
    severity = diagnostic.severity
    head = paint(severity, f"{severity}[{diagnostic.code}]") + paint("bold", f": {one_line(diagnostic.message)}")
    labels = [(diagnostic.primary, True), *((label, False) for label in diagnostic.secondary)]
    width = len(str(max(label.span.line for label, _ in labels)))
    lines = [head]
    primary_source = diagnostic.primary.span.source
    for source in dict.fromkeys(label.span.source for label, _ in labels):
        here = [
            (label, primary) for label, primary in labels if label.span.source is source or label.span.source == source
        ]
        arrow = "-->" if source == primary_source else ":::"
        lines.append(f"{' ' * width}{paint('frame', arrow)} {here[0][0].span.place}")
        lines += snippet(source, here, severity, width, paint)
    bar = paint("frame", "|")
    if diagnostic.notes or diagnostic.helps:
        lines.append(f"{' ' * width} {bar}")
    for word, texts in (("note", diagnostic.notes), ("help", diagnostic.helps)):
        for text in texts:
            lines += remark(word, text, width, paint)
    return "\n".join(lines) + "\n"


def remark(word: str, text: str, width: int, paint: Paint) -> list[str]:
    """A note or a help; the further lines of its text (a program to write, say) line up with the first."""
    first, *rest = text.split("\n")
    start = f"{' ' * width} {paint('frame', '=')} {paint('help' if word == 'help' else 'bold', word)}: "
    indent = " " * (width + len(word) + 5)
    return [start + first, *((indent + line).rstrip() for line in rest)]


def snippet(source: Source, labels: list[tuple[Label, bool]], severity: str, width: int, paint: Paint) -> list[str]:
    """The lines of one source that labels point at, with what is written under them."""
    bar = paint("frame", "|")
    lines = [f"{' ' * width} {bar}"]
    before: int | None = None
    ordered = sorted(labels, key=lambda pair: pair[0].span.line)
    for number, group in groupby(ordered, key=lambda pair: pair[0].span.line):
        if before is not None and number - before == 2:
            lines.append(source_line(source, before + 1, width, paint))
        elif before is not None and number - before > 2:
            lines.append(paint("frame", "..."))
        lines.append(source_line(source, number, width, paint))
        marks = [mark(source, number, label, primary) for label, primary in group]
        lines += [f"{' ' * width} {bar} {row}" for row in under(marks, severity, paint)]
        before = number
    return lines


def source_line(source: Source, number: int, width: int, paint: Paint) -> str:
    """A line of the source behind its number; nothing follows the bar of an empty one."""
    text, _ = on_screen(source.line(number))
    return paint("frame", f"{number:>{width}} |") + (f" {text}" if text else "")


def mark(source: Source, number: int, label: Label, primary: bool) -> Mark:
    """Where a label stands on its line, at least one column wide."""
    start = source.line_starts[number - 1]
    text = source.line(number)
    _, columns = on_screen(text)
    first = min(label.span.start - start, len(text))
    last = min(max(label.span.end - start, first), len(text))
    left, right = columns[first], columns[last]
    return Mark(left, max(right, left + 1), primary, one_line(label.words))


def under(marks: list[Mark], severity: str, paint: Paint) -> list[str]:
    """The rows under a source line: the underlines, the words of the rightmost label, then the other words hanging."""
    style = {True: severity, False: "frame"}
    underline = Row()
    for one in sorted(marks, key=lambda m: (m.primary, m.first)):  # the primary one is drawn over the others
        underline.put(one.first, ("^" if one.primary else "-") * (one.last - one.first), style[one.primary])
    worded = sorted((m for m in marks if m.words), key=lambda m: (m.first, m.primary))
    rows = [underline]
    if worded and all(m is worded[-1] or m.last <= worded[-1].first for m in marks):
        beside = worded.pop()
        underline.put(beside.last + 1, beside.words, style[beside.primary])
    if worded:
        bars = Row()
        for one in worded:
            bars.put(one.first, "|", style[one.primary])
        rows.append(bars)
    while worded:
        hanging = worded.pop()
        row = Row()
        for one in worded:
            row.put(one.first, "|", style[one.primary])
        row.put(hanging.first, hanging.words, style[hanging.primary])
        rows.append(row)
    return [row.text(paint) for row in rows]


class Row:
    """Characters by column, each with its style."""

    def __init__(self) -> None:
        self.cells: dict[int, tuple[str, str]] = {}

    def put(self, column: int, text: str, style: str) -> None:
        for offset, character in enumerate(text):
            self.cells[column + offset] = (character, style)

    def text(self, paint: Paint) -> str:
        end = max(self.cells, default=-1) + 1
        cells = [self.cells.get(column, (" ", "")) for column in range(end)]
        parts = []
        for style, group in groupby(cells, key=lambda cell: cell[1]):
            text = "".join(character for character, _ in group)
            parts.append(paint(style, text) if style else text)
        return "".join(parts)


def on_screen(text: str) -> tuple[str, list[int]]:
    """A line as it is printed, and the screen column at which each of its characters (and its end) begins."""
    shown: list[str] = []
    columns: list[int] = []
    column = 0
    for character in text:
        columns.append(column)
        if character == "\t":
            shown.append(" " * TAB)
            column += TAB
        elif character == "\ufeff":
            continue
        else:
            safe = printable(character)
            shown.append(safe)
            column += screen_width(safe)
    return "".join(shown), [*columns, column]


def printable(character: str) -> str:
    """The character, or another in the place of one that would move the cursor or turn the text round."""
    if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or character in "\u200d\u200c":
        return character
    return chr(0x2400 + ord(character)) if ord(character) < 0x20 else "\ufffd"


def screen_width(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def one_line(text: str) -> str:
    """A message with nothing in it that would break its line."""
    return "".join(printable(character) for character in text)
