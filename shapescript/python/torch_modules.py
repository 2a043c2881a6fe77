"""A function of a program, with its model, as a module of PyTorch; and files that other programs run.

Takes a model and a function that takes it; gives an `nn.Module` whose parameters are the model's by the same names,
and whose `forward` takes the other arguments, a batch as a mapping of its fields: the same operations as the program's,
which torch's autograd and `torch.export` see through. The module has copies: training it doesn't change the model.

The axis of the rows, a batch's or the first of the first tensor, may have any length at each call; for other lengths of
other axis variables the operations are made anew. What depends on the values (an index out of range) is checked when
the module is called, and not in an exported file.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shapescript.controller import checkpoint
from shapescript.controller.arrays import sizes_text
from shapescript.controller.errors import ArgumentError, Error
from shapescript.devices.dtypes import dtype_of
from shapescript.devices.random_key import RandomKey
from shapescript.devices.reference.lowering import LOWERINGS, Run, Step
from shapescript.devices.reference.lowering import ValueProblem as WrongValue
from shapescript.diagnostics.suggest import nearest
from shapescript.placement.kinds import Kind
from shapescript.python.arguments import Arguments, bind, host
from shapescript.python.handles import Batch as BatchHandle
from shapescript.python.models import Model
from shapescript.specialise.expressions import evaluate
from shapescript.specialise.specialise import Call
from shapescript.specialise.values import DeviceTensor, unflatten
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import Batch, Host, ModelOf, Tensor, Type
from shapescript.types.size import Size
from shapescript.types.typed import FunctionInfo, ParameterInfo

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

    def __init__(self, model: Model, info: FunctionInfo, fixed: Mapping[str, object]) -> None:
        super().__init__()
        self.function = info.name
        self._runtime = model._runtime
        self._info = info
        self._type = model._value.type
        self._names: list[str] = []
        self._dtypes: dict[str, torch.dtype] = {}
        with self._runtime.running():
            for place in checkpoint.places(model._value):
                assert isinstance(place.value, DeviceTensor)
                self._names.append(place.name)
                self._dtypes[place.name] = place.value.data.dtype
                put(self, place.name, place.value.data.clone(), model._is_param(place.name))
        self._model = model.__deepcopy__({})
        self._fixed = dict(fixed)
        self._rows = rows_axis(info)
        self._traced: dict[tuple[tuple[int, ...], ...], Traced] = {}
        self._checked: set[Hashable] = set()

    def extra_repr(self) -> str:
        """The function, and the names and sizes of the tensors."""
        sizes = ", ".join(f"{name}: {sizes_text(tensor.shape)}" for name, tensor in self.state_dict().items())
        return f"{self.function}; {sizes}"

    def __getstate__(self) -> Any:
        raise TypeError(
            f"this module runs with the program `{self._runtime.name}` and can't be pickled: its `state_dict()` can, "
            "and `shapescript.export` writes a file that runs without it"
        )

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """The function's result, whole."""
        given = self.arguments(bind(self._others(), arguments, named))
        traced = self._for(given)
        order: list[torch.Tensor] = []
        rows: list[int] = []
        for parameter in self._info.parameters:
            if isinstance(parameter.type, ModelOf):
                order += [self._own(name) for name in self._names]
            elif parameter.name in self._fixed:
                number = self._fixed[parameter.name]
                if isinstance(number, float):  # the one host value that a compiled function leaves open
                    order.append(torch.tensor(number, dtype=torch.float64, device=traced.device))
            else:
                tensors = self._elements(parameter.type, given[parameter.name])
                rows += [tensor.shape[0] for tensor in tensors if has_rows(parameter.type, self._rows)]
                order += tensors
        count = rows[0] if rows else 1
        try:
            return traced(order, count)
        except WrongValue as error:
            raise Error(f"`{self._info.name}`: {error}") from None

    def arguments(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in the order of the parameters: tensors, and the tensors of a batch by its fields.

        Raises:
            ArgumentError: one is something else.
        """
        found: dict[str, Any] = {}
        for parameter in self._others().parameters:
            given, of = bound[parameter.name], parameter.type
            where = f"`{parameter.name}` of `{self._info.name}`"
            if isinstance(of, Batch):
                found[parameter.name] = self._batch(given, of, where)
            elif isinstance(given, torch.Tensor):
                found[parameter.name] = given
            else:
                raise ArgumentError(f"{where} is {of}: a module of PyTorch takes a tensor, not {type(given).__name__}")
        return found

    def _batch(self, given: Any, of: Batch, where: str) -> dict[str, torch.Tensor]:
        """The tensors of a batch, in the order of the fields."""
        fields = list(self._runtime.program.data_of[of.data].fields)
        example = ", ".join(f'"{name}": ...' for name in fields)
        if isinstance(given, BatchHandle):
            given = {name: given[name] for name in given.keys()}  # noqa: SIM118  (it isn't a mapping)
        if not isinstance(given, Mapping) or set(given) != set(fields):
            names = f" with {', '.join(map(str, given))}" if isinstance(given, Mapping) and given else ""
            found = type(given).__name__ + names
            raise ArgumentError(f"{where} is {of}: a mapping of its fields, {{{example}}}, and this is {found}")
        for name in fields:
            if not isinstance(given[name], torch.Tensor):
                raise ArgumentError(f"`{name}` of {where} is a torch tensor, and this is {type(given[name]).__name__}")
        return {name: given[name] for name in fields}

    def _own(self, path: str) -> torch.Tensor:
        """A tensor of the module by its path; `torch.func.functional_call` may have put another in its place."""
        at: Any = self
        for name in path.split("."):
            at = getattr(at, name)
        assert isinstance(at, torch.Tensor)
        if at.dtype != self._dtypes[path]:
            raise ArgumentError(
                f"`{path}` is {at.dtype} now, and the program says {self._dtypes[path]}: the element that you "
                "want is to be written in the program"
            )
        return at

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchModule:
        made = TorchModule.__new__(TorchModule)
        own = ("_parameters", "_buffers", "_modules")
        vars(made).update((name, deepcopy(value, memo) if name in own else value) for name, value in vars(self).items())
        return made

    def _others(self) -> FunctionInfo:
        """The function without its model, and without what was fixed."""
        rest = tuple(
            parameter
            for parameter in self._info.parameters
            if not isinstance(parameter.type, ModelOf) and parameter.name not in self._fixed
        )
        return FunctionInfo(
            self._info.name, rest, self._info.result, self._info.axes, self._info.node, self._info.source
        )

    def _elements(self, kind: Type, value: Any) -> list[torch.Tensor]:
        """The tensors of an argument in the program's elements: one of f64 is taken for f32, as in a call."""
        kinds: list[Type]
        if isinstance(kind, Batch):
            kinds = [field.type for field in self._runtime.program.data_of[kind.data].fields.values()]
        else:
            kinds = [kind]
        pairs = zip(leaves(value), kinds, strict=True)
        return [tensor.to(dtype_of(of.element)) if isinstance(of, Tensor) else tensor for tensor, of in pairs]

    def _for(self, given: Mapping[str, Any]) -> Traced:
        """The operations for arguments of these sizes; arguments of a new form are checked as in a call."""
        tensors = [tensor for value in given.values() for tensor in leaves(value)]
        kinds = {each.name: each.type for each in self._info.parameters}
        key = tuple(
            tuple(tensor.shape[has_rows(kinds[name], self._rows) :])
            for name, value in given.items()
            for tensor in leaves(value)
        )
        found = self._traced.get(key)
        if torch.compiler.is_exporting():
            if found is None:
                raise Error("call the module once with tensors like these before it is exported")
            return found
        form = tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors)
        if form not in self._checked:
            plain = {name: each_tensor(detached, value) for name, value in given.items()}
            model = next(each.name for each in self._info.parameters if isinstance(each.type, ModelOf))
            plain = {**plain, **self._fixed, model: self._model}
            if found is None:
                found = self._traced[key] = trace(self._runtime, self._info, plain, self._rows)
            else:
                with self._runtime.running():
                    Arguments(self._runtime, self._info.axes).values(self._info, plain)
            self._checked.add(form)
        assert found is not None
        return found


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without what it was computed from."""
    return tensor.detach()


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors of an argument: itself, or a batch's fields."""
    return list(value.values()) if isinstance(value, dict) else [value]


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


def rows_axis(info: FunctionInfo) -> str | None:
    """The axis variable that counts the rows: a batch's, or the first one of the first tensor that begins with one.

    None where it isn't the first axis wherever it stands: then a compiled function knows its length.
    """
    batches = [each.type.axis.name for each in info.parameters if isinstance(each.type, Batch)]
    tensors = [each.type.axes for each in info.parameters if isinstance(each.type, Tensor)]
    firsts = [axes[0].name for axes in tensors if axes and axes[0].name in info.axes]
    name = next(iter([*batches, *firsts]), None)
    if any(other != name for other in batches):
        raise ArgumentError(f"a module of PyTorch takes batches of as many rows each, and `{info.name}` takes others")
    inside = any(name in names_in(axis) for axes in tensors for axis in axes[1:])
    if inside and batches:
        raise ArgumentError(f"`{name}` of `{info.name}` counts a batch's rows, and stands within another argument")
    return None if inside else name


def names_in(axis: Axis) -> set[str | None]:
    """The names of an axis and of its parts."""
    return {axis.name, *(part.name for part in axis.parts)}


def has_rows(kind: Type, rows: str | None) -> bool:
    """Whether the first axis of a parameter's tensors is that of the rows."""
    if isinstance(kind, Batch):
        return True
    return isinstance(kind, Tensor) and rows is not None and bool(kind.axes) and kind.axes[0].name == rows


def trace(runtime: Runtime, info: FunctionInfo, given: Mapping[str, Any], rows_name: str | None) -> Traced:
    """The operations of a function for arguments like these."""
    kinds = {each.name: each.type for each in info.parameters}
    with runtime.running():
        values = Arguments(runtime, info.axes).values(info, given)
        for name, value in values.items():
            if isinstance(value, DeviceTensor) and has_rows(kinds[name], rows_name):
                rows = Axis.named("batch", batch=True)
                values[name] = DeviceTensor(value.held, (rows, *value.axes[1:]), value.element, value.sizes)
        assert isinstance(info.node, tree.Function)
        frame = runtime.evaluator.frame(info.source, info)
        for name, value in values.items():
            if name in info.axes and isinstance(value, int):
                frame.axes[name] = runtime.domain.local_axis(Axis(name, Size.of(value)))
        ordered = [values[parameter.name] for parameter in info.parameters]
        return Traced(runtime, runtime.domain.specialiser.prepare(info.node, ordered, frame))


def to_torch(model: Model, function: str, **fixed: object) -> TorchModule:
    """A function that takes the model, and tensors besides, as an `nn.Module`; its numbers are `fixed` here.

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
    numbers = [parameter for parameter in others if isinstance(parameter.type, Host)]
    wrong = [parameter for parameter in others if not isinstance(parameter.type, (Tensor, Batch, Host))]
    if len(models) != 1:
        found = "none" if not models else f"{len(models)} of them"
        raise ArgumentError(f"a module of PyTorch is a function of one model, and `{function}` takes {found}")
    if wrong or any(parameter.mut for parameter in info.parameters):
        what = f"`{wrong[0].name}`, {wrong[0].type}" if wrong else "a `mut` parameter"
        raise ArgumentError(
            f"a module of PyTorch takes tensors and batches besides its model, and `{function}` takes {what}"
        )
    if models[0].type != model._value.type and not model._value.type.arguments:
        raise ArgumentError(f"`{models[0].name}` of `{function}` is {models[0].type}, and this is {model._value.type}")
    return TorchModule(model, info, fixed_numbers(runtime, info, numbers, fixed))


def fixed_numbers(
    runtime: Runtime, info: FunctionInfo, numbers: Sequence[ParameterInfo], given: Mapping[str, object]
) -> dict[str, object]:
    """The numbers, bools and strings that a function takes: those given, and the others' defaults.

    Raises:
        ArgumentError: one has neither, is of another type, or isn't one of them.
    """
    names = [parameter.name for parameter in numbers]
    for name in given:
        if name not in names:
            takes = f"it takes {', '.join(names)}" if names else "it takes none"
            raise ArgumentError(f"`{name}` isn't a number that `{info.name}` takes; {takes}")
    found: dict[str, object] = {}
    with runtime.running():
        frame = runtime.evaluator.frame(info.source, info)
        for parameter in numbers:
            of = parameter.type
            assert isinstance(of, Host)
            if parameter.name in given:
                found[parameter.name] = host(given[parameter.name], of, f"`{parameter.name}` of `{info.name}`")
            elif parameter.default is not None:
                found[parameter.name] = evaluate(runtime.evaluator, frame, parameter.default)
            else:
                raise ArgumentError(
                    f"`{parameter.name}` of `{info.name}` is {of}: give it when the module is made, "
                    f'`m.to_torch("{info.name}", {parameter.name}=...)`'
                )
            if of.name == "float":
                found[parameter.name] = float(found[parameter.name])  # type: ignore[arg-type]
    return found


def export(model: Model, function: str, path: str | Path, **examples: Any) -> None:
    """Writes a function with its model's values to a file: `.onnx`, or anything else for `torch.export.load`.

    `examples` are tensors like those that it will get, for a batch a mapping of them; their first axis may have any
    length later, the others theirs.

    Raises:
        Error: a package is missing, or torch can't write it.
    """
    infos = model._runtime.program.functions
    hosts = (
        {each.name for each in infos[function].parameters if isinstance(each.type, Host)} if function in infos else ()
    )
    fixed = {name: value for name, value in examples.items() if name in hosts}
    examples = {name: value for name, value in examples.items() if name not in hosts}
    module = to_torch(model, function, **fixed).eval()
    names = [parameter.name for parameter in module._others().parameters]
    given = module.arguments(bind(module._others(), (), examples))
    arguments = tuple(
        each_tensor(doubled, given[each.name]) if has_rows(each.type, module._rows) else given[each.name]
        for each in module._others().parameters
    )
    with torch.no_grad():
        module(*arguments)
    rows = torch.export.Dim("rows")
    free = [has_rows(each.type, module._rows) for each in module._others().parameters]
    shapes = tuple(
        each_tensor(lambda _: {0: rows}, each) if any_length else each_tensor(lambda _: {}, each)
        for each, any_length in zip(arguments, free, strict=True)
    )
    if Path(path).suffix == ONNX_SUFFIX:
        inputs = [f"{name}.{key}" if key else name for name in names for key in given_names(given[name])]
        _write_onnx(module, arguments, shapes, inputs, path)
        return
    program = torch.export.export(module, arguments, dynamic_shapes={"arguments": shapes})
    torch.export.save(program, path)


def given_names(value: Any) -> list[str]:
    """The names of a batch's fields, or an empty one."""
    return list(value) if isinstance(value, dict) else [""]


def each_tensor(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """What a function gives for a tensor, or for each of a batch."""
    if isinstance(value, dict):
        return {name: function(tensor) for name, tensor in value.items()}
    return function(value)


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """An example of at least two rows: torch takes a length of 1 for one that stays."""
    return torch.cat([tensor, tensor]) if tensor.dim() and tensor.shape[0] == 1 else tensor


def _write_onnx(
    module: TorchModule,
    arguments: tuple[Any, ...],
    shapes: tuple[Any, ...],
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
