"""scikit-learn's digits beside names for them: 5 names of a digit, each a few numbers of words, 0 for none."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits

from shapescript import TensorDataset

FOLDER = Path(__file__).parent

DIGITS = "zero one two three four five six seven eight nine".split()
FORMS = ["{}", "the digit {}", "a picture of {}", "someone wrote {}", "{} by hand"]
LENGTH = 4


def sentences(digit: int) -> list[str]:
    """What may be said of a digit."""
    return [form.format(DIGITS[digit]) for form in FORMS]


WORDS = ["", *sorted({word for digit in range(10) for sentence in sentences(digit) for word in sentence.split()})]


def vocabulary() -> int:
    """How many words there are, with none as one of them."""
    return len(WORDS)


def numbers(sentence: str) -> list[int]:
    """The places of its words, with zeros after them."""
    found = [WORDS.index(word) for word in sentence.split()]
    return found + [0] * (LENGTH - len(found))


def columns(part: str) -> dict[str, torch.Tensor]:
    """The columns of the `"train"` part (a sentence a picture) or the `"test"` part; every fifth picture is of that."""
    if part not in ("train", "test"):
        raise ValueError(f"the pictures have a train and a test part, no {part!r}")
    bunch = load_digits()
    pictures = torch.tensor(bunch.data, dtype=torch.float32) / 16
    places = torch.arange(len(pictures))
    chosen = places % 5 == 4 if part == "test" else places % 5 != 4
    words = torch.tensor([[numbers(sentence) for sentence in sentences(digit)] for digit in range(10)])
    said = words[torch.tensor(bunch.target), places * 7 // 5 % len(FORMS)]
    return {"picture": pictures[chosen], "words": said[chosen], "digit": torch.tensor(bunch.target)[chosen]}


def load(part: str) -> TensorDataset:
    """The `"train"` or the `"test"` part."""
    return TensorDataset(**columns(part))


def prompts() -> list[list[int]]:
    """A sentence for each digit."""
    return [numbers(sentences(digit)[1]) for digit in range(10)]


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
        axes.plot(range(1, len(self.values) + 1), self.values, label="by the nearest name")
        axes.axhline(0.1, color="grey", linestyle="--", label="by chance")
        axes.set(xlabel="epoch", ylabel="test accuracy")
        axes.legend()
        figure.savefig(FOLDER / name)
