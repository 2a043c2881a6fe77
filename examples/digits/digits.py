"""scikit-learn's handwritten digits: 1797 pictures of 8 x 8 pixels. Every fifth is kept for the test."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

Item = dict[str, torch.Tensor]


class Digits(Dataset[Item]):
    """Pictures with brightness from 0 to 1, and the digit that each shows."""

    def __init__(self, pictures: torch.Tensor, digits: torch.Tensor) -> None:
        self.pictures = pictures
        self.digits = digits

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, place: int) -> Item:
        return {"picture": self.pictures[place], "digit": self.digits[place]}


def load(part: str) -> Digits:
    """The `"train"` or the `"test"` part."""
    bunch = load_digits()
    pictures = torch.tensor(bunch.images, dtype=torch.float32) / 16
    digits = torch.tensor(bunch.target, dtype=torch.int64)
    is_test = torch.arange(len(digits)) % 5 == 4
    if part not in ("train", "test"):
        raise ValueError(f"the digits have a train and a test part, no {part!r}")
    chosen = is_test if part == "test" else ~is_test
    return Digits(pictures[chosen], digits[chosen])
