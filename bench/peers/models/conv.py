"""The convolutional net of `examples/conv` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

FIELDS = ("picture", "digit")


class Net(nn.Module):
    """Three convolutions, each with batch normalisation, a mean over the places and a linear layer."""

    def __init__(self, widths: list[int], classes: int) -> None:
        super().__init__()
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o in pairs)
        self.out = nn.Linear(widths[-1], classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """The logits."""
        x = pictures
        for place, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = functional.relu(norm(convolution(x)))
            if place < 2:
                x = functional.max_pool2d(x, 2)
        return self.out(x.mean((2, 3)))


def make(weights: Mapping[str, torch.Tensor]) -> Net:
    """The model with the weights of `conv.ss`."""
    kernels = [weights[f"{name}.w"] for name in ("first", "second", "third")]
    model = Net([kernels[0].shape[1], *(kernel.shape[0] for kernel in kernels)], len(weights["out.b"]))
    with torch.no_grad():
        for convolution, kernel in zip(model.convolutions, kernels, strict=True):
            convolution.weight.copy_(kernel)
        model.out.weight.copy_(weights["out.w"].T)
        model.out.bias.copy_(weights["out.b"])
    return model


def loss(model: nn.Module, pictures: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy."""
    return functional.cross_entropy(model(pictures), digits)


def optimizer(parameters: Iterable[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    """What `sgd(m, lr=0.1, momentum=0.9, weight_decay=5e-4)` is in PyTorch."""
    return torch.optim.SGD(parameters, **{"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, **settings})
