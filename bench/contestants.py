"""Who takes part: ShapeScript as a user runs it, and what the user would pick instead.

Takes a workload and what the machine has; gives the entries. A peer that can use several threads takes part once with
one and once with all cores, and its better figure stands for it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bench.contestant import ROOT, Entry
from bench.workloads import Workload

SEVERAL = {"ddp": "DDP, gloo", "ddp-compile": "DDP, gloo, compiled", "fsdp": "FSDP2, gloo"}
PROGRAMS = ROOT / "bench" / "programs"


@dataclass(frozen=True)
class Machine:
    """What counts of a machine: its cores, and its NVIDIA GPUs."""

    cores: int
    gpus: int = 0


def entries_of(workload: Workload, machine: Machine, kind: str = "cpu") -> list[Entry]:
    """All that can be compared on the CPU (`kind` "cpu") or on GPUs ("cuda")."""
    if kind == "cuda":
        return [*ours(workload, kind, range(1, min(machine.gpus, 3) + 1)), *on_gpus(workload, machine)]
    threads = sorted({1, machine.cores})
    return [
        *ours(workload, kind, (1, 2, 3)),
        *(one_process(workload, name, count) for name in ("eager", "compile") for count in threads),
        *(several(workload, name, count, machine.cores) for name in SEVERAL for count in (2, 3)),
        *(jax(workload, 1, count) for count in threads),
        *(jax(workload, count, machine.cores) for count in (2, 3)),
    ]


def ours(workload: Workload, kind: str, counts: range | tuple[int, ...]) -> list[Entry]:
    """ShapeScript by its command; the threads are its own affair, and so is everything else."""
    found = []
    for count in counts:
        numbers = " ".join(map(str, range(count)))
        devices = kind if kind == "cpu" and count == 1 else f"{kind}[{numbers}]"
        found.append(our_entry(workload, f"ShapeScript {devices}", f"ours-{count}", count, ("--devices", devices)))
    if kind == "cpu":
        name = f"{workload.program}_sharded"
        found.append(our_entry(workload, "ShapeScript cpu[0 1 2], shard params", "ours-3-shard", 3, (), name))
    return found


def our_entry(
    workload: Workload, name: str, group: str, workers: int, devices: tuple[str, ...], program: str = ""
) -> Entry:
    """`--plan` has it say at its end how long it compiled, and changes nothing else."""
    file = str(PROGRAMS / f"{program or workload.program}.ss")
    command = (sys.executable, "-m", "shapescript", "run", "--plan", *devices, file, "--batch", str(workload.batch))
    return Entry(name, group, command, {}, workers, ours=True)


def peer(workload: Workload, module: str, *words: str) -> tuple[str, ...]:
    """The command of a peer."""
    common = ("--program", workload.program, "--batch", str(workload.batch))
    return (sys.executable, "-m", f"bench.peers.{module}", *common, *words)


def plural(count: int, word: str) -> str:
    """A count in words."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def threads_of(count: int) -> dict[str, str]:
    """The variables that decide it for OpenMP and MKL, which are read when they load."""
    return {"OMP_NUM_THREADS": str(count), "MKL_NUM_THREADS": str(count)}


def one_process(workload: Workload, kind: str, threads: int) -> Entry:
    """Eager or compiled PyTorch."""
    label = {"eager": "PyTorch eager, fused AdamW", "compile": "torch.compile, whole step"}[kind]
    command = peer(workload, "one_process", "--kind", kind, "--threads", str(threads))
    return Entry(f"{label}, {plural(threads, 'thread')}", kind, command, threads_of(threads))


def several(workload: Workload, kind: str, processes: int, cores: int) -> Entry:
    """DDP or FSDP2 by gloo; more threads than cores only slow them."""
    threads = max(1, cores // processes)
    words = ("--kind", kind, "--processes", str(processes), "--threads", str(threads))
    command = peer(workload, "several_processes", *words)
    group = f"{kind.partition('-')[0]}-{processes}"
    return Entry(f"{SEVERAL[kind]}, {processes} processes", group, command, threads_of(threads), processes)


def jax(workload: Workload, devices: int, threads: int) -> Entry:
    """JAX's jit; several CPU devices live in one process and share its threads."""
    flags = [f"--xla_force_host_platform_device_count={devices}"] if devices > 1 else []
    if threads == 1:
        flags.append("--xla_cpu_multi_thread_eigen=false")
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)}
    command = peer(workload, "jax_process", "--devices", str(devices))
    if devices > 1:
        return Entry(f"JAX jit, {devices} devices", f"jax-{devices}", command, environment)
    return Entry(f"JAX jit, {plural(threads, 'thread')}", "jax", command, environment)


def on_gpus(workload: Workload, machine: Machine) -> list[Entry]:
    """The peers on GPUs: eager, compiled with CUDA graphs, DDP, and DDP recorded in a CUDA graph."""
    names = {"eager": "PyTorch eager, cuda", "compile": "torch.compile with CUDA graphs"}
    found = [
        Entry(name, kind, peer(workload, "one_process", "--kind", kind, "--device", "cuda"), {})
        for kind, name in names.items()
    ]
    for count in range(2, min(machine.gpus, 3) + 1):
        for kind, name in {"ddp": "DDP, NCCL", "ddp-graph": "DDP in a CUDA graph", "fsdp": "FSDP2, NCCL"}.items():
            words = ("--kind", kind, "--device", "cuda", "--processes", str(count))
            # as PyTorch asks for NCCL inside a recording
            environment = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"} if kind == "ddp-graph" else {}
            command = peer(workload, "several_processes", *words)
            found.append(Entry(f"{name}, {count} GPUs", f"{kind}-{count}", command, environment, count))
    return found
