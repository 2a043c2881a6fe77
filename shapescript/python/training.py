"""What `shapescript` itself gives for models of a loaded program: optimizers and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from shapescript.controller import checkpoint
from shapescript.controller.arrays import plain_number
from shapescript.controller.errors import ArgumentError
from shapescript.diagnostics.suggest import nearest
from shapescript.python.handle import Handle
from shapescript.python.handles import Optimizer
from shapescript.python.models import Model
from shapescript.specialise.builtins import new_optimizer
from shapescript.specialise.optimizers import DEFAULTS

if TYPE_CHECKING:
    from shapescript.python.runtime import Runtime


def _optimizer(name: str, kind: str) -> Callable[..., Optimizer]:
    def make(m: Model, lr: float, **options: Any) -> Optimizer:
        if not isinstance(m, Model):
            hint = "" if isinstance(m, (torch.Tensor, torch.nn.Module)) else f": write `{name}(m, lr=...)`"
            raise ArgumentError(f"`{name}` takes a model of a loaded program, and this is {type(m).__name__}{hint}")
        if isinstance(options.get("betas"), list):
            options["betas"] = tuple(options["betas"])
        known = [*DEFAULTS[kind], "lr"]
        for given, value in {"lr": lr, **options}.items():
            check_option(name, given, value, known)
        runtime: Runtime = m._runtime
        with runtime.running():
            value = new_optimizer(runtime.evaluator, kind, m._value, {"lr": lr, **options})
            made = runtime.results.handle(value)
        assert isinstance(made, Optimizer)
        return made

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The state of {kind} for a model: {', '.join(f'{k}={v}' for k, v in DEFAULTS[kind].items())}."
    return make


def check_option(name: str, given: str, value: object, known: list[str]) -> None:
    """Is it an option of the optimizer, and a number where it should be one?"""
    if given not in known:
        close = nearest(given, known)
        hint = f"; did you mean `{close}`?" if close else f"; it takes {', '.join(known)}"
        raise ArgumentError(f"`{name}` has no `{given}`{hint}")
    pair = given == "betas"
    parts = value if pair and isinstance(value, tuple) else (value,)
    numbers = [part for part in parts if isinstance(part, (int, float))]
    if len(numbers) != len(parts) or len(numbers) != (2 if pair else 1):
        wanted = "two numbers" if pair else "a number"
        raise ArgumentError(f"`{given}` of `{name}` is {wanted}, and this is {type(value).__name__}")
    if any(each < 0 for each in numbers) or (pair and max(numbers) >= 1):
        wanted = "two numbers of 0 or more below 1" if pair else "0 or more"
        raise ArgumentError(f"`{given}` of `{name}` should be {wanted}, and is {value}")


sgd = _optimizer("sgd", "SGD")
adam = _optimizer("adam", "Adam")
adamw = _optimizer("adamw", "AdamW")
lion = _optimizer("lion", "Lion")


# --- files -----------------------------------------------------------------------------------------------------------


def save(thing: Handle, path: str | Path) -> None:
    """Writes a model's, an optimizer's or gradients' tensors to a safetensors file, whole or not at all."""
    runtime = runtime_of({"thing": thing})
    with runtime.running():
        checkpoint.save(thing._value, path)


def save_checkpoint(path: str | Path, *, keep: int | None = None, **parts: object) -> None:
    """Writes several values, each under its name, with the state of the random draws; as in a program.

    It returns when the values are copied; the file is there soon after. With `keep`, `path` is a folder that holds so
    many of the last ones.
    """
    runtime = runtime_of(parts)
    with runtime.running():
        values = {name: part._value if isinstance(part, Handle) else plain_number(part) for name, part in parts.items()}
        checkpoint.save_checkpoint(path, values, runtime.domain.draws, keep)


def load_checkpoint(path: str | Path, **parts: object) -> dict[str, object]:
    """Gives models and optimizers the values of a checkpoint, and the numbers back by name.

    Raises:
        CheckpointError: the file doesn't fit; nothing was changed.
    """
    runtime = runtime_of(parts)
    with runtime.running():
        values = {name: part._value if isinstance(part, Handle) else plain_number(part) for name, part in parts.items()}
        found, draws = checkpoint.load_checkpoint(path, values)
        runtime.domain.go_on(draws)
    return {name: value for name, value in found.items() if not isinstance(parts[name], Handle)}


def runtime_of(parts: dict[str, Any]) -> Runtime:
    """The program that the handles among some values belong to.

    Raises:
        ArgumentError: there is none, or there are several.
    """
    found = {id(part._runtime): part._runtime for part in parts.values() if isinstance(part, Handle)}
    if len(found) != 1:
        what = "none of these belongs" if not found else "these belong to several programs, and all should belong"
        raise ArgumentError(f"{what} to one loaded program: {', '.join(parts) or 'nothing is given'}")
    runtime: Runtime = next(iter(found.values()))
    return runtime
