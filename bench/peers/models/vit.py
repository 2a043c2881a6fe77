"""The vision transformer of `examples/vit` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.peers.models import adamw

FIELDS = ("picture", "digit")


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.back = nn.Linear(width, width, bias=False)
        self.between = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The stream after this block."""
        h = self.before(x)
        query, key, value = (
            layer(h).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        x = x + self.back(functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Vit(nn.Module):
    """Patches of 2 x 2 pixels and a token before them, whose features are read at the end."""

    def __init__(self, places: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.patch = nn.Linear(4, width)
        self.first = nn.Parameter(torch.empty(width))
        self.places = nn.Parameter(torch.empty(places, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.out = nn.Linear(width, classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """The logits."""
        patches = self.patch(functional.unfold(pictures[:, None], 2, stride=2).transpose(1, 2))
        x = torch.cat([self.first.expand(len(patches), 1, -1), patches], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.out(self.last(x[:, 0]))


def make(weights: Mapping[str, torch.Tensor]) -> Vit:
    """The model with the weights of `vit.ss`."""
    places, width = weights["places"].shape
    heads = weights["blocks.0.attention.w_q"].shape[1]
    layers = sum(name.endswith("attention.w_q") for name in weights)
    model = Vit(places, width, heads, layers, len(weights["out.b"]))
    state = {name: weights[name] for name in ("first", "places")}
    names = {"patch": "patch", "out": "out"}
    norms = {"last": "last"}
    for layer in range(layers):
        block = f"blocks.{layer}"
        names |= {f"{block}.layers.{name}": f"{block}.{name}" for name in ("up", "down")}
        norms |= {f"{block}.{name}": f"{block}.{name}" for name in ("before", "between")}
        for ours, theirs in (("w_q", "query"), ("w_k", "key"), ("w_v", "value")):
            state[f"{block}.{theirs}.weight"] = weights[f"{block}.attention.{ours}"].flatten(1).T
        state[f"{block}.back.weight"] = weights[f"{block}.attention.w_o"].flatten(0, 1).T
    for ours, theirs in names.items():
        state |= {f"{theirs}.weight": weights[f"{ours}.w"].T, f"{theirs}.bias": weights[f"{ours}.b"]}
    for ours, theirs in norms.items():
        state |= {f"{theirs}.weight": weights[f"{ours}.gain"], f"{theirs}.bias": weights[f"{ours}.bias"]}
    model.load_state_dict(state)
    return model


def loss(model: nn.Module, pictures: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy."""
    return functional.cross_entropy(model(pictures), digits)


def optimizer(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `adamw(m, lr=2e-3)` is in PyTorch."""
    return adamw(parameters, **{"lr": 2e-3, **settings})
