"""What the checker gives: a program with every declaration resolved and every expression typed.

Gives `TypedProgram` and the facts about each kind of declaration. The tables `types`, `uses` and those keyed by a
node (`model_of`, `data_of`, `function_of`, `extern_of`) are shared with the imported files, so that a use of another
file's function or model is looked up like one's own. Decides nothing: `check_*.py` fill it.

A value meets its declared type without a use of its own at four places: an argument, a default, a returned value and
an assigned field. A host number there becomes a scalar tensor where the declared type is one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.source import Source
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import F32, F64, Element
from shapescript.types.kinds import Tensor, Type
from shapescript.types.size import Size
from shapescript.types.uses import Use

ConstantValue = int | float | bool | str


@dataclass(frozen=True)
class DevicesInfo:
    """The `devices` line: `numbers` holds each device once, in order; empty means the one device of that kind.

    `split` are the dims of `split` lines, with their sizes beside them; `by` is how many parts `split H by 2` makes.
    """

    kind: str
    numbers: tuple[int, ...] = ()
    shard_params: bool = False
    split: tuple[str, ...] = ()
    node: tree.Devices | None = None
    by: int | None = None
    split_sizes: tuple[Size, ...] = ()

    @property
    def count(self) -> int:
        """How many devices there are."""
        return max(1, len(self.numbers))

    @property
    def mesh(self) -> tuple[int, ...]:
        """How they stand: in one line, or in a grid whose second axis has the parts of `split H by 2`."""
        if self.by is None or self.count == 1:
            return (self.count,)
        return (self.count // self.by, self.by)

    @property
    def dims(self) -> dict[str, Size]:
        """The sizes of the dims that are split, by name."""
        return dict(zip(self.split, self.split_sizes, strict=False))

    def __str__(self) -> str:
        return self.kind + (f"[{' '.join(map(str, self.numbers))}]" if self.numbers else "")


@dataclass(frozen=True)
class PythonDim:
    """A dim's value that Python gives: `module.attribute(arguments)`; a `Size` is evaluated first."""

    module: str
    attribute: str
    arguments: tuple[tuple[str | None, ConstantValue | Size], ...]
    node: tree.Expr


@dataclass(frozen=True)
class DimInfo:
    """A dim: `axis` is what its name means in brackets, `value` its size where that is known now.

    A dim that isn't defined by other dims is an atom, `axis.size`, which a run gives its value.
    """

    name: str
    axis: Axis
    value: int | None
    node: tree.Dim
    python: PythonDim | None = None

    @property
    def is_atom(self) -> bool:
        """Whether it stands for itself, and isn't defined by other dims."""
        return self.axis.name is not None and self.axis.size == Size.atom(self.axis.name)


@dataclass(frozen=True)
class ConstantInfo:
    """`rate = 0.1`."""

    name: str
    value: ConstantValue
    node: tree.Constant


@dataclass(frozen=True)
class Initialiser:
    """How a param or a state begins; the arguments are expressions over numbers, dims and constants."""

    name: str
    arguments: dict[str, tree.Expr]


@dataclass(frozen=True)
class FieldInfo:
    """A field of a model or a data; `word` is `param`, `state` or None, which is a model or a data's tensor."""

    name: str
    word: str | None
    type: Type
    initialiser: Initialiser | None
    node: tree.Field


@dataclass(frozen=True)
class ModelInfo:
    """A model: the types of its fields are in its own `dims`, `ModelOf.arguments` replaces these in order."""

    name: str
    dims: tuple[str, ...]
    fields: dict[str, FieldInfo]
    node: tree.Model
    source: Source | None


@dataclass(frozen=True)
class DataInfo:
    """A data: the types of its fields are those of one example."""

    name: str
    fields: dict[str, FieldInfo]
    node: tree.Data
    source: Source


@dataclass(frozen=True)
class ParameterInfo:
    """A parameter of a function."""

    name: str
    type: Type
    mut: bool
    default: tree.Expr | None
    node: tree.Parameter


@dataclass
class FunctionInfo:
    """A function: `axes` are the axis variables of its signature, those from `int` parameters too.

    `calls` are the functions that it calls, each with the first call; `differentiated` are those that it hands to
    `value_and_grad` or `grad`; `trained_calls` leaves out what `evaluating` calls. `plain_batch_norms` update nothing,
    and `field_changes` assign to fields: neither may stand in what is differentiated. In `of_body` later stages keep
    what they found out about the body, whose nodes may move with the text.
    """

    name: str
    parameters: tuple[ParameterInfo, ...]
    result: Type
    axes: dict[str, Axis]
    node: tree.Function | tree.Extern
    source: Source
    spread: bool = False
    calls: dict[tree.Function, tree.Node] = field(default_factory=dict)
    trained_calls: dict[tree.Function, tree.Node] = field(default_factory=dict)
    differentiated: list[tuple[tree.Function, tree.Node]] = field(default_factory=list)
    plain_batch_norms: list[tree.Node] = field(default_factory=list)
    field_changes: list[tree.Node] = field(default_factory=list)
    of_body: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """The names that stand in its body."""
        body = self.node.body if isinstance(self.node, tree.Function) else []
        return frozenset(node.name for statement in body for node in statement.walk() if isinstance(node, tree.Name))

    def forget_body(self) -> None:
        """Forgets what was found in the body, which is another one now."""
        self.__dict__.pop("mentioned", None)
        for each in (self.calls, self.trained_calls, self.of_body):
            each.clear()
        for places in (self.differentiated, self.plain_batch_norms, self.field_changes):
            places.clear()


@dataclass(frozen=True)
class ImportInfo:
    """`import python m as name`, or another `.ss` file, whose `program` is checked too (None if it has no text)."""

    name: str
    module: str
    python: bool
    node: tree.Import
    program: TypedProgram | None = None


@dataclass
class TypedProgram:
    """A checked program. Where `diagnostics` has an error, the tables may have gaps."""

    source: Source
    devices: DevicesInfo | None = None
    dims: dict[str, DimInfo] = field(default_factory=dict)
    constants: dict[str, ConstantInfo] = field(default_factory=dict)
    models: dict[str, ModelInfo] = field(default_factory=dict)
    datas: dict[str, DataInfo] = field(default_factory=dict)
    functions: dict[str, FunctionInfo] = field(default_factory=dict)
    externs: dict[str, FunctionInfo] = field(default_factory=dict)
    imports: dict[str, ImportInfo] = field(default_factory=dict)
    types: dict[tree.Expr, Type] = field(default_factory=dict)
    uses: dict[tree.Node, Use] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    model_of: dict[tree.Model, ModelInfo] = field(default_factory=dict)
    data_of: dict[tree.Data, DataInfo] = field(default_factory=dict)
    function_of: dict[tree.Function | tree.Extern, FunctionInfo] = field(default_factory=dict)

    @property
    def errors(self) -> list[Diagnostic]:
        """The diagnostics that keep the program from running."""
        return [diagnostic for diagnostic in self.diagnostics if diagnostic.severity == "error"]

    def known_sizes(self) -> dict[str, int]:
        """The value of each atom that is known now, those of imported files too."""
        known = {info.axis.name: info.value for info in self.dims.values() if info.is_atom and info.axis.name}
        sizes = {name: value for name, value in known.items() if value is not None}
        for imported in self.imports.values():
            if imported.program is not None:
                sizes.update(imported.program.known_sizes())
        return sizes


def _batch_norm() -> tuple[ModelInfo, ModelInfo]:
    """`BatchNorm[O]`, the one model that the language itself declares: with states of f32, and of f64."""

    def state(name: str, start: str) -> tree.Field:
        axes = tree.Axes(0, 0, [tree.Name(0, 0, "O")])
        return tree.Field(0, 0, "state", name, 0, tree.TensorType(0, 0, axes, None), tree.Name(0, 0, start))

    members = [state("mean", "zeros"), state("var", "ones")]
    node = tree.Model(0, 0, "BatchNorm", 0, [tree.Name(0, 0, "O")], members)

    def info(element: Element) -> ModelInfo:
        kind = Tensor((Axis.named("O"),), element)
        fields = {
            member.name: FieldInfo(member.name, "state", kind, Initialiser(start, {}), member)
            for member, start in zip(members, ("zeros", "ones"), strict=True)
        }
        return ModelInfo("BatchNorm", ("O",), fields, node, None)

    return info(F32), info(F64)


BATCH_NORM, BATCH_NORM_F64 = _batch_norm()
