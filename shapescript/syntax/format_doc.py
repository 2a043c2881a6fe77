"""Text that knows where it may be broken, and the printer that fits it to a width.

Takes a `Doc`: strings, places where a line may end (`BREAK`, `SOFT`), groups that are broken all at once or not at
all, and comments, after which a line must end. Gives lines. Knows nothing of the language: `format_lines.py` makes the
docs of its lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Break:
    """A place where a line may end: `flat` stands there where it doesn't."""

    flat: str


BREAK, SOFT = Break(" "), Break("")


@dataclass(frozen=True, slots=True)
class IfBroken:
    """Text that stands only where its group is broken."""

    text: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, on a line of its own or after what comes before it; the line ends with it."""

    text: str
    own: bool


@dataclass(frozen=True, slots=True)
class Indent:
    """Docs whose new lines begin further to the right."""

    parts: Sequence[Doc]
    by: int = 4


@dataclass(slots=True)
class Group:
    """Docs whose breaks are taken all together, or none of them: `broken` if they must be taken."""

    parts: Sequence[Doc]
    broken: bool = False


Doc: TypeAlias = str | Break | IfBroken | Comment | Indent | Group


def must_break(docs: Sequence[Doc]) -> bool:
    """Marks the groups that hold a comment or a broken group as broken; whether one of the docs does."""
    found = False
    for doc in docs:
        if isinstance(doc, Comment):
            found = True
        elif isinstance(doc, Indent):
            found = must_break(doc.parts) or found
        elif isinstance(doc, Group):
            doc.broken = must_break(doc.parts) or doc.broken
            found = found or doc.broken
    return found


@dataclass(slots=True)
class _Printer:
    """The lines so far. `ended`: a comment stands at the end of the last one, so what follows needs a new one.

    `before_ended`: so it does at the end of the line before.
    """

    lines: list[str]
    ended: bool = False
    before_ended: bool = False

    @property
    def is_new(self) -> bool:
        """Is there nothing on the last line yet?"""
        return not self.lines[-1].strip()

    def new_line(self, indent: int) -> None:
        self.lines[-1] = self.lines[-1].rstrip()
        self.lines.append(" " * indent)
        self.before_ended = self.ended
        self.ended = False

    def text(self, text: str, indent: int) -> None:
        if self.ended:
            self.new_line(indent)
        self.lines[-1] += text.lstrip() if self.is_new else text

    def comment(self, comment: Comment, indent: int) -> None:
        if not comment.own and not self.ended and self.is_new and len(self.lines) > 1 and not self.before_ended:
            self.lines[-2] += "  " + comment.text  # what it stands after was just ended by a break
            self.before_ended = True
            return
        if self.ended or comment.own and not self.is_new:
            self.new_line(indent)
        self.lines[-1] = self.lines[-1] + comment.text if self.is_new else f"{self.lines[-1].rstrip()}  {comment.text}"
        self.ended = True


def lay(docs: Sequence[Doc], indent: int, width: int) -> list[str]:
    """The lines of a doc whose first line begins at `indent`."""
    must_break(docs)
    printer = _Printer([" " * indent])
    rest: list[tuple[int, bool, Doc]] = [(indent, True, doc) for doc in reversed(docs)]
    while rest:
        at, broken, doc = rest.pop()
        match doc:
            case str():
                printer.text(doc, at)
            case Comment():
                printer.comment(doc, at)
            case Break():
                if broken:
                    printer.new_line(at)
                else:
                    printer.text(doc.flat, at)
            case IfBroken():
                if broken:
                    printer.text(doc.text, at)
            case Indent():
                rest.extend((at + doc.by, broken, part) for part in reversed(doc.parts))
            case Group():
                room = width - (at if printer.ended else len(printer.lines[-1]))
                open_up = doc.broken or not fits(doc, rest, room)
                rest.extend((at, open_up, part) for part in reversed(doc.parts))
    printer.lines[-1] = printer.lines[-1].rstrip()
    return printer.lines


def fits(group: Group, rest: Sequence[tuple[int, bool, Doc]], room: int) -> bool:
    """Does a group fit in one line, with what follows it up to the next place where a line may end?"""
    todo: list[tuple[bool, Doc]] = [(False, group)]
    following = len(rest)
    while room >= 0:
        if not todo:
            if following == 0:
                return True
            following -= 1
            _, broken, doc = rest[following]
            todo.append((broken, doc))
            continue
        broken, doc = todo.pop()
        match doc:
            case str():
                room -= len(doc)
            case Comment():
                return True
            case Break():
                if broken:
                    return True
                room -= len(doc.flat)
            case IfBroken():
                room -= len(doc.text) if broken else 0
            case Indent() | Group():
                todo.extend((broken, part) for part in reversed(doc.parts))
    return False
