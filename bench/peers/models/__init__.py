"""PyTorch's model for each program: a module a program, of the program's name, with `FIELDS`, `make` and `loss`.

`FIELDS` names the columns of the data in the order in which `loss(model, *rows)` takes them; `make(weights)` gives an
`nn.Module` whose parameters are those of a `.ss` program's file. `load_task` finds them. A module that has an
`optimizer(parameters, **settings)` of its own trains with that, else with AdamW as the `.ss` programs do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import nn

from bench.wire import LEARNING_RATE


def adamw(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `adamw(m, lr=3e-4)` is in PyTorch; all other settings are the defaults of both."""
    return torch.optim.AdamW(parameters, **{"lr": LEARNING_RATE, "weight_decay": 0.01, **settings})


@dataclass(frozen=True)
class Task:
    """A program's training in PyTorch."""

    fields: tuple[str, ...]
    make: Callable[[Mapping[str, torch.Tensor]], nn.Module]
    loss: Callable[..., torch.Tensor]
    optimizer: Callable[..., torch.optim.Optimizer]


def load_task(program: str) -> Task:
    """The task of a program, by its name."""
    module = import_module(f"bench.peers.models.{program}")
    return Task(tuple(module.FIELDS), module.make, module.loss, getattr(module, "optimizer", adamw))


class WithLoss(nn.Module):
    """A model and its loss as one module: what is differentiated in one call, and what DDP and FSDP wrap."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.loss = task.loss

    def forward(self, *rows: torch.Tensor) -> torch.Tensor:
        """The loss of these rows."""
        return self.loss(self.model, *rows)
