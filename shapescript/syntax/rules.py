"""What the grammar's modules share: the list of rules, the decorator that fills it, and helpers for actions.

A rule's text isn't a docstring, so that `python -OO` reads the same grammar. An action takes PLY's production `p`:
`p[0]` is the result, `p[1]`… are the symbols' values, which are tokens, nodes or lists of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shapescript.diagnostics.diagnostic import Fix
from shapescript.syntax import tree
from shapescript.syntax.tokens import Line, Reporter, Token

Production = Any  # PLY's, which has no types
Action = Callable[[Production], None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`name : symbols`, whose action is called by its name; the symbols may end in `%prec TERMINAL`."""

    name: str
    symbols: tuple[str, ...]
    action: str


RULES: list[Rule] = []
ACTIONS: dict[str, Action] = {}


def rule(text: str) -> Callable[[Action], Action]:
    """Makes a function the action of rules, parted by `;`, with alternatives parted by a bar."""

    def add(action: Action) -> Action:
        name = action.__name__
        assert name not in ACTIONS, name
        ACTIONS[name] = action
        for group in text.split(";"):
            left, _, right = group.partition(":")
            RULES.extend(Rule(left.strip(), tuple(one.split()), name) for one in right.split("|"))
        return action

    return add


class TokenStream:
    """An item's tokens as PLY asks for them, and where its errors go; an action sees it as `p.lexer`."""

    def __init__(self, tokens: list[Token], reporter: Reporter) -> None:
        self.tokens = tokens
        self.reporter = reporter
        self.token: Callable[[], Token | None] = iter([*tokens, None]).__next__


def problem(
    p: Production,
    line: Line,
    code: str,
    at: tree.Node | Token,
    message: str,
    help: str | None = None,
    *,
    instead: str | None = None,
    fix: Fix | None = None,
) -> None:
    """Reports an error on a node or a token, unless the line has one already."""
    if not line.damaged:
        p.lexer.reporter.report(code, at.start, at.end, message, help, instead=instead, fix=fix)
    line.damaged = True


def text_of(p: Production, at: tree.Node | Token) -> str:
    """The text of a node or a token."""
    text: str = p.lexer.reporter.source.text[at.start : at.end]
    return text


def ends(p: Production) -> tuple[int, int]:
    """Where a rule's text begins and ends; not for rules that begin or end in nothing, a list or a NEWLINE."""
    symbols = p.slice  # not `p[...]`: this runs for every node
    return symbols[1].value.start, symbols[-1].value.end


def several(values: list[tree.Expr]) -> tree.Expr:
    """`a` or `a, b` as one expression."""
    return values[0] if len(values) == 1 else tree.Tuple(values[0].start, values[-1].end, values)


def lost_names(line: Line) -> list[str]:
    """The names that a line seems to bind: those before `=`, or between `for` and `in`."""
    tokens = line.tokens
    stop = next((n for n, token in enumerate(tokens) if token.type in ("ASSIGN", "AUGASSIGN", "IN", "COLON")), None)
    if stop is None or tokens[stop].type in ("IN", "COLON") and tokens[0].type != "FOR":
        return []
    depth = 0
    names = []
    for before, token in zip([None, *tokens], tokens[:stop], strict=False):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.type == "NAME" and not (before and before.type == "DOT"):
            names.append(token.text)
    return names
