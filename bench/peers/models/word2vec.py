"""The vectors of words of `examples/word2vec` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.peers.models import adamw

FIELDS = ("centre", "near", "other")


class Words(nn.Module):
    """Two vectors for each word: of itself, and of itself as another's neighbour."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.word = nn.Embedding.from_pretrained(weights["word"].clone(), freeze=False)
        self.near = nn.Embedding.from_pretrained(weights["near"].clone(), freeze=False)

    def forward(self, centre: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """The log odds, [b n], that each of [b n] words stands near those of [b]."""
        return torch.bmm(self.near(others), self.word(centre)[:, :, None])[:, :, 0]


def make(weights: Mapping[str, torch.Tensor]) -> Words:
    """The model with the weights of `word2vec.ss`."""
    return Words(weights)


def loss(model: nn.Module, centre: torch.Tensor, near: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The mean over pairs: that the words stand together, and that those drawn don't."""
    real, made = model(centre, near[:, None]), model(centre, other)
    return (functional.softplus(-real[:, 0]) + functional.softplus(made).sum(1)).mean()


def optimizer(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `adamw(m, lr=2e-3)` is in PyTorch."""
    return adamw(parameters, **{"lr": 2e-3, **settings})
