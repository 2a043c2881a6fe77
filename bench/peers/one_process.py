"""PyTorch in one process: `--kind eager`, or `--kind compile` with the whole step in one graph.

Run by the bench: `python -m bench.peers.one_process --kind eager --program mlp --batch 64 --threads 2`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from bench import workloads
from bench.peers.models import Task, WithLoss, load_task
from bench.peers.serve import Trainer, serve
from bench.wire import LEARNING_RATE

BETA1, BETA2, EPSILON, WEIGHT_DECAY = 0.9, 0.999, 1e-8, 0.01


class Eager:
    """Eager PyTorch.

    `fused=True` updates all parameters in one call of one kernel; `index_select` gathers rows faster than brackets;
    gradients are dropped and not zeroed, so that autograd hands over the buffers it wrote instead of adding to zeros.
    """

    def __init__(self, task: Task, model: nn.Module, columns: list[torch.Tensor]) -> None:
        self.model = WithLoss(task, model)
        self.columns = columns
        on_gpu = columns[0].is_cuda
        # on a GPU the learning rate is a tensor, which costs no copy at each step
        rate: Any = torch.tensor(LEARNING_RATE, device="cuda") if on_gpu else LEARNING_RATE
        self.optimizer = task.optimizer(model.parameters(), fused=True, lr=rate)

    def step(self, index: torch.Tensor) -> torch.Tensor:
        """One step."""
        loss: torch.Tensor = self.model(*[column.index_select(0, index) for column in self.columns])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def look(self, loss: torch.Tensor) -> float:
        """Waits for a GPU, too."""
        return loss.item()

    def set_rate(self, rate: float) -> None:
        """As learning rate schedulers do."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


class Compiled:
    """`torch.compile` of the whole step: gathering the rows, forward, backward and AdamW are one graph.

    The step is written with `torch.func`, so that the backward pass and the optimizer are in the graph with the
    forward pass and their elementwise work fuses; a call has one dispatch, and no autograd. The count of steps and the
    learning rate are tensors: neither compiles anew. `fullgraph` makes sure that nothing falls out of the graph, and
    `dynamic=False` that sizes are constants. On a GPU, `max-autotune` records it as a CUDA graph.
    """

    def __init__(self, task: Task, model: nn.Module, columns: list[torch.Tensor]) -> None:
        whole = WithLoss(task, model)
        device = columns[0].device
        weights = {name: value.detach().clone() for name, value in whole.named_parameters()}
        first = {name: torch.zeros_like(value) for name, value in weights.items()}
        second = {name: torch.zeros_like(value) for name, value in weights.items()}
        count = torch.zeros((), device=device)
        self.rate = torch.tensor(LEARNING_RATE, device=device)

        def loss_of(given: dict[str, torch.Tensor], rows: list[torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = torch.func.functional_call(whole, given, tuple(rows))
            return loss

        def step(index: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
            rows = [column.index_select(0, index) for column in columns]
            gradients, loss = torch.func.grad_and_value(loss_of)(weights, rows)
            count.add_(1)
            size = rate / (1 - BETA1**count)
            correction = (1 - BETA2**count).sqrt()
            for name, weight in weights.items():
                gradient = gradients[name]
                first[name].lerp_(gradient, 1 - BETA1)
                second[name].mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
                weight.mul_(1 - rate * WEIGHT_DECAY)
                weight.sub_(size * first[name] / (second[name].sqrt() / correction + EPSILON))
            return loss

        mode = "max-autotune" if device.type == "cuda" else None
        self.compiled = torch.compile(step, fullgraph=True, dynamic=False, mode=mode)

    def step(self, index: torch.Tensor) -> torch.Tensor:
        """One step."""
        with torch.no_grad():
            loss: torch.Tensor = self.compiled(index, self.rate)
        # the graph's output is overwritten by the next replay of a CUDA graph
        return loss.clone() if loss.is_cuda else loss

    def look(self, loss: torch.Tensor) -> float:
        """Waits for a GPU, too."""
        return loss.item()

    def set_rate(self, rate: float) -> None:
        """In place: the graph stays."""
        self.rate.fill_(rate)


KINDS: dict[str, type[Eager] | type[Compiled]] = {"eager": Eager, "compile": Compiled}


def main() -> None:
    """Trains as asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.set_float32_matmul_precision("highest")  # as everybody else here
    task = load_task(given.program)
    device = torch.device(given.device)
    model = task.make(load_file(workloads.weights_file())).to(device)
    # all of the data and the orders lie on the device: a step copies nothing to it
    columns = [torch.from_numpy(workloads.column(name)).to(device) for name in task.fields]
    orders = torch.from_numpy(workloads.orders()).to(device)
    trainer: Trainer = KINDS[given.kind](task, model, columns)
    serve(trainer, orders, given.batch)


if __name__ == "__main__":
    main()
