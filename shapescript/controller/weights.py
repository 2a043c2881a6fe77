"""Tensors that come from elsewhere, taken over by name: a `state_dict`, a safetensors file, a file that PyTorch wrote.

Takes a model or an optimizer's state, and tensors by name with, where names differ, a map from the names here to
those there. All is compared first; what doesn't fit is listed and nothing is changed. PyTorch's files are read with
`weights_only`: nothing in them can run.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch

from shapescript.controller import checkpoint
from shapescript.controller.arrays import as_tensor
from shapescript.controller.checkpoint_files import Contents, read
from shapescript.controller.errors import CheckpointError, DataError
from shapescript.specialise.values import DeviceTensor, Value

PYTORCH = (".pt", ".pth", ".bin")
TRANSPOSED = ".T"
INNER = ("state_dict", "model_state_dict", "model")


def take_over(
    value: Value, state: Mapping[str, object], source: str, names: Mapping[str, str] | None, strict: bool = True
) -> tuple[list[str], list[str]]:
    """Gives a model or an optimizer's state the values of a mapping by name.

    Not `strict`, it takes what both have. Gives the names that only the value has, and only the mapping.

    Raises:
        CheckpointError: something doesn't fit; nothing was changed.
    """
    if not isinstance(state, Mapping):
        raise CheckpointError(f"a `state_dict` is a mapping of tensors by name, and this is {type(state).__name__}")
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, object] = {}
    for name, given in state.items():
        if checkpoint.is_number(given):
            numbers[name] = list(given) if isinstance(given, tuple) else given
            continue
        try:
            tensors[name] = as_tensor(given, f"`{name}`")
        except DataError as error:
            raise CheckpointError(f"{source}: {error}") from None
    if names is not None:
        tensors = renamed(tensors, names, source)
    here = {place.name: place.value for place in checkpoint.places(value)}
    missing = [name for name in here if name not in tensors and name not in numbers]
    unexpected = [name for name in (*tensors, *numbers) if name not in here]
    if not strict:
        tensors = {name: tensor for name, tensor in tensors.items() if name in here}
        numbers = {name: number for name, number in numbers.items() if name in here}
        for name in missing:
            own = here[name]
            if isinstance(own, DeviceTensor):
                tensors[name] = own.data
            else:
                numbers[name] = own
    checkpoint.restore({"": value}, Contents(tensors, numbers), source)
    return missing, unexpected


def load(value: Value, path: str | Path, names: Mapping[str, str] | None = None) -> None:
    """Gives a model or an optimizer's state the values of a file."""
    if Path(path).suffix in PYTORCH:
        take_over(value, read_pytorch(path), str(path), names)
        return
    found = read(path)
    if names is not None:
        found = Contents(renamed(found.tensors, names, str(path)), found.numbers)
    checkpoint.restore({"": value}, found, str(path))


def renamed(tensors: Mapping[str, torch.Tensor], names: Mapping[str, str], source: str) -> dict[str, torch.Tensor]:
    """The tensors under the names here; those that the map doesn't mention keep theirs."""
    used: set[str] = set()
    found: dict[str, torch.Tensor] = {}
    missing = []
    for own, other in names.items():
        plain = other.removesuffix(TRANSPOSED)
        turned = other.endswith(TRANSPOSED) and other not in tensors
        key = plain if turned else other
        if key not in tensors:
            missing.append(f"`{key}`, which is to be `{own}`")
            continue
        used.add(key)
        tensor = tensors[key]
        found[own] = tensor.mT.contiguous() if turned and tensor.ndim >= 2 else tensor
    if missing:
        has = ", ".join(f"`{name}`" for name in list(tensors)[:12]) or "nothing"
        raise CheckpointError(f"`{source}` has no {', no '.join(missing)}; it has {has}")
    return {**{name: tensor for name, tensor in tensors.items() if name not in used}, **found}


def read_pytorch(path: str | Path) -> Mapping[str, object]:
    """The tensors of a `state_dict` that PyTorch wrote.

    Raises:
        CheckpointError: it isn't one, or holds something else than tensors and numbers.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"there is no file `{path}`")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        first = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"`{path}` isn't a file of plain tensors, and nothing else is loaded from it: {first}"
        ) from None
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"`{path}` isn't a whole file of PyTorch's: {first}") from None
    if isinstance(found, Mapping):
        inner = [found[key] for key in INNER if isinstance(found.get(key), Mapping)]
        state = inner[0] if inner else found
        return {str(name): tensor for name, tensor in state.items()}
    raise CheckpointError(f"`{path}` holds a {type(found).__name__}, and a `state_dict` is asked for")
