"""The LALR(1) grammar as one: its rules, their actions, the tokens and the precedences.

The rules stand in `grammar_declarations.py`, `grammar_statements.py`, `grammar_expressions.py` and
`grammar_types.py`, which fill the list on import; `tables.py` makes a parser of it.
"""

from __future__ import annotations

from shapescript.syntax import (  # noqa: F401 (each fills the list of rules)
    grammar_declarations,
    grammar_expressions,
    grammar_statements,
    grammar_types,
)
from shapescript.syntax.rules import ACTIONS, RULES
from shapescript.syntax.tokens import TOKENS

__all__ = ["ACTIONS", "PRECEDENCE", "RULES", "START", "TOKENS", "signature"]

START = "item"
# From the loosest to the tightest. UNARY is a name for the precedence of `- !`, which are also other things.
PRECEDENCE: tuple[tuple[str, ...], ...] = (
    ("left", "PIPE"),
    ("left", "AS"),
    ("left", "OR"),
    ("left", "AND"),
    ("right", "NOT"),
    ("left", "EQ", "NE", "LT", "LE", "GT", "GE"),
    ("nonassoc", "DOTDOT"),
    ("left", "PLUS", "MINUS"),
    ("left", "STAR", "SLASH", "FLOORDIV", "PERCENT", "AT"),
    ("right", "UNARY"),
    ("right", "POW"),
)


def signature() -> str:
    """All of this grammar, so that tables of another one aren't used for it."""
    parts = [START, repr(PRECEDENCE), repr(TOKENS), *(f"{r.name}:{' '.join(r.symbols)}={r.action}" for r in RULES)]
    return "\n".join(parts)
