"""One call being evaluated: its locals, and what its axis names mean in the domain.

Gives `Frame` and `bind_call`, which works out the callee's axes from the caller's. A name that a function introduces
itself, in a pattern, gets its axis from the domain when it is first met. Where a call binds two variables to one
axis, the second gets an axis of its own, for within the callee they are two; and so does a variable bound to an axis
without a name, which would be the same as any other of its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from shapescript.source import Source, Span
from shapescript.specialise.domain import Domain
from shapescript.specialise.values import BatchValue, DeviceTensor, TensorValue, Value
from shapescript.syntax import tree
from shapescript.types.axes import ANY_AXES, Axis, same, substitute_axes
from shapescript.types.element import Element
from shapescript.types.kinds import ModelOf, Tensor, TupleOf, Type
from shapescript.types.size import Size
from shapescript.types.typed import FunctionInfo
from shapescript.types.unify import substitute_type


@dataclass
class Frame:
    """`axes` binds the function's own axis names; `globals` are the names that mean the same everywhere, dims'."""

    domain: Domain
    source: Source
    globals: frozenset[str]
    info: FunctionInfo | None = None
    locals: dict[str, Value] = field(default_factory=dict)
    axes: dict[str, Axis] = field(default_factory=dict)
    spread: tuple[Axis, ...] | None = None

    def span(self, node: tree.Node) -> Span:
        """Where a node stands."""
        return self.source.span(node.start, node.end)

    def _know(self, axis: Axis) -> None:
        """Makes sure that every name in an axis is bound."""
        for part in axis.parts:
            self._know(part)
        name = axis.name
        if name is not None and name not in self.axes and name not in self.globals and name != ANY_AXES.name:
            if axis.size == Size.atom(name):
                self._know_atom(name, axis.batch)
            else:
                self.axes[name] = self.domain.local_axis(Axis(name, self.size(axis.size), (), axis.batch))
        self._know_atoms(axis.size)

    def _know_atoms(self, size: Size) -> None:
        for atom in size.atoms:
            if atom not in self.axes and atom not in self.globals and atom != ANY_AXES.name:
                self._know_atom(atom, False)

    def _know_atom(self, name: str, batch: bool) -> None:
        """An axis whose size is its own: that of an `int` parameter is the parameter's value."""
        value = self.locals.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            self.axes[name] = self.domain.local_axis(Axis(name, Size.of(value), (), batch))
        else:
            self.axes[name] = self.domain.local_axis(Axis.named(name, batch=batch))

    def axis(self, axis: Axis) -> Axis:
        """An axis of the function as one of the domain's."""
        self._know(axis)
        return axis.substitute(self.axes)

    def axes_of(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        """Axes of the function, `..` put in full, as the domain's."""
        for axis in axes:
            self._know(axis)
        return substitute_axes(axes, self.axes, self.spread)

    def size(self, size: Size) -> Size:
        """A size in the function's names as one in the domain's."""
        self._know_atoms(size)
        return size.substitute({atom: self.axes[atom].size for atom in size.atoms if atom in self.axes})

    def element(self, element: Element) -> Element:
        """An element whose bound is in the domain's atoms."""
        if element.bound is None:
            return element
        return Element(element.name, element.refinement, self.size(element.bound))

    def tensor(self, of: Tensor) -> Tensor:
        """A tensor's type in the domain's axes."""
        return Tensor(self.axes_of(of.axes), self.element(of.element))

    def model(self, of: ModelOf) -> ModelOf:
        """A model's type in the domain's axes."""
        return ModelOf(of.declaration, tuple(self.axis(axis) for axis in of.arguments))

    def conform(self, value: Value, of: Type | None) -> Value:
        """A value as its type says: a number becomes a tensor where one is meant, a tensor goes by the type's axes."""
        if isinstance(of, TupleOf) and isinstance(value, tuple) and len(value) == len(of.items):
            return tuple(self.conform(item, kind) for item, kind in zip(value, of.items, strict=True))
        if not isinstance(of, Tensor):
            return value
        if isinstance(value, (bool, int, float)):
            return value if of.axes else self.domain.constant(value, self.element(of.element))
        if not isinstance(value, TENSORS):
            return value
        return relabelled(self.domain, value, self.axes_of(of.axes))


TENSORS = TensorValue.__args__


def relabelled(domain: Domain, value: TensorValue, axes: tuple[Axis, ...]) -> TensorValue:
    """A tensor under other axes of the same sizes; as it is where the sizes aren't known to be the same."""
    if value.axes == axes or len(value.axes) != len(axes):
        return value
    if isinstance(value, DeviceTensor):
        sizes = atom_sizes(axes, value.shape, value.sizes)
        domain.learn(sizes)
        return DeviceTensor(value.held, axes, value.element, {**value.sizes, **sizes})
    if any(old.size != new.size for old, new in zip(value.axes, axes, strict=True)):
        return value
    return domain.emit("relabel", (value,), {"axes": axes}, None)


def atom_sizes(axes: Sequence[Axis], shape: Sequence[int], known: Mapping[str, int]) -> dict[str, int]:
    """The values of the atoms that a shape decides: of axes with one atom, to the first power.

    A merged axis decides the one part that nothing else does.
    """
    found: dict[str, int] = {}
    for axis, length in zip(axes, shape, strict=True):
        found.update(solved(axis.size, length, found))
    for axis, length in zip(axes, shape, strict=True):
        found.update(solved(axis.size, length, {**known, **found}))
    return found


def solved(size: Size, length: int, known: Mapping[str, int]) -> dict[str, int]:
    """The value of the one atom of `size` that isn't known, where `size` is `length`; nothing where it isn't one."""
    if (alone := size.lone_atom) is not None:
        return {} if alone in known else {alone: length}
    open_atoms = [atom for atom in size.atoms if atom not in known]
    if len(open_atoms) != 1:
        return {}
    atom = open_atoms[0]
    total, slope = Fraction(length), Fraction(0)
    for monomial, coefficient in size.terms:
        value = coefficient
        power_of = dict(monomial)
        for name, power in monomial:
            if name != atom:
                value *= Fraction(known[name]) ** power
        if atom not in power_of:
            total -= value
        elif power_of[atom] == 1:
            slope += value
        else:
            return {}
    if not slope or (total / slope).denominator != 1:
        return {}
    return {atom: int(total / slope)}


def bind_call(
    caller: Frame, callee: Frame, axes: Mapping[str, Axis], spread: Sequence[Axis] | None, numbers: Mapping[str, int]
) -> None:
    """Binds the callee's axis variables; `numbers` are its `int` parameters, which may be axes too."""
    bound: list[Axis] = []
    for name, axis in axes.items():
        found = caller.axis(axis)
        if name in numbers and caller.domain.size_of(found) != numbers[name]:
            found = caller.domain.local_axis(Axis(name, Size.of(numbers[name])))
            if axis.name is not None and axis.name not in caller.globals:
                caller.axes[axis.name] = found
        if found.name is None or any(same(found, other) for other in bound):
            found = callee.domain.local_axis(Axis(name, found.size, (), found.batch))
        bound.append(found)
        callee.axes[name] = found
    if spread is not None:
        callee.spread = caller.axes_of(spread)


def batch_in(frame: Frame, value: BatchValue, axis: Axis) -> BatchValue:
    """A batch under the axis by which a function calls it."""
    wanted = frame.axis(axis)
    if value.axis == wanted:
        return value
    fields: dict[str, object] = {}
    count: dict[str, int] | None = None
    for name, part in value.fields.items():
        assert isinstance(part, TENSORS)
        axes = (wanted, *part.axes[1:])
        if not isinstance(part, DeviceTensor):
            fields[name] = relabelled(frame.domain, part, axes)
            continue
        if count is None:  # all fields have as many rows
            count = atom_sizes((wanted,), part.shape[:1], part.sizes)
            frame.domain.learn(count)
        fields[name] = DeviceTensor(part.held, axes, part.element, {**part.sizes, **count})
    return BatchValue(value.data, wanted, fields)


def field_type(frame_model: ModelOf, dims: Sequence[str], of: Type) -> Type:
    """The type of a model's field, with the model's dims given."""
    return substitute_type(of, dict(zip(dims, frame_model.arguments, strict=True)))
