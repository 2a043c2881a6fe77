"""The bench's data and initial weights for a `.ss` program: those that every contestant gets."""

from __future__ import annotations

import torch

from bench.workloads import column, weights_file
from shapescript import TensorDataset


def digits() -> TensorDataset:
    """Pictures and labels."""
    return TensorDataset(img=_tensor("img"), label=_tensor("label"))


def windows() -> TensorDataset:
    """Windows of tokens, and each token's next."""
    return TensorDataset(x=_tensor("x"), y=_tensor("y"))


def weights() -> str:
    """The file of the initial weights."""
    return str(weights_file())


def _tensor(name: str) -> torch.Tensor:
    return torch.from_numpy(column(name))
