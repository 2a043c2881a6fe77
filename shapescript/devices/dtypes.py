"""How elements lie in torch tensors: the one table of dtypes, and a tensor as bytes."""

from __future__ import annotations

import torch

from shapescript.types.element import Element

DTYPES: dict[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}


def dtype_of(element: Element) -> torch.dtype:
    """How an element lies in a torch tensor."""
    return DTYPES[element.name]


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor, shared with it."""
    # laid out anew: what stands along an axis of one value may have any stride, 0 where it was repeated
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
