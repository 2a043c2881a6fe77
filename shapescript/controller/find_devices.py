"""The devices that a program names, found on this machine.

Takes what the `devices` line says; gives torch's devices, or a `DeviceError` that says what is there and what would
do, before anything starts.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from shapescript.controller.errors import DeviceError, Error
from shapescript.controller.placing import OneDevice, Place
from shapescript.devices.executors import UnknownExecutor, executor_name
from shapescript.devices.workers.launching import Launcher
from shapescript.types.typed import DevicesInfo


def found_devices(devices: DevicesInfo | None) -> list[torch.device]:
    """The devices of a program, in its order.

    Raises:
        DeviceError: one isn't there.
    """
    if devices is None:
        raise Error("the program has no `devices` line")
    if devices.kind == "cuda":
        there = torch.cuda.device_count()
        numbers = devices.numbers or (0,)
        if max(numbers) >= there:
            found = f"{there} NVIDIA GPU{'s' if there > 1 else ''}" if there else "no NVIDIA GPU"
            raise DeviceError(missing(devices, found, there))
        return [torch.device("cuda", number) for number in numbers]
    if devices.kind == "mps":
        if not torch.backends.mps.is_available():
            raise DeviceError(missing(devices, "no Apple GPU", 0))
        return [torch.device("mps")]
    return [torch.device("cpu")] * devices.count


def missing(devices: DevicesInfo, found: str, there: int) -> str:
    """Words for a device that isn't there: what is, and what would do."""
    numbers = " ".join(map(str, range(devices.count)))
    here = f"`--devices {'cpu' if devices.count == 1 else f'cpu[{numbers}]'}` runs the same program on the CPU"
    fewer = f"`--devices cuda[{' '.join(map(str, range(there)))}]` on what is here, " if there else ""
    gpus = "T4" if devices.count == 1 else f"T4:{devices.count}"
    rented = f", `--modal {gpus}` on rented GPUs" if devices.kind == "cuda" else ""
    cores = os.cpu_count() or 1
    processor = f"{cores} CPU core{'s' if cores > 1 else ''}"
    return f"`devices {devices}`: here is {found}, and {processor}; {fewer}{here}{rented}"


def place_of(devices: DevicesInfo | None, folder: Path, launcher: Launcher | None = None) -> Place:
    """Where a program on these devices runs; several get a worker process each.

    `launcher` is what they come from, where it was begun before.

    Raises:
        DeviceError: one isn't there, or the deadline for its worker is no number.
    """
    found = found_devices(devices)
    assert devices is not None
    if len(found) == 1:
        return OneDevice(found[0])
    from shapescript.controller.several_devices import SeveralDevices
    from shapescript.devices.workers.failure import UnknownDeadline
    from shapescript.devices.workers.pool import WorkerPool
    from shapescript.layout.mesh import Mesh

    names = [f"{devices.kind}[{number}]" for number in devices.numbers]
    padded = devices.kind == "cuda" and recorded(devices)
    try:
        pool = WorkerPool(names, mesh=Mesh(devices.mesh), folder=str(folder), launcher=launcher)
    except UnknownDeadline as error:
        raise DeviceError(str(error)) from None
    return SeveralDevices(pool, devices.split, devices.shard_params, devices.dims, padded)


def recorded(devices: DevicesInfo) -> bool:
    """Whether the workers of several GPUs record what they run; each has a GPU, and this process none.

    Raises:
        DeviceError: the module by which they speak to one another isn't there.
    """
    from shapescript.devices.captured.machine import has_kernels

    if not has_kernels():
        text = f"`devices {devices}` needs the module for NVIDIA GPUs, which wasn't built: there was no nvcc when"
        raise DeviceError(f"{text} ShapeScript was installed; `shapescript doctor` says what is missing")
    try:
        return executor_name(torch.device("cuda")) == "captured"
    except UnknownExecutor as error:
        raise DeviceError(str(error)) from None
