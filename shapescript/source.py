"""Source text: files, spans and lines.

Takes a path and the bytes behind it; gives `Source` and `Span`, which every later stage points with.
Imports nothing of the project. Doesn't know what the text means.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


class SourceError(Exception):
    """A file that can't be read as text; `str(error)` is one line for the user."""


@dataclass(frozen=True)
class Source:
    """The text of one `.ss` file, and the name by which the user called it."""

    name: str
    text: str = field(repr=False)

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset at which each line begins; a line ends with LF."""
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the column of an offset, both counted from 1, the column in code points."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of line `number` (from 1) without its end."""
        starts = self.line_starts
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def span(self, start: int, end: int) -> Span:
        """The part of this text from `start` to `end`."""
        return Span(self, start, end)


@dataclass(frozen=True)
class Span:
    """A part of a source, from the offset `start` up to `end`."""

    source: Source = field(repr=False)
    start: int
    end: int

    @property
    def text(self) -> str:
        """What stands there."""
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        """The line on which it begins, from 1."""
        return self.source.position(self.start)[0]

    @property
    def place(self) -> str:
        """`file:line:column`, as editors and terminals link it."""
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


def read_source(path: str | Path, name: str | None = None) -> Source:
    """Reads a `.ss` file as UTF-8; a BOM stays in the text, for the lexer to skip.

    Raises:
        SourceError: the path is missing, is a directory, can't be read or isn't UTF-8.
    """
    name = str(path) if name is None else name
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise SourceError(f"there is no file `{name}`") from None
    except IsADirectoryError:
        raise SourceError(f"`{name}` is a directory, not a program") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"`{name}` can't be read: {getattr(error, 'strerror', None) or error}") from None
    return source_of(data, name)


def source_of(data: bytes, name: str) -> Source:
    """The bytes of a program as text.

    Raises:
        SourceError: they aren't UTF-8.
    """
    try:
        return Source(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(f"`{name}` isn't UTF-8 text: byte {error.start}, on line {line}") from None
