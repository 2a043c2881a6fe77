"""The mixture of experts of `examples/experts` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.peers.models import adamw

FIELDS = ("point", "ring")
CHOSEN = 2
BALANCE = 0.2


class Experts(nn.Module):
    """A gate, and experts of one hidden layer each, side by side in one tensor."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.gate = nn.Linear(*weights["gate.w"].shape)
        self.w = nn.Parameter(weights["w"].clone())
        self.b = nn.Parameter(weights["b"].clone())
        self.out = nn.Parameter(weights["out"].clone())
        self.gate.load_state_dict({"weight": weights["gate.w"].T, "bias": weights["gate.b"]})

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The logits, the gate's shares, and the shares that are given."""
        share = self.gate(points).softmax(1)
        best, places = share.topk(CHOSEN, 1)
        given = torch.zeros_like(share).scatter(1, places, best / best.sum(1, keepdim=True))
        hidden = functional.relu(torch.einsum("bx,exh->beh", points, self.w) + self.b)
        return torch.einsum("be,beh,ehc->bc", given, hidden, self.out), share, given


def make(weights: Mapping[str, torch.Tensor]) -> Experts:
    """The model with the weights of `experts.ss`."""
    return Experts(weights)


def loss(model: nn.Module, points: torch.Tensor, rings: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy, and how unequally busy the experts are."""
    logits, share, given = model(points)
    busy = (given > 0).float().mean(0)
    balance = share.shape[1] / CHOSEN * (busy * share.mean(0)).sum()
    return functional.cross_entropy(logits, rings) + BALANCE * balance


def optimizer(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `adamw(m, lr=5e-3)` is in PyTorch."""
    return adamw(parameters, **{"lr": 5e-3, **settings})
