"""The diffusion model of `examples/ddpm` in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.peers.models import adamw

FIELDS = ("x", "t", "noise")


class Denoiser(nn.Module):
    """Linear layers beside residuals, which are told the step by sines and cosines."""

    def __init__(self, coordinates: int, frequencies: int, hidden: int, layers: int, steps: int = 100) -> None:
        super().__init__()
        self.into = nn.Linear(coordinates, hidden)
        self.time = nn.Linear(2 * frequencies, hidden)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.out = nn.Linear(hidden, coordinates)
        self.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-3, 0.101, steps), 0))
        self.register_buffer("speeds", torch.exp(-math.log(1000) / frequencies * torch.arange(frequencies)))

    def forward(self, points: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """The noise in the points."""
        angles = steps[:, None] * self.speeds
        h = self.into(points) + self.time(torch.cat([angles.sin(), angles.cos()], 1))
        for layer in self.layers:
            h = h + functional.silu(layer(h))
        return self.out(h)


def make(weights: Mapping[str, torch.Tensor]) -> Denoiser:
    """The model with the weights of `ddpm.ss`."""
    coordinates, hidden = weights["into.w"].shape
    layers = sum(name.startswith("layers.") and name.endswith(".w") for name in weights)
    model = Denoiser(coordinates, len(weights["time.w"]) // 2, hidden, layers)
    state = {name.replace(".w", ".weight"): value.T for name, value in weights.items() if name.endswith(".w")}
    state |= {name.replace(".b", ".bias"): value for name, value in weights.items() if name.endswith(".b")}
    model.load_state_dict(state, strict=False)
    return model


def loss(model: nn.Module, points: torch.Tensor, steps: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The mean square of the noise that isn't found."""
    kept = model.kept[steps][:, None]
    return functional.mse_loss(model(kept.sqrt() * points + (1 - kept).sqrt() * noise, steps), noise)


def optimizer(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `adamw(m, lr=1e-3)` is in PyTorch."""
    return adamw(parameters, **{"lr": 1e-3, **settings})
