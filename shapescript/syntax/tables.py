"""From the grammar to a parser: the tables, built or read.

The tables are made when the package is built and lie in `_tables.py` (`build_tables.py`). Where that file is missing
or of another grammar, they are made in memory, which takes a fraction of a second; nothing is ever written here.
"""

from __future__ import annotations

import importlib
from typing import Any

from ply import yacc  # type: ignore[import-untyped]

from shapescript.syntax import grammar

TABLES = "shapescript.syntax._tables"


class GrammarFault(Exception):
    """The grammar is ambiguous, or has parts that nothing uses: a mistake in this package."""


def build() -> Any:
    """PLY's tables of the grammar.

    Raises:
        GrammarFault: there is a conflict, an unused token or rule, or a symbol without rules.
    """
    made = yacc.Grammar(grammar.TOKENS)
    for level, (associativity, *terminals) in enumerate(grammar.PRECEDENCE, start=1):
        for terminal in terminals:
            made.set_precedence(terminal, associativity, level)
    for rule in grammar.RULES:
        made.add_production(rule.name, list(rule.symbols), rule.action, rule.action, 0)
    made.set_start(grammar.START)
    faults = [f"`{symbol}` in `{production}` has no rule" for symbol, production in made.undefined_symbols()]
    faults += [f"the token `{terminal}` isn't used" for terminal in made.unused_terminals()]
    faults += [f"the rule `{production}` isn't used" for production in made.unused_rules()]
    if faults:
        raise GrammarFault("\n".join(faults))
    faults += [f"`{symbol}` can't be reached" for symbol in made.find_unreachable() if symbol != "error"]
    faults += [f"`{symbol}` never ends" for symbol in made.infinite_cycles()]
    faults += [f"the precedence of `{terminal}` isn't used" for terminal, _ in made.unused_precedence()]
    made.build_lritems()
    made.compute_first()
    made.compute_follow(grammar.START)
    table = yacc.LRGeneratedTable(made, "LALR", yacc.NullLogger())
    faults += [f"shift or reduce in state {state} at `{symbol}`" for state, symbol, _ in table.sr_conflicts]
    faults += [f"`{kept}` or `{other}` in state {state}" for state, kept, other in table.rr_conflicts]
    if faults:
        raise GrammarFault("\n".join(faults))
    return table


def written(table: Any) -> str:
    """The text of `_tables.py`."""
    productions = [(p.str, p.name, p.len, p.func, None, None) for p in table.lr_productions]
    parts = ['"""The parser\'s tables, made by build_tables.py."""', ""]
    parts += [f"_tabversion = {yacc.__tabversion__!r}", "_lr_method = 'LALR'"]
    parts += [f"_lr_signature = {grammar.signature()!r}"]
    parts += [f"_lr_action = {_sorted(table.lr_action)!r}", f"_lr_goto = {_sorted(table.lr_goto)!r}"]
    parts += [f"_lr_productions = {productions!r}"]
    return "\n".join(parts) + "\n"


def _sorted(table: dict[int, dict[str, int]]) -> dict[int, dict[str, int]]:
    """The same table in an order that doesn't depend on how it was made."""
    return {state: dict(sorted(row.items())) for state, row in sorted(table.items())}


def parser() -> Any:
    """A parser of the grammar; copy it for each text."""
    try:
        tables = importlib.import_module(TABLES)
    except ModuleNotFoundError as error:
        if error.name != TABLES:
            raise
        tables = None
    if tables is not None and tables._lr_signature == grammar.signature():
        table = yacc.LRTable()
        table.read_table(tables)
    else:
        table = build()
    table.bind_callables(grammar.ACTIONS)
    return yacc.LRParser(table, None)
