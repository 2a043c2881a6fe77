"""The domain in which tensors are data on the device: the controller's.

Takes a program, where its functions run, the sizes of its dims and a device; gives `HostDomain`. A tensor operation in
a controller function runs as a small graph of its own, kept by the operation and the axes of its operands. A call of
a device function is specialised and run as a whole, and changes its `mut` arguments in place. Each call of one, and
each draw in a controller function, has a number, on which random numbers depend besides the seed.

The atoms of a controller function's axes have values that tensors' shapes tell; a tensor carries those of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch

from shapescript.controller.checkpoint_files import Draws
from shapescript.controller.from_python import FromPython
from shapescript.controller.host_batches import Loops
from shapescript.controller.output import Output
from shapescript.controller.passes import Passes
from shapescript.controller.placing import OneDevice, Place
from shapescript.devices.dtypes import dtype_of
from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.executor import Executor
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.source import Span
from shapescript.specialise.domain import Builtin, problem
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.frame import Frame
from shapescript.specialise.specialise import Plan, Specialiser
from shapescript.specialise.values import DeviceTensor, TensorValue, Value
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.kinds import Type
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import TypedProgram

DRAWS = ("random_uniform", "random_normal", "random_integers")


class HostDomain:
    """Runs operations at once. `calls` counts calls of device functions and draws; a checkpoint keeps it."""

    def __init__(
        self,
        program: TypedProgram,
        sizes: Mapping[str, int],
        is_device: Callable[[tree.Function], bool],
        output: Output,
        builtins: Mapping[str, Builtin],
        *,
        seed: int = 0,
        place: Place | None = None,
        folder: str | Path = ".",
    ) -> None:
        self.program = program
        self.dims = dict(sizes)
        self.is_device = is_device
        self.output = output
        self.builtins = builtins
        self.passes = Passes(seed)
        self.loops = Loops(program.data_of, self.passes, output)
        self.place = place or OneDevice("cpu")
        self.device = self.place.device
        self.folder = Path(folder)
        self.specialiser = Specialiser(program, sizes, self.device, self.place.runner)
        self.calls = 0
        self.known: dict[str, int] = dict(sizes)
        self._small: dict[Hashable, tuple[Executor, Node]] = {}
        self._names: dict[str, int] = {}
        self._parts: set[tree.Function] = set()

    @property
    def seed(self) -> int:
        """What all random draws depend on."""
        return self.passes.seed

    def key(self) -> RandomKey:
        """The key of the next run."""
        self.calls += 1
        return RandomKey(self.seed, self.calls)

    @property
    def draws(self) -> Draws:
        """What random draws depend on, for a checkpoint."""
        return Draws(self.seed, self.calls, self.passes.state())

    def go_on(self, draws: Draws) -> None:
        """Goes on with the draws of the run that wrote a checkpoint."""
        self.passes.seed, self.calls = draws.seed, draws.calls
        self.passes.restore(draws.passes)

    # --- operations

    def emit(
        self, op: str, operands: Sequence[TensorValue], attributes: Mapping[str, object], span: Span | None
    ) -> DeviceTensor:
        """An operation's result."""
        tensors = [each for each in operands if isinstance(each, DeviceTensor)]
        assert len(tensors) == len(operands), f"an operand of `{op}` isn't the controller's"
        if op == "random_key":
            return self.constant(0, Element("i64"))
        if op in DRAWS:
            tensors = []
        if op == "relabel":
            return self._relabelled(tensors[0], attributes)
        executor, node = self._graph(op, tensors, attributes, span)
        sizes = dict(self.known)
        for tensor in tensors:
            sizes.update(tensor.sizes)
        key = self.key() if op in DRAWS else RandomKey(self.seed)
        data = executor.run([tensor.data for tensor in tensors], sizes, key)[0]
        own = {atom: sizes[atom] for axis in node.axes for atom in _atoms(axis) if atom in sizes}
        return DeviceTensor(data, node.axes, node.element, own)

    def _relabelled(self, tensor: DeviceTensor, attributes: Mapping[str, object]) -> DeviceTensor:
        axes = attributes["axes"]
        assert isinstance(axes, tuple)
        return DeviceTensor(tensor.held, axes, tensor.element, tensor.sizes)

    def _graph(
        self, op: str, tensors: Sequence[DeviceTensor], attributes: Mapping[str, object], span: Span | None
    ) -> tuple[Executor, Node]:
        forms = tuple((tensor.axes, tensor.element) for tensor in tensors)
        key = (op, forms, tuple(sorted(attributes.items(), key=lambda item: item[0])), span)
        found = self._small.get(key)
        if found is None:
            graph = Graph(sizes=dict(self.dims))
            builder = Builder(graph)
            inputs = [
                graph.input(f"input{number}", tensor.axes, tensor.element) for number, tensor in enumerate(tensors)
            ]
            if op in DRAWS:
                inputs = [builder.random_key()]
            node = builder.emit(op, *inputs, span=span, **attributes)
            graph.outputs = [node]
            found = self._small[key] = (Executor(graph, self.device), node)
        return found

    def constant(self, value: int | float | bool, element: Element) -> DeviceTensor:
        """A scalar."""
        return DeviceTensor(torch.tensor(value, dtype=dtype_of(element), device=self.device), (), element)

    # --- axes

    def local_axis(self, axis: Axis) -> Axis:
        """An axis of a function's own: of a name that no other function's has."""
        name = axis.name or "axis"
        number = self._names[name] = self._names.get(name, 0) + 1
        fresh = f"{name}.{number}"
        return Axis(fresh, Size.atom(fresh) if axis.size == Size.atom(name) else axis.size, (), axis.batch)

    def learn(self, sizes: Mapping[str, int]) -> None:
        """Keeps what a tensor's shape told."""
        self.known.update(sizes)

    def size_of(self, axis: Axis) -> int | None:
        """How long an axis is, if a tensor told."""
        try:
            return axis.size.evaluate(self.known)
        except SizeError:
            return None

    def number(self, value: TensorValue, span: Span) -> int | float | bool:
        """Looks at a scalar."""
        assert isinstance(value, DeviceTensor)
        if value.data.numel() != 1:
            raise problem("E2111", "one number is looked at, and this tensor has more", span)
        number: int | float | bool = value.data.item()
        return number

    def blamed(self, span: Span) -> AbstractContextManager[None]:
        """An operation of the controller's is over before anyone asks."""
        return nullcontext()

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Nothing is kept for a gradient in a controller function."""
        yield

    @contextmanager
    def rounded_products(self, element: str) -> Iterator[None]:
        """Products of a controller function are single operations; they aren't rounded."""
        yield

    def from_python(self, frame: Frame, value: Value, of: Type, span: Span) -> Value:
        """`value as type`."""
        return FromPython(self.program, self.dims, self.device).convert(frame, value, of, span)

    # --- functions

    def runs_whole(self, function: tree.Function) -> bool:
        """Whether it is a device function, or a part of one."""
        return function in self._parts or self.is_device(function)

    def add_part(self, function: tree.Function) -> None:
        """Makes a part of a device function one itself."""
        self._parts.add(function)

    def enter(
        self, function: tree.Function, arguments: list[Value], frame: Frame, training: bool
    ) -> tuple[bool, Value]:
        """Runs a device function as a whole."""
        if not self.runs_whole(function):
            return False, None
        outcome = self.specialiser.run(function, arguments, frame, self.key(), training)
        info = self.program.function_of[function]
        for at, tensor in outcome.replaced.items():
            frame.locals[info.parameters[at].name] = tensor
        for name, shown in outcome.shown:
            self.output.show(name, shown.held)
        self.output.waiting.settle()
        return True, outcome.result

    @property
    def plans(self) -> list[Plan]:
        """The plans made so far."""
        return list(self.specialiser.plans.values())


def host_evaluator(domain: HostDomain) -> Evaluator:
    """The evaluator of the controller."""
    return Evaluator(domain.program, domain, domain.dims, domain.seed)


def _atoms(axis: Axis) -> frozenset[str]:
    return axis.size.atoms.union(*(_atoms(part) for part in axis.parts))
