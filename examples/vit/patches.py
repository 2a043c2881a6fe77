"""scikit-learn's handwritten digits: 1797 pictures of 8 x 8 pixels. Every fifth is kept for the test."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits

from shapescript import TensorDataset

FOLDER = Path(__file__).parent


def columns(part: str) -> dict[str, torch.Tensor]:
    """The columns of the `"train"` or the `"test"` part."""
    if part not in ("train", "test"):
        raise ValueError(f"the pictures have a train and a test part, no {part!r}")
    bunch = load_digits()
    pictures, digits = torch.tensor(bunch.images, dtype=torch.float32) / 16, torch.tensor(bunch.target)
    is_test = torch.arange(len(digits)) % 5 == 4
    chosen = is_test if part == "test" else ~is_test
    return {"picture": pictures[chosen], "digit": digits[chosen]}


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
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 3), layout="tight")
        axes = figure.subplots()
        axes.plot(range(1, len(self.values) + 1), self.values)
        axes.set(xlabel="epoch", ylabel="test accuracy", ylim=(0.8, 1))
        figure.savefig(FOLDER / name)
