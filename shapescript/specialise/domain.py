"""What the evaluator asks of the world that its tensors live in.

Gives `Domain`, which has two implementations: `trace.TraceDomain`, where a tensor is a node of a graph being made,
and the controller's `HostDomain`, where it is data on a device. All else about a program is the evaluator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from shapescript.diagnostics.diagnostic import Diagnostic, Label, ProgramError
from shapescript.source import Span
from shapescript.specialise.values import TensorValue, Value
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.kinds import Type
from shapescript.types.uses import BuiltinUse

if TYPE_CHECKING:
    from shapescript.specialise.evaluator import Evaluator
    from shapescript.specialise.frame import Frame

Builtin: TypeAlias = "Callable[[Evaluator, Frame, BuiltinUse, tree.Expr], Value]"


class Domain(Protocol):
    """Where tensors live. Axes handed in are already bound to those of the domain."""

    builtins: Mapping[str, Builtin]

    def emit(
        self, op: str, operands: Sequence[TensorValue], attributes: Mapping[str, object], span: Span | None
    ) -> TensorValue:
        """A tensor operation's result."""

    def constant(self, value: int | float | bool, element: Element) -> TensorValue:
        """A scalar."""

    def local_axis(self, axis: Axis) -> Axis:
        """The axis of the domain for a name that a function introduces itself (a pattern's new name)."""

    def learn(self, sizes: Mapping[str, int]) -> None:
        """Atoms' values that a tensor's shape told."""

    def size_of(self, axis: Axis) -> int | None:
        """How long an axis is, where that is known now."""

    def number(self, value: TensorValue, span: Span) -> int | float | bool:
        """A scalar tensor's value, looked at.

        Raises:
            ProgramError: it isn't known in this domain.
        """

    def blamed(self, span: Span) -> AbstractContextManager[None]:
        """Within it, operations that have no text of their own belong to this one."""

    def repeated(self) -> AbstractContextManager[None]:
        """What is made within it is computed again where a gradient needs it, and isn't kept till then."""

    def rounded_products(self, element: str) -> AbstractContextManager[None]:
        """Within it, the operands of products are rounded to `element`, and added up as they are."""

    def from_python(self, frame: Frame, value: Value, of: Type, span: Span) -> Value:
        """What `value as type` gives for a value from Python.

        Raises:
            ProgramError: the value isn't of that type.
        """

    def runs_whole(self, function: tree.Function) -> bool:
        """Whether `enter` runs it."""

    def add_part(self, function: tree.Function) -> None:
        """Makes a function one that `enter` runs: a part of one that it would run too."""

    def enter(
        self, function: tree.Function, arguments: list[Value], frame: Frame, training: bool
    ) -> tuple[bool, Value]:
        """Runs a function as a whole where the domain does that; (False, None) where it is evaluated here.

        `training`: dropout and batch_norm in it act as in training.
        """


def problem(code: str, message: str, span: Span, notes: Sequence[str] = (), helps: Sequence[str] = ()) -> ProgramError:
    """The error at a place of the program."""
    return ProgramError(Diagnostic(code, message, Label(span), (), tuple(notes), tuple(helps)))
