"""The chapter's program in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

FIELDS = ("img", "label")


class Mlp(nn.Module):
    """Two layers without biases. `nn.Linear` keeps its weight transposed, which is the layout its products like."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(784, 256, bias=False)
        self.second = nn.Linear(256, 10, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return self.second(functional.gelu(self.first(images)))


def make(weights: Mapping[str, torch.Tensor]) -> Mlp:
    """The model with the weights of `mlp.ss`."""
    model = Mlp()
    model.load_state_dict({"first.weight": weights["w1"].T, "second.weight": weights["w2"].T})
    return model


def loss(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy."""
    return functional.cross_entropy(model(images), labels)
