"""scikit-learn's handwritten digits: 1797 pictures as 64 numbers from 0 to 1. Every fifth is held out."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits

from shapescript import TensorDataset

FOLDER = Path(__file__).parent


def columns(part: str) -> dict[str, torch.Tensor]:
    """The columns of the `"train"` or the `"held"` part."""
    if part not in ("train", "held"):
        raise ValueError(f"the pictures have a train and a held part, no {part!r}")
    pictures = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    is_held = torch.arange(len(pictures)) % 5 == 4
    return {"picture": pictures[is_held if part == "held" else ~is_held]}


def load(part: str) -> TensorDataset:
    """The `"train"` or the `"held"` part."""
    return TensorDataset(**columns(part))


def floor() -> float:
    """The held part's loss if each pixel is drawn by itself, by its mean over the training part."""
    mean = columns("train")["picture"].mean(0).clamp(1e-3, 1 - 1e-3)
    held = columns("held")["picture"]
    return float(-(held * mean.log() + (1 - held) * (1 - mean).log()).sum(1).mean())


def draw(pictures: torch.Tensor, name: str) -> None:
    """Writes drawn pictures, eight in a row, beside this file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), layout="tight")
    grid = figure.subplots(8, 8)
    for axes, picture in zip(grid.flat, pictures.reshape(-1, 8, 8), strict=True):
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1)
        axes.axis("off")
    figure.savefig(FOLDER / name)
