"""The one style of a program's text.

`format_source` takes a source; gives its text in the one style: the same tree, the same comments, and the same text
when formatted again. A text with errors isn't touched: `CannotFormat` has them. What it gives is parsed and compared
before it is handed out, so that a mistake of this file can't change a program.

The tokens of each logical line are laid by `format_lines.py`; here are the comments between the lines, the blank lines
and the columns of declarations that stand one under another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.room import room
from shapescript.source import Source
from shapescript.syntax import tree
from shapescript.syntax.format_doc import Comment, lay
from shapescript.syntax.format_lines import LineMaker
from shapescript.syntax.format_spacing import Spacing
from shapescript.syntax.layout import items
from shapescript.syntax.parse import Parsed, parse
from shapescript.syntax.tokens import Reporter, Token

WIDTH = 100
INDENT = 4
WIDEST_GAP = 24
"""How many columns a cell may be moved to stand under another."""
COMMENT = re.compile(r"#[^\n]*")
HEADERS = frozenset("FN IF ELIF ELSE FOR WHILE".split())
BLOCKS = frozenset("DEVICES MODEL DATA FN".split())


class CannotFormat(Exception):
    """The text has errors, or its style can't be found; `str(error)` is a line for the user."""

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.diagnostics = list(diagnostics)


@dataclass(slots=True)
class Remark:
    """A comment between two tokens: `own` if nothing but blanks stands before it, `blank` if an empty line does."""

    text: str
    own: bool
    column: int
    blank: bool
    end: int


@dataclass(slots=True)
class Row:
    """A logical line or a comment on its own: what is laid as a whole.

    `item` is the kind of the declaration that it stands in, and `head` too on its first line; `opens`: the next row
    belongs to it.
    """

    level: int
    blank: bool
    tokens: list[Token] = field(default_factory=list)
    head: str = ""
    item: str = ""
    opens: bool = False
    lines: list[str] = field(default_factory=list)
    comment: str = ""

    @property
    def is_comment(self) -> bool:
        """Is there nothing but a comment?"""
        return not self.tokens


def format_source(source: Source) -> str:
    """The text of a program in the one style.

    Raises:
        CannotFormat: the text has errors.
    """
    parsed = parse(source)
    if parsed.diagnostics:
        raise CannotFormat("a text with errors isn't formatted", parsed.diagnostics)
    with room():
        text = styled(source, parsed)
        again = parse(Source(source.name, text))
        if again.diagnostics or shown(again) != shown(parsed) or comments_of(text) != comments_of(source.text):
            raise CannotFormat(f"`{source.name}` is left as it is: its style would change what it means")
    return text


def shown(parsed: Parsed) -> list[object]:
    """The trees, without places."""
    return [bare(item) for item in parsed.items]


def bare(value: object) -> object:
    """A node as plain tuples, without places."""
    if isinstance(value, tree.Node):
        kept = (f.name for f in fields(value) if f.name not in ("start", "end", "name_start"))
        return (type(value).__name__, *(bare(getattr(value, name)) for name in kept))
    return [bare(each) for each in value] if isinstance(value, list) else value


def comments_of(text: str) -> list[str]:
    """The comments of a text in its order."""
    found: list[str] = []
    at = 0
    for token in sorted(all_tokens(Source("", text)), key=lambda token: token.start):
        found += (remark.text for remark in remarks_between(text, at, token.start))
        at = token.end
    return [*found, *(remark.text for remark in remarks_between(text, at, len(text)))]


def all_tokens(source: Source) -> list[Token]:
    """Every token of a text."""
    return [token for item in items(source.text, Reporter(source)) for line in item.lines for token in line.tokens]


def styled(source: Source, parsed: Parsed) -> str:
    """The text of a program without errors in the one style."""
    rows = rows_of(source)
    tokens = [token for row in rows for token in row.tokens]
    spacing = Spacing(parsed.items, tokens)
    for row in rows:
        row.lines = laid(row, source, spacing)
    blanks = [number > 0 and blank_before(rows, number) for number in range(len(rows))]
    for row, blank in zip(rows, blanks, strict=True):
        row.blank = blank
    align(rows)
    ending = "\r\n" if "\r\n" in source.text[: source.text.find("\n") + 1] else "\n"
    out: list[str] = []
    for row in rows:
        out += ["", *row.lines] if row.blank else row.lines
    return "".join(line + ending for line in out)


# --- rows ------------------------------------------------------------------------------------------------------------


def rows_of(source: Source) -> list[Row]:
    """The logical lines of a text, with a line for each statement, and the comments between them."""
    text = source.text
    rows: list[Row] = []
    at = 1 if text.startswith("\ufeff") else 0
    columns = [0]
    for item in items(text, Reporter(source)):
        for number, line in enumerate(item.lines):
            first = line.tokens[0]
            before = columns
            columns = [0] if number == 0 else inner_columns(columns, line.column)
            opened = bool(rows) and rows[-1].opens
            remarks = remarks_between(text, at, first.start)
            between(rows, remarks, before, columns, opened)
            blank = has_blank(text[max([at, *(remark.end for remark in remarks)]) : first.start])
            level = len(columns) - 1
            head = first.type if number == 0 else ""
            parts = split_header(line.tokens)
            for place, part in enumerate(parts):
                opens = part[-1].type == "COLON" or head == "DEVICES" and len(item.lines) > 1
                kind = item.lines[0].tokens[0].type
                rows.append(Row(level + place, blank and not place, part, "" if place else head, kind, opens))
            at = line.tokens[-1].end
    between(rows, remarks_between(text, at, len(text)), columns, [0], False)
    return rows


def inner_columns(columns: list[int], column: int) -> list[int]:
    """The columns of the open blocks at a line."""
    kept = [each for each in columns if each < column]
    return [*kept, column]


def split_header(tokens: list[Token]) -> list[list[Token]]:
    """`if a: b` as its two lines."""
    if tokens[0].type not in HEADERS:
        return [tokens]
    depth = 0
    for number, token in enumerate(tokens[:-1]):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth == 0 and token.type == "COLON":
            return [tokens[: number + 1], tokens[number + 1 :]]
    return [tokens]


def between(rows: list[Row], remarks: list[Remark], before: list[int], after: list[int], opened: bool) -> None:
    """Adds the comments between two logical lines: each to the line it ends, or to the block of its column."""
    for remark in remarks:
        if not remark.own and rows:
            rows[-1].comment = remark.text
            continue
        level = len(after) - 1
        if not opened:
            deepest = max((n for n, column in enumerate(before) if column <= remark.column), default=0)
            level = max(level, deepest) if len(before) >= len(after) else level
        rows.append(Row(level, remark.blank, comment=remark.text))


def remarks_between(text: str, start: int, end: int) -> list[Remark]:
    """The comments between two tokens."""
    found: list[Remark] = []
    at = start
    for comment in COMMENT.finditer(text, start, end):
        line_start = text.rfind("\n", 0, comment.start()) + 1
        indent = text[line_start : comment.start()].lstrip("\ufeff")
        own = not indent.strip()
        blank = has_blank(text[at : comment.start()])
        found.append(Remark(comment[0].rstrip(), own, len(indent.expandtabs(4)), blank, comment.end()))
        at = comment.end()
    return found


def has_blank(gap: str) -> bool:
    """Is there an empty line in what stands between?"""
    return gap.count("\n") > 1


# --- blank lines and columns -----------------------------------------------------------------------------------------


def blank_before(rows: Sequence[Row], number: int) -> bool:
    """Whether an empty line stands before a row."""
    row, last = rows[number], rows[number - 1]
    if last.opens:
        return False
    if row.level == 0 and last.item in BLOCKS:
        return True
    if row.level == 0:
        ahead = number
        while ahead < len(rows) and rows[ahead].is_comment and not (ahead > number and rows[ahead].blank):
            ahead += 1
        attached = ahead == number or ahead < len(rows) and not rows[ahead].blank
        if attached and ahead < len(rows) and rows[ahead].head in BLOCKS and rows[ahead].level == 0:
            return not last.is_comment or last.level > 0 or row.blank
    return row.blank


def align(rows: Sequence[Row]) -> None:
    """Puts the cells of declarations one under another, and the comments at the ends of lines."""
    for run in runs(rows, kind_of):
        align_cells(run)
    for row in rows:
        if row.comment and not row.is_comment and len(row.lines) > 1:
            row.lines[-1] += "  " + row.comment
    for run in runs(rows, lambda row: "comment" if row.comment and not row.is_comment and len(row.lines) == 1 else ""):
        widest = max(len(row.lines[0]) for row in run)
        fit = all(widest + 2 + len(row.comment) <= WIDTH for row in run)
        for row in run:
            width = widest if fit and widest - len(row.lines[0]) <= WIDEST_GAP else len(row.lines[0])
            row.lines[0] = f"{row.lines[0]:<{width}}  {row.comment}"


def runs(rows: Sequence[Row], kind: Callable[[Row], str]) -> Iterator[list[Row]]:
    """The rows of one kind that stand one under another."""
    run: list[Row] = []
    for row in rows:
        name = kind(row)
        if run and (not name or row.blank or name != kind(run[-1]) or row.level != run[-1].level):
            yield run
            run = []
        if name:
            run.append(row)
    if run:
        yield run


def kind_of(row: Row) -> str:
    """What a row declares, if it is one of those whose cells are put in columns."""
    if row.is_comment or len(row.lines) > 1:
        return ""
    if row.head in ("DIM", "NAME"):
        return row.head
    fields = row.item in ("MODEL", "DATA") and not row.head and len(row.tokens) > 2
    return "FIELD " + row.tokens[0].type if fields else ""


def align_cells(run: list[Row]) -> None:
    """Puts the types and the values of a run of declarations in columns."""
    cells = [cells_of(row) for row in run]
    for place in (0, 1):
        those = [each for each in cells if len(each) > place + 1]
        widest = max((len(each[place]) for each in those), default=0)
        if all(widest - len(each[place]) <= WIDEST_GAP for each in those):
            for each in those:
                each[place] = each[place].ljust(widest)
    lines = [" ".join(each) for each in cells]
    if all(len(line) <= WIDTH for line in lines):
        for row, line in zip(run, lines, strict=True):
            row.lines = [line]


def cells_of(row: Row) -> list[str]:
    """`dim D`, `= 4`; or `param w:`, `[D]`, `= zeros`."""
    line = row.lines[0]
    rest = line
    cells: list[str] = []
    if row.head == "":
        name, _, rest = line.partition(": ")
        cells.append(name + ":")
    head, sign, value = rest.partition(" = ")
    return [*cells, head, "= " + value] if sign else [*cells, rest]


# --- one row ---------------------------------------------------------------------------------------------------------


def laid(row: Row, source: Source, spacing: Spacing) -> list[str]:
    """The lines of a row, without the comment at its end."""
    indent = row.level * INDENT
    if row.is_comment:
        return [" " * indent + row.comment]
    tokens = row.tokens
    comments: dict[int, list[Comment]] = {}
    on_new_line: set[int] = set()
    for last, token in zip(tokens, tokens[1:], strict=False):
        gap = source.text[last.end : token.start]
        if "\n" in gap:
            on_new_line.add(token.start)
            found = remarks_between(source.text, last.end, token.start)
            if found:
                comments[token.start] = [Comment(remark.text, remark.own) for remark in found]
    spaces = dict(zip((token.start for token in tokens), spacing.before(tokens), strict=True))
    for sign, operand in zip(tokens, tokens[1:], strict=False):
        if sign.start in comments and sign.start in spacing.tight:
            spaces[operand.start] = True  # `-2` on a line of its own would look like an axis
    maker = LineMaker(spaces, comments, frozenset(on_new_line), frozenset(spacing.callee))
    return lay(maker.line(tokens), indent, WIDTH)
