"""Matches the parameter types of a callee against the types of the arguments.

Takes types over the callee's axis variables and types over the caller's axes; gives `Bindings`, or a `Mismatch` that
says enough for a good error. Who called whom, and the words, are the checker's.

The callee's variables are made fresh first, since the caller may use the same names. Bare variables are bound where
they stand; sizes with variables in them wait until one unknown is left and are solved for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shapescript.types.axes import ANY_AXES, Axis, same, same_axes, substitute_axes
from shapescript.types.kinds import (
    Batch,
    Gradients,
    Host,
    ModelList,
    ModelOf,
    Optimizer,
    Tensor,
    TupleOf,
    Type,
    Wrong,
)
from shapescript.types.size import Size, SizeError

FRESH = "?"


@dataclass(frozen=True)
class Bindings:
    """The axes that the callee's variables stand for.

    `spread` is what `..` stands for, None if the signature has none. `owed` are the sizes that must be whole numbers.
    `bound_by` is the argument that fixed each variable.
    """

    axes: dict[str, Axis]
    spread: tuple[Axis, ...] | None = None
    owed: tuple[Size, ...] = ()
    bound_by: dict[str, int] = field(default_factory=dict)

    def apply(self, of: Type) -> Type:
        """A type of the callee's in the caller's axes."""
        return substitute_type(of, self.axes, self.spread)


@dataclass(frozen=True)
class Mismatch:
    """Why the arguments don't fit.

    `kind`: `type` (another kind of value), `rank`, `axis`, `element`, `two axes` (a variable bound twice),
    `spread` (`..` bound twice), `infer` (a variable is left), `size` (an equation has no solution).
    `argument` is whose fault; `wanted` and `found` are the types there, `axis` and `found_axis` the axes in them.
    `variable` was bound to `bound` by the argument `first`, where `kind` is about a variable.
    """

    kind: str
    argument: int
    wanted: Type
    found: Type
    axis: Axis | None = None
    found_axis: Axis | None = None
    variable: str | None = None
    bound: Axis | None = None
    first: int | None = None


def substitute_type(of: Type, names: Mapping[str, Axis], spread: Sequence[Axis] | None = None) -> Type:
    """A type with axis variables bound."""
    if isinstance(of, Tensor):
        element = of.element
        if element.bound is not None:
            sizes = {atom: names[atom].size for atom in element.bound.atoms if atom in names}
            element = replace(element, bound=element.bound.substitute(sizes))
        return Tensor(substitute_axes(of.axes, names, spread), element)
    if isinstance(of, Batch):
        return Batch(of.data, of.axis.substitute(names))
    if isinstance(of, ModelOf):
        return ModelOf(of.declaration, substitute_axes(of.arguments, names, spread))
    if isinstance(of, ModelList):
        return _models(of, names)
    if isinstance(of, Optimizer):
        return Optimizer(of.kind, _models(of.model, names))
    if isinstance(of, Gradients):
        return Gradients(_models(of.model, names))
    if isinstance(of, TupleOf):
        return TupleOf(tuple(substitute_type(item, names, spread) for item in of.items))
    return of


def _models(of: ModelOf | ModelList, names: Mapping[str, Axis]) -> ModelOf | ModelList:
    return (
        ModelList(of.length.substitute(names), _model(of.model, names))
        if isinstance(of, ModelList)
        else _model(of, names)
    )


def _model(of: ModelOf, names: Mapping[str, Axis]) -> ModelOf:
    return ModelOf(of.declaration, tuple(axis.substitute(names) for axis in of.arguments))


def match(
    parameters: Sequence[Type],
    arguments: Sequence[Type],
    variables: Iterable[str],
    known: Mapping[str, Axis] | None = None,
) -> Bindings | Mismatch:
    """Binds the callee's variables so that each argument's type is its parameter's.

    Args:
        parameters: the types of the signature, over `variables`.
        arguments: the types handed in, as many, over the caller's axes. A `Wrong` matches anything.
        variables: the callee's axis variables; names of dims aren't.
        known: bindings that are given otherwise: the sizes of `int` parameters.
    """
    names = list(variables)
    fresh = {name: Axis.named(FRESH + name) for name in names}
    matcher = _Matcher(frozenset(FRESH + name for name in names))
    matcher.bound.update({FRESH + name: axis for name, axis in (known or {}).items()})
    for at, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
        matcher.at(at, parameter, argument)
        if not matcher.types(substitute_type(parameter, fresh), argument):
            return matcher.trouble()
    if not matcher.settle():
        return matcher.trouble()
    axes = {name: matcher.bound[FRESH + name] for name in names if FRESH + name in matcher.bound}
    by = {name: matcher.by[FRESH + name] for name in names if FRESH + name in matcher.by}
    return Bindings(axes, matcher.spread, tuple(matcher.owed), by)


@dataclass
class _Equation:
    """A size of the callee's that must be one of the caller's, and the argument that says so."""

    axis: Axis
    found: Size
    found_axis: Axis | None
    argument: int
    wanted: Type
    given: Type


class _Matcher:
    """One call's bindings as they grow; every method gives False when it has put down a mismatch."""

    def __init__(self, variables: frozenset[str]) -> None:
        self.variables = variables
        self.bound: dict[str, Axis] = {}
        self.by: dict[str, int] = {}
        self.spread: tuple[Axis, ...] | None = None
        self.owed: list[Size] = []
        self.waiting: list[_Equation] = []
        self.mismatch: Mismatch | None = None
        self.argument = 0
        self.wanted: Type = Wrong()
        self.found: Type = Wrong()

    def at(self, argument: int, wanted: Type, found: Type) -> None:
        """Says which argument the next mismatch is about."""
        self.argument, self.wanted, self.found = argument, wanted, found

    def trouble(self) -> Mismatch:
        """The mismatch put down."""
        return self.mismatch or Mismatch("type", self.argument, self.wanted, self.found)

    def fail(
        self,
        kind: str,
        axis: Axis | None = None,
        found: Axis | None = None,
        variable: str | None = None,
        bound: Axis | None = None,
    ) -> bool:
        first = self.by.get(variable) if variable is not None else None
        shown = variable.removeprefix(FRESH) if variable is not None else None
        words = {name: Axis.named(name.removeprefix(FRESH)) for name in self.variables}
        written = axis.substitute(words) if axis is not None else None
        self.mismatch = Mismatch(kind, self.argument, self.wanted, self.found, written, found, shown, bound, first)
        return False

    def types(self, wanted: Type, found: Type) -> bool:
        if isinstance(found, Wrong) or isinstance(wanted, Wrong):
            return True
        if isinstance(wanted, Host) and isinstance(found, Host):
            return wanted == found or (wanted.name, found.name) == ("float", "int") or self.fail("type")
        if type(wanted) is not type(found):
            return self.fail("type")
        if isinstance(wanted, Tensor) and isinstance(found, Tensor):
            return self.tensors(wanted, found)
        if isinstance(wanted, Batch) and isinstance(found, Batch):
            return (wanted.data is found.data or self.fail("type")) and self.axis(wanted.axis, found.axis)
        if isinstance(wanted, ModelOf) and isinstance(found, ModelOf):
            return self.models(wanted, found)
        if isinstance(wanted, ModelList) and isinstance(found, ModelList):
            return self.axis(wanted.length, found.length) and self.models(wanted.model, found.model)
        if isinstance(wanted, Optimizer) and isinstance(found, Optimizer):
            return (wanted.kind == found.kind or self.fail("type")) and self.types(wanted.model, found.model)
        if isinstance(wanted, Gradients) and isinstance(found, Gradients):
            return self.types(wanted.model, found.model)
        if isinstance(wanted, TupleOf) and isinstance(found, TupleOf):
            if len(wanted.items) != len(found.items):
                return self.fail("type")
            return all(map(self.types, wanted.items, found.items))
        return wanted == found or self.fail("type")

    def models(self, wanted: ModelOf, found: ModelOf) -> bool:
        if wanted.declaration is not found.declaration or len(wanted.arguments) != len(found.arguments):
            return self.fail("type")
        return all(map(self.axis, wanted.arguments, found.arguments))

    def tensors(self, wanted: Tensor, found: Tensor) -> bool:
        names = [axis.name for axis in wanted.axes]
        if ANY_AXES.name in names:
            place = names.index(ANY_AXES.name)
            after = len(names) - place - 1
            if len(found.axes) < len(names) - 1:
                return self.fail("rank")
            last = len(found.axes) - after
            spread = found.axes[place:last]
            if self.spread is not None and not same_axes(self.spread, spread):
                return self.fail("spread")
            self.spread = self.spread if self.spread is not None else spread
            pairs = list(zip(wanted.axes[:place], found.axes[:place], strict=True))
            pairs += zip(wanted.axes[place + 1 :], found.axes[last:], strict=True)
        elif len(wanted.axes) != len(found.axes):
            return self.fail("rank")
        else:
            pairs = list(zip(wanted.axes, found.axes, strict=True))
        if not all(self.axis(w, f) for w, f in pairs):
            return False
        return self.elements(wanted, found)

    def elements(self, wanted: Tensor, found: Tensor) -> bool:
        bound, given = wanted.element.bound, found.element.bound
        if bound is not None and given is not None and not self.variables.isdisjoint(bound.atoms):
            self.waiting.append(_Equation(self._axis(bound), given, None, self.argument, self.wanted, self.found))
            return True
        return found.element.fits(wanted.element) or self.fail("element")

    def _axis(self, size: Size) -> Axis:
        names = [name for name in self.variables if size == Size.atom(name)]
        return Axis.named(names[0]) if names else Axis.of(size)

    def axis(self, wanted: Axis, found: Axis) -> bool:
        if wanted.name is not None and wanted.name in self.variables:
            return self.bind(wanted.name, found, wanted)
        if wanted.parts and len(wanted.parts) == len(found.parts):
            return all(map(self.axis, wanted.parts, found.parts))
        if self.variables.isdisjoint(wanted.size.atoms):
            return same(wanted, found) or self.fail("axis", wanted, found)
        self.waiting.append(_Equation(wanted, found.size, found, self.argument, self.wanted, self.found))
        return True

    def bind(self, name: str, found: Axis, wanted: Axis) -> bool:
        if name not in self.bound:
            self.bound[name] = found
            self.by[name] = self.argument
            return True
        if same(self.bound[name], found):
            if found.batch and not self.bound[name].batch:
                self.bound[name] = replace(self.bound[name], batch=True)
            return True
        return self.fail("two axes", wanted, found, name, self.bound[name])

    def settle(self) -> bool:
        """Solves what waits, in any order, until nothing changes."""
        changed = True
        while changed and self.waiting:
            changed = False
            for equation in list(self.waiting):
                self.at(equation.argument, equation.wanted, equation.given)
                solved = self.solve(equation)
                if solved is None:
                    continue
                self.waiting.remove(equation)
                changed = True
                if not solved:
                    return False
        if self.waiting:
            left = self.waiting[0]
            self.at(left.argument, left.wanted, left.given)
            unknown = sorted(atom for atom in left.axis.size.atoms if atom in self.variables and atom not in self.bound)
            return self.fail("infer", left.axis, left.found_axis, unknown[0])
        return True

    def solve(self, equation: _Equation) -> bool | None:
        """Solves an equation of one unknown or none; None leaves it for later."""
        try:
            size = equation.axis.size.substitute({name: axis.size for name, axis in self.bound.items()})
        except SizeError:
            return self.fail("size", equation.axis, equation.found_axis)
        unknown = [atom for atom in size.atoms if atom in self.variables]
        if not unknown:
            return size == equation.found or self.fail("size", equation.axis, equation.found_axis)
        if len(unknown) > 1:
            return None
        value = solve_size(size, unknown[0], equation.found)
        if value is None:
            return None
        if value.owes:
            self.owed.append(value)
        constant = value.constant
        if (constant is not None and constant < 0) or (not value.atoms and constant is None):
            return self.fail("size", equation.axis, equation.found_axis)
        name = str(value) if value.atoms and value == Size.atom(min(value.atoms)) else None
        batch = equation.found_axis is not None and equation.found_axis.batch
        return self.bind(unknown[0], Axis(name, value, (), batch), equation.axis)


def solve_size(size: Size, unknown: str, total: Size) -> Size | None:
    """The value of the atom `unknown` for which `size` is `total`; None unless it stands in the first degree."""
    rest = Size(tuple(term for term in size.terms if unknown not in dict(term[0])))
    try:
        factor = (size - rest) / Size.atom(unknown)
        return None if unknown in factor.atoms else (total - rest) / factor
    except SizeError:
        return None
