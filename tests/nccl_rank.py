"""One rank of test_cuda_nccl.py, a process: checks every collective against what it must give; prints `right`."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from shimmed_cuda import shimmed

from shapescript.devices.gloo import gloo_transport
from shapescript.devices.nccl import nccl_transport
from shapescript.layout.mesh import Mesh, parts


def main(rank: int, count: int, store: str, how: str) -> None:
    meeting = gloo_transport(rank, Mesh((count,)), store, 60)
    end = nccl_transport(meeting, 1, shimmed(), lambda: 0, torch.device("cpu"))
    if how == "gone" and rank == count - 1:
        sys.exit(3)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        given = [torch.arange(5, dtype=dtype) + rank, torch.full((2, 3), rank + 1, dtype=dtype)]
        total, ones = end.all_reduce(given)
        assert torch.equal(total, (torch.arange(5) * count + sum(range(count))).to(dtype)), total
        assert torch.equal(ones, torch.full((2, 3), sum(range(1, count + 1)), dtype=dtype))
        assert int(end.all_reduce([given[1]], "max")[0].max()) == count
    weights = [0.5, 0.3, 0.2][:count]
    (mean,) = end.weighted_all_reduce([torch.full((4,), float(rank + 1))], weights[rank])
    assert torch.allclose(mean, torch.full((4,), sum(w * (r + 1) for r, w in enumerate(weights)))), mean
    widths = parts(7, count)
    whole = torch.arange(14.0).reshape(7, 2)
    own = whole.split(widths)[rank]
    assert torch.equal(end.all_gather(own, 0, widths), whole)
    scattered = end.reduce_scatter(whole + rank, 0, widths)
    assert torch.equal(scattered, own * count + sum(range(count)))
    columns = parts(5, count)
    square = torch.arange(35.0).reshape(7, 5)
    turned = end.all_to_all(square.split(widths, 0)[rank], 0, widths, 1, columns)
    assert torch.equal(turned, square.split(columns, 1)[rank])
    assert end.sent.launches == 12, end.sent
    end.check()
    end.close()
    print("right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
