"""The controller of test_workers.py, a process: programs on so many workers and on the CPU; prints `right`.

Several workers may share a GPU where NCCL allows it. This process must come to the end without having begun CUDA.
"""

from __future__ import annotations

import sys

import torch
from layout_programs import TEXTS
from test_cuda_workers import trained

from shapescript.controller.several_devices import SeveralDevices
from shapescript.devices.workers.pool import WorkerPool


def main(count: int, gpus: int) -> None:
    names = [f"cuda[{number % gpus}]" for number in range(count)]
    with WorkerPool(names) as pool:
        for text in TEXTS:
            rows = (7, 7, 2, 7, 1)
            found, wanted = trained(text, rows, SeveralDevices(pool, padded=True)), trained(text, rows, None)
            for got, good in zip(found, wanted, strict=True):
                assert torch.allclose(got, good, rtol=1e-9, atol=1e-9), (text.name, (got - good).abs().max())
    assert not torch.cuda.is_initialized(), "the controller began CUDA"
    print("right")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
