"""Device functions, each specialised once for a kind of arguments, and run.

Takes a program and a device; gives `Specialiser`, whose `run` takes a function and its arguments as the controller
has them. A plan is kept by the function and the key of the arguments: all that is known when it is compiled (whole
numbers, bools, strings, shapes), but not a batch's count and not the value of a float. `mut` arguments are written
back into their containers. Several devices are another part's: it runs the same plans.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getrefcount

import torch

from shapescript.devices.executors import make_executor
from shapescript.devices.held import Somewhere
from shapescript.devices.random_key import RandomKey
from shapescript.devices.runner import Border, LocalRunner, MakeRunner, Runner
from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.ir.graph import Graph, Node
from shapescript.ops.registry import RuleError
from shapescript.passes.differentiate import NoGradient
from shapescript.passes.pipeline import run_passes
from shapescript.specialise.domain import problem
from shapescript.specialise.evaluator import Evaluator, ReturnValue
from shapescript.specialise.frame import Frame, atom_sizes
from shapescript.specialise.remembered import Remembered
from shapescript.specialise.trace import TraceDomain
from shapescript.specialise.values import (
    BatchValue,
    DeviceTensor,
    GradientsValue,
    ModelValue,
    OptimizerValue,
    Slots,
    Value,
    flatten,
    owners,
    slots_of,
    unflatten,
)
from shapescript.syntax import tree
from shapescript.types.axes import ANY_AXES, Axis, show_axes
from shapescript.types.element import F64
from shapescript.types.kinds import Batch, Gradients, ModelList, ModelOf, Optimizer, Tensor, TupleOf, Type
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import FunctionInfo, TypedProgram

MOST_SPECIALISATIONS = 8


@dataclass
class Binding:
    """What a function's axis variables are for some arguments: static sizes, and counts of batches."""

    axes: dict[str, Axis] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    spread: tuple[Axis, ...] | None = None


@dataclass
class Plan:
    """A specialised function: its graph after the passes, and how its outputs become a result.

    The outputs are the leaves of `result`, then what is written back (`written`: the argument, the place among its
    slots, or None for a tensor argument itself), then what is shown (`shown`: the names). `replaces` has, by the number
    of an output that is written back, the input that it replaces.
    """

    function: tree.Function
    graph: Graph
    runner: Runner
    result: Hashable
    nodes: list[Node]
    written: list[tuple[int, int | None]]
    shown: list[str]
    replaces: Mapping[int, int]


@dataclass
class Call:
    """A plan and what it is run on: its graph's inputs, the arguments they come from, and what the axes are."""

    plan: Plan
    tensors: list[Somewhere]
    values: Sequence[Value]
    binding: Binding
    slots: dict[int, list[tuple[Slots, str]]] = field(default_factory=dict)

    def slots_of(self, at: int) -> list[tuple[Slots, str]]:
        """The slots of an argument that is written back."""
        if at not in self.slots:
            self.slots[at] = list(slots_of(self.values[at]))
        return self.slots[at]


@dataclass
class Outcome:
    """What a run gave: the result, new values of `mut` tensor arguments, and what is to be shown."""

    result: Value
    replaced: dict[int, DeviceTensor]
    shown: list[tuple[str, DeviceTensor]]


@dataclass
class Specialised:
    """How often a function was specialised, and the seconds that took in all."""

    times: int = 0
    seconds: float = 0.0


class Specialiser:
    """Makes plans and keeps them."""

    def __init__(
        self,
        program: TypedProgram,
        sizes: Mapping[str, int],
        device: torch.device | str = "cpu",
        make_runner: MakeRunner | None = None,
    ) -> None:
        self.program = program
        self.sizes = dict(sizes)
        self.device = torch.device(device)
        self.make_runner = make_runner or self._local_runner
        self.plans: dict[Hashable, Plan] = {}
        self.specialisations: dict[tree.Function, Specialised] = {}
        self.warnings: list[Diagnostic] = []
        self._seen_numbers: dict[tree.Function, list[tuple[object, ...]]] = {}
        self._before: dict[tuple[tree.Function, bool], tuple[Remembered, Call]] = {}

    def run(
        self,
        function: tree.Function,
        arguments: Sequence[Value],
        frame: Frame,
        key: RandomKey,
        training: bool = False,
    ) -> Outcome:
        """A call of a device function by the controller; `frame` is the caller's side of it.

        `training`: the mode in which the call stands; what is differentiated is in training in any case.
        """
        call = self.prepare(function, arguments, frame, training)
        outputs = call.plan.runner.run(call.tensors, call.binding.counts, key, given_up(call))
        return self._outcome(call, outputs)

    def prepare(
        self, function: tree.Function, arguments: Sequence[Value], frame: Frame, training: bool = False
    ) -> Call:
        """A call whose plan is made, unless it was before."""
        asked = (function, training)
        before = self._before.get(asked)
        if before is not None:
            remembered, call = before
            tensors = remembered.tensors(arguments, self.device)
            if tensors is not None:
                return Call(call.plan, tensors, call.values, call.binding, remembered.slots)
        info = self.program.function_of[function]
        binding = bind_arguments(info, arguments, self.sizes)
        values = [self._typed(info, binding, frame, at, value) for at, value in enumerate(arguments)]
        form, leaves = flatten(tuple(values), leaf_form)
        statics = (tuple(sorted(binding.sizes.items())), tuple(sorted(binding.counts)), binding.spread)
        plan_key = (function, training, statics, form)
        plan = self.plans.get(plan_key)
        if plan is None:
            start = time.perf_counter()
            self._count(info, function, arguments)
            plan = self._make(info, function, binding, form, leaves, training)
            self.specialisations[function].seconds += time.perf_counter() - start
            self.plans[plan_key] = plan
        new = Remembered.of(arguments, values, leaves)
        if new is None:
            self._before.pop(asked, None)
        else:
            # what isn't a container isn't kept: a batch's memory would be
            self._before[asked] = new, Call(plan, [], new.arguments, binding)
        return Call(plan, [self._tensor(leaf) for leaf in leaves], values, binding)

    # --- making

    def _local_runner(self, graph: Graph, border: Border) -> Runner:
        return LocalRunner(make_executor(graph, self.device, replaces=border.replaces))

    def _typed(self, info: FunctionInfo, binding: Binding, frame: Frame, at: int, value: Value) -> Value:
        """An argument by the function's own axes."""
        own = Frame(frame.domain, info.source, frame.globals, info, axes=dict(binding.axes), spread=binding.spread)
        return typed(own, value, info.parameters[at].type)

    def _tensor(self, leaf: object) -> Somewhere:
        if isinstance(leaf, DeviceTensor):
            return leaf.held
        return torch.tensor(leaf, dtype=torch.float64, device=self.device)

    def _make(
        self,
        info: FunctionInfo,
        function: tree.Function,
        binding: Binding,
        form: Hashable,
        leaves: Sequence[object],
        training: bool,
    ) -> Plan:
        domain = TraceDomain({**self.sizes, **binding.sizes})
        domain.reserve(list(binding.axes))
        evaluator = Evaluator(self.program, domain, self.sizes)
        evaluator.training = training
        inputs: list[object] = []
        for number, leaf in enumerate(leaves):
            axes, element = (leaf.axes, leaf.element) if isinstance(leaf, DeviceTensor) else ((), F64)
            inputs.append(domain.graph.input(f"input{number}", axes, element))
        arguments = unflatten(form, iter(inputs))
        assert isinstance(arguments, tuple)
        before = [list(tensors_of(argument)) for argument in arguments]
        number_of = {id(node): number for number, node in enumerate(domain.graph.inputs)}
        frame = evaluator.frame(info.source, info)
        frame.axes.update(binding.axes)
        frame.spread = binding.spread
        for parameter, value in zip(info.parameters, arguments, strict=True):
            frame.locals[parameter.name] = value
        result: Value = None
        try:
            evaluator.block(frame, function.body)
        except ReturnValue as returned:
            result = frame.conform(returned.value, info.result)
        key, result_leaves = flatten(result, node_form)
        nodes = [node for node in result_leaves if isinstance(node, Node)]
        written: list[tuple[int, int | None]] = []
        replaces: dict[int, int] = {}
        for at, parameter in enumerate(info.parameters):
            if not parameter.mut:
                continue
            now = frame.locals[parameter.name]
            if isinstance(now, Node):
                if now is not arguments[at]:
                    written.append((at, None))
                    replaces[len(nodes)] = number_of[id(arguments[at])]
                    nodes.append(now)
                continue
            for place, (old, new) in enumerate(zip(before[at], tensors_of(arguments[at]), strict=True)):
                if new is not old and isinstance(new, Node):
                    written.append((at, place))
                    replaces[len(nodes)] = number_of[id(old)]
                    nodes.append(new)
        nodes.extend(node for _, node in domain.shown)
        domain.graph.outputs = list(nodes)
        try:
            graph = run_passes(domain.graph)
        except NoGradient as error:
            span = error.node.span or info.source.span(function.start, function.end)
            raise problem("E2115", f"{error}, so what stands here can't be differentiated", span) from error
        except RuleError as error:
            raise problem(
                "E2115",
                f"`{info.name}` can't be differentiated: {error}",
                info.source.span(function.name_start, function.name_start + len(info.name)),
            ) from error
        names = [name for name, _ in domain.shown]
        runner = self.make_runner(graph, border(info, form, replaces))
        return Plan(function, graph, runner, key, nodes, written, names, replaces)

    def _count(self, info: FunctionInfo, function: tree.Function, arguments: Sequence[Value]) -> None:
        """Counts a specialisation; one too many whose `int` arguments differ gets W1806, once."""
        specialised = self.specialisations.setdefault(function, Specialised())
        count = specialised.times = specialised.times + 1
        numbers = tuple(value if isinstance(value, int) else None for value in arguments)
        seen = self._seen_numbers.setdefault(function, [])
        seen.append(numbers)
        if count != MOST_SPECIALISATIONS + 1:
            return
        differing = [
            parameter for at, parameter in enumerate(info.parameters) if len({numbers[at] for numbers in seen}) > 1
        ]
        if differing:
            first = differing[0]
            self.warnings.append(
                Diagnostic(
                    "W1806",
                    f"`{info.name}` is compiled anew for each value of `{first.name}`, {count} times so far",
                    Label(info.source.span(first.node.start, first.node.end), "a whole number is known when compiled"),
                    helps=("make it a `float`, or a scalar tensor: `x as [] i64`",),
                )
            )

    # --- running

    def _outcome(self, call: Call, outputs: Sequence[Somewhere]) -> Outcome:
        plan, binding = call.plan, call.binding
        sizes = {**binding.sizes, **binding.counts}
        shown_from = len(outputs) - len(plan.shown)
        written_from = shown_from - len(plan.written)

        def tensor(number: int) -> DeviceTensor:
            node = plan.nodes[number]
            return DeviceTensor(outputs[number], node.axes, node.element, sizes)

        result = unflatten(plan.result, iter([tensor(number) for number in range(written_from)]))
        replaced: dict[int, DeviceTensor] = {}
        for number, (at, place) in enumerate(plan.written, written_from):
            if place is None:
                replaced[at] = tensor(number)
                continue
            owner, name = call.slots_of(at)[place]
            old = owner[name]
            assert isinstance(old, DeviceTensor)
            if old.held is not outputs[number]:  # where it is, the update was done in place
                owner[name] = DeviceTensor(outputs[number], old.axes, old.element, old.sizes)
        shown = [(name, tensor(number)) for number, name in enumerate(plan.shown, shown_from)]
        return Outcome(result, replaced, shown)


def given_up(call: Call) -> list[int]:
    """The inputs that are replaced by outputs and that nobody else holds, neither as a value nor its memory."""
    plan = call.plan
    first = len(plan.nodes) - len(plan.shown) - len(plan.written)
    found = []
    for number, (at, place) in enumerate(plan.written):
        given = plan.replaces.get(first + number)
        if place is None or given is None:
            continue
        owner, name = call.slots_of(at)[place]
        value = owner[name]
        # the slot and `value`; the value and `call.tensors`; each with the question itself
        if isinstance(value, DeviceTensor) and getrefcount(value) == 3 and getrefcount(value.held) == 3:
            found.append(given)
    return found


def border(info: FunctionInfo, form: Hashable, replaces: Mapping[int, int]) -> Border:
    """What a runner is told of the arguments of a function."""
    kinds, names = [], []
    for owner, path in owners(form):
        at, dot, rest = path.partition(".")
        kinds.append(owner)
        names.append(f"{info.parameters[int(at)].name}{dot}{rest}")
    return Border(tuple(kinds), tuple(names), replaces)


def tensors_of(value: Value) -> list[object]:
    """What stands now in each slot of a mutable value."""
    return [owner[name] for owner, name in slots_of(value)]


def leaf_form(value: object) -> Hashable | None:
    """What the key says of a tensor or an open float."""
    if isinstance(value, DeviceTensor):
        return "tensor", value.axes, value.element
    return "float" if isinstance(value, float) else None


def node_form(value: object) -> Hashable | None:
    """What the key of a result says of a node."""
    return ("node", value.axes, value.element) if isinstance(value, Node) else None


def typed(frame: Frame, value: Value, of: Type) -> Value:
    """A value by the axes and the element that a type says, in a frame of the function."""
    if isinstance(of, Tensor) and isinstance(value, (DeviceTensor, int, float, bool)):
        tensor = frame.conform(value, of)
        assert isinstance(tensor, DeviceTensor)
        wanted = frame.element(of.element)
        element = wanted if wanted.name == tensor.element.name else tensor.element
        return DeviceTensor(tensor.held, tensor.axes, element, tensor.sizes)
    if isinstance(of, TupleOf) and isinstance(value, tuple):
        return tuple(typed(frame, item, kind) for item, kind in zip(value, of.items, strict=True))
    if isinstance(of, Batch) and isinstance(value, BatchValue):
        axis = frame.axis(of.axis)
        fields: dict[str, object] = {}
        for name, part in value.fields.items():
            assert isinstance(part, DeviceTensor)
            fields[name] = DeviceTensor(part.held, (axis, *part.axes[1:]), part.element, part.sizes)
        return BatchValue(value.data, axis, fields)
    return value


# --- binding the axes of arguments -----------------------------------------------------------------------------------


def one_model(of: Type) -> ModelOf:
    """A model's type, or that of each model of a list."""
    model = of.model if isinstance(of, ModelList) else of
    assert isinstance(model, ModelOf)
    return model


def bind_arguments(info: FunctionInfo, arguments: Sequence[Value], dims: Mapping[str, int]) -> Binding:
    """What the axis variables of a signature are for these arguments.

    Raises:
        ProgramError: the arguments' shapes don't fit the signature.
    """
    binding = Binding()
    pairs: list[tuple[int, Tensor, DeviceTensor]] = []

    def visit(at: int, of: Type, value: Value) -> None:
        if isinstance(of, Tensor) and isinstance(value, DeviceTensor):
            pairs.append((at, of, value))
        elif isinstance(of, TupleOf) and isinstance(value, tuple):
            for kind, item in zip(of.items, value, strict=True):
                visit(at, kind, item)
        elif isinstance(of, Batch) and isinstance(value, BatchValue):
            first = next((part for part in value.fields.values() if isinstance(part, DeviceTensor)), None)
            if first is not None and of.axis.name is not None:
                _bind_axis(info, binding, of.axis, first.shape[0], True)
        elif isinstance(of, ModelList) and isinstance(value, list):
            _bind_axis(info, binding, of.length, len(value), False)
            for each in value[:1]:
                visit(at, of.model, each)
        elif isinstance(value, (ModelValue, OptimizerValue, GradientsValue)):
            models = of.model if isinstance(of, (Optimizer, Gradients)) else of
            wanted_model, given_model = one_model(models), one_model(value.type)
            for wanted, given in zip(wanted_model.arguments, given_model.arguments, strict=False):
                if wanted.name in info.axes and wanted.name is not None:
                    binding.axes.setdefault(wanted.name, given)

    for at, (parameter, value) in enumerate(zip(info.parameters, arguments, strict=True)):
        visit(at, parameter.type, value)
        if parameter.name in info.axes and isinstance(value, int):
            _bind_axis(info, binding, info.axes[parameter.name], value, False)
    for at, of, tensor in pairs:
        _bind_tensor(info, binding, at, of, tensor)
    for at, of, tensor in pairs:
        known = {**dims, **binding.sizes, **binding.counts}
        for atom, number in _solve(of, tensor, known).items():
            if atom in info.axes:
                _bind_axis(info, binding, info.axes[atom], number, False)
        _check(info, binding, at, of, tensor, known)
    return binding


def _bind_axis(info: FunctionInfo, binding: Binding, axis: Axis, length: int, batch: bool) -> None:
    name = axis.name
    if name is None or name not in info.axes or name in binding.axes:
        return
    batch = batch or axis.batch
    binding.axes[name] = Axis(name, Size.atom(name), (), batch)
    (binding.counts if batch else binding.sizes)[name] = length


def _bind_tensor(info: FunctionInfo, binding: Binding, at: int, of: Tensor, tensor: DeviceTensor) -> None:
    rank = len(tensor.shape)
    spread = next((place for place, axis in enumerate(of.axes) if axis.name == ANY_AXES.name), None)
    if rank != len(of.axes) if spread is None else rank < len(of.axes) - 1:
        raise _misfit(info, at, of, tensor)
    places = list(range(len(of.axes)))
    if spread is not None:
        taken = rank - len(of.axes) + 1
        places = [place if place < spread else place + taken - 1 for place in places]
        if binding.spread is None:
            binding.spread = _spread_axes(binding, tensor, spread, taken)
    for axis, place in zip(of.axes, places, strict=True):
        if axis.name != ANY_AXES.name and axis.name is not None:
            batch = tensor.axes[place].batch if place < len(tensor.axes) else False
            _bind_axis(info, binding, axis, tensor.shape[place], batch)


def _spread_axes(binding: Binding, tensor: DeviceTensor, first: int, taken: int) -> tuple[Axis, ...]:
    """Axes of the function's own for those that `..` stands for."""
    result = []
    for place in range(first, first + taken):
        name = f"..{place}"
        batch = tensor.axes[place].batch if place < len(tensor.axes) else False
        (binding.counts if batch else binding.sizes)[name] = tensor.shape[place]
        result.append(Axis(name, Size.atom(name), (), batch))
    return tuple(result)


def _solve(of: Tensor, tensor: DeviceTensor, known: Mapping[str, int]) -> dict[str, int]:
    if len(of.axes) != len(tensor.shape) or any(axis.name == ANY_AXES.name for axis in of.axes):
        return {}
    return {atom: n for atom, n in atom_sizes(of.axes, tensor.shape, known).items() if atom not in known}


def _check(
    info: FunctionInfo, binding: Binding, at: int, of: Tensor, tensor: DeviceTensor, known: Mapping[str, int]
) -> None:
    if any(axis.name == ANY_AXES.name for axis in of.axes):
        return
    for axis, length in zip(of.axes, tensor.shape, strict=True):
        bound = axis.substitute({name: each for name, each in binding.axes.items()})
        try:
            wanted = bound.size.evaluate(known)
        except SizeError:
            continue
        if wanted != length:
            raise _misfit(info, at, of, tensor)


def _misfit(info: FunctionInfo, at: int, of: Tensor, tensor: DeviceTensor) -> Exception:
    parameter = info.parameters[at]
    shape = " ".join(map(str, tensor.shape))
    return problem(
        "E2113",
        f"`{parameter.name}` of `{info.name}` is `{of}`, and a tensor of sizes [{shape}] is given",
        info.source.span(parameter.node.start, parameter.node.end),
        (f"the axes are {show_axes(of.axes)}",),
    )
