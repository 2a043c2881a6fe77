"""Two moons: points in the plane by scikit-learn, moved and scaled; and what is drawn of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_moons
from sklearn.neighbors import NearestNeighbors

from shapescript import TensorDataset

FOLDER = Path(__file__).parent


def points(count: int, seed: int) -> torch.Tensor:
    """So many points."""
    found = torch.tensor(make_moons(count, noise=0.05, random_state=seed)[0], dtype=torch.float32)
    return (found - torch.tensor([0.5, 0.25])) / torch.tensor([0.87, 0.5])


def load(count: int, seed: int) -> TensorDataset:
    """The same as a dataset."""
    return TensorDataset(x=points(count, seed))


def distance(drawn: torch.Tensor, seed: int) -> float:
    """How far drawn points are from true ones, and those from them: the mean distance to the nearest, both ways."""
    true = points(len(drawn), seed).numpy()
    found = np.asarray(drawn.cpu())
    there, _ = NearestNeighbors(n_neighbors=1).fit(true).kneighbors(found)
    back, _ = NearestNeighbors(n_neighbors=1).fit(found).kneighbors(true)
    return float(there.mean() + back.mean()) / 2


def between_true_points(count: int) -> float:
    """The same distance between two sets of true points: nothing can be expected below it."""
    return distance(points(count, 1), 2)


def to_normal_points(count: int) -> float:
    """The same distance for points of a normal distribution, which know the mean and the deviation alone."""
    return distance(torch.randn(count, 2, generator=torch.Generator().manual_seed(0)), 2)


def draw(drawn: torch.Tensor, name: str) -> None:
    """Writes drawn points and true ones beside this file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="tight")
    for axes, found, title in zip(
        figure.subplots(1, 2), (points(len(drawn), 2), drawn.cpu()), ("true", "drawn"), strict=True
    ):
        axes.scatter(found[:, 0], found[:, 1], s=2)
        axes.set(title=title, xlim=(-2.5, 2.5), ylim=(-2.5, 2.5))
    figure.savefig(FOLDER / name)
