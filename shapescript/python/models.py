"""Models as objects of Python.

`model_class` gives the class of a `model` of a program: called, it makes one; its objects have the fields as
attributes, `state_dict`, `named_parameters`, and a `repr` with shapes and where they lie. What is read is a copy; what
is assigned is checked against the field's type and copied.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from shapescript.controller import checkpoint, weights
from shapescript.controller.arrays import sizes_text
from shapescript.controller.errors import ArgumentError
from shapescript.controller.host_builtins import make_model
from shapescript.diagnostics.suggest import nearest
from shapescript.python.arguments import Arguments
from shapescript.python.handle import Handle, own_copy
from shapescript.specialise.expressions import model_info, shape_of_fields
from shapescript.specialise.values import DeviceTensor, ModelValue, copied
from shapescript.types.axes import Axis, show_axes
from shapescript.types.kinds import ModelList, ModelOf, Tensor
from shapescript.types.size import Size
from shapescript.types.typed import ModelInfo

if TYPE_CHECKING:
    from shapescript.python.runtime import Runtime

ELSEWHERE: Mapping[str, str] = {
    "to": 'it lies on the program\'s devices: `shapescript.load(path, devices="cuda[0]")` chooses them',
    "cuda": 'it lies on the program\'s devices: `shapescript.load(path, devices="cuda[0]")` chooses them',
    "cpu": 'it lies on the program\'s devices: `shapescript.load(path, devices="cpu")` chooses them',
    **dict.fromkeys(
        ("half", "float", "double", "bfloat16", "type"),
        "its elements are those that the program writes, as in `param w: [D] f16`",
    ),
    **dict.fromkeys(
        ("train", "eval", "training"),
        "dropout and batch_norm act as in training inside `value_and_grad`, and nowhere else",
    ),
    **dict.fromkeys(
        ("device", "dtype"),
        "`print(m)` shows each field's element and the program's devices, and `m.w.dtype` one field's",
    ),
    **dict.fromkeys(
        ("modules", "named_modules", "children", "named_children"), "its parts are its fields; `state_dict()` names all"
    ),
    **dict.fromkeys(("buffers", "named_buffers"), "what is kept and not trained are states: `m.named_states()`"),
    **dict.fromkeys(
        ("add_module", "register_buffer", "register_parameter", "register_module"),
        "the program's `model` declares its fields",
    ),
    **dict.fromkeys(
        ("requires_grad_", "requires_grad"),
        "`stop_gradient` in the program leaves a part out, or `update(mut m.head, mut opt, g.head)` trains one part",
    ),
    "apply": "assign to its fields, as in `m.w = torch.zeros(3)`, or load a `state_dict`",
    "compile": "the program's functions are compiled when they are first called",
    "share_memory": "each process loads the program for itself",
    "backward": "gradients are values: `value_and_grad` gives them, in a function of the program",
    "zero_grad": "gradients are values: `value_and_grad` gives them anew each time",
    "forward": "the program's functions take it: `net.logits(m, x)`",
    "grad": "gradients are values: `value_and_grad` gives them, in a function of the program",
}
"""What a user of PyTorch may look for, and where it is here."""


class LoadedKeys(NamedTuple):
    """What `load_state_dict` gives, by PyTorch's names: the names that only the model has, and only the mapping."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Model(Handle):
    """A model of a program. Its fields are attributes; `m["blocks.0.w"]` is one by its path."""

    _program: Runtime
    _info: ModelInfo
    _arguments: tuple[Axis, ...] = ()

    def __init__(self, seed: int = 0, *others: object, **named: object) -> None:
        if others or named:
            found = f"`{next(iter(named))}`" if named else "more"
            raise ArgumentError(
                f"`{self._info.name}` takes `seed` alone, and not {found}: its sizes are the program's dims, which "
                "`shapescript.load(path, dims={...})` gives"
            )
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ArgumentError(f"`seed` of `{self._info.name}` is a whole number, and this is {type(seed).__name__}")
        if len(self._arguments) != len(self._info.dims):
            dims = ", ".join(f'"{name}"' for name in self._info.dims)
            raise ArgumentError(
                f"`{self._info.name}` takes the dims {' '.join(self._info.dims)}: write "
                f"`{self._info.name}[{dims}](seed=0)`, with dims of the program or numbers for them"
            )
        runtime = self._program
        of = ModelOf(self._info.node, self._arguments)
        with runtime.running():
            frame = runtime.evaluator.frame(self._info.source or runtime.program.source)
            self._hold(runtime, make_model(runtime.evaluator, frame, of, seed))
        runtime.results.handles[id(self._value)] = self

    @staticmethod
    def _of(runtime: Runtime, value: ModelValue) -> Model:
        """The handle of a model that is there already."""
        kind = runtime.model_class(value.type.declaration)
        made = kind.__new__(kind)
        made._hold(runtime, value)
        return made

    def __class_getitem__(cls, dims: object) -> type[Model]:
        given = dims if isinstance(dims, tuple) else (dims,)
        if len(given) != len(cls._info.dims):
            raise ArgumentError(f"`{cls._info.name}` takes {len(cls._info.dims)} dims, and {len(given)} are given")
        axes = tuple(axis_of(cls._program, each) for each in given)
        return type(cls.__name__, (cls,), {"_arguments": axes, "__module__": cls.__module__})

    # --- fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        fields = self._value.fields
        if name in fields:
            with self._runtime.running():
                return self._field(fields[name])
        raise AttributeError(self._missing(name, list(fields)))

    def _missing(self, name: str, names: list[str]) -> str:
        of = self._value.type.declaration.name
        if name in ELSEWHERE:
            return f"a model has no `{name}`: {ELSEWHERE[name]}"
        close = nearest(name, names)
        return f"`{of}` has no field `{name}`" + (f"; did you mean `{close}`?" if close else f": {', '.join(names)}")

    def _field(self, part: object) -> Any:
        if isinstance(part, DeviceTensor):
            return own_copy(part)
        if isinstance(part, list):
            return tuple(self._runtime.results.handle(each) for each in part)
        assert isinstance(part, ModelValue)
        return self._runtime.results.handle(part)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._value.fields:
            raise AttributeError(self._missing(name, list(self._value.fields)))
        with self._runtime.running():
            self._put(name, value)

    def _put(self, name: str, value: object) -> None:
        of: ModelValue = self._value
        kind = shape_of_fields(self._runtime.evaluator, of.type)[name]
        where = f"`{name}` of `{of.type}`"
        arguments = Arguments(self._runtime)
        if isinstance(kind, Tensor):
            old = of.fields[name]
            assert isinstance(old, DeviceTensor)
            given = arguments.tensor(value, kind, where)
            of.fields[name] = DeviceTensor(given.data.clone(), old.axes, old.element, old.sizes)
        elif isinstance(kind, ModelOf):
            of.fields[name] = copied(arguments.model(value, kind, where))
        else:
            assert isinstance(kind, ModelList)
            raise ArgumentError(f"{where} is {kind}: change each, as in `m.{name}[0].w = ...`")

    def __getitem__(self, path: str) -> torch.Tensor:
        """A tensor by its path."""
        if not isinstance(path, str):
            raise TypeError(f'a model is asked for a path, as in `m["blocks.0.w"]`, not for {type(path).__name__}')
        with self._runtime.running():
            for place in checkpoint.places(self._value):
                if place.name == path:
                    assert isinstance(place.value, DeviceTensor)
                    return own_copy(place.value)
            names = [place.name for place in checkpoint.places(self._value)]
        close = nearest(path, names)
        raise KeyError(
            f"the model has no `{path}`" + (f"; did you mean `{close}`?" if close else f": {', '.join(names)}")
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"`{name}` can't be deleted: the program's `model` declares the fields")

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._value.fields])

    # --- as PyTorch has it

    def state_dict(self) -> OrderedDict[str, torch.Tensor]:
        """All tensors by their plain names, params and states; what is shared comes once."""
        with self._runtime.running():
            found = [(place.name, place.value) for place in checkpoint.places(self._value)]
            return OrderedDict((name, own_copy(value)) for name, value in found if isinstance(value, DeviceTensor))

    def load_state_dict(
        self, state: Mapping[str, object], names: Mapping[str, str] | None = None, strict: bool = True
    ) -> LoadedKeys:
        """Takes tensors over by their names; `names` says for a name here the one there, `fc.weight.T` transposed.

        Not `strict`, it takes what both have, and gives the names that only one has.

        Raises:
            CheckpointError: a name is missing or too many, or a shape or element is another; nothing was changed.
        """
        if isinstance(names, bool):
            raise ArgumentError("`names` of `load_state_dict` is a map of names; write `strict=` by its name")
        with self._runtime.running():
            missing, unexpected = weights.take_over(self._value, state, "the state_dict", names, strict)
        return LoadedKeys(missing, unexpected)

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The params, which are trained, by their names: live, so what is written into one is the model's value.

        An optimizer of PyTorch may have them; it needs their `grad`, which a program's `value_and_grad` computes.
        """
        with self._runtime.running():
            places = [place for place in checkpoint.places(self._value) if self._is_param(place.name)]
            return iter([(place.name, self._runtime.live.of(place.name, place.slots, place.key)) for place in places])

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The params, live as those of `named_parameters`."""
        return iter([parameter for _, parameter in self.named_parameters()])

    def named_states(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Copies of the states, which are kept and not trained, by their names."""
        return iter([(name, tensor) for name, tensor in self.state_dict().items() if not self._is_param(name)])

    def _is_param(self, path: str) -> bool:
        at: Any = self._value
        *owners, name = path.split(".")
        for part in owners:
            at = at[int(part)] if isinstance(at, list) else at.fields[part]
        word = model_info(self._runtime.evaluator, at.type.declaration).fields[name].word
        return word == "param"

    def save(self, path: str | Path) -> None:
        """Writes the tensors to a safetensors file."""
        with self._runtime.running():
            checkpoint.save(self._value, path)

    def load(self, path: str | Path, names: Mapping[str, str] | None = None) -> None:
        """Takes the tensors of a safetensors file, or of a `state_dict` that PyTorch wrote; see `load_state_dict`."""
        with self._runtime.running():
            weights.load(self._value, path, names)

    def to_torch(self, function: str, **fixed: object) -> torch.nn.Module:
        """A function of the program, with copies of this model's tensors, as an `nn.Module`: the same numbers.

        What the function takes besides its model and tensors is `fixed` here, or has its default: `k=3`.
        """
        from shapescript.python.torch_modules import to_torch

        return to_torch(self, function, **fixed)

    def __call__(self, *arguments: object, **named: object) -> Any:
        raise TypeError("a model isn't a function: the program's functions take it, as in `net.logits(m, x)`")

    def __repr__(self) -> str:
        return describe(self._value, self._runtime)


def axis_of(runtime: Runtime, given: object) -> Axis:
    """A dim of the program by its name, or a number."""
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return Axis.of(Size.of(given))
    if isinstance(given, str) and given in runtime.program.dims:
        return runtime.program.dims[given].axis
    raise ArgumentError(f"a model's dims are names of the program's dims, or numbers, and this is {given!r}")


def model_class(runtime: Runtime, info: ModelInfo) -> type[Model]:
    """The class of a model."""
    source = info.source
    text = source.text[info.node.start : info.node.end].rstrip() if source is not None else "a built-in model"
    return type(
        info.name,
        (Model,),
        {"_program": runtime, "_info": info, "__doc__": text, "__module__": runtime.name},
    )


# --- repr ------------------------------------------------------------------------------------------------------------


def describe(model: ModelValue, runtime: Runtime) -> str:
    """A model with the axes, sizes and layout of each tensor."""
    lines = list(tensor_lines(model, runtime, "  "))
    tensors = [place.value for place in checkpoint.places(model)]
    count = sum(numel(tensor) for tensor in tensors if isinstance(tensor, DeviceTensor))
    width = max((len(name) for name, rest in lines if rest), default=0)
    body = "".join(f"{name:<{width}}  {rest}\n" if rest else f"{name}\n" for name, rest in lines)
    return f"{model.type}(\n{body}) on {runtime.program.devices}: {count:,} values"


def tensor_lines(model: ModelValue, runtime: Runtime, indent: str) -> Iterator[tuple[str, str]]:
    """A line for each field: its name with what it is in, and the rest."""
    info = model_info(runtime.evaluator, model.type.declaration)
    for name, part in model.fields.items():
        if isinstance(part, DeviceTensor):
            word = info.fields[name].word
            yield (
                f"{indent}{name}: {show_axes(part.axes)}",
                f"{sizes_text(part.shape)}  {part.element}  {word}{lies(part)}",
            )
        elif isinstance(part, ModelValue):
            yield f"{indent}{name}: {part.type}", ""
            yield from tensor_lines(part, runtime, indent + "  ")
        elif isinstance(part, list) and part:
            yield f"{indent}{name}: {len(part)} times {part[0].type}, each", ""
            yield from tensor_lines(part[0], runtime, indent + "  ")


def lies(tensor: DeviceTensor) -> str:
    """How a tensor lies on the devices: whole, or what is split or sharded."""
    lie = getattr(tensor.held, "lie", None)
    words = [str(word) for word in lie.layout] if lie is not None else []
    return "  " + (", ".join(word for word in words if word != "whole") or "whole")


def numel(tensor: DeviceTensor) -> int:
    """How many values a tensor has."""
    count = 1
    for size in tensor.shape:
        count *= size
    return count
