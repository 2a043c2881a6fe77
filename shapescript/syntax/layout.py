"""Raw tokens to top-level items, each a list of tokens with NEWLINE, INDENT and DEDENT that the grammar can trust.

Takes a text; gives `Item`s. Here are settled, with a look at the open brackets and at a line's first word, the things
that an LALR(1) grammar can't see: the joining of lines, blocks, the kind of an opening bracket, and the words that
are keywords in one place only. INDENT follows a line that opens a block and nothing else: whatever is wrong with the
indents is reported here, once, and mended. `brackets.py` reads the brackets, `blocks.py` the indents.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from shapescript.syntax.blocks import block_tokens
from shapescript.syntax.brackets import PAIRS, take_bracket
from shapescript.syntax.lexer import Scanned, scan
from shapescript.syntax.tokens import DECLARING, Line, Reporter, Token

DECLARATION_WORDS = frozenset((*DECLARING, "fn"))
STATEMENT_TYPES = frozenset("FN RETURN FOR WHILE IF ELIF ELSE BREAK CONTINUE PASS ASSERT".split())
NO_DECLARATION = frozenset("ASSIGN DOT LPAREN PATPAREN ARGPAREN PIPE COMMA".split())
MENDED = {"def": "fn", "func": "fn", "function": "fn", "device": "devices"}
INSTEAD = {
    "class": "write `model NAME:` or `data NAME:`, with functions beside it",
    "struct": "write `data NAME:`",
    "from": "write `import python MODULE`",
    "let": "write `dim NAME = ...` for a size, `name = ...` for a constant",
    "const": "write `dim NAME = ...` for a size, `name = ...` for a constant",
    "var": "write `dim NAME = ...` for a size, `name = ...` for a constant",
}


@dataclass(frozen=True, slots=True)
class Item:
    """The tokens of one top-level item, in lines; no tokens where it declares nothing, which is reported."""

    lines: list[Line]
    tokens: list[Token]


def items(text: str, reporter: Reporter) -> Iterator[Item]:
    """The items of a text: a line at the left margin that declares something, and the indented lines under it."""
    group: list[Line] = []
    good = False
    for line in logical_lines(text, reporter):
        slipped = len(group) > 1 and line.column < group[1].column  # a space too many before a declaration
        top = not group or line.column <= group[0].column or slipped and declares(line)
        begins = top and (declares(line) or line.column == 0 and is_constant(line))
        if group and (begins or top and good):
            yield finished(group, text, reporter)
            group = []
        if not group:
            good = begins
            if line.column:
                first = line.tokens[0]
                message = "this line is indented, but nothing above it opens a block"
                reporter.report("E0104", first.start, first.end, message, "a declaration stands at the left margin")
                line.damaged = True
        group.append(line)
    if group:
        yield finished(group, text, reporter)


def declares(line: Line) -> bool:
    """Does the line begin with a declaration's word, used as one?"""
    first, *rest = line.tokens
    if first.text in MENDED:
        return bool(rest) and rest[0].type == "NAME"
    if first.text not in DECLARATION_WORDS:
        return False
    return first.text == "fn" or not (rest and rest[0].type in NO_DECLARATION)


def is_constant(line: Line) -> bool:
    """Does the line look like `name = value`?"""
    return len(line.tokens) > 1 and line.tokens[0].type == "NAME" and line.tokens[1].type == "ASSIGN"


def finished(group: list[Line], text: str, reporter: Reporter) -> Item:
    """The item that these lines are."""
    head = group[0]
    first, last = head.tokens[0], head.tokens[-1]
    if not declares(head) and not is_constant(head):
        if not head.damaged:
            help = INSTEAD.get(first.text, "indent it under the function it belongs to, or put it into `fn main():`")
            message = "only declarations stand at the left margin"
            reporter.report("E0118", first.start, last.end, message, help)
        return Item(group, [])
    if first.text in MENDED:
        meant = MENDED[first.text]
        message = f"`{first.text}` isn't a word of the language"
        reporter.report("E0118", first.start, first.end, message, f"write `{meant}`", instead=meant)
        first.text = meant
    return Item(group, block_tokens(group, text, reporter))


# --- logical lines ---------------------------------------------------------------------------------------------------


def logical_lines(text: str, reporter: Reporter) -> Iterator[Line]:
    """The logical lines: a line goes on inside brackets, and where the next begins with `|>`."""
    scanned = scan(text, reporter)
    broken = set(scanned.breaks)
    line: Line | None = None
    opened: list[Token] = []
    here = -1
    for number, token in enumerate(scanned.tokens):
        line_start = scanned.line_starts[number]
        if line_start != here:
            here = line_start
            if line is not None and opened:
                told = line.tokens[-1].start in broken
                if told or ends_brackets(scanned, number):
                    unclosed(opened, line, token, told, reporter)
                    yield ended(line, text, scanned.breaks)
                    line = None
            elif line is not None and token.type != "PIPE":
                yield ended(line, text, scanned.breaks)
                line = None
            if line is None:
                line, opened = Line(indent_width(text, line_start, token.start), line_start), []
        assert line is not None
        token.line = line
        take_bracket(token, line, opened, reporter)
        line.tokens.append(token)
    if line is not None:
        if opened:
            unclosed(opened, line, None, line.tokens[-1].start in broken, reporter)
        yield ended(line, text, scanned.breaks)


def indent_width(text: str, line_start: int, token_start: int) -> int:
    """The columns of blank before a line's first token."""
    before = text[line_start:token_start]
    return len(before[: len(before) - len(before.lstrip(" \t"))].expandtabs(4))


def ended(line: Line, text: str, breaks: list[int]) -> Line:
    """The line, marked if text was skipped in it."""
    if breaks:
        at = bisect_left(breaks, line.start)
        end = text.find("\n", line.tokens[-1].end)
        if at < len(breaks) and (end < 0 or breaks[at] < end):
            line.lose()
    return line


def ends_brackets(scanned: Scanned, number: int) -> bool:
    """Does this token, the first on its line, show that the open bracket was never closed?"""
    token = scanned.tokens[number]
    if token.type in STATEMENT_TYPES:
        return True
    after = scanned.tokens[number + 1] if number + 1 < len(scanned.tokens) else None
    at_margin = token.start == scanned.line_starts[number]
    return at_margin and token.text in DECLARATION_WORDS and after is not None and after.type in ("NAME", "FN")


def unclosed(opened: list[Token], line: Line, token: Token | None, told: bool, reporter: Reporter) -> None:
    """Reports a bracket that is never closed; `token` begins the line that shows it."""
    opener = opened[-1]
    if not told and not line.damaged:
        others = ((token, "but a new line of the program begins here"),) if token else ()
        message = f"`{opener.text}` is never closed"
        reporter.report("E0106", opener.start, opener.end, message, f"add `{PAIRS[opener.type]}`", "", others)
    line.lose()
