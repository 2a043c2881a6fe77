"""Python that the workers of the tests call, as an `extern fn` would be: each does what its name says."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time

import torch


def sleeps(x: torch.Tensor) -> torch.Tensor:
    time.sleep(float(x.sum()))
    return x


def holds_python(x: torch.Tensor) -> torch.Tensor:
    """Sleeps without letting go of the interpreter's lock."""
    ctypes.PyDLL(None).usleep(int(1e6 * float(x.sum())))
    return x


def raises(x: torch.Tensor) -> torch.Tensor:
    if len(x) and float(x.max()) > 4:
        raise LookupError("no such picture")
    return x


def exits(x: torch.Tensor) -> torch.Tensor:
    if len(x) and float(x.max()) > 4:
        os._exit(3)
    return x


def leaves(x: torch.Tensor) -> torch.Tensor:
    if len(x) and float(x.max()) > 4:
        sys.exit(3)
    return x


def kills_itself(x: torch.Tensor) -> torch.Tensor:
    if len(x) and float(x.max()) > 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def stops_itself(x: torch.Tensor) -> torch.Tensor:
    if len(x) and float(x.max()) > 4:
        os.kill(os.getpid(), signal.SIGSTOP)
    return x


def waits_for_ever(x: torch.Tensor) -> torch.Tensor:
    if len(x) and float(x.max()) > 4:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    return x


def holds_python_for_ever(x: torch.Tensor) -> torch.Tensor:
    if len(x) and float(x.max()) > 4:
        ctypes.PyDLL(None).sleep(1000)
    return x


def takes_all_memory(x: torch.Tensor) -> torch.Tensor:
    if len(x) and float(x.max()) > 4:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        return torch.zeros(1 << 34)
    return x
