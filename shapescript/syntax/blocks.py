"""Blocks: INDENT, DEDENT and NEWLINE for the lines of one top-level item.

A block is opened by a line that ends in `:` (or by `devices`) and by nothing else, and every header gets one: a missing
`:` or body is reported and put in. So the grammar never meets a stray INDENT. Here too the words that are keywords in
one place only get their types.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shapescript.syntax.tokens import MOST_NESTING, Line, Reporter, Token

HEADERS = frozenset("FN IF ELIF ELSE FOR WHILE MODEL DATA".split())
OPTION_WORDS = {"MODEL": ("param", "state"), "DEVICES": ("shard", "split")}


@dataclass(slots=True)
class _Level:
    """An open block: the column of its lines, and whether the grammar was told of it."""

    column: int
    told: bool


@dataclass(slots=True)
class _Blocks:
    """The state while an item's lines are gone through."""

    text: str
    reporter: Reporter
    kind: str
    levels: list[_Level]
    opener: Line | None = None
    tabbed: bool = False
    out: list[Token] = field(default_factory=list)

    def mark(self, kind: str, at: int, line: Line) -> None:
        """Adds a token that has no text."""
        self.out.append(Token(kind, "", at, at, line))

    def tab(self, line: Line) -> None:
        """Reports the first of several lines with a tab in their indents."""
        first = line.tokens[0]
        tab = "\t" in self.text[line.start : first.start]
        if tab and not self.tabbed:
            spaces = self.text[line.start : first.start].expandtabs(4)
            message, help = "a tab in an indent", "indent with spaces"
            self.reporter.report("E0102", line.start, first.start, message, help, instead=spaces)
        self.tabbed = tab

    def dedent(self, column: int, at: int, line: Line) -> None:
        """Closes the blocks that a line at `column` ends."""
        while len(self.levels) > 1 and column <= self.levels[-2].column:
            if self.levels.pop().told:
                self.mark("DEDENT", at, line)

    def empty_block(self, opener: Line) -> None:
        """A header without lines: reported, and given a `pass`."""
        last = opener.tokens[-1]
        if not opener.damaged:
            help = "indent the lines that belong to it; `pass` does nothing"
            self.reporter.report("E0105", last.start, last.end, "an indented block must follow", help)
            opener.damaged = True
        for kind in ("INDENT", "PASS", "NEWLINE", "DEDENT"):
            self.mark(kind, last.end, opener)

    def indent(self, line: Line) -> bool:
        """Opens and closes blocks before a line; False where what follows belongs to nothing."""
        first, column = line.tokens[0], line.column
        if self.opener and column > self.levels[-1].column:
            if len(self.levels) == MOST_NESTING and not line.damaged:
                message = f"blocks nested deeper than {MOST_NESTING}"
                self.reporter.report("E0123", first.start, first.end, message, "move an inner part to a function")
                line.lose()
            self.levels.append(_Level(column, True))
            self.mark("INDENT", first.start, line)
        elif self.opener and self.opener.tokens[0].type in HEADERS:
            self.empty_block(self.opener)
        elif column > self.levels[-1].column:
            message = "this line is indented, but nothing above it opens a block"
            self.reporter.report("E0104", first.start, first.end, message, "indent it as the line above it")
            line.damaged = True
            if len(self.levels) == 1:
                return False
            self.levels.append(_Level(column, False))
        self.dedent(column, self.out[-1].end, line)
        if column < self.levels[-1].column:
            help = f"indent it by {self.levels[-1].column} to stay in this block"
            if len(self.levels) > 2:
                help += f", or by {self.levels[-2].column} to leave it"
            self.reporter.report("E0103", first.start, first.end, "this indent matches no open block", help)
            self.levels[-1].column = column
            line.damaged = True
        return True

    def colon(self, line: Line, after: Line | None) -> None:
        """Puts in the `:` that a header lacks, and takes out one after `devices`."""
        first, last = line.tokens[0], line.tokens[-1]
        if first.type in HEADERS and last.type != "COLON" and after and after.column > line.column:
            if not line.damaged:
                if line.colon:  # `if a: b`, and lines under it
                    under = after.tokens[0]
                    message = "this line is indented, but the block above it is full"
                    help = "a block stands on the line of its `:`, or under it"
                    self.reporter.report("E0104", under.start, under.end, message, help)
                    line.lose()
                else:
                    message = "a `:` is missing at the end of this line"
                    self.reporter.report("E0112", last.end, last.end, message, "add `:`", instead=":")
                    line.damaged = True
            line.tokens.append(Token("COLON", ":", last.end, last.end, line))
        elif first.type == "DEVICES" and last.type == "COLON" and len(line.tokens) > 1:
            message, help = "`devices` takes no `:`", "leave the `:` out"
            self.reporter.report("E0112", last.start, last.end, message, help, instead="")
            line.damaged = True
            line.tokens.pop()


def block_tokens(lines: list[Line], text: str, reporter: Reporter) -> list[Token]:
    """The item's tokens, with INDENT only after a line that opens a block, and a block after every header."""
    head = lines[0]
    kind = head.tokens[0].text.upper() if head.tokens[0].type in ("NAME", "FN") else ""
    kind = kind if len(head.tokens) < 2 or head.tokens[1].type != "ASSIGN" else ""
    blocks = _Blocks(text, reporter, kind, [_Level(head.column, True)])
    for number, line in enumerate(lines):
        after = lines[number + 1] if number + 1 < len(lines) else None
        blocks.tab(line)
        if line is not head and not blocks.indent(line):
            break
        place_words(line, kind, line is head)
        blocks.colon(line, after)
        first, last = line.tokens[0], line.tokens[-1]
        opens = first.type == "DEVICES" or last.type == "COLON" and kind != "DEVICES"
        blocks.opener = line if opens else None
        blocks.out += line.tokens
        blocks.mark("NEWLINE", last.end, line)
    if blocks.opener and blocks.opener.tokens[0].type in HEADERS:
        blocks.empty_block(blocks.opener)
    blocks.dedent(head.column, blocks.out[-1].end, lines[-1])
    return blocks.out


def place_words(line: Line, kind: str, head: bool) -> None:
    """Gives a line's first word its type where it is a keyword in this place only."""
    first, *rest = line.tokens
    if head:
        if kind:
            first.type = kind
        if kind == "IMPORT" and len(rest) > 1 and rest[0].text == "python" and rest[1].type == "NAME":
            rest[0].type = "PYTHON"
    elif first.text in OPTION_WORDS.get(kind, ()) and (kind == "DEVICES" or rest and rest[0].type == "NAME"):
        first.type = first.text.upper()
