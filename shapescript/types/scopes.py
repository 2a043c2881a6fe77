"""The locals of a function as control flow goes, and how two types of one name join.

Gives `Local`, `Locals` (what each name is at a place, layered so that a branch costs only what it changes) and `join`.
Reports nothing: `check_statements.py` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shapescript.source import Span
from shapescript.types.axes import same_axes
from shapescript.types.element import Element
from shapescript.types.kinds import PYTHON, Host, PythonValue, Tensor, TupleOf, Type, Wrong


@dataclass(frozen=True)
class Local:
    """What a name is. `maybe` says that it was assigned in one branch only, at `span`."""

    type: Type
    span: Span
    mutable: bool = True
    parameter: bool = False
    maybe: bool = False


@dataclass
class Locals:
    """The names at a place: `changes` over those of `parent`."""

    parent: Locals | None = None
    changes: dict[str, Local] = field(default_factory=dict)

    def get(self, name: str) -> Local | None:
        """What the name is here."""
        at: Locals | None = self
        while at is not None:
            found = at.changes.get(name)
            if found is not None:
                return found
            at = at.parent
        return None

    def set(self, name: str, local: Local) -> None:
        """Gives the name a new meaning from here on."""
        self.changes[name] = local

    def branch(self) -> Locals:
        """A layer for a block."""
        return Locals(self)

    def changed_since(self, base: Locals) -> Iterator[tuple[str, Local]]:
        """The names changed between `base` and here, innermost first, each once."""
        seen: set[str] = set()
        at: Locals | None = self
        while at is not None and at is not base:
            for name, local in at.changes.items():
                if name not in seen:
                    seen.add(name)
                    yield name, local
            at = at.parent

    def visible(self) -> list[str]:
        """Every name here, for suggestions."""
        names: dict[str, None] = {}
        at: Locals | None = self
        while at is not None:
            names.update(dict.fromkeys(at.changes))
            at = at.parent
        return list(names)


def join(a: Type, b: Type) -> Type | None:
    """The one type that is both, where a name has `a` by one path and `b` by another; None if there is none.

    An int beside a float is a float; a host number beside a scalar tensor is that tensor; refinements that differ are
    forgotten; with a Python value anything is a Python value but a tensor.
    """
    if a == b or isinstance(b, Wrong):
        return a
    if isinstance(a, Wrong):
        return b
    if isinstance(a, Host) and isinstance(b, Host):
        return Host("float") if {a.name, b.name} == {"int", "float"} else None
    if isinstance(a, PythonValue) or isinstance(b, PythonValue):
        return None if isinstance(a, Tensor) or isinstance(b, Tensor) else PYTHON
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _join_tensors(a, b)
    if isinstance(a, Host) and isinstance(b, Tensor):
        return _join_number(a, b)
    if isinstance(a, Tensor) and isinstance(b, Host):
        return _join_number(b, a)
    if isinstance(a, TupleOf) and isinstance(b, TupleOf) and len(a.items) == len(b.items):
        items = [join(x, y) for x, y in zip(a.items, b.items, strict=True)]
        known = [item for item in items if item is not None]
        return TupleOf(tuple(known)) if len(known) == len(items) else None
    return a if str(a) == str(b) and type(a) is type(b) else None


def _join_number(number: Host, tensor: Tensor) -> Tensor | None:
    if tensor.axes or number.name not in ("int", "float", "bool"):
        return None
    element = tensor.element
    if number.name == "bool":
        return tensor if element.is_bool else None
    if element.is_bool or (number.name == "float" and element.is_whole):
        return None
    return Tensor((), Element(element.name))


def _join_tensors(a: Tensor, b: Tensor) -> Tensor | None:
    if not same_axes(a.axes, b.axes) or a.element.name != b.element.name:
        return None
    axes = tuple(x if x.batch or not y.batch else y for x, y in zip(a.axes, b.axes, strict=True))
    if a.element.fits(b.element):
        return Tensor(axes, b.element)
    if b.element.fits(a.element):
        return Tensor(axes, a.element)
    return Tensor(axes, a.element.base)
