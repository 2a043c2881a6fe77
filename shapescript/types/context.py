"""What the checker of expressions asks of the checker's core.

Gives `Context`, the protocol between them, and `Arguments`. The core walks statements, knows the scopes and keeps the
tables of types and uses; the files `check_operators`, `check_patterns`, `check_index` and `check_makers` know what
each tensor expression means and hand their finding back through `use`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from shapescript.diagnostics.diagnostic import Label
from shapescript.source import Span
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import Type
from shapescript.types.size import Size
from shapescript.types.uses import Use

Arguments: TypeAlias = Sequence[tuple[str | None, tree.Expr]]
"""The arguments of a call in the text's order, with their names; a pipe's value is the first of them."""


class Context(Protocol):
    """The checker's core, within one function."""

    def type_of(self, expr: tree.Expr) -> Type:
        """The type of an expression, checked now if it wasn't; `WRONG` if an error was reported."""

    def axis_of(self, size: tree.Expr) -> Axis | None:
        """The axis that a size in brackets means in this function; None after an error is reported."""

    def size_of(self, expr: tree.Expr) -> Size | None:
        """The size that an expression is where it is known as one (numbers, dims, `int` parameters); else None.

        Reports nothing.
        """

    def unsound(self, size: Size) -> str | None:
        """Why a size can't be for the dims' values; None where it can, or where they aren't all known."""

    def length_of(self, axis: Axis) -> int | None:
        """How long an axis is, where dims' values tell; for messages alone."""

    def declare_axis(self, name: str, axis: Axis) -> None:
        """Makes a pattern's name an axis of this function, to its end."""

    def axis_named(self, name: str) -> Axis | None:
        """The axis or dim that this name means in this function."""

    def is_lost(self, name: str) -> bool:
        """Whether this name's declaration is wrong; nothing more is said about it."""

    def report(
        self,
        code: str,
        message: str,
        node: tree.Node | Span,
        words: str = "",
        secondary: Sequence[Label] = (),
        notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:
        """Reports an error or a warning; `words` stand under its place."""

    def use(self, node: tree.Node, use: Use) -> None:
        """Keeps what a node means."""

    def span(self, node: tree.Node) -> Span:
        """Where a node stands."""

    def source_text(self, node: tree.Node) -> str:
        """A node as written."""


Operation: TypeAlias = Callable[[Context, tree.Expr, "tree.Pattern | None", Arguments], Type]
"""Checks one call of a built-in tensor operation: gives its type, keeps its use on the node handed in.

The arguments are: the context; the node that the use is kept on (the `Call`, or the `Pipe` for `x |> softmax(over=m)`,
or the `Name` in `x |> relu`'s stead: the core hands in the `Pipe`); the pattern in the brackets, if one stands there;
the arguments.
"""
