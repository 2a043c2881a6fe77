"""Skips this folder where there is no NVIDIA GPU, or the module for it wasn't built."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def why_not() -> str | None:
    """Why nothing here can run."""
    if not torch.cuda.is_available():
        return "there is no NVIDIA GPU here"
    if find_spec("shapescript._cuda") is None:
        return "the module for GPUs wasn't built: SHAPESCRIPT_CUDA=1 with nvcc"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if reason is not None and Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.skip(reason=reason))
