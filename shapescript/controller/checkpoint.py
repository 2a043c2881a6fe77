"""What a file of weights says of a program's values: `save`, `load`, `save_checkpoint`, `load_checkpoint`.

Takes models, optimizers' states, gradients, tensors and numbers; gives their tensors plain names (`w1`,
`blocks.0.attn.w_o`; in a checkpoint `m.w1`, `opt.first.w1`), which don't depend on the devices, and puts the values of
a file back. What is loaded is compared first: a name that is missing or too many, or has another shape or element, is
an error that lists them all and changes nothing. How a file lies on the disk is `checkpoint_files.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from shapescript.controller import checkpoint_files as files
from shapescript.controller.arrays import element_of, sizes_text
from shapescript.controller.checkpoint_files import Contents, Draws
from shapescript.controller.errors import CheckpointError
from shapescript.specialise.values import DeviceTensor, GradientsValue, ModelValue, OptimizerValue, Slots, Value
from shapescript.types.axes import show_axes


@dataclass(frozen=True)
class Place:
    """Where a value has a tensor or a number: in `slots`, under `key`; `name` is what the file calls it."""

    name: str
    slots: Slots
    key: str

    @property
    def value(self) -> object:
        """What is there now."""
        return self.slots[self.key]


# --- what a value has in it ------------------------------------------------------------------------------------------


def places(value: Value, prefix: str = "") -> Iterator[Place]:
    """The tensors and numbers of a model, an optimizer or gradients by name; what is shared comes once."""
    seen: set[int] = set()

    def walk(at: object, name: str) -> Iterator[Place]:
        if id(at) in seen:
            return
        seen.add(id(at))
        if isinstance(at, list):
            for index, part in enumerate(at):
                yield from walk(part, f"{name}{index}.")
        elif isinstance(at, (ModelValue, GradientsValue)):
            yield from inside(at.fields, name)
        elif isinstance(at, OptimizerValue):
            for kind, parts in at.state.items():
                yield from inside(parts, f"{name}{kind}.")
            yield from inside(at.options, f"{name}options.")
            yield from inside(at.step, f"{name}steps.")

    def inside(slots: Slots, name: str) -> Iterator[Place]:
        for key, part in slots.items():
            if isinstance(part, (ModelValue, GradientsValue, OptimizerValue, list)):
                yield from walk(part, f"{name}{key}.")
            else:
                yield Place(f"{name}{key}", slots, key)

    return walk(value, prefix)


def contents(parts: Mapping[str, Value], draws: Draws | None = None) -> Contents:
    """What to write for these values, copied; a name that is empty gives its parts no prefix.

    Raises:
        CheckpointError: a value is something that a file doesn't hold.
    """
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, object] = {}
    for name, value in parts.items():
        if isinstance(value, (ModelValue, GradientsValue, OptimizerValue, list)):
            found = [(place.name, place.value) for place in places(value, f"{name}." if name else "")]
        else:
            found = [(name, value)]
        for path, part in found:
            if isinstance(part, DeviceTensor):
                tensors[path] = part.data.detach().to("cpu", copy=True).contiguous()
            elif is_number(part):
                numbers[path] = part
            else:
                raise CheckpointError(f"a file of weights doesn't hold `{path}`, which is {type(part).__name__}")
    return Contents(tensors, numbers, draws)


def is_number(value: object) -> bool:
    """A host value that JSON has: numbers, strings, bools, and tuples of them."""
    if isinstance(value, (tuple, list)):
        return all(map(is_number, value))
    return value is None or isinstance(value, (int, float, bool, str))


# --- the four built-ins ----------------------------------------------------------------------------------------------


def save(value: Value, path: str | Path) -> None:
    """Writes a model's, an optimizer's or gradients' tensors; a single tensor is called `value`."""
    name = "value" if isinstance(value, DeviceTensor) else ""
    files.write(path, contents({name: value}))


def load(value: Value, path: str | Path) -> None:
    """Gives a model or an optimizer the values of a file, or changes nothing and raises `CheckpointError`."""
    restore({"": value}, files.read(path), str(path))


def save_checkpoint(path: str | Path, parts: Mapping[str, Value], draws: Draws, keep: int | None = None) -> None:
    """Writes several values, each under its name, and what random draws depend on.

    It returns when the values are copied; the file is written beside the next steps. With `keep`, the path is a
    folder of so many of the last ones.
    """
    files.write_soon(path, contents(parts, draws), keep)


def load_checkpoint(path: str | Path, parts: Mapping[str, Value]) -> tuple[dict[str, Value], Draws]:
    """Gives the values of a checkpoint back: containers are changed in place, host values and tensors returned anew.

    The second result is what random draws depended on when it was written.

    Raises:
        CheckpointError: the file doesn't fit; nothing was changed.
    """
    found = files.read_newest(path)
    return restore(parts, found, str(path)), found.draws or Draws()


def restore(parts: Mapping[str, Value], found: Contents, path: str) -> dict[str, Value]:
    """Puts the values of a file into `parts`, after all of them are compared."""
    targets: dict[str, Place] = {}
    alone: Slots = {}
    for name, value in parts.items():
        if isinstance(value, (ModelValue, GradientsValue, OptimizerValue, list)):
            targets.update((place.name, place) for place in places(value, f"{name}." if name else ""))
        else:
            alone[name] = value
            targets[name] = Place(name, alone, name)
    where = "there" if path == "the state_dict" else "in the file"
    problems = list(differences(targets, found, where))
    if problems:
        prefix = common_prefix(targets, found)
        if prefix:
            problems.append(f"the names there all begin with `{prefix}`: without it they may fit")
        listed = "".join(f"\n  {problem}" for problem in problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        source = path if path == "the state_dict" else f"`{path}`"
        raise CheckpointError(f"{source} doesn't fit what it is loaded into; nothing was changed:{listed}{more}")
    for name, place in targets.items():
        place.slots[place.key] = replacement(place.value, name, found)
    return {name: alone.get(name, value) for name, value in parts.items()}


def common_prefix(targets: Mapping[str, Place], found: Contents) -> str:
    """What stands before every name of a file, if the rest are the names here: `module.`; else nothing."""
    first = next(iter(found.tensors), "")
    before, dot, _ = first.partition(".")
    prefix = before + dot
    names = [*found.tensors, *found.numbers]
    fits = dot and all(name.startswith(prefix) and name.removeprefix(prefix) in targets for name in names)
    return prefix if fits else ""


def differences(targets: Mapping[str, Place], found: Contents, where: str) -> Iterator[str]:
    """A line for each name that doesn't fit; `where` is where it was looked for."""
    for name, place in targets.items():
        value = place.value
        if isinstance(value, DeviceTensor):
            wanted, shape = show_axes(value.axes), sizes_text(value.shape)
            stored = found.tensors.get(name)
            if stored is None:
                yield f"`{name}` is missing: {wanted}, {shape}"
            elif tuple(stored.shape) != value.shape:
                yield f"`{name}` should be {wanted}, {shape}, and is {sizes_text(stored.shape)} {where}"
            elif element_of(stored) != value.element.name:
                yield f"`{name}` should hold {value.element}, and holds {element_of(stored)} {where}"
        elif name not in found.numbers:
            yield f"`{name}` is missing: a number or a string"
        elif not same_kind(found.numbers[name], value):
            yield f"`{name}` should be {type(value).__name__}, and is {found.numbers[name]!r} {where}"
    for name, tensor in found.tensors.items():
        if name not in targets:
            yield f"`{name}` is {where}, {sizes_text(tensor.shape)}, and nothing here has this name"
    for name in found.numbers:
        if name not in targets:
            yield f"`{name}` is {where}, a number or a string, and nothing here has this name"


def same_kind(stored: object, value: object) -> bool:
    """Whether a number from JSON can take a value's place: a whole number may be a float, lists are tuples."""
    if value is None or stored is None:  # an option that may be off
        return True
    if isinstance(value, (tuple, list)):
        return isinstance(stored, list) and len(stored) == len(value)
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        return isinstance(stored, (int, float)) and not isinstance(stored, bool)
    return type(stored) is type(value)


def replacement(value: object, name: str, found: Contents) -> object:
    """The value of the file, in the form of the one that is there."""
    if isinstance(value, DeviceTensor):
        stored = found.tensors[name].to(value.data.device)
        return replace(value, held=stored)
    stored_number = found.numbers[name]
    if isinstance(value, float) and isinstance(stored_number, int):
        return float(stored_number)
    return tuple(stored_number) if isinstance(stored_number, list) else stored_number
