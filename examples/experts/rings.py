"""Made data: points in the plane and which of three rings around their nearest of four centres each is on."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression

from shapescript import TensorDataset

FOLDER = Path(__file__).parent

CENTRES = torch.tensor([[-2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [2.0, 2.0]])


def columns(count: int, seed: int) -> dict[str, torch.Tensor]:
    """So many points, and the ring of each; the order of the rings turns from centre to centre."""
    random = torch.Generator().manual_seed(seed)
    centre = torch.randint(len(CENTRES), (count,), generator=random)
    ring = torch.randint(3, (count,), generator=random)
    angle = 2 * torch.pi * torch.rand(count, generator=random)
    radius = 0.5 + 0.5 * ring + 0.08 * torch.randn(count, generator=random)
    point = CENTRES[centre] + radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return {"point": point, "ring": (ring + centre) % 3}


def load(count: int, seed: int) -> TensorDataset:
    """The same as a dataset."""
    return TensorDataset(**columns(count, seed))


def floor() -> float:
    """The accuracy of logistic regression."""
    train, test = columns(4000, 0), columns(1000, 1)
    model = LogisticRegression().fit(train["point"], train["ring"])
    return float(model.score(test["point"], test["ring"]))


def draw(points: torch.Tensor, chosen: torch.Tensor, name: str) -> None:
    """Writes which expert each point is given to, beside this file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), layout="tight")
    axes = figure.subplots()
    axes.scatter(points[:, 0], points[:, 1], c=chosen, s=4, cmap="tab10")
    axes.set(title="the expert of each point", aspect="equal")
    figure.savefig(FOLDER / name)


def given_points() -> torch.Tensor:
    """The points that are drawn."""
    return columns(1000, 1)["point"]
