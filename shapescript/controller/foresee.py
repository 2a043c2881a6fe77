"""What a device function is compiled to, foreseen from its signature without any data.

Takes a checked program; gives, for each device function whose arguments its signature decides, the plan that a call
would make, by arguments that have sizes and no numbers (torch's `meta` device). A function whose compilation depends
on more, such as the value of an `int`, can't be foreseen: the reason is given instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from shapescript.controller.host_builtins import HOST, make_model
from shapescript.controller.host_domain import HostDomain, host_evaluator
from shapescript.controller.output import Output
from shapescript.controller.run import sizes_of
from shapescript.devices.dtypes import dtype_of
from shapescript.devices.held import Somewhere
from shapescript.devices.random_key import RandomKey
from shapescript.devices.runner import Border, Runner
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.ir.graph import Graph
from shapescript.placement.kinds import Kind, Placement
from shapescript.room import room
from shapescript.specialise.builtins import new_optimizer
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.expressions import evaluate
from shapescript.specialise.frame import Frame
from shapescript.specialise.specialise import Plan
from shapescript.specialise.values import BatchValue, DeviceTensor, GradientsValue, ModelValue, Value, copied
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import Batch, Gradients, Host, ModelList, ModelOf, Optimizer, Tensor, TupleOf, Type
from shapescript.types.size import SizeError
from shapescript.types.typed import FunctionInfo, TypedProgram
from shapescript.types.uses import BuiltinUse

USUAL_BATCH = 64


class Unforeseen(Exception):
    """What a signature doesn't decide; the message says what it is."""


@dataclass(frozen=True)
class Foreseen:
    """The graph that a function is compiled to, what is known of its inputs and outputs, and the counts of batches."""

    graph: Graph
    border: Border
    counts: Mapping[str, int]


class NoRunner:
    """Stands where a graph would be run; keeps what is known of it."""

    def __init__(self, graph: Graph, border: Border) -> None:
        self.graph = graph
        self.border = border

    def run(self, inputs: object, counts: object, key: RandomKey | None, given_up: object = ()) -> list[Somewhere]:
        """There is no data."""
        raise RuntimeError("a foreseen graph can't be run")


class NoData:
    """A place where tensors have sizes and no numbers."""

    device = torch.device("meta")
    gather = None

    def runner(self, graph: Graph, border: Border) -> Runner:
        """Keeps the graph."""
        return NoRunner(graph, border)

    def finish(self) -> None:
        """Nothing was begun."""

    def close(self) -> None:
        """Nothing is held."""


def foresee(
    program: TypedProgram, kinds: Mapping[tree.Function, Placement], path: Path, names: Sequence[str]
) -> dict[str, Foreseen | str]:
    """For each device function of these names what it is compiled to, or why that can't be said.

    Raises:
        Error, ProgramError: a dim has no value.
    """
    folder = path.resolve().parent
    domain = HostDomain(
        program,
        sizes_of(program, folder),
        lambda function: kinds[function].kind is Kind.DEVICE,
        Output(path.stem),
        HOST,
        place=NoData(),
        folder=folder,
    )
    seer = Seer(host_evaluator(domain), domain)
    found: dict[str, Foreseen | str] = {}
    for name in names:
        info = function_called(program, name)
        if isinstance(info.node, tree.Function) and domain.is_device(info.node):
            try:
                found[name] = seer.function(info)
            except Unforeseen as reason:
                found[name] = str(reason)
            except ProgramError as error:
                found[name] = error.diagnostic.message
    return found


def function_called(program: TypedProgram, name: str) -> FunctionInfo:
    """A function of a program by its name, or of one that it imports (`net.step`).

    Raises:
        KeyError: there is none.
    """
    module, _, rest = name.partition(".")
    if not rest:
        return program.functions[name]
    imported = program.imports[module].program
    if imported is None:
        raise KeyError(name)
    return function_called(imported, rest)


class Seer:
    """Makes arguments by types."""

    def __init__(self, evaluator: Evaluator, domain: HostDomain) -> None:
        self.evaluator = evaluator
        self.domain = domain
        self.batch = usual_batch(evaluator.program)

    def function(self, info: FunctionInfo) -> Foreseen:
        """What a call of a function would compile."""
        assert isinstance(info.node, tree.Function)
        frame = self.evaluator.frame(info.source, info)
        arguments = [
            evaluate(self.evaluator, frame, parameter.default)
            if parameter.default is not None
            else self.value(frame, parameter.type, f"`{parameter.name}`")
            for parameter in info.parameters
        ]
        with room():
            call = self.domain.specialiser.prepare(info.node, arguments, frame)
        return Foreseen(call.plan.graph, border_of(call.plan), call.binding.counts)

    def value(self, frame: Frame, of: Type, what: str) -> Value:
        """A value of a type."""
        match of:
            case Tensor():
                return self.tensor(of, what)
            case Batch():
                return self.a_batch(of)
            case ModelOf():
                return self.model(frame, of, what)
            case ModelList():
                length = self.size(of.length, what)
                return [self.model(frame, of.model, what) for _ in range(length)]
            case Optimizer(model=ModelOf() as model):
                return new_optimizer(self.evaluator, of.kind, self.model(frame, model, what), {"lr": 1e-3})
            case Gradients(model=ModelOf() as model):
                made = copied(self.model(frame, model, what))
                assert isinstance(made, ModelValue)
                return GradientsValue(made.type, made.fields)
            case TupleOf():
                return tuple(self.value(frame, item, what) for item in of.items)
            case Host("float"):
                return 0.5
        raise Unforeseen(f"it depends on the value of {what}")

    def model(self, frame: Frame, of: ModelOf, what: str) -> ModelValue:
        """A model without numbers."""
        for axis in of.arguments:
            self.size(axis, what)
        return make_model(self.evaluator, frame, of, 0)

    def tensor(self, of: Tensor, what: str) -> DeviceTensor:
        """A tensor without numbers."""
        sizes = [self.batch if axis.batch else self.size(axis, what) for axis in of.axes]
        data = torch.empty(sizes, dtype=dtype_of(of.element), device="meta")
        return DeviceTensor(data, of.axes, of.element, dict(self.domain.dims))

    def a_batch(self, of: Batch) -> BatchValue:
        """A batch without numbers."""
        axis = Axis.named("batch", batch=True)
        fields: dict[str, object] = {}
        for name, member in self.evaluator.program.data_of[of.data].fields.items():
            assert isinstance(member.type, Tensor)
            row = self.tensor(member.type, f"`{name}`")
            data = torch.empty((self.batch, *row.shape), dtype=dtype_of(row.element), device="meta")
            fields[name] = DeviceTensor(data, (axis, *row.axes), row.element, {"batch": self.batch})
        return BatchValue(of.data, axis, fields)

    def size(self, axis: Axis, what: str) -> int:
        """How long an axis is."""
        try:
            return axis.size.evaluate(self.domain.dims)
        except SizeError:
            raise Unforeseen(f"it depends on the size `{axis}` of {what}") from None


def border_of(plan: Plan) -> Border:
    """What the plan's runner was told."""
    assert isinstance(plan.runner, NoRunner)
    return plan.runner.border


def usual_batch(program: TypedProgram) -> int:
    """The size of the batches that the program makes, where it says one number; else 64."""
    found = set()
    for use in program.uses.values():
        if isinstance(use, BuiltinUse) and use.name == "batches":
            size = use.arguments.get("n")
            if isinstance(size, tree.Number) and isinstance(size.value, int):
                found.add(size.value)
    return found.pop() if len(found) == 1 else USUAL_BATCH
