"""What a program's values are at run time, and how they cross the border to a device.

Gives the containers of tensors (`ModelValue`, `OptimizerValue`, `GradientsValue`, `BatchValue`), `DeviceTensor`, a
tensor of the controller, and `flatten`/`unflatten`, which take a value apart into a hashable key (its form and all
that is known of it) and its tensors. The tensors of a container are `DeviceTensor`s in the controller and nodes of a
graph while a function is specialised; containers don't look at them.

Models, optimizers and gradients are mutable and shared: two names of one model are one model, and a value that is met
again is written in the key as a reference, so that its tensors cross once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from shapescript.devices.held import Somewhere
from shapescript.ir.graph import Node
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.kinds import ModelList, ModelOf


@dataclass(slots=True, eq=False)
class DeviceTensor:
    """A tensor of the controller: where it lies, the axes under which it is known, and the values of their atoms."""

    held: Somewhere
    axes: tuple[Axis, ...]
    element: Element
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def data(self) -> torch.Tensor:
        """The numbers, which are waited for where they lie with workers."""
        return self.held if isinstance(self.held, torch.Tensor) else self.held.here()

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, which are known without waiting."""
        return tuple(self.held.shape)


TensorValue: TypeAlias = Node | DeviceTensor
Value: TypeAlias = object
Slots: TypeAlias = dict[str, object]


@dataclass(slots=True, eq=False)
class ModelValue:
    """A model: tensors, models and lists of models by the name of the field."""

    type: ModelOf
    fields: Slots


@dataclass(slots=True, eq=False)
class GradientsValue:
    """What `value_and_grad` gives: the params of a model, by the name of the field."""

    type: ModelOf
    fields: Slots


@dataclass(slots=True, eq=False)
class OptimizerValue:
    """An optimizer's state. `options` are its numbers, known when a function is compiled; `lr` may be a tensor.

    `state` holds, by kind of state (`first`, `second`), the tensors by the path of the param; `step` counts updates.
    """

    kind: str
    type: ModelOf | ModelList
    options: dict[str, object]
    state: dict[str, Slots]
    step: Slots


@dataclass(slots=True, eq=False)
class BatchValue:
    """Examples side by side: tensors by the name of the field; `count` is how many, where that is known."""

    data: tree.Data
    axis: Axis
    fields: Slots


@dataclass(frozen=True, slots=True)
class Known:
    """In a key: a host value that is known when a function is compiled."""

    kind: str
    value: Hashable


@dataclass(frozen=True, slots=True)
class Leaf:
    """In a key: a tensor, or an open number."""

    form: Hashable


@dataclass(frozen=True, slots=True)
class Again:
    """In a key: a container that stands earlier in the value, the `index`th."""

    index: int


@dataclass(frozen=True, slots=True)
class Made:
    """In a key: a container, what kind of one (`of`), and its parts with their names."""

    of: tuple[Hashable, ...]
    parts: tuple[tuple[str, Hashable], ...]


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor of either domain."""
    return isinstance(value, (Node, DeviceTensor))


def flatten(value: Value, form: Callable[[object], Hashable | None]) -> tuple[Hashable, list[object]]:
    """A value as a key and its leaves in order.

    `form` gives what the key says of a leaf, and None for a value that isn't one.

    Raises:
        TypeError: the value is something that can't go to a device (a Python object, a dataset).
    """
    # handed down, not closed over: the functions below refer to themselves, and what they hold stays until the next
    # collection; a leaf's memory is to be given up before
    leaves: list[object] = []
    seen: dict[int, int] = {}

    def slots(parts: Mapping[str, object], leaves: list[object]) -> tuple[tuple[str, Hashable], ...]:
        return tuple((name, walk(part, leaves)) for name, part in parts.items())

    def walk(at: object, leaves: list[object]) -> Hashable:
        found = form(at)
        if found is not None:
            leaves.append(at)
            return Leaf(found)
        if isinstance(at, (ModelValue, GradientsValue, OptimizerValue, BatchValue)):
            if id(at) in seen:
                return Again(seen[id(at)])
            seen[id(at)] = len(seen)
        match at:
            case ModelValue():
                return Made(("model", at.type), slots(at.fields, leaves))
            case GradientsValue():
                return Made(("gradients", at.type), slots(at.fields, leaves))
            case BatchValue():
                return Made(("batch", at.data, at.axis), slots(at.fields, leaves))
            case OptimizerValue():
                kinds = tuple((name, Made(("slots",), slots(parts, leaves))) for name, parts in at.state.items())
                options = tuple((name, Known("option", option)) for name, option in at.options.items())
                step = Made(("slots",), slots(at.step, leaves))
                return Made(
                    ("optimizer", at.kind, at.type), (*kinds, ("options", Made(("slots",), options)), ("step", step))
                )
            case tuple():
                return Made(("tuple",), tuple((str(i), walk(part, leaves)) for i, part in enumerate(at)))
            case list():
                return Made(("list",), tuple((str(i), walk(part, leaves)) for i, part in enumerate(at)))
            case bool() | int() | float() | str() | range() | None:
                return Known(type(at).__name__, at)
        raise TypeError(f"{type(at).__name__} isn't a value that goes to a device")

    return walk(value, leaves), leaves


def owners(key: Hashable, owner: str = "value", path: str = "") -> Iterator[tuple[str, str]]:
    """What each leaf of a key belongs to and where it stands there, in order.

    The first is `model`, `gradients`, `optimizer`, `batch` or `value`; the second the names on the way, with dots.
    """
    match key:
        case Leaf():
            yield owner, path
        case Made():
            kind = str(key.of[0])
            inner = kind if kind in ("model", "gradients", "optimizer", "batch") else owner
            for name, part in key.parts:
                yield from owners(part, inner, f"{path}.{name}" if path else name)


def unflatten(key: Hashable, leaves: Iterator[object]) -> Value:
    """The value of a key, on these leaves: new containers, shared where the old ones were."""
    return next(leaves) if isinstance(key, Leaf) else _Unflattening(leaves).build(key)


class _Unflattening:
    """The making of one value. `made` are the containers so far, in the order in which `flatten` numbered them.

    Not functions within a function: those refer to themselves, and keep the leaves until the next collection.
    """

    def __init__(self, leaves: Iterator[object]) -> None:
        self.leaves = leaves
        self.made: list[object] = []

    def build(self, at: Hashable) -> object:
        match at:
            case Leaf():
                return next(self.leaves)
            case Known():
                return at.value
            case Again():
                return self.made[at.index]
            case Made():
                return self._container(at)
        raise TypeError(f"no key of a value: {at!r}")

    def _fill(self, into: Slots, parts: tuple[tuple[str, Hashable], ...]) -> None:
        for name, part in parts:
            into[name] = self.build(part)

    def _container(self, at: Made) -> object:
        kind, *rest = at.of
        match kind:
            case "model" | "gradients":
                model_type = rest[0]
                assert isinstance(model_type, ModelOf)
                fields: Slots = {}
                result = ModelValue(model_type, fields) if kind == "model" else GradientsValue(model_type, fields)
                self.made.append(result)
                self._fill(fields, at.parts)
                return result
            case "batch":
                data, axis = rest
                assert isinstance(data, tree.Data) and isinstance(axis, Axis)
                batch = BatchValue(data, axis, {})
                self.made.append(batch)
                self._fill(batch.fields, at.parts)
                return batch
            case "optimizer":
                name, model_type = rest
                assert isinstance(name, str) and isinstance(model_type, (ModelOf, ModelList))
                optimizer = OptimizerValue(name, model_type, {}, {}, {})
                self.made.append(optimizer)
                for part, inner in at.parts:
                    assert isinstance(inner, Made)
                    if part == "options":
                        self._fill(optimizer.options, inner.parts)
                    elif part == "step":
                        self._fill(optimizer.step, inner.parts)
                    else:
                        self._fill(optimizer.state.setdefault(part, {}), inner.parts)
                return optimizer
            case "tuple":
                return tuple(self.build(part) for _, part in at.parts)
        return [self.build(part) for _, part in at.parts]


def slots_of(value: Value) -> Iterator[tuple[Slots, str]]:
    """Each place of a mutable value that holds a tensor, always in one order."""
    seen: set[int] = set()

    def walk(at: object) -> Iterator[tuple[Slots, str]]:
        if isinstance(at, (list, tuple)):
            for part in at:
                yield from walk(part)
            return
        if id(at) in seen:
            return
        seen.add(id(at))
        if isinstance(at, (ModelValue, GradientsValue)):
            yield from inside(at.fields)
        elif isinstance(at, OptimizerValue):
            for parts in at.state.values():
                yield from inside(parts)
            yield from inside(at.step)

    def inside(parts: Slots) -> Iterator[tuple[Slots, str]]:
        for name, part in parts.items():
            if isinstance(part, (ModelValue, GradientsValue, list)):
                yield from walk(part)
            elif is_tensor(part):
                yield parts, name

    return walk(value)


def copied(value: Value) -> Value:
    """A value of its own: new containers, the same tensors, which never change."""
    match value:
        case ModelValue():
            return ModelValue(value.type, {name: copied(part) for name, part in value.fields.items()})
        case GradientsValue():
            return GradientsValue(value.type, {name: copied(part) for name, part in value.fields.items()})
        case OptimizerValue():
            state = {kind: dict(parts) for kind, parts in value.state.items()}
            return OptimizerValue(value.kind, value.type, dict(value.options), state, dict(value.step))
        case BatchValue():
            return BatchValue(value.data, value.axis, dict(value.fields))
        case list():
            return [copied(part) for part in value]
        case tuple():
            return tuple(copied(part) for part in value)
    return value


def map_tensors(function: Callable[..., TensorValue], *values: Value) -> Value:
    """A value of the first one's form whose tensors are `function` of the tensors of all, place by place.

    Raises:
        KeyError: one of the others lacks a field.
    """
    first = values[0]
    match first:
        case GradientsValue() | ModelValue():
            others = [other.fields for other in values if isinstance(other, (GradientsValue, ModelValue))]
            fields = {name: map_tensors(function, *(other[name] for other in others)) for name in first.fields}
            return type(first)(first.type, fields)
        case list():
            lists = [other for other in values if isinstance(other, list)]
            return [map_tensors(function, *parts) for parts in zip(*lists, strict=True)]
    return function(*values)


def named_tensors(value: Value, prefix: str = "") -> Iterator[tuple[str, Slots, str]]:
    """Each tensor of a model or of gradients with its path (`blocks.0.attn.w_o`): the path, and where it is kept."""
    if isinstance(value, (ModelValue, GradientsValue)):
        for name, part in value.fields.items():
            if isinstance(part, (ModelValue, GradientsValue, list)):
                yield from named_tensors(part, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", value.fields, name
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from named_tensors(part, f"{prefix}{index}.")
