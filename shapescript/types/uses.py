"""What the checker found out about the nodes of a tree: the uses that the evaluator reads.

Takes the tree and the types; gives one dataclass for each kind of use. `TypedProgram.uses` maps a node (an expression,
mostly) to its use. The evaluator decides nothing anew: what a use says is what happens.

Axes and sizes in a use are in the function's own names: the specialiser substitutes the call's binding. A name that a
pattern introduced stands there as an `Axis` of that name; the specialiser gives it a name of its own for each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.kinds import Type
from shapescript.types.size import Size


@dataclass(frozen=True)
class Use:
    """What a node means."""


@dataclass(frozen=True)
class StaticArgument:
    """An attribute whose value is this expression's, known when the function is specialised."""

    value: tree.Expr


@dataclass(frozen=True)
class HostOperand:
    """An operand that is a host value, or a number in the text: it becomes a scalar tensor of `element`."""

    value: tree.Expr
    element: Element


@dataclass(frozen=True)
class Fixed:
    """An operand that the text doesn't have: a scalar of this value."""

    value: int | float | bool
    element: Element


@dataclass(frozen=True)
class OpUse(Use):
    """A tensor operation: the registry's op, its operands in order, and its attributes.

    An operand that is itself an `OpUse` is an operation that the text doesn't spell out (the cast of whole numbers
    before `/`, the inner product of an einsum of three): it is evaluated at this node's place.
    An expression, or an `OpUse` (by identity), that stands more than once in a use is evaluated once.
    `place` of a random op is where it stands in the text; the specialiser counts calls and rounds besides.
    `unpack` n: the node's value is a tuple of n values, result i of which has `parts[i]` for its use.
    """

    op: str
    operands: tuple[Operand, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    unpack: int | None = None
    parts: tuple[OpUse, ...] = ()


Operand: TypeAlias = tree.Expr | OpUse | HostOperand | Fixed


@dataclass(frozen=True)
class Default:
    """A parameter that the call leaves out: the expression of its default, read in the callee."""

    value: tree.Expr


@dataclass(frozen=True)
class CallUse(Use):
    """A call of a function: arguments in the order of the parameters, and the callee's axis variables.

    `axes` binds each axis variable of the signature; `spread` are the axes that `..` stands for, if it has one.
    """

    function: tree.Function
    arguments: tuple[tree.Expr | Default, ...]
    axes: Mapping[str, Axis] = field(default_factory=dict)
    spread: tuple[Axis, ...] | None = None


@dataclass(frozen=True)
class ExternUse(Use):
    """A call of Python code that works on each example by itself."""

    function: tree.Extern
    arguments: tuple[tree.Expr | Default, ...]
    axes: Mapping[str, Axis]
    result: Type


@dataclass(frozen=True)
class ModelUse(Use):
    """`Classifier(seed=0)`, `Linear[D Hd](seed=0)`: a new model."""

    model: tree.Model
    dims: tuple[Axis, ...]
    seed: tree.Expr | None


@dataclass(frozen=True)
class DataUse(Use):
    """`Example(pixels=x, digit=y)`: a batch made of tensors; `fields` in the order of the declaration."""

    data: tree.Data
    fields: Mapping[str, tree.Expr]


@dataclass(frozen=True)
class BuiltinUse(Use):
    """A built-in that isn't one tensor operation (`update`, `print`, `batches`, `len`, `whole`...).

    `arguments` is by the name of the parameter; further positional ones (print's values, value_and_grad's arguments
    for the function) are in `rest`. `function` is the declared function that it calls, with the call's binding.
    """

    name: str
    arguments: Mapping[str, tree.Expr]
    rest: tuple[tree.Expr, ...] = ()
    call: CallUse | None = None
    over: tuple[Axis, ...] = ()
    result: Type | None = None


@dataclass(frozen=True)
class PythonUse(Use):
    """A module of Python, or an attribute of one: `digits`, `digits.load`."""

    module: str
    attribute: str | None = None


@dataclass(frozen=True)
class LocalUse(Use):
    """A parameter or a local of the function."""

    name: str


@dataclass(frozen=True)
class FieldUse(Use):
    """`batch.pixels`, `m.w1`, `g.head`: a field of a batch, a model or gradients."""

    name: str


@dataclass(frozen=True)
class DimUse(Use):
    """A dim where a value stands: its size."""

    size: Size


@dataclass(frozen=True)
class CountUse(Use):
    """An axis variable where a value stands: how long the axis is; of the batch's axis, its true count."""

    axis: Axis


@dataclass(frozen=True)
class ConstantUse(Use):
    """A constant of the program, or `inf`, `nan`, `pi`."""

    value: int | float | bool | str


@dataclass(frozen=True)
class FunctionUse(Use):
    """A declared function where a value stands, as in `value_and_grad(loss, m)`."""

    function: tree.Function | tree.Extern


@dataclass(frozen=True)
class HostUse(Use):
    """Arithmetic, comparison or a function of host values: `op` is the operator as written, or the name."""

    op: str


@dataclass(frozen=True)
class HostIndexUse(Use):
    """`m.blocks[i]`, `t[0]`, `python_value[i]`: an index into a host value."""


@dataclass(frozen=True)
class CastUse(Use):
    """`x as type` that isn't a change of a tensor's element: a Python value gets a type, a number becomes a tensor."""

    type: Type
