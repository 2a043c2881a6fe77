"""A function of a program, with its model, as a module of PyTorch; and files that other programs run.

Takes a model and a function that takes it; gives an `nn.Module` whose parameters are the model's by the same names,
and whose `forward` takes the other arguments: the same operations as the program's, which torch's autograd and
`torch.export` see through. The module has copies: training it doesn't change the model.

The first axis of an argument may have any length, as a batch's; other axis variables have that of the first call.
What depends on the values (an index out of range) is checked when the module is called, and not in an exported file.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shapescript.controller import checkpoint
from shapescript.controller.arrays import sizes_text
from shapescript.controller.errors import ArgumentError, Error
from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.lowering import LOWERINGS, Run, Step
from shapescript.devices.reference.lowering import ValueProblem as WrongValue
from shapescript.diagnostics.suggest import nearest
from shapescript.placement.kinds import Kind
from shapescript.python.arguments import Arguments, bind
from shapescript.python.models import Model
from shapescript.specialise.specialise import Call
from shapescript.specialise.values import DeviceTensor, unflatten
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import ModelOf, Tensor
from shapescript.types.typed import FunctionInfo

if TYPE_CHECKING:
    from shapescript.python.runtime import Runtime

ONNX_SUFFIX = ".onnx"


class Traced:
    """The operations of a call, ready for tensors of the same sizes but the batch's."""

    def __init__(self, runtime: Runtime, call: Call) -> None:
        graph = call.plan.graph
        self.device = runtime.device
        self.sizes = dict(graph.sizes)
        self.inputs = [node.number for node in graph.inputs]
        self.outputs = [node.number for node in graph.outputs]
        self.result = call.plan.result
        self.counts = list(call.binding.counts)
        self.runs = 0
        self.steps: list[tuple[int, Step, tuple[int, ...]]] = []
        for node in graph.nodes:
            if node.op is not None:
                operands = tuple(operand.number for operand in node.operands)
                self.steps.append((node.number, LOWERINGS[node.name](node, graph.sizes), operands))

    def __call__(self, tensors: Sequence[torch.Tensor], count: int) -> Any:
        """The result for these inputs, and this many rows."""
        sizes = {**self.sizes, **dict.fromkeys(self.counts, count)}
        self.runs += 1  # what follows from a count is worked out anew: it may be a symbol now
        run = Run(sizes, self.device, RandomKey(), self.runs)
        values: dict[int, torch.Tensor] = dict(zip(self.inputs, tensors, strict=True))
        for number, step, operands in self.steps:
            values[number] = step(run, *(values[operand] for operand in operands))
        return unflatten(self.result, iter([values[number] for number in self.outputs]))


class TorchModule(nn.Module):
    """A function of a program with a model's tensors as its parameters and buffers."""

    def __init__(self, model: Model, info: FunctionInfo) -> None:
        super().__init__()
        self.function = info.name
        self._runtime = model._runtime
        self._info = info
        self._type = model._value.type
        self._names: list[str] = []
        for place in checkpoint.places(model._value):
            assert isinstance(place.value, DeviceTensor)
            self._names.append(place.name)
            put(self, place.name, place.value.data.clone(), model._is_param(place.name))
        self._model = model.__deepcopy__({})
        self._traced: dict[tuple[tuple[int, ...], ...], Traced] = {}

    def extra_repr(self) -> str:
        """The function, and the names and sizes of the tensors."""
        sizes = ", ".join(f"{name}: {sizes_text(tensor.shape)}" for name, tensor in self.state_dict().items())
        return f"{self.function}; {sizes}"

    def __getstate__(self) -> Any:
        raise TypeError(
            f"this module runs with the program `{self._runtime.name}` and can't be pickled: its `state_dict()` can, "
            "and `shapescript.export` writes a file that runs without it"
        )

    def forward(self, *arguments: torch.Tensor, **named: torch.Tensor) -> Any:
        """The function's result, whole."""
        model = next(parameter.name for parameter in self._info.parameters if isinstance(parameter.type, ModelOf))
        given: dict[str, Any] = bind(self._others(), arguments, named)
        tensors = list(given.values())
        traced = self._for(tensors, {**given, model: self._model})
        count = tensors[0].shape[0] if tensors and tensors[0].dim() else 1
        own = [self.get_parameter(name) if name in self._trained else self.get_buffer(name) for name in self._names]
        order = [*own, *tensors] if self._info.parameters[0].name == model else [*tensors, *own]
        try:
            return traced(order, count)
        except WrongValue as error:
            raise Error(f"`{self._info.name}`: {error}") from None

    @property
    def _trained(self) -> set[str]:
        return {name for name, _ in self.named_parameters()}

    def _others(self) -> FunctionInfo:
        """The function without its model."""
        rest = tuple(parameter for parameter in self._info.parameters if not isinstance(parameter.type, ModelOf))
        return FunctionInfo(
            self._info.name, rest, self._info.result, self._info.axes, self._info.node, self._info.source
        )

    def _for(self, tensors: Sequence[torch.Tensor], given: Mapping[str, Any]) -> Traced:
        key = tuple(tuple(tensor.shape[1:]) for tensor in tensors)
        found = self._traced.get(key)
        if found is None:
            if torch.compiler.is_exporting():
                raise Error("call the module once with tensors like these before it is exported")
            found = self._traced[key] = trace(self._runtime, self._info, given)
        return found


def put(module: nn.Module, path: str, tensor: torch.Tensor, trained: bool) -> None:
    """Gives a module a tensor by its path; a part of a path is a module within."""
    *owners, name = path.split(".")
    for owner in owners:
        if owner not in module._modules:
            module.add_module(owner, nn.Module())
        module = module.get_submodule(owner)
    try:
        if trained:
            module.register_parameter(name, nn.Parameter(tensor, requires_grad=tensor.is_floating_point()))
        else:
            module.register_buffer(name, tensor)
    except KeyError:
        raise ArgumentError(f"`{path}` can't be a name in an `nn.Module`, which has a `{name}` of its own") from None


def trace(runtime: Runtime, info: FunctionInfo, given: Mapping[str, Any]) -> Traced:
    """The operations of a function for arguments like these."""
    with runtime.running():
        values = Arguments(runtime, info.axes).values(info, given)
        for name, value in values.items():
            if isinstance(value, DeviceTensor) and value.axes:
                rows = Axis.named("batch", batch=True)
                values[name] = DeviceTensor(value.held, (rows, *value.axes[1:]), value.element, value.sizes)
        assert isinstance(info.node, tree.Function)
        frame = runtime.evaluator.frame(info.source, info)
        ordered = [values[parameter.name] for parameter in info.parameters]
        return Traced(runtime, runtime.domain.specialiser.prepare(info.node, ordered, frame))


def to_torch(model: Model, function: str) -> TorchModule:
    """A function that takes the model, and tensors besides, as an `nn.Module`.

    Raises:
        ArgumentError: there is no such function, or it takes or does something else.
    """
    runtime = model._runtime
    infos = runtime.program.functions
    if function not in infos:
        close = nearest(function, list(infos))
        hint = f"; did you mean `{close}`?" if close else ""
        raise ArgumentError(f"`{runtime.name}` has no function `{function}`{hint}")
    info = infos[function]
    assert isinstance(info.node, tree.Function)
    kinds = runtime.session.placed.kinds
    if kinds[info.node].kind is not Kind.DEVICE:
        raise ArgumentError(f"`{function}` {kinds[info.node].words}, so it can't be a module of PyTorch")
    models = [parameter for parameter in info.parameters if isinstance(parameter.type, ModelOf)]
    others = [parameter for parameter in info.parameters if not isinstance(parameter.type, ModelOf)]
    wrong = [parameter for parameter in others if not isinstance(parameter.type, Tensor)]
    if len(models) != 1 or models[0] not in (info.parameters[0], info.parameters[-1]):
        raise ArgumentError(f"a module of PyTorch is a function of one model, first or last; `{function}` takes others")
    if wrong or any(parameter.mut for parameter in info.parameters):
        what = f"`{wrong[0].name}`, {wrong[0].type}" if wrong else "a `mut` parameter"
        raise ArgumentError(f"a module of PyTorch takes tensors besides its model, and `{function}` takes {what}")
    if models[0].type != model._value.type and not model._value.type.arguments:
        raise ArgumentError(f"`{models[0].name}` of `{function}` is {models[0].type}, and this is {model._value.type}")
    return TorchModule(model, info)


def export(model: Model, function: str, path: str | Path, **examples: torch.Tensor) -> None:
    """Writes a function with its model's values to a file: `.onnx`, or anything else for `torch.export.load`.

    `examples` are tensors like those that it will get; their first axis may have any length later, the others theirs.

    Raises:
        Error: a package is missing, or torch can't write it.
    """
    module = to_torch(model, function).eval()
    names = [parameter.name for parameter in module._others().parameters]
    given = {name: doubled(tensor) for name, tensor in bind(module._others(), (), examples).items()}
    arguments = tuple(given[name] for name in names)
    with torch.no_grad():
        module(*arguments)
    rows = torch.export.Dim("rows")
    shapes = tuple({0: rows} if tensor.dim() else {} for tensor in arguments)
    if Path(path).suffix == ONNX_SUFFIX:
        _write_onnx(module, arguments, shapes, names, path)
        return
    program = torch.export.export(module, arguments, dynamic_shapes={"arguments": shapes})
    torch.export.save(program, path)


def doubled(tensor: Any) -> torch.Tensor:
    """An example of at least two rows: torch takes a length of 1 for one that stays."""
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f"an example is a torch tensor, and this is {type(tensor).__name__}")
    return torch.cat([tensor, tensor]) if tensor.dim() and tensor.shape[0] == 1 else tensor


def _write_onnx(
    module: TorchModule,
    arguments: tuple[torch.Tensor, ...],
    shapes: tuple[dict[int, Any], ...],
    names: list[str],
    path: str | Path,
) -> None:
    try:
        import onnxscript  # noqa: F401  (torch's writer needs it)
    except ImportError:
        raise Error("a file of ONNX needs two packages: pip install 'shapescript[export]'") from None
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # it tells of packages that nothing here needs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of torch's own code
            torch.onnx.export(
                module,
                arguments,
                str(path),
                input_names=names,
                dynamic_shapes={"arguments": shapes},
                dynamo=True,
                verbose=False,
                external_data=False,
            )
    finally:
        log.setLevel(level)
