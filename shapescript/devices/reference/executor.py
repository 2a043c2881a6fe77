"""Runs a graph with plain torch operations, on one device.

Takes a graph after the passes (no `gradient` nodes); gives `Executor`, whose `run` takes the inputs' tensors, the
counts of batches and the random key, and gives the outputs. Collectives go to the `transport`, those of one launch
together; without one the device is alone. A value is let go after its last use. A value or a size
that can't be becomes a `ProgramError` at the node's place in the program.

Everything that doesn't depend on a count is worked out once, when the executor is made. Values that follow from the
counts alone, such as masks and the indices of a convolution's windows, are made once for each and kept for the last
few. Each output has memory of its own, whatever the graph hands through.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference import (  # noqa: F401  (they fill the table)
    lowering_attention,
    lowering_collectives,
    lowering_convolution,
    lowering_elementwise,
    lowering_python,
    lowering_random,
    lowering_reductions,
    lowering_shapes,
)
from shapescript.devices.reference.lowering import LOWERINGS, GradientProblem, PythonProblem, Run, Step, ValueProblem
from shapescript.devices.reference.lowering_collectives import end_along
from shapescript.devices.transport import Transport
from shapescript.diagnostics.diagnostic import Diagnostic, Label, ProgramError
from shapescript.ir.graph import Graph, Node
from shapescript.types.axes import show_axes
from shapescript.types.size import SizeError


@dataclass(slots=True)
class _Line:
    """One step: where its operands are, where its result goes, and what is let go after it.

    `launched` are the lines of all-reduces that go together with this one, after which alone anything is let go.
    """

    node: Node
    step: Step
    operands: tuple[int, ...]
    result: int
    freed: tuple[int, ...]
    launched: tuple[_Line, ...] = ()


@dataclass(frozen=True)
class _Known:
    """What is known for some counts: the version, all sizes, and the values that follow from them."""

    version: int
    sizes: Mapping[str, int]
    values: list[torch.Tensor | None]


MOST_KNOWN = 4
UNFIXED = {"random_key", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
"""What is done in each run, even where its operands follow from the counts alone."""


class Executor:
    """A graph made ready to run on a device."""

    def __init__(self, graph: Graph, device: torch.device | str = "cpu", transport: Transport | None = None) -> None:
        self.graph = graph
        self.device = torch.device(device)
        self.transport = transport
        self._inputs = [node.number for node in graph.inputs]
        self._outputs = [node.number for node in graph.outputs]
        self._known: dict[tuple[tuple[str, int], ...], _Known] = {}
        self._versions = 0
        fixed = fixed_nodes(graph)
        lines = self._lowered(_last_uses(graph, fixed))
        self._fixed_lines = [line for line in lines if line.result in fixed]
        self._lines = _launched_together([line for line in lines if line.result not in fixed])

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
                raise blamed("E2102", str(error), node) from error
            operands = tuple(operand.number for operand in node.operands)
            lines.append(_Line(node, step, operands, node.number, tuple(freed.get(node.number, ()))))
        return lines

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        counts: Mapping[str, int] | None = None,
        key: RandomKey | None = None,
        given_up: Collection[int] = (),
    ) -> list[torch.Tensor]:
        """The outputs for these inputs; what is given up isn't made use of.

        Raises:
            ProgramError: an operation met a value or a size that can't be.
        """
        if len(inputs) != len(self._inputs):
            raise ValueError(f"the graph has {len(self._inputs)} inputs, and {len(inputs)} are given")
        with torch.no_grad():
            known = self._of_counts(counts or {})
            values = list(known.values)
            for number, tensor in zip(self._inputs, inputs, strict=True):
                values[number] = tensor
            run = Run(known.sizes, self.device, key or RandomKey(), known.version, self.transport)
            _perform_all(self._lines, run, values)
            outputs = [made for number in self._outputs if (made := values[number]) is not None]
            return _owned(outputs, [*inputs, *(kept for kept in known.values if kept is not None)])

    def _of_counts(self, counts: Mapping[str, int]) -> _Known:
        """What follows from the counts, kept for the last few of them."""
        asked = tuple(sorted(counts.items()))
        known = self._known.pop(asked, None)
        if known is None:
            self._versions += 1
            known = _Known(self._versions, {**self.graph.sizes, **counts}, [None] * len(self.graph.nodes))
            run = Run(known.sizes, self.device, RandomKey(), known.version, self.transport)
            _perform_all(self._fixed_lines, run, known.values)
        self._known[asked] = known
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return known


def _perform_all(lines: Sequence[_Line], run: Run, values: list[torch.Tensor | None]) -> None:
    for line in lines:
        if line.launched:
            _launch(line.launched, run, values)
        else:
            values[line.result] = perform(line.node, line.step, run, [values[number] for number in line.operands])
        for number in line.freed:
            values[number] = None


def _launch(lines: Sequence[_Line], run: Run, values: list[torch.Tensor | None]) -> None:
    """All-reduces of one launch, handed to the transport at once."""
    given = [made.contiguous() for line in lines if (made := values[line.operands[0]]) is not None]
    first = lines[0].node
    combined = end_along(run, first).all_reduce(given, str(first.attributes["kind"]))
    for line, tensor in zip(lines, combined, strict=True):
        values[line.result] = tensor


def _launched_together(lines: Sequence[_Line]) -> list[_Line]:
    """The lines, with all-reduces that stand side by side and are of one launch as one."""
    found: list[_Line] = []
    groups = groupby(lines, key=lambda line: line.node.attributes["launch"] if line.node.name == "all_reduce" else -1)
    for launch, group in groups:
        together = tuple(group)
        if launch == -1 or len(together) == 1:
            found.extend(together)
            continue
        freed = tuple(number for line in together for number in line.freed)
        last = together[-1]
        found.append(_Line(last.node, last.step, last.operands, last.result, freed, together))
    return found


def _owned(outputs: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs with memory of their own: a caller may write into any of them, or into an input."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in others}
    owned = []
    for tensor in outputs:
        tensor = tensor.contiguous()
        if tensor.untyped_storage().data_ptr() in taken:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        owned.append(tensor)
    return owned


def perform(node: Node, step: Step, run: Run, operands: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """One step; what goes wrong is blamed on the node."""
    try:
        return step(run, *operands)
    except ValueProblem as problem:
        raise blamed("E2101", str(problem), node) from problem
    except GradientProblem as problem:
        raise blamed("E2115", str(problem), node) from problem
    except PythonProblem as problem:
        raise blamed("E2114", str(problem), node) from problem.__cause__
    except SizeError as error:
        raise blamed("E2102", str(error), node) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise full_memory(node, run.device) from error


def full_memory(node: Node, device: torch.device) -> Exception:
    """The error of a device that has no memory left for a value."""
    where = f"{node.name} of {show_axes(node.axes)}"
    return blamed("E2103", f"the memory of `{device}` is full at this {where}", node)


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory is full; torch has a class of its own for a GPU's, and only words for the CPU's."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error)


def blamed(code: str, message: str, node: Node) -> Exception:
    """The error at the node's place; one that the compiler made without a place stays a `ValueProblem`."""
    if node.span is None:
        return ValueProblem(message)
    return ProgramError(Diagnostic(code, message, Label(node.span)))


def fixed_nodes(graph: Graph) -> set[int]:
    """The nodes that depend on no input, no random key and no other device."""
    fixed: set[int] = set()
    for node in graph.nodes:
        if node.op is not None and node.name not in UNFIXED:
            if all(operand.number in fixed for operand in node.operands):
                fixed.add(node.number)
    return fixed


def _last_uses(graph: Graph, fixed: set[int]) -> dict[int, list[int]]:
    """For each node, the values that nothing after it needs; what is fixed and used by what isn't stays."""
    last: dict[int, int] = {}
    kept = {node.number for node in graph.outputs}
    for node in graph.nodes:
        if node.op is not None:
            last[node.number] = node.number
        for operand in node.operands:
            last[operand.number] = node.number
            if operand.number in fixed and node.number not in fixed:
                kept.add(operand.number)
    freed: dict[int, list[int]] = {}
    for number, user in last.items():
        if number not in kept:
            freed.setdefault(user, []).append(number)
    return freed
