"""One rank of test_nccl.py: an all-reduce as it comes, recorded, and replayed with other values; prints `right`."""

from __future__ import annotations

import sys

import torch

from shapescript import _cuda
from shapescript.devices.captured.machine import CudaMachine
from shapescript.devices.gloo import gloo_transport
from shapescript.devices.nccl import nccl_transport
from shapescript.layout.mesh import Mesh


def main(rank: int, count: int, store: str) -> None:
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    machine = CudaMachine(device)
    meeting = gloo_transport(rank, Mesh((count,)), store, 120)
    end = nccl_transport(meeting, 1, _cuda, lambda: torch.cuda.current_stream(device).cuda_stream, device)
    x = torch.full((1000,), float(rank + 1), device=device)
    out = torch.empty_like(x)

    def work() -> None:
        out.copy_(x)
        end.reduce_in_place(out, "sum")

    work()
    machine.synchronize()
    recording = machine.record(work)
    for scale in (1.0, 2.0, 5.0):
        x.fill_((rank + 1) * scale)
        recording.replay()
        machine.synchronize()
        assert torch.equal(out, torch.full_like(out, sum(range(1, count + 1)) * scale)), out[0]
    recording.close()
    end.check()
    end.close()
    print("right")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
