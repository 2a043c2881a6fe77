"""Which tokens stand apart: the spaces of the one style.

Takes the tree of a file and the tokens of a logical line; gives for each token whether a space stands before it. What
a token's neighbours don't show (a size's `*` or an expression's, an axis `..` or a range's) is read from the tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from shapescript.syntax import tree
from shapescript.syntax.tokens import Token

OPERAND_ENDS = frozenset("NAME NUMBER STRING TRUE FALSE RPAREN RBRACK".split())
NO_SPACE_BEFORE = frozenset("RPAREN RBRACK COMMA COLON".split())
NO_SPACE_AFTER = frozenset("LPAREN PATPAREN ARGPAREN LBRACK LAXES DOT BANG".split())
OPENERS = frozenset("LPAREN PATPAREN ARGPAREN LBRACK LAXES".split())
ROUND = frozenset("LPAREN PATPAREN ARGPAREN".split())
ARITHMETIC = frozenset("+ - * / // %".split())


class Spacing:
    """The facts of one file's tree that its spaces depend on: offsets of tokens."""

    def __init__(self, items: Iterable[tree.Node], tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.starts = [token.start for token in tokens]
        self.tight: set[int] = set()
        self.callee: set[int] = set()
        self.element: set[int] = set()
        for item in items:
            for node in item.walk():
                self.take(node)

    def take(self, node: tree.Node) -> None:
        """Keeps what a node says about its tokens."""
        match node:
            case tree.Call():
                self.callee.add(self.first_from(node.function.end).start)
            case tree.Function() | tree.Extern():
                self.callee.add(self.first_from(node.name_start + 1).start)
            case tree.AnyAxes():
                self.element.add(node.start)
            case tree.Axes() | tree.Merged() | tree.WithAxes():
                for size in node.sizes:
                    self.size(size)
            case tree.NamedType(arguments=list() as arguments):
                for argument in arguments:
                    self.size(argument)
            case tree.IndexItem():
                self.size(node.axis)
                self.size(node.value)
            case tree.Range() | tree.Slice():
                self.size(node.first)
                self.size(node.last)
            case tree.Binary(op="**") if is_simple(node.left) and is_simple(node.right):
                self.tight.add(self.first_from(node.left.end).start)

    def first_from(self, offset: int) -> Token:
        """The first token that begins at an offset or after it."""
        return self.tokens[bisect_left(self.starts, offset)]

    def size(self, node: tree.Node | None) -> None:
        """A size, an index or an end of `a..b`: its arithmetic is tight, so that one item looks like one."""
        if isinstance(node, tree.Binary) and node.op in ARITHMETIC:
            self.tight.add(self.first_from(node.left.end).start)
            self.size(node.left)
            self.size(node.right)
        elif isinstance(node, tree.Group):
            self.size(node.inner)

    def before(self, tokens: Sequence[Token]) -> list[bool]:
        """For each token of a logical line, whether a space stands before it."""
        spaces: list[bool] = []
        opened: list[bool] = []  # of each open bracket, whether `=` in it is a parameter's default
        for number, token in enumerate(tokens):
            last = tokens[number - 1] if number else None
            unary = last is not None and is_unary(tokens, number - 1)
            parameters = not opened or opened[-1]
            spaces.append(last is not None and self.space(last, token, unary, parameters))
            if token.type in OPENERS:
                head = tokens[0].type in ("FN", "EXTERN") and not opened and token.type == "LPAREN"
                opened.append(head and number in (2, 3))
            elif token.type in ("RPAREN", "RBRACK") and opened:
                opened.pop()
        return spaces

    def space(self, last: Token, token: Token, unary: bool, parameters: bool) -> bool:
        """Whether a space stands between two tokens."""
        if token.type == "DOT":
            return last.type == "NUMBER"
        if token.type in NO_SPACE_BEFORE or last.type in NO_SPACE_AFTER or unary:
            return False
        if token.type in ROUND and last.type in OPERAND_ENDS:
            return token.start not in self.callee
        if token.type in ("LBRACK", "LAXES") and last.type in OPERAND_ENDS:
            return False
        if "ASSIGN" in (token.type, last.type):
            return parameters
        if "DOTDOT" in (token.type, last.type):
            return self.beside_dots(last, token)
        return token.start not in self.tight and last.start not in self.tight

    def beside_dots(self, last: Token, token: Token) -> bool:
        """Whether a space stands beside a `..`: it is one of the axes, or ends a range's first part."""
        if last.type == token.type:
            return True
        dots = token if token.type == "DOTDOT" else last
        if dots.start in self.element:
            return True
        return last.type not in OPERAND_ENDS | {"DOTDOT"}


def is_unary(tokens: Sequence[Token], number: int) -> bool:
    """Whether a token is a sign before an operand."""
    token = tokens[number]
    if token.type == "BANG":
        return True
    return token.type == "MINUS" and (number == 0 or tokens[number - 1].type not in OPERAND_ENDS)


def is_simple(node: tree.Expr) -> bool:
    """A name, a field or a number, with a sign or without."""
    if isinstance(node, tree.Unary):
        return node.op == "-" and is_simple(node.operand)
    if isinstance(node, tree.Attribute):
        return is_simple(node.of)
    return isinstance(node, (tree.Name, tree.Number))
