"""The GPT block stack in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

FIELDS = ("x", "y")

LINEAR = {"w_qkv": "qkv", "w_o": "out", "w_in": "into", "w_out": "back"}
NORMS = {"g1": "norm1.weight", "b1": "norm1.bias", "g2": "norm2.weight", "b2": "norm2.bias"}


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)  # one product for all three
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width)
        self.into = nn.Linear(width, 4 * width, bias=False)
        self.back = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The stream after this block."""
        batch, tokens, width = x.shape
        # views alone: torch's fused attention takes them as they lie, so nothing is copied before it
        parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.back(functional.gelu(self.into(self.norm2(x))))


class Gpt(nn.Module):
    """Embeddings, blocks, a norm and a head of its own."""

    def __init__(self, vocabulary: int, tokens: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tok = nn.Embedding(vocabulary, width)
        self.pos = nn.Parameter(torch.empty(tokens, width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of each next token."""
        x = self.tok(tokens) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make(weights: Mapping[str, torch.Tensor], heads: int = 8) -> Gpt:
    """The model with the weights of `gpt.ss`."""
    vocabulary, width = weights["tok"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    model = Gpt(vocabulary, weights["pos"].shape[0], width, layers, heads)
    state = {
        "tok.weight": weights["tok"],
        "pos": weights["pos"],
        "norm.weight": weights["gain"],
        "norm.bias": weights["shift"],
        "head.weight": weights["head"].T,
    }
    for layer in range(layers):
        for ours, theirs in LINEAR.items():
            state[f"blocks.{layer}.{theirs}.weight"] = weights[f"blocks.{layer}.{ours}"].T
        for ours, theirs in NORMS.items():
            state[f"blocks.{layer}.{theirs}"] = weights[f"blocks.{layer}.{ours}"]
    model.load_state_dict(state)
    return model


def loss(model: nn.Module, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of each next token."""
    return functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
