"""The text of an open file: its lines and columns as an editor counts them, and as a source that changes.

An editor's line ends with LF, CRLF or CR; its columns count UTF-16 units unless it and the server agreed on others.
Offsets are code points, as everywhere in the compiler.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from shapescript.source import Source

LINE_END = re.compile(r"\r\n|\n|\r")


class Buffer(Source):
    """A source that is being edited: spans keep pointing into it, and whoever edits it moves them."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def become(self, text: str) -> None:
        """Takes another text."""
        object.__setattr__(self, "text", text)
        self.__dict__.pop("line_starts", None)


@dataclass(frozen=True, order=True)
class Place:
    """A line and a column, both from 0, as an editor counts them."""

    line: int
    column: int


class Positions:
    """From offsets of one text to an editor's places and back."""

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self.encoding = encoding
        self.starts = [0, *(end.end() for end in LINE_END.finditer(text))]

    def place(self, offset: int) -> Place:
        """Where an offset is."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self.starts, offset) - 1
        return Place(line, self.units(self.text[self.starts[line] : offset]))

    def offset(self, place: Place) -> int:
        """The offset of a place; a column past the end of its line is that end."""
        if place.line < 0:
            return 0
        if place.line >= len(self.starts):
            return len(self.text)
        start = self.starts[place.line]
        end = self.starts[place.line + 1] if place.line + 1 < len(self.starts) else len(self.text)
        line = self.text[start:end].rstrip("\r\n")
        if line.isascii():
            return start + max(0, min(place.column, len(line)))
        seen = 0
        for number, character in enumerate(line):
            if seen >= place.column:
                return start + number
            seen += self.units(character)
        return start + len(line)

    def units(self, text: str) -> int:
        """How many columns a text takes."""
        if text.isascii():
            return len(text)
        if self.encoding == "utf-32":
            return len(text)
        encoded = text.encode("utf-8" if self.encoding == "utf-8" else "utf-16-le", "surrogatepass")
        return len(encoded) if self.encoding == "utf-8" else len(encoded) // 2


def edited(text: str, start: Place, end: Place, new: str, encoding: str = "utf-16") -> str:
    """The text with what stands from `start` to `end` replaced."""
    positions = Positions(text, encoding)
    first, last = positions.offset(start), positions.offset(end)
    first, last = min(first, last), max(first, last)
    return text[:first] + new + text[last:]
