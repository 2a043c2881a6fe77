"""JAX's loss for each program: functions of a tree of parameters, the `.ss` program's own weights by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Parameters = dict[str, Any]
Losses = Callable[..., Any]


def each_cross_entropy(logits: Any, labels: Any) -> Any:
    """The cross-entropy of each place, without a one-hot."""
    log_probabilities = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.take_along_axis(log_probabilities, labels[..., None], axis=-1)[..., 0]


def mlp(weights: Parameters, images: Any, labels: Any) -> Any:
    """The loss of each example of the chapter's program."""
    hidden = jax.nn.gelu(images @ weights["w1"], approximate=False)
    return each_cross_entropy(hidden @ weights["w2"], labels)


def layer_norm(x: Any, gain: Any, shift: Any) -> Any:
    """A norm over the last axis; XLA fuses it."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) * gain + shift


def gpt(weights: Parameters, tokens: Any, following: Any, heads: int = 8) -> Any:
    """The loss of each window of the GPT stack; the layers are unrolled, so that XLA sees all of them."""
    batch, length = tokens.shape
    x = weights["tok"][tokens] + weights["pos"]
    width = x.shape[-1]
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    for layer in range(layers):
        block = {name.rpartition(".")[2]: value for name, value in weights.items() if f"blocks.{layer}." in name}
        parts = layer_norm(x, block["g1"], block["b1"]) @ block["w_qkv"]
        query, key, value = jnp.moveaxis(parts.reshape(batch, length, 3, heads, width // heads), 2, 0)
        seen = jax.nn.dot_product_attention(query, key, value, is_causal=True)
        x = x + seen.reshape(batch, length, width) @ block["w_o"]
        wide = jax.nn.gelu(layer_norm(x, block["g2"], block["b2"]) @ block["w_in"], approximate=False)
        x = x + wide @ block["w_out"]
    logits = layer_norm(x, weights["gain"], weights["shift"]) @ weights["head"]
    return each_cross_entropy(logits, following).mean(axis=-1)


LOSSES: dict[str, tuple[tuple[str, ...], Losses]] = {"mlp": (("img", "label"), mlp), "gpt": (("x", "y"), gpt)}
"""The columns that a program's loss takes, and the loss of each example."""
