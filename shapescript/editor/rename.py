"""Another name for something of the program: where the text changes, or why it can't."""

from __future__ import annotations

import re

from shapescript.editor.analysis import Analysis
from shapescript.editor.find_names import occurrence_at, occurrences, references
from shapescript.editor.symbols import Symbol
from shapescript.syntax.tokens import RESERVED

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CAPITAL = ("dim", "model", "data")
OURS = ("local", "axis", "field", "dim", "constant", "model", "data", "function", "extern", "import")


class CannotRename(Exception):
    """The name can't be changed so; `str(error)` is a line for the user."""


def may_rename(symbol: Symbol) -> bool:
    """Is it declared in this file?"""
    return symbol.kind in OURS and not symbol.module


def renamed(analysis: Analysis, offset: int, name: str) -> list[tuple[int, int]]:
    """Where the name at an offset stands, to be written anew.

    Raises:
        CannotRename: it isn't this file's, or the new name can't be, or means something there already.
    """
    found = occurrence_at(analysis, offset)
    if found is None or not may_rename(found.symbol):
        raise CannotRename("there is no name of this file here")
    symbol = found.symbol
    if not NAME.fullmatch(name):
        raise CannotRename(f"`{name}` isn't a name: names are made of letters, digits and `_`")
    if name in RESERVED:
        raise CannotRename(f"`{name}` is a reserved word")
    wants_capital = symbol.kind in CAPITAL or symbol.kind == "axis" and symbol.name[:1].isupper()
    first = name.lstrip("_")[:1]
    if symbol.kind != "import" and first and first.isupper() != wants_capital:
        raise CannotRename(f"the name begins with a {'capital' if wants_capital else 'small'} letter")
    places = references(analysis, symbol)
    taken = taken_names(analysis, symbol)
    if name != symbol.name and name in taken:
        raise CannotRename(f"`{name}` means something here already")
    if symbol.kind == "import" and any(
        info.node.name_start == place.start and info.module == symbol.name and "." not in info.module
        for info in analysis.typed.imports.values()
        for place in places
        if place.binds and not has_as(analysis, info.node.start, info.node.end)
    ):
        raise CannotRename(f"the file is called `{symbol.name}`; write `import {symbol.name} as {name}`")
    return sorted({(each.start, each.end) for each in places})


def has_as(analysis: Analysis, start: int, end: int) -> bool:
    """Does an import give its own name?"""
    return bool(re.search(r"\sas\s", analysis.text[start:end]))


def taken_names(analysis: Analysis, symbol: Symbol) -> set[str]:
    """The names that already mean something where a symbol stands."""
    if symbol.kind == "field":
        program = analysis.typed
        owner = program.models.get(symbol.owner) or program.datas.get(symbol.owner)
        return set(owner.fields) if owner is not None else set()
    globals_here = {name for item in analysis.items if (name := getattr(item, "name", None))}
    if symbol.kind in ("local", "axis"):
        kinds = ("local",) if symbol.kind == "local" else ("axis",)
        inner = {
            each.symbol.name
            for item in analysis.items
            if getattr(item, "name", None) == symbol.owner
            for each in occurrences(analysis, item)
            if each.symbol.kind in kinds
        }
        return inner | globals_here
    inner = {
        each.symbol.name
        for item in analysis.items
        for each in occurrences(analysis, item)
        if each.symbol.kind in ("local", "axis")
    }
    return globals_here | inner
