"""What is trained: the workloads, and the files that all contestants read, so that all of them train alike.

`Workload` says what a workload is called, its program, its batch and how many examples there are; `make_files` writes
into a folder the columns of the data (`img.npy`), the initial weights under the names of the `.ss` program
(`weights.safetensors`), and the orders of shuffled epochs (`orders.npy`), which peers read instead of shuffling: what a
shuffle costs is in ShapeScript's time and not in theirs. `column`, `orders`, `weights_file` read them in a contestant,
whose `BENCH_FOLDER` is the folder; they load no torch. The loss of a contestant that trains otherwise would show.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.wire import FOLDER

EPOCHS = 8
"""How many orders there are: a block's seed is below this."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Workload:
    """One training step to be measured; `program` is a `.ss` file of `programs/` and the name of the peers' model."""

    name: str
    program: str
    batch: int
    examples: int
    words: str

    @property
    def steps_of_epoch(self) -> int:
        """How many whole batches an epoch has; no block is longer, and no batch is short."""
        return self.examples // self.batch


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("mlp64", "mlp", 64, 61440, "the chapter's program: 784 to 256 to 10, gelu, AdamW, batch 64"),
        Workload("mlp4096", "mlp", 4096, 61440, "the same at batch 4096"),
        Workload("gpt", "gpt", 8, 2048, "a GPT block stack: D 256, 6 layers, 8 heads, 128 tokens, V 512, batch 8"),
    )
}


# --- the files, in the bench ---------------------------------------------------------------------------------------


def make_files(workload: Workload, folder: Path) -> None:
    """Writes the data, the weights and the orders, which depend on nothing but the workload."""
    from safetensors.numpy import save_file

    draw = np.random.default_rng(0)
    columns, weights = MAKERS[workload.program](workload, draw)
    for name, values in columns.items():
        np.save(folder / f"{name}.npy", values)
    save_file(weights, folder / "weights.safetensors")
    np.save(folder / "orders.npy", np.stack([shuffled(workload.examples, seed) for seed in range(EPOCHS)]))


def shuffled(count: int, seed: int) -> NDArray[np.int64]:
    """The order that `shuffle(seed=seed)` gives."""
    from shapescript.controller.datasets import permutation

    return permutation(count, seed)


def mlp_arrays(workload: Workload, draw: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Pictures of noise, labelled by a linear teacher so that there is something to learn."""
    images = draw.random((workload.examples, 784), dtype=np.float32)
    teacher = draw.standard_normal((784, 10), dtype=np.float32)
    labels = np.argmax(images @ teacher, axis=1).astype(np.int64)
    weights = {
        "w1": 0.02 * draw.standard_normal((784, 256), dtype=np.float32),
        "w2": 0.02 * draw.standard_normal((256, 10), dtype=np.float32),
    }
    return {"img": images, "label": labels}, weights


def gpt_arrays(workload: Workload, draw: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Text of a chain in which each token leads to one of eight others."""
    vocabulary, tokens, width, layers = 512, 128, 256, 6
    followers = draw.integers(0, vocabulary, (vocabulary, 8))
    text = np.empty((workload.examples, tokens + 1), dtype=np.int64)
    text[:, 0] = draw.integers(0, vocabulary, workload.examples)
    for place in range(tokens):
        text[:, place + 1] = followers[text[:, place], draw.integers(0, 8, workload.examples)]

    def normal(*shape: int) -> NDArray[np.float32]:
        return np.asarray(0.02 * draw.standard_normal(shape, dtype=np.float32), dtype=np.float32)

    ones, zeros = np.ones(width, dtype=np.float32), np.zeros(width, dtype=np.float32)
    weights: Arrays = {"tok": normal(vocabulary, width), "pos": normal(tokens, width)}
    for layer in range(layers):
        block = {
            "g1": ones,
            "b1": zeros,
            "w_qkv": normal(width, 3 * width),
            "w_o": normal(width, width),
            "g2": ones,
            "b2": zeros,
            "w_in": normal(width, 4 * width),
            "w_out": normal(4 * width, width),
        }
        weights.update({f"blocks.{layer}.{name}": value for name, value in block.items()})
    weights.update({"gain": ones, "shift": zeros, "head": normal(width, vocabulary)})
    columns = {"x": np.ascontiguousarray(text[:, :-1]), "y": np.ascontiguousarray(text[:, 1:])}
    return columns, weights


MAKERS = {"mlp": mlp_arrays, "gpt": gpt_arrays}


# --- the files, in a contestant ------------------------------------------------------------------------------------


def folder() -> Path:
    """Where this run's files are."""
    return Path(os.environ[FOLDER])


def column(name: str) -> NDArray[Any]:
    """A column of the data, mapped: all contestants share its pages."""
    return np.asarray(np.load(folder() / f"{name}.npy", mmap_mode="c"))


def orders() -> NDArray[np.int64]:
    """The order of each epoch, by its seed."""
    return np.asarray(np.load(folder() / "orders.npy"))


def weights_file() -> Path:
    """The initial weights."""
    return folder() / "weights.safetensors"
