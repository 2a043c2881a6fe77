"""Values of several devices made one, in torch: the meaning that every transport's own code has.

They are combined in the order of the devices, bf16 and f16 in f32, rounded once, so that a run repeats bit for bit
whatever carries the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import torch

KINDS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}
NARROW = (torch.bfloat16, torch.float16)


def combined(tensors: Sequence[torch.Tensor], kind: str = "sum") -> torch.Tensor:
    """`sum`, `max` or `min` of tensors of one shape, the first with the second, then with the third, and so on."""
    if kind not in KINDS:
        raise ValueError(f"values are combined by {', '.join(KINDS)}, not by `{kind}`")
    dtype = tensors[0].dtype
    if dtype in NARROW:
        return reduce(KINDS[kind], [each.float() for each in tensors]).to(dtype)
    return reduce(KINDS[kind], tensors)
