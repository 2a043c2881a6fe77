"""Files of weights: `save`, `load`, `save_checkpoint`, `load_checkpoint`, in the safetensors format.

A file holds whole tensors by plain names (`w1`, `blocks.0.attn.w_o`; in a checkpoint `m.w1`, `opt.first.w1`) and the
numbers beside them, as JSON under `shapescript` in the file's metadata. Names and values don't depend on the devices.

A file is written beside its place under another name, brought to the disk and renamed, so that whatever happens the
path holds the old values or the new, whole. What is loaded is compared first: a name that is missing or too many, or
has another shape or element, is an error that changes nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from shapescript.controller.errors import CheckpointError
from shapescript.specialise.values import DeviceTensor, GradientsValue, ModelValue, OptimizerValue, Slots, Value
from shapescript.types.axes import show_axes

METADATA = "shapescript"
Number = int | float | bool | str | None


@dataclass(frozen=True)
class Contents:
    """What a file holds: tensors and numbers by name, and how many calls the controller had made (`None`: not kept)."""

    tensors: Mapping[str, torch.Tensor]
    numbers: Mapping[str, object]
    calls: int | None = None


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


def contents(parts: Mapping[str, Value], calls: int | None = None) -> Contents:
    """What to write for these values; a name that is empty gives its parts no prefix.

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
                tensors[path] = part.data.detach().cpu().contiguous()
            elif is_number(part):
                numbers[path] = part
            else:
                raise CheckpointError(f"a file of weights doesn't hold `{path}`, which is {type(part).__name__}")
    return Contents(tensors, numbers, calls)


def is_number(value: object) -> bool:
    """A host value that JSON has: numbers, strings, bools, and tuples of them."""
    if isinstance(value, (tuple, list)):
        return all(map(is_number, value))
    return value is None or isinstance(value, (int, float, bool, str))


# --- the four built-ins ----------------------------------------------------------------------------------------------


def save(value: Value, path: str | Path) -> None:
    """Writes a model's, an optimizer's or gradients' tensors; a single tensor is called `value`."""
    name = "value" if isinstance(value, DeviceTensor) else ""
    write(path, contents({name: value}))


def load(value: Value, path: str | Path) -> None:
    """Gives a model or an optimizer the values of a file, or changes nothing and raises `CheckpointError`."""
    restore({"": value}, read(path), str(path))


def save_checkpoint(path: str | Path, parts: Mapping[str, Value], calls: int) -> None:
    """Writes several values, each under its name, and the count of calls on which random draws depend."""
    write(path, contents(parts, calls))


def load_checkpoint(path: str | Path, parts: Mapping[str, Value]) -> tuple[dict[str, Value], int]:
    """Gives the values of a checkpoint back: containers are changed in place, host values and tensors returned anew.

    The second result is the count of calls when it was written.

    Raises:
        CheckpointError: the file doesn't fit; nothing was changed.
    """
    found = read(path)
    return restore(parts, found, str(path)), found.calls or 0


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
    problems = list(differences(targets, found))
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise CheckpointError(f"`{path}` doesn't fit what it is loaded into; nothing was changed:{listed}{more}")
    for name, place in targets.items():
        place.slots[place.key] = replacement(place.value, name, found)
    return {name: alone.get(name, value) for name, value in parts.items()}


def differences(targets: Mapping[str, Place], found: Contents) -> Iterator[str]:
    """A line for each name that doesn't fit."""
    for name, place in targets.items():
        value = place.value
        if isinstance(value, DeviceTensor):
            wanted, shape = show_axes(value.axes), sizes(value.data)
            stored = found.tensors.get(name)
            if stored is None:
                yield f"`{name}` is missing: {wanted}, {shape}"
            elif stored.shape != value.data.shape:
                yield f"`{name}` should be {wanted}, {shape}, and is {sizes(stored)} in the file"
            elif stored.dtype != value.data.dtype:
                held = str(stored.dtype).removeprefix("torch.")
                yield f"`{name}` should hold {value.element}, and holds {held} in the file"
        elif name not in found.numbers:
            yield f"`{name}` is missing: a number or a string"
        elif not same_kind(found.numbers[name], value):
            yield f"`{name}` should be {type(value).__name__}, and is {found.numbers[name]!r} in the file"
    for name, tensor in found.tensors.items():
        if name not in targets:
            yield f"`{name}` is in the file, {sizes(tensor)}, and nothing here has this name"
    for name in found.numbers:
        if name not in targets:
            yield f"`{name}` is in the file, a number or a string, and nothing here has this name"


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


def sizes(tensor: torch.Tensor) -> str:
    """A tensor's sizes: `64 x 10`, or `one value`."""
    return " x ".join(map(str, tensor.shape)) if tensor.ndim else "one value"


# --- files -----------------------------------------------------------------------------------------------------------


def write(path: str | Path, what: Contents) -> None:
    """Writes a file as a whole or not at all.

    Raises:
        CheckpointError: it can't be written; what was at the path before is still there.
    """
    place = Path(path)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.shapescript-part")
    metadata = {METADATA: json.dumps({"numbers": what.numbers, "calls": what.calls})}
    if place.exists() and not place.is_file():
        kind = "a folder" if place.is_dir() else "a device or a pipe"
        raise CheckpointError(f"`{path}` can't be written: {kind} is there, not a file")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place)
        with open(temporary, "wb") as file:
            file.write(to_bytes(dict(what.tensors), metadata))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
        sync_folder(place.parent)
    except OSError as error:
        raise CheckpointError(f"`{path}` can't be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Brings a rename to the disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(place: Path) -> None:
    """Removes what a save of this very path left when its process was killed."""
    pattern = re.compile(re.escape(f".{place.name}.") + r"(\d+)\.shapescript-part")
    for other in place.parent.iterdir():
        found = pattern.fullmatch(other.name)
        if found and int(found[1]) != os.getpid() and not is_running(int(found[1])):
            other.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether a process of this number is there; yes, if it isn't ours to ask."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read(path: str | Path) -> Contents:
    """All that a file holds; one that another program wrote has tensors alone.

    Raises:
        CheckpointError: there is no such file, or it isn't whole.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"there is no file `{path}`")
    try:
        with safe_open(str(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            metadata = file.metadata() or {}
        kept = json.loads(metadata.get(METADATA, "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"`{path}` isn't a whole safetensors file: {error}") from error
    return Contents(tensors, kept.get("numbers", {}), kept.get("calls"))
