"""What `backward()` says of a result of a program: gradients are the program's to take.

A result that depends on a tensor that requires a gradient says that it requires one too, as in PyTorch; asked for it,
it tells where gradients come from here, instead of leaving `grad` empty or torch's words about a missing `grad_fn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from shapescript.controller.errors import Error


class NoGradient(torch.autograd.Function):
    """The result as it is, with a gradient that is refused in words."""

    @staticmethod
    def forward(ctx: Any, words: str, result: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        """The result."""
        ctx.words = words
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Refuses.

        Raises:
            Error: always; it says what takes gradients.
        """
        raise Error(ctx.words)


def refusing(result: object, function: str, sources: Sequence[torch.Tensor]) -> object:
    """A result whose tensors refuse `backward()`, where what they come from requires a gradient."""
    if not sources or not torch.is_grad_enabled():
        return result
    words = (
        f"no gradient goes back through `{function}` from Python: a function of the program takes it by "
        f'`value_and_grad`, or use the module `m.to_torch("{function}")`, which torch\'s autograd sees through'
    )

    def refuse(part: object) -> object:
        if isinstance(part, tuple):
            return tuple(map(refuse, part))
        if isinstance(part, torch.Tensor) and part.is_floating_point():
            return NoGradient.apply(words, part, *sources)  # type: ignore[no-untyped-call]  # torch has no type for it
        return part

    return refuse(result)


def requiring(value: object) -> Iterator[torch.Tensor]:
    """The tensors in an argument that require a gradient."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from requiring(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from requiring(part)
