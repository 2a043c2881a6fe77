"""The lowering of `extern fn`: a call of Python with torch tensors.

The module was imported before, beside the program; here it is only looked up, and called at each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import torch

from shapescript.devices.dtypes import dtype_of
from shapescript.devices.reference.lowering import (
    PythonProblem,
    Run,
    Shape,
    Step,
    ValueProblem,
    axes_of,
    lowers,
)
from shapescript.devices.reference.lowering_elementwise import index_check
from shapescript.ir.graph import Node
from shapescript.types.axes import show_axes


@lowers("extern")
def extern(node: Node, static: Mapping[str, int]) -> Step:
    """The function's result, its shape and element compared with what the program declares."""
    target = str(node.attributes["target"])
    module, _, name = target.rpartition(".")
    shape = Shape([axis.size for axis in axes_of(node)], static)
    dtype = dtype_of(node.element)
    check = index_check(node.element, static)

    def step(run: Run, *operands: torch.Tensor) -> torch.Tensor:
        try:
            result = torch.as_tensor(getattr(import_module(module), name)(*operands), device=run.device)
        except Exception as error:
            raise PythonProblem(f"`{target}` raised {type(error).__name__}: {error}") from error
        wanted = shape.at(run)
        if tuple(result.shape) != wanted:
            declared = f"{show_axes(node.axes)}, {list(wanted)}"
            raise ValueProblem(f"`{target}` gave the shape {list(result.shape)}, and is declared {declared}")
        if result.is_floating_point() != dtype.is_floating_point:
            raise ValueProblem(f"`{target}` gave {result.dtype}, and is declared {node.element}")
        result = result.to(dtype)
        check(run, result)
        return result

    return step
