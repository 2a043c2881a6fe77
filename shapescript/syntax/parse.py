"""What the rest of the compiler calls: text to tree.

`parse` takes a source and gives its declarations and what is wrong with its text; `parse_devices` reads the devices
of a command line. Neither raises on any text, and no tree they give is nested so deep that a walk of it can fail, in
the `room` for it: deeper than 100 is E0123, and so is a chain of more than 1,000 operators. A text with errors still
gives the tree of what was understood: `Lost` and `LostDeclaration` stand for the rest. A `devices` line that is lost
gives a `LostDeclaration` without a name.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.source import Source
from shapescript.syntax import tables, tree
from shapescript.syntax.expected import unexpected
from shapescript.syntax.grammar_declarations import declared_name
from shapescript.syntax.layout import Item, items
from shapescript.syntax.rules import TokenStream
from shapescript.syntax.tokens import MOST_CHAINED, MOST_NESTING, Reporter


@dataclass(frozen=True, slots=True)
class Parsed:
    """The declarations of a file in its order, and its errors in the order of their places."""

    items: list[tree.Declaration]
    diagnostics: list[Diagnostic]


@lru_cache(maxsize=1)
def _parser() -> Any:
    """The parser, made when a text is first read."""
    return tables.parser()


def parse(source: Source) -> Parsed:
    """The tree of a program's text."""
    reporter = Reporter(source)
    found = [parse_item(item, reporter) for item in items(source.text, reporter)]
    declarations = [node for node in found if node is not None]
    return Parsed(declarations, sorted(reporter.diagnostics, key=lambda d: d.sort_key))


def parse_devices(text: str, name: str = "--devices") -> tuple[tree.DeviceSpec | None, list[Diagnostic]]:
    """The devices that `text` means, such as `cpu[0 1 2]`; the diagnostics show it after the word `devices`."""
    source = Source(name, f"devices {text.strip()}")
    parsed = parse(source)
    if parsed.diagnostics:
        return None, parsed.diagnostics
    if len(parsed.items) == 1 and isinstance(node := parsed.items[0], tree.Devices) and not node.options:
        return node.spec, []
    reporter = Reporter(source)
    message = f"`{text}` doesn't say which devices to use"
    reporter.report("E0110", 0, len(source.text), message, "write `cpu`, `mps`, `cuda[0]` or `cuda[0 1 2]`")
    return None, reporter.diagnostics


def parse_item(item: Item, reporter: Reporter) -> tree.Declaration | None:
    """One top-level item by itself, so that a broken one can't hide another."""
    if not item.tokens:
        return None
    if any(line.lost and brackets_too_deep(line.tokens) for line in item.lines):
        return lost_item(item)
    stream = TokenStream(item.tokens, reporter)
    parser = copy.copy(_parser())
    parser.errorfunc = lambda token: unexpected(parser, token, stream)
    node: tree.Declaration | None = parser.parse(lexer=stream)
    if node is None:
        return lost_item(item)
    deep = too_deep(node) if may_be_deep(item) else None
    if deep is None:
        return node
    if not any(line.lost for line in item.lines):
        chained = link_below(deep) is not None
        message = f"a chain of more than {MOST_CHAINED} operators" if chained else f"nested deeper than {MOST_NESTING}"
        help = "give parts of it names on lines of their own, or move an inner part to a function"
        reporter.report("E0123", deep.start, deep.end, message, help)
    return lost_item(item)


def lost_item(item: Item) -> tree.LostDeclaration:
    """What stands for an item of which nothing was understood but its name."""
    head = item.lines[0]
    end = item.lines[-1].tokens[-1].end
    return tree.LostDeclaration(head.tokens[0].start, end, declared_name(head), [])


def brackets_too_deep(tokens: list[Any]) -> bool:
    """Are there more open brackets at once than may be?"""
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth > MOST_NESTING:
            return True
    return False


def may_be_deep(item: Item) -> bool:
    """Could the tree be deeper than allowed? A line adds no more levels than it has tokens, a block two."""
    indents = sum(token.type == "INDENT" for token in item.tokens)
    branches = sum(line.tokens[0].type == "ELIF" for line in item.lines)
    return max(len(line.tokens) for line in item.lines) + 2 * indents + branches > MOST_NESTING - 10


def too_deep(root: tree.Node) -> tree.Node | None:
    """The first node that is nested too deep, if there is one."""
    stack = [(root, 0, 0)]
    while stack:
        node, depth, links = stack.pop()
        if depth > MOST_NESTING or links > MOST_CHAINED:
            return node
        link = link_below(node)
        for child in reversed(list(node.children())):
            stack.append((child, depth, links + 1) if child is link else (child, depth + 1, 0))
    return None


def link_below(node: tree.Node) -> tree.Expr | None:
    """The next link of a chain of operators or of pipes, if this is one and it goes on."""
    if isinstance(node, tree.Binary) and isinstance(node.left, tree.Binary) and node.op != "**":
        return node.left
    if isinstance(node, tree.Pipe) and isinstance(node.value, tree.Pipe):
        return node.value
    return None
