"""The recurrent net of `examples/lstm` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.peers.models import adamw

FIELDS = ("x", "y")


class Net(nn.Module):
    """An embedding, an LSTM and a linear layer."""

    def __init__(self, vocabulary: int, width: int, hidden: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, width)
        self.layer = nn.LSTM(width, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """The logits of each next character."""
        return self.out(self.layer(self.characters(characters))[0])


def make(weights: Mapping[str, torch.Tensor]) -> Net:
    """The model with the weights of `lstm.ss`, which has one bias where `nn.LSTM` adds two: the other stays 0."""
    vocabulary, width = weights["characters.w"].shape
    hidden = weights["layer.w_h"].shape[0]
    model = Net(vocabulary, width, hidden)
    model.load_state_dict(
        {
            "characters.weight": weights["characters.w"],
            "layer.weight_ih_l0": weights["layer.w_x"].T,
            "layer.weight_hh_l0": weights["layer.w_h"].T,
            "layer.bias_ih_l0": weights["layer.b"],
            "layer.bias_hh_l0": torch.zeros(4 * hidden),
            "out.weight": weights["out.w"].T,
            "out.bias": weights["out.b"],
        }
    )
    model.layer.bias_hh_l0.requires_grad_(False)
    return model


def loss(model: nn.Module, characters: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of each next character."""
    return functional.cross_entropy(model(characters).flatten(0, 1), following.flatten())


def optimizer(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `adamw(m, lr=4e-3)` is in PyTorch."""
    return adamw(parameters, **{"lr": 4e-3, **settings})
