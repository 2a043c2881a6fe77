"""The lowering of `extern fn`: a call of Python with torch tensors, and the way back through it.

The module was imported before, beside the program; here it is only looked up, and called at each run. Its random
draws are those of the run's call and its place in the program, the same again when the gradient calls it once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

import torch

from shapescript.devices.dtypes import dtype_of
from shapescript.devices.python_draws import epoch_key, seed_example, seeded
from shapescript.devices.reference.lowering import (
    GradientProblem,
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


class Call:
    """A function of Python at a place of the program."""

    def __init__(self, node: Node) -> None:
        self.target = str(node.attributes["target"])
        self.place = node.attributes["place"]

    def __call__(self, run: Run, *operands: torch.Tensor) -> torch.Tensor:
        """What it gives.

        Raises:
            PythonProblem: it raised.
        """
        module, _, name = self.target.rpartition(".")
        assert isinstance(self.place, int)
        with seeded():
            seed_example(epoch_key(run.key.seed, run.key.call, self.place), run.key.first_row)
            try:
                return torch.as_tensor(getattr(import_module(module), name)(*operands), device=run.device)
            except Exception as error:
                raise PythonProblem(f"`{self.target}` raised {type(error).__name__}: {error}") from error


@lowers("extern")
def extern(node: Node, static: Mapping[str, int]) -> Step:
    """The function's result, its shape and element compared with what the program declares."""
    call = Call(node)
    target = call.target
    shape = Shape([axis.size for axis in axes_of(node)], static)
    dtype = dtype_of(node.element)
    check = index_check(node.element, static)

    def step(run: Run, *operands: torch.Tensor) -> torch.Tensor:
        result = call(run, *operands).detach()
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


@lowers("extern_gradient")
def extern_gradient(node: Node, static: Mapping[str, int]) -> Step:
    """What torch's autograd gives for one operand; zero where the result depends on others alone."""
    call = Call(node)
    at = node.attributes["of"]
    assert isinstance(at, int)

    def step(run: Run, *operands: torch.Tensor) -> torch.Tensor:
        *given, dy = operands
        with torch.enable_grad():
            given = [each.detach().requires_grad_() if each.is_floating_point() else each for each in given]
            followed = [each for each in given if each.requires_grad]
            result = call(run, *given)
            found: Sequence[torch.Tensor | None] = [None]
            if result.requires_grad:
                try:
                    found = torch.autograd.grad(result, followed, dy.to(result.dtype), allow_unused=True)
                except Exception as error:
                    raise PythonProblem(
                        f"the gradient of `{call.target}` raised {type(error).__name__}: {error}"
                    ) from error
        if all(each is None for each in found):
            raise GradientProblem(
                f"`{call.target}` gives what torch didn't follow from its arguments, so it can't be differentiated"
            )
        own = found[next(place for place, each in enumerate(followed) if each is given[at])]
        return torch.zeros_like(given[at]) if own is None else own.detach()

    return step
