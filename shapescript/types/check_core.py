"""The state of the check of one function: scopes, axes, and the tables that it fills.

Gives `Core`, which implements `context.Context` and `check_types.Scope`; the files that know statements, calls and
built-ins take it as their first argument. What an expression means is `checker.py`'s dispatch, handed in.

A loop's body may be checked again with wider types (`forget`), so what was found in it is kept in a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shapescript.diagnostics.diagnostic import Fix, Label
from shapescript.diagnostics.of_pytorch import NAMES
from shapescript.source import Span
from shapescript.syntax import tree
from shapescript.types import check_types
from shapescript.types.axes import Axis
from shapescript.types.check_declarations import Declarations
from shapescript.types.kinds import (
    WRONG,
    Host,
    PythonValue,
    Tensor,
    TupleOf,
    Type,
    Wrong,
)
from shapescript.types.scopes import Local, Locals
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import DimInfo, FunctionInfo
from shapescript.types.unify import Mismatch, match
from shapescript.types.uses import Use


@dataclass
class Loop:
    """A loop being checked: `known` are the names assigned in it, wherever in it."""

    base: Locals
    known: dict[str, Local] = field(default_factory=dict)
    widened: dict[str, Type] = field(default_factory=dict)
    missed: bool = False
    tried: bool = False


class Core:
    """One function (or the initialisers of a file) being checked."""

    def __init__(self, here: Declarations, info: FunctionInfo | None, check: Callable[[Core, tree.Expr], Type]) -> None:
        self.here = here
        self.program = here.program
        self.info = info
        self.check = check
        self.locals = Locals()
        self.axes: dict[str, Axis] = dict(info.axes) if info is not None else {}
        self.loops: list[Loop] = []
        self.journal: list[tree.Node] = []
        self.fresh = 0
        self.assigned: frozenset[str] | None = None
        if info is not None:
            for parameter in info.parameters:
                span = here.span(parameter.node)
                mutable = parameter.mut or not _holds_model(parameter.type)
                self.locals.set(parameter.name, Local(parameter.type, span, mutable, parameter=True))

    # --- Context

    def type_of(self, expr: tree.Expr) -> Type:
        found = self.program.types.get(expr)
        if found is None:
            found = self.check(self, expr)
            self.set_type(expr, found)
        return found

    def axis_of(self, size: tree.Expr) -> Axis | None:
        return check_types.axis_of(self, size)

    def size_of(self, expr: tree.Expr) -> Size | None:
        match expr:
            case tree.Number(value=int() as number):
                return Size.of(number)
            case tree.Group():
                return self.size_of(expr.inner)
            case tree.Name():
                return self._size_named(expr.name)
            case tree.Binary(op="+" | "-" | "*" | "/" | "//"):
                left, right = self.size_of(expr.left), self.size_of(expr.right)
                if left is None or right is None:
                    return None
                try:
                    size = check_types.compute("/" if expr.op == "//" else expr.op, left, right)
                except SizeError:
                    return None
                return None if expr.op == "//" and size.owes else size
            case tree.Attribute(of=tree.Name(name=module)) if self.locals.get(module) is None:
                info = self.module_dim(module, expr.name)
                return info.axis.size if info is not None else None
        return None

    def _size_named(self, name: str) -> Size | None:
        local = self.locals.get(name)
        if local is not None:
            whole = isinstance(local.type, Host) and local.type.name == "int"
            return Size.atom(name) if local.parameter and whole else None
        axis = self.axis_named(name)
        if axis is not None and not axis.batch:
            return axis.size
        constant = self.program.constants.get(name)
        if constant is not None and isinstance(constant.value, int) and not isinstance(constant.value, bool):
            return Size.of(constant.value) if constant.value >= 0 else None
        return None

    def unsound(self, size: Size) -> str | None:
        return self.here.unsound(size)

    def length_of(self, axis: Axis) -> int | None:
        try:
            return axis.size.evaluate(self.program.known_sizes())
        except SizeError:
            return None

    def declare_axis(self, name: str, axis: Axis) -> None:
        self.axes[name] = axis

    def axis_named(self, name: str) -> Axis | None:
        found = self.axes.get(name)
        if found is not None:
            return found
        local = self.locals.get(name)
        if local is not None and local.parameter and local.type == Host("int"):
            return Axis.named(name)
        return self.here.axis_named(name)

    def report(
        self,
        code: str,
        message: str,
        node: tree.Node | Span,
        words: str = "",
        secondary: Sequence[Label] = (),
        notes: Sequence[str] = (),
        helps: Sequence[str] = (),
        fixes: Sequence[Fix] = (),
    ) -> None:
        self.here.report(code, message, node, words, secondary, notes, helps, fixes)

    def use(self, node: tree.Node, use: Use) -> None:
        self.program.uses[node] = use

    def span(self, node: tree.Node) -> Span:
        return self.here.span(node)

    def source_text(self, node: tree.Node) -> str:
        return self.span(node).text

    # --- check_types.Scope

    def new_axis(self, name: str) -> Axis | None:
        return None

    def any_axes(self) -> bool:
        return self.info is not None and self.info.spread

    def model_named(self, module: str | None, name: str) -> tree.Model | None:
        return self.here.model_named(module, name)

    @property
    def declaring(self) -> tree.Model | None:
        return None

    def data_named(self, module: str | None, name: str) -> tree.Data | None:
        return self.here.data_named(module, name)

    def model_dims(self, model: tree.Model) -> int:
        return len(model.dims)

    def module_dim(self, module: str, name: str) -> DimInfo | None:
        return self.here.module_dim(module, name)

    def known_capitals(self) -> Sequence[str]:
        return self.here.known_capitals()

    def known_axes(self) -> Sequence[str]:
        return [*self.axes, *self.here.known_axes()]

    def similar(self, name: str, candidates: Sequence[str]) -> str | None:
        return self.here.similar(name, candidates)

    def is_lost(self, name: str) -> bool:
        return self.here.is_lost(name)

    def lose(self, name: str) -> None:
        self.here.lose(name)

    # --- tables

    def set_type(self, expr: tree.Expr, of: Type) -> Type:
        """Keeps an expression's type."""
        self.program.types[expr] = of
        if self.loops:
            self.journal.append(expr)
        return of

    def mark(self) -> tuple[int, int]:
        """A point to which `forget` can go back."""
        return len(self.journal), len(self.here.diagnostics)

    def forget(self, mark: tuple[int, int]) -> None:
        """Forgets types and diagnostics found since `mark`."""
        journal, diagnostics = mark
        for node in self.journal[journal:]:
            if isinstance(node, tree.Expr):
                self.program.types.pop(node, None)
        del self.journal[journal:]
        del self.here.diagnostics[diagnostics:]

    def fresh_axis(self, name: str, *, batch: bool = False) -> Axis:
        """An axis whose size is known only when the program runs."""
        self.fresh += 1
        return Axis.named(f"{name}{self.fresh}", batch=batch)

    # --- types that meet

    def accepts(self, wanted: Type, found: Type) -> Mismatch | None:
        """Why a value of type `found` can't stand where `wanted` is asked for; None if it can."""
        outcome = match([wanted], [met(wanted, found)], ())
        return outcome if isinstance(outcome, Mismatch) else None

    def unknown(self, name: str, node: tree.Node, what: str, candidates: Sequence[str]) -> Wrong:
        """E0201, once, with what may have been meant."""
        if not self.is_lost(name):
            similar = None if name in NAMES else self.here.similar(name, candidates)
            helps = (f"did you mean `{similar}`?",) if similar else ()
            helps = (NAMES[name],) if name in NAMES else helps
            self.report("E0201", f"there is no {what} `{name}`", node, helps=helps)
        return WRONG


def met(wanted: Type, found: Type) -> Type:
    """The type that a value takes on where `wanted` is asked for: a host number becomes a scalar tensor."""
    if isinstance(wanted, Tensor) and isinstance(found, Host) and not wanted.axes:
        element = wanted.element
        whole = found.name == "int"
        if found.name == "bool":
            return wanted if element.is_bool else found
        if found.name not in ("int", "float") or element.is_bool or element.refinement == "Index":
            return found
        return (
            Tensor((), element.base if element.refinement is not None else element)
            if whole or element.is_float
            else found
        )
    if isinstance(wanted, TupleOf) and isinstance(found, TupleOf) and len(wanted.items) == len(found.items):
        return TupleOf(tuple(map(met, wanted.items, found.items)))
    return found


def _holds_model(of: Type) -> bool:
    """Whether a parameter of this type is changed only with `mut`."""
    return not isinstance(of, (Host, PythonValue, Tensor))


def root_of(expr: tree.Expr) -> tree.Name | None:
    """The name at the root of `m.blocks[i].w`."""
    while isinstance(expr, (tree.Attribute, tree.Index, tree.Group)):
        expr = expr.inner if isinstance(expr, tree.Group) else expr.of
    return expr if isinstance(expr, tree.Name) else None


def literal_number(expr: tree.Expr) -> int | float | None:
    """The value of a number as written, with its sign."""
    if isinstance(expr, tree.Group):
        return literal_number(expr.inner)
    if isinstance(expr, tree.Unary) and expr.op == "-":
        value = literal_number(expr.operand)
        return -value if value is not None else None
    return expr.value if isinstance(expr, tree.Number) else None
