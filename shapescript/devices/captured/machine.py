"""The machine under a captured step: where memory is, how work is put on the stream, recorded and run again.

Gives `Machine`, what the executor asks for, and `CudaMachine`, a GPU by torch.cuda and `shapescript._cuda`. The tests
have another one, whose kernels run on the CPU and whose recording is a list.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import torch

from shapescript.devices.captured.kept import Kept

Work = Callable[[], None]


class Recording(Protocol):
    """Recorded work."""

    def replay(self) -> None:
        """Does it all again, on the stream; returns at once."""

    def close(self) -> None:
        """Lets go of it; nothing of it runs any more."""


class Machine(Protocol):
    """A device with a stream. `kernels` is the module with the kernels, `name` what the program calls the device.

    `kept` are its recordings; `hung`: it doesn't finish what it was given, and can't be waited for any more.
    """

    kernels: Any
    device: torch.device
    name: str
    kept: Kept
    hung: bool

    def grid(self) -> Any:
        """Threads, blocks and stream of a launch."""

    def do(self, work: Work) -> None:
        """Puts work on the stream, or into what is being recorded."""

    def record(self, work: Work) -> Recording:
        """Records what `work` does, which isn't done by that."""

    def shown(self, count: int) -> torch.Tensor:
        """Whole numbers that the device writes and the host reads at any time."""

    def synchronize(self) -> None:
        """Waits for the stream."""


def has_kernels() -> bool:
    """Whether the module with the kernels for GPUs was built."""
    return find_spec("shapescript._cuda") is not None and find_spec("shapescript._executor") is not None


def in_full_f32() -> None:
    """Products and convolutions of f32 are made in f32, without TF32: torch's default for convolutions is another."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


class CudaRecording:
    """A CUDA graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self.graph = graph

    def replay(self) -> None:
        """Launches the graph on the current stream."""
        self.graph.replay()

    def close(self) -> None:
        """Frees the graph's memory."""
        self.graph.reset()


class CudaMachine:
    """A GPU of this process. All recordings share one pool of memory."""

    THREADS = 256

    def __init__(self, device: torch.device, name: str = "") -> None:
        self.name = name or f"cuda[{device.index or 0}]"
        self.kept, self.hung = Kept(), False
        in_full_f32()
        self.kernels = import_module("shapescript._cuda")
        self.device = device
        self._blocks = 4 * torch.cuda.get_device_properties(device).multi_processor_count
        self._pool: Any = None

    def grid(self) -> Any:
        """On torch's stream, which is the one that is recorded while something is."""
        stream = torch.cuda.current_stream(self.device).cuda_stream
        return self.kernels.Grid(self.THREADS, self._blocks, stream)

    def do(self, work: Work) -> None:
        """CUDA itself tells apart what is done and what is recorded."""
        with torch.cuda.device(self.device):
            work()

    def record(self, work: Work) -> CudaRecording:
        """By a capture that other threads don't disturb."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        in_full_f32()  # Python code of the program may have set it otherwise since
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device):
            self.synchronize()
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                work()
        return CudaRecording(graph)

    def shown(self, count: int) -> torch.Tensor:
        """Pinned memory, whose address is the device's too."""
        with torch.cuda.device(self.device):  # else it would begin a context on the first GPU
            return torch.zeros(count, dtype=torch.int64, pin_memory=True)

    def synchronize(self) -> None:
        """Waits for the device."""
        torch.cuda.synchronize(self.device)
