"""What the oracle programs call: the digits in the order of the file, in f64, and a way to tell the test a value."""

from __future__ import annotations

import json

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

Item = dict[str, torch.Tensor]
TRAINING_ROWS = 1437


class Digits(Dataset[Item]):
    """Rows of scikit-learn's digits, as they stand in its file."""

    def __init__(self, pixels: torch.Tensor, digit: torch.Tensor) -> None:
        self.pixels = pixels
        self.digit = digit

    def __len__(self) -> int:
        return len(self.digit)

    def __getitem__(self, place: int) -> Item:
        return {"pixels": self.pixels[place], "digit": self.digit[place]}


def load(part: str) -> Digits:
    """The first 1437 rows for `"train"`, the other 360 for `"test"`."""
    pixels, digit = load_digits(return_X_y=True)
    rows = slice(TRAINING_ROWS) if part == "train" else slice(TRAINING_ROWS, None)
    return Digits(torch.tensor(pixels[rows] / 16, dtype=torch.float64), torch.tensor(digit[rows], dtype=torch.int64))


def note(name: str, value: torch.Tensor | float) -> None:
    """Prints a value with all its digits, on a line that the test reads."""
    print("note", json.dumps([name, float(value)]))
