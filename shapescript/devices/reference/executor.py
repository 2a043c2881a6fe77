"""Runs a graph with plain torch operations, on one device.

Takes a graph after the passes (no `gradient` nodes); gives `Executor`, whose `run` takes the inputs' tensors, the
counts of batches and the random key, and gives the outputs. A value is let go after its last use. A value or a size
that can't be becomes a `ProgramError` at the node's place in the program.

Everything that doesn't depend on a count is worked out once, when the executor is made. Each output has memory of its
own, whatever the graph hands through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference import (  # noqa: F401  (they fill the table)
    lowering_elementwise,
    lowering_random,
    lowering_reductions,
    lowering_shapes,
)
from shapescript.devices.reference.lowering import LOWERINGS, Run, Step, ValueProblem
from shapescript.diagnostics.diagnostic import Diagnostic, Label, ProgramError
from shapescript.ir.graph import Graph, Node
from shapescript.types.axes import show_axes
from shapescript.types.size import SizeError


@dataclass(slots=True)
class _Line:
    """One step: where its operands are, where its result goes, and what is let go after it."""

    node: Node
    step: Step
    operands: tuple[int, ...]
    result: int
    freed: tuple[int, ...]


class Executor:
    """A graph made ready to run on a device."""

    def __init__(self, graph: Graph, device: torch.device | str = "cpu") -> None:
        self.graph = graph
        self.device = torch.device(device)
        self._inputs = [node.number for node in graph.inputs]
        self._outputs = [node.number for node in graph.outputs]
        self._versions: dict[tuple[tuple[str, int], ...], tuple[int, dict[str, int]]] = {}
        self._lines = self._lowered(_last_uses(graph))

    def _lowered(self, freed: Mapping[int, Sequence[int]]) -> list[_Line]:
        lines = []
        for node in self.graph.nodes:
            if node.op is None:
                continue
            lowering = LOWERINGS.get(node.name)
            if lowering is None:
                raise ValueError(f"the reference executor has nothing for `{node.name}`")
            try:
                step = lowering(node, self.graph.sizes)
            except SizeError as error:
                raise _blamed("E2102", str(error), node) from error
            operands = tuple(operand.number for operand in node.operands)
            lines.append(_Line(node, step, operands, node.number, tuple(freed.get(node.number, ()))))
        return lines

    def run(
        self, inputs: Sequence[torch.Tensor], counts: Mapping[str, int] | None = None, key: RandomKey | None = None
    ) -> list[torch.Tensor]:
        """The outputs for these inputs.

        Raises:
            ProgramError: an operation met a value or a size that can't be.
        """
        if len(inputs) != len(self._inputs):
            raise ValueError(f"the graph has {len(self._inputs)} inputs, and {len(inputs)} are given")
        values: list[torch.Tensor | None] = [None] * len(self.graph.nodes)
        for number, tensor in zip(self._inputs, inputs, strict=True):
            values[number] = tensor
        run = self._run(counts or {}, key or RandomKey())
        with torch.no_grad():
            for line in self._lines:
                values[line.result] = _perform(line, run, values)
                for number in line.freed:
                    values[number] = None
            outputs = [values[number] for number in self._outputs]
            return _owned([tensor for tensor in outputs if tensor is not None], inputs)

    def _run(self, counts: Mapping[str, int], key: RandomKey) -> Run:
        """What is known of this run; the same counts have the same version."""
        known = tuple(sorted(counts.items()))
        if known not in self._versions:
            self._versions[known] = (len(self._versions), {**self.graph.sizes, **counts})
        version, sizes = self._versions[known]
        return Run(sizes, self.device, key, version)


def _owned(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs with memory of their own: a caller may write into any of them, or into an input.

    Numbers are always copied, for they may be constants that the next run uses again.
    """
    taken = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    owned = []
    for tensor in outputs:
        tensor = tensor.contiguous()
        if tensor.numel() == 1 or tensor.untyped_storage().data_ptr() in taken:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        owned.append(tensor)
    return owned


def _perform(line: _Line, run: Run, values: Sequence[torch.Tensor | None]) -> torch.Tensor:
    try:
        return line.step(run, *(values[number] for number in line.operands))
    except ValueProblem as problem:
        raise _blamed("E2101", str(problem), line.node) from problem
    except SizeError as error:
        raise _blamed("E2102", str(error), line.node) from error
    except torch.OutOfMemoryError as error:
        where = f"{line.node.name} of {show_axes(line.node.axes)}"
        raise _blamed("E2103", f"the memory of `{run.device}` is full at this {where}", line.node) from error


def _blamed(code: str, message: str, node: Node) -> Exception:
    """The error at the node's place; one that the compiler made without a place stays a `ValueProblem`."""
    if node.span is None:
        return ValueProblem(message)
    return ProgramError(Diagnostic(code, message, Label(node.span)))


def _last_uses(graph: Graph) -> dict[int, list[int]]:
    """For each node, the values that nothing after it needs."""
    last: dict[int, int] = {}
    for node in graph.nodes:
        if node.op is not None:
            last[node.number] = node.number
        for operand in node.operands:
            last[operand.number] = node.number
    kept = {node.number for node in graph.outputs}
    freed: dict[int, list[int]] = {}
    for number, user in last.items():
        if number not in kept:
            freed.setdefault(user, []).append(number)
    return freed
