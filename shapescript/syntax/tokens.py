"""Tokens and logical lines, and the collector of what is wrong with them: what lexer, layout and grammar share.

Leaves the meaning of a token to those three. A token is its own `value`, as PLY's parser asks for one: in a rule's
action `p[i]` is the token itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from shapescript.diagnostics.diagnostic import Diagnostic, Fix, Label
from shapescript.diagnostics.fixes import replaced
from shapescript.source import Source

RESERVED = frozenset(
    "fn return for in while if elif else break continue pass assert and or not as mut true false".split()
)
DECLARING = ("devices", "dim", "model", "data", "extern", "import")
WORDS_IN_PLACE = (*DECLARING, "python", "param", "state", "shard", "split")
SIGNS = (
    "PIPE EQ NE LE GE LT GT ARROW DOTDOT POW FLOORDIV PLUS MINUS STAR SLASH PERCENT AT BANG ASSIGN AUGASSIGN COLON "
    "COMMA DOT LPAREN RPAREN LBRACK RBRACK"
).split()
# Made by layout: a `(` that holds a pattern, one that holds arguments and a pattern, a `[` that holds several axes.
SHAPED = "PATPAREN ARGPAREN LAXES NEWLINE INDENT DEDENT".split()
TOKENS: tuple[str, ...] = (
    *sorted(word.upper() for word in RESERVED),
    *(word.upper() for word in WORDS_IN_PLACE),
    "NAME",
    "NUMBER",
    "STRING",
    *SIGNS,
    *SHAPED,
)
MOST_NESTING = 100
MOST_CHAINED = 1_000
"""How many operators, or pipes, may follow one another in `a + b + c`: each link is below the next in the tree."""


class Token:
    """A piece of text. Of an opening bracket, layout also keeps whether it follows its callee and holds a `:`."""

    __slots__ = ("type", "text", "start", "end", "line", "colon", "callee", "tight")
    # PLY's recovery asks whether a token has these before it sets them.
    lexer: ClassVar[None] = None
    lineno: ClassVar[int] = 0
    lexpos: ClassVar[int] = 0

    def __init__(self, type: str, text: str, start: int, end: int, line: Line) -> None:
        self.type = type
        self.text = text
        self.start = start
        self.end = end
        self.line = line
        self.colon = self.callee = self.tight = False

    @property
    def value(self) -> Token:
        """What PLY hands to a rule's action."""
        return self

    def __repr__(self) -> str:
        return f"{self.type}({self.text!r}@{self.start})"


@dataclass(slots=True, eq=False)
class Line:
    """A logical line. `damaged`: an error on it is reported, so that the parser says nothing more about it.

    `lost`: what the parser makes of it isn't what the user meant.
    """

    column: int
    start: int
    tokens: list[Token] = field(default_factory=list)
    colon: bool = False
    damaged: bool = False
    lost: bool = False

    def lose(self) -> None:
        """Marks that an error is reported, and that the line's tree isn't to be trusted."""
        self.damaged = self.lost = True


NO_LINE = Line(0, 0)


@dataclass(slots=True)
class Reporter:
    """Collects the diagnostics of one text."""

    source: Source
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def report(
        self,
        code: str,
        start: int,
        end: int,
        message: str,
        help: str | None = None,
        words: str = "",
        others: tuple[tuple[Token, str], ...] = (),
        instead: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        """Adds an error on the text from `start` to `end`; `others` are tokens that explain it, with their words.

        `instead` is what was surely meant by that text, `fix` what else would mend it.
        """
        span = self.source.span(start, end)
        if instead is not None:
            fix = replaced(span, instead, safe=True)
        self.diagnostics.append(
            Diagnostic(
                code,
                message,
                Label(span, words),
                tuple(Label(self.source.span(token.start, token.end), said) for token, said in others),
                helps=() if help is None else (help,),
                fixes=() if fix is None else (fix,),
            )
        )
