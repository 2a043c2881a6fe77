"""PyTorch in several processes: `--kind ddp`, `ddp-compile` and `fsdp`, by gloo on CPUs, and `ddp-graph` by NCCL.

Run by the bench: `python -m bench.peers.several_processes --kind ddp --program mlp --batch 64 --processes 3`. The first
process starts the others, answers the bench, and hands each line on to them, so that all run the same blocks. The
batch is cut as ShapeScript cuts it, 22/21/21; each part's loss is weighted by its rows, since both wrappers average
gradients over the processes: the training is that of one process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from bench import workloads
from bench.peers.models import Task, WithLoss, load_task
from bench.peers.serve import run_block
from bench.wire import LEARNING_RATE, Block, Line, decode_block, encode


class Distributed:
    """What DDP and FSDP2 have in common: the rows of this process, the weighting, the losses' sum."""

    def __init__(self, wrapped: nn.Module, task: Task, columns: list[torch.Tensor], batch: int) -> None:
        rank, processes = dist.get_rank(), dist.get_world_size()
        sizes = [batch // processes + (part < batch % processes) for part in range(processes)]
        self.first = sum(sizes[:rank])
        self.last = self.first + sizes[rank]
        self.share = sizes[rank] / batch
        self.scale = self.share * processes
        self.wrapped = wrapped
        self.columns = columns
        self.optimizer = task.optimizer(wrapped.parameters(), fused=True)

    def step(self, index: torch.Tensor) -> torch.Tensor:
        """One step on this process's rows; nothing is sent but the gradients (and FSDP's parameters)."""
        rows = index[self.first : self.last]
        loss: torch.Tensor = self.wrapped(*[column.index_select(0, rows) for column in self.columns])
        (loss * self.scale).backward()
        self.optimizer.step()
        # gradients that are dropped needn't be zeroed; DDP lays the next ones into its bucket
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def look(self, loss: torch.Tensor) -> float:
        """The whole batch's loss; it is sent only where someone looks."""
        whole = loss * self.share
        dist.all_reduce(whole)
        return whole.item()

    def set_rate(self, rate: float) -> None:
        """As learning rate schedulers do."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def ddp(task: Task, model: nn.Module, columns: list[torch.Tensor], batch: int) -> Distributed:
    """DDP: gradients are views of the bucket that is sent, and the graph never changes, so hooks can be kept."""
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(WithLoss(task, model), gradient_as_bucket_view=True, static_graph=True)
    return Distributed(wrapped, task, columns, batch)


def compiled_ddp(task: Task, model: nn.Module, columns: list[torch.Tensor], batch: int) -> Distributed:
    """DDP around a compiled model and loss; the all-reduce stays where it overlaps with the backward pass."""
    from torch.nn.parallel import DistributedDataParallel

    compiled = torch.compile(WithLoss(task, model), fullgraph=True, dynamic=False)
    wrapped = DistributedDataParallel(compiled, gradient_as_bucket_view=True, static_graph=True)
    return Distributed(wrapped, task, columns, batch)


def fsdp(task: Task, model: nn.Module, columns: list[torch.Tensor], batch: int) -> Distributed:
    """FSDP2: the blocks and then the rest are its units; parameters are freed after use, as in ZeRO-3."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    whole = WithLoss(task, model)
    mesh = init_device_mesh(columns[0].device.type, (dist.get_world_size(),))
    for block in getattr(model, "blocks", ()):
        fully_shard(block, mesh=mesh)
    fully_shard(whole, mesh=mesh)
    return Distributed(whole, task, columns, batch)


class GraphedDdp:
    """DDP whose whole step, its all-reduce too, is one CUDA graph. Not yet run on a GPU by this project.

    As the PyTorch documentation asks: the wrapper is made on a side stream, 11 steps run before the recording, the
    index and the learning rate are tensors that keep their place, and the optimizer is `capturable`.
    """

    def __init__(self, task: Task, model: nn.Module, columns: list[torch.Tensor], batch: int) -> None:
        device = columns[0].device
        self.rate = torch.tensor(LEARNING_RATE, device=device)
        self.index = torch.zeros(batch, dtype=torch.int64, device=device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        kept = {name: value.detach().clone() for name, value in model.state_dict().items()}
        with torch.cuda.stream(stream):
            self.inner = ddp(task, model, columns, batch)
            self.inner.optimizer = task.optimizer(model.parameters(), fused=True, capturable=True, lr=self.rate)
            for _ in range(11):
                self.inner.step(self.index)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.inner.step(self.index)
        # training begins now: the steps before the recording are undone, in place
        with torch.no_grad():
            for name, value in model.state_dict().items():
                value.copy_(kept[name])
            for state in self.inner.optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def step(self, index: torch.Tensor) -> torch.Tensor:
        """A copy of the index and a replay."""
        self.index.copy_(index, non_blocking=True)
        self.graph.replay()
        return self.loss

    def look(self, loss: torch.Tensor) -> float:
        """The whole batch's loss."""
        return self.inner.look(loss)

    def set_rate(self, rate: float) -> None:
        """In place: the graph stays."""
        self.rate.fill_(rate)


KINDS = {"ddp": ddp, "ddp-compile": compiled_ddp, "fsdp": fsdp, "ddp-graph": GraphedDdp}


def start_others(processes: int, store: str) -> list[subprocess.Popen[bytes]]:
    """The other processes: this command again, with a number; what is asked comes by their standard input."""
    command = [sys.executable, "-m", "bench.peers.several_processes", *sys.argv[1:], "--store", store]
    return [
        subprocess.Popen([*command, "--rank", str(rank)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for rank in range(1, processes)
    ]


def lead(trainer: Any, orders: torch.Tensor, batch: int, others: list[subprocess.Popen[bytes]]) -> None:
    """The first process: what is asked is handed on, run, and answered."""
    line = Line()
    while (block := line.next()) is not None:
        for other in others:
            assert other.stdin is not None
            other.stdin.write(encode(block))
            other.stdin.flush()
        line.done(run_block(trainer, block, orders[block.seed], batch, line.losses.append))
    for other in others:
        assert other.stdin is not None
        other.stdin.close()


def follow(trainer: Any, orders: torch.Tensor, batch: int) -> None:
    """Another process: runs the same blocks until its input ends."""

    def nowhere(loss: float) -> None:
        """The first process keeps the losses."""

    for line in sys.stdin:
        block: Block = decode_block(line)
        run_block(trainer, block, orders[block.seed], batch, nowhere)


def main() -> None:
    """Trains as asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--store", default="")
    given = parser.parse_args()
    others: list[subprocess.Popen[bytes]] = []
    store = given.store
    if given.rank == 0:
        store = str(Path(tempfile.mkdtemp(dir=workloads.folder())) / "store")
        others = start_others(given.processes, store)
    torch.set_num_threads(given.threads)
    if given.device == "cuda":
        device = torch.device("cuda", given.rank)
        torch.cuda.set_device(device)
        backend = "nccl"
    else:
        device = torch.device("cpu")
        backend = "gloo"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the shortest way between processes of one machine
    dist.init_process_group(backend, init_method=f"file://{store}", rank=given.rank, world_size=given.processes)
    task = load_task(given.program)
    model = task.make(load_file(workloads.weights_file())).to(device)
    columns = [torch.from_numpy(workloads.column(name)).to(device) for name in task.fields]
    orders = torch.from_numpy(workloads.orders()).to(device)
    trainer = KINDS[given.kind](task, model, columns, given.batch)
    if given.rank == 0:
        lead(trainer, orders, given.batch, others)
    else:
        follow(trainer, orders, given.batch)
    dist.destroy_process_group()
    for other in others:
        other.wait(timeout=30)


if __name__ == "__main__":
    main()
