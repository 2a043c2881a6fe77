"""The contrastive model of `examples/clip` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.peers.models import adamw

FIELDS = ("picture", "words")


class Clip(nn.Module):
    """A tower for pictures, a tower for sentences, and how sharply they are told apart."""

    def __init__(self, pixels: int, vocabulary: int, hidden: int, common: int) -> None:
        super().__init__()
        self.pixels = nn.Linear(pixels, hidden)
        self.seen = nn.Linear(hidden, common)
        self.words = nn.Embedding(vocabulary, hidden)
        self.said = nn.Linear(hidden, common)
        self.sharpness = nn.Parameter(torch.tensor(0.0))

    def forward(self, pictures: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """How near each picture is to each sentence, sharpened."""
        seen = functional.normalize(self.seen(functional.relu(self.pixels(pictures))), dim=1)
        said = functional.normalize(self.said(self.words(words).mean(1)), dim=1)
        return self.sharpness.exp() * seen @ said.T


def make(weights: Mapping[str, torch.Tensor]) -> Clip:
    """The model with the weights of `clip.ss`."""
    pixels, hidden = weights["pixels.w"].shape
    model = Clip(pixels, len(weights["words.w"]), hidden, weights["seen.w"].shape[1])
    state = {"words.weight": weights["words.w"], "sharpness": weights["sharpness"]}
    for name in ("pixels", "seen", "said"):
        state[f"{name}.weight"] = weights[f"{name}.w"].T
        state[f"{name}.bias"] = weights[f"{name}.b"]
    model.load_state_dict(state)
    return model


def loss(model: nn.Module, pictures: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of each picture's sentence among all, and of each sentence's picture."""
    near = model(pictures, words)
    right = torch.arange(len(near))
    return (functional.cross_entropy(near, right) + functional.cross_entropy(near.T, right)) / 2


def optimizer(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `adamw(m, lr=2e-3)` is in PyTorch."""
    return adamw(parameters, **{"lr": 2e-3, **settings})
