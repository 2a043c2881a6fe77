"""The variational autoencoder of `examples/vae` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

FIELDS = ("picture", "noise")


class Vae(nn.Module):
    """An encoder with two heads and a decoder, each with one hidden layer."""

    def __init__(self, pixels: int, hidden: int, codes: int) -> None:
        super().__init__()
        self.into = nn.Linear(pixels, hidden)
        self.mean = nn.Linear(hidden, codes)
        self.spread = nn.Linear(hidden, codes)
        self.back = nn.Linear(codes, hidden)
        self.out = nn.Linear(hidden, pixels)

    def forward(self, pictures: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The decoded logits, the means and the logarithms of the variances."""
        h = functional.relu(self.into(pictures))
        mean, spread = self.mean(h), self.spread(h)
        z = mean + torch.exp(0.5 * spread) * noise
        return self.out(functional.relu(self.back(z))), mean, spread


def make(weights: Mapping[str, torch.Tensor]) -> Vae:
    """The model with the weights of `vae.ss`."""
    pixels, hidden = weights["into.w"].shape
    model = Vae(pixels, hidden, weights["mean.w"].shape[1])
    state = {}
    for name in ("into", "mean", "spread", "back", "out"):
        state[f"{name}.weight"] = weights[f"{name}.w"].T
        state[f"{name}.bias"] = weights[f"{name}.b"]
    model.load_state_dict(state)
    return model


def loss(model: nn.Module, pictures: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The negative evidence lower bound in nats a picture."""
    logits, mean, spread = model(pictures, noise)
    pixels = functional.binary_cross_entropy_with_logits(logits, pictures, reduction="sum")
    told = -0.5 * torch.sum(1 + spread - mean.square() - spread.exp())
    return (pixels + told) / len(pictures)


def optimizer(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `adam(m, lr=2e-3)` is in PyTorch."""
    return torch.optim.Adam(parameters, **{"lr": 2e-3, **settings})
