"""The kinds of type that an expression can have.

Takes axes, elements and the declarations of models and data; gives `Type` and its kinds, all frozen and compared by
value. `str` of each is what a user would write, or plain words where the language has no spelling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shapescript.types.axes import Axis, show_axes
from shapescript.types.element import F32, Element

if TYPE_CHECKING:
    from shapescript.syntax import tree


class Type:
    """What an expression is."""

    __slots__ = ()


@dataclass(frozen=True)
class Tensor(Type):
    """A tensor; a scalar has no axes.

    Two facts are kept for warnings alone: `normalised` is the axis over which a softmax made these weights sum to 1,
    `hidden` the axes of the mask by which places became -inf.
    """

    axes: tuple[Axis, ...]
    element: Element = F32
    normalised: Axis | None = field(default=None, compare=False)
    hidden: tuple[Axis, ...] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        plain = self.element == F32
        return show_axes(self.axes) if plain else f"{show_axes(self.axes)} {self.element}"


@dataclass(frozen=True)
class Host(Type):
    """A value of the controller: `name` is int, float, bool or str."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PythonValue(Type):
    """Anything that Python gives: a module's attribute, the result of a call."""

    def __str__(self) -> str:
        return "a Python value"


@dataclass(frozen=True)
class Batch(Type):
    """Examples of a data, side by side along `axis`: `[b] Example`."""

    data: tree.Data
    axis: Axis

    def __str__(self) -> str:
        return f"[{self.axis}] {self.data.name}"


@dataclass(frozen=True)
class ModelOf(Type):
    """A model, with the axes given for its dims: `Linear[D 3*D]`."""

    declaration: tree.Model
    arguments: tuple[Axis, ...] = ()

    def __str__(self) -> str:
        return self.declaration.name + (show_axes(self.arguments) if self.arguments else "")


@dataclass(frozen=True)
class ModelList(Type):
    """So many models of one kind: `[L] Block`."""

    length: Axis
    model: ModelOf

    def __str__(self) -> str:
        return f"[{self.length}] {self.model}"


@dataclass(frozen=True)
class Optimizer(Type):
    """An optimizer's state for a model or a list of models: `kind` is SGD, Adam, AdamW or Lion."""

    kind: str
    model: ModelOf | ModelList

    def __str__(self) -> str:
        return f"{self.kind}[{self.model}]"


@dataclass(frozen=True)
class Gradients(Type):
    """What `value_and_grad` gives for a model; it has the model's fields, those of a list of models as a list."""

    model: ModelOf | ModelList

    def __str__(self) -> str:
        return f"Grads[{self.model}]"


@dataclass(frozen=True)
class Dataset(Type):
    """Examples, not yet in batches."""

    data: tree.Data

    def __str__(self) -> str:
        return f"Dataset[{self.data.name}]"


@dataclass(frozen=True)
class Batches(Type):
    """A dataset in batches: what `batches` gives."""

    data: tree.Data

    def __str__(self) -> str:
        return f"batches of {self.data.name}"


@dataclass(frozen=True)
class TupleOf(Type):
    """Several values."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.items)) + ("," if len(self.items) == 1 else "") + ")"


@dataclass(frozen=True)
class RangeOf(Type):
    """`0..n`."""

    def __str__(self) -> str:
        return "a range"


@dataclass(frozen=True)
class Nothing(Type):
    """The result of a function that returns nothing."""

    def __str__(self) -> str:
        return "nothing"


@dataclass(frozen=True)
class Wrong(Type):
    """The type of an expression with an error that is already reported; nothing more is said about it."""

    def __str__(self) -> str:
        return "an error"


WRONG = Wrong()
NOTHING = Nothing()
PYTHON = PythonValue()
INT, FLOAT, BOOL_HOST, STR = Host("int"), Host("float"), Host("bool"), Host("str")
