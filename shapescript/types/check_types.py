"""What sizes in brackets and written types mean.

Takes the tree of a size or a type and a `Scope`, which knows the names; gives an `Axis` or a `Type`, and reports what
is wrong with them. Used for signatures, fields and `as`; what a tensor operation makes of its axes is others' part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shapescript.diagnostics.diagnostic import Label
from shapescript.diagnostics.of_pytorch import TYPES
from shapescript.source import Span
from shapescript.syntax import tree
from shapescript.types.axes import ANY_AXES, Axis
from shapescript.types.element import ELEMENT_NAMES, F32, Element, element_named
from shapescript.types.kinds import (
    PYTHON,
    WRONG,
    Batch,
    Dataset,
    Gradients,
    Host,
    ModelList,
    ModelOf,
    Optimizer,
    Tensor,
    TupleOf,
    Type,
    Wrong,
)
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import BATCH_NORM, DimInfo

OPTIMIZERS = ("SGD", "Adam", "AdamW", "Lion")
HOSTS = ("int", "float", "bool", "str")


class Scope(Protocol):
    """What the meaning of a size or a type depends on."""

    def axis_named(self, name: str) -> Axis | None:
        """The axis of this name: a dim, an axis variable, an `int` parameter."""

    def new_axis(self, name: str) -> Axis | None:
        """The axis for a small name that isn't known yet, where one may be introduced; else None."""

    def any_axes(self) -> bool:
        """Whether `..` may stand here."""

    def model_named(self, module: str | None, name: str) -> tree.Model | None:
        """A model of this file or of an imported one."""

    def data_named(self, module: str | None, name: str) -> tree.Data | None:
        """A data of this file or of an imported one."""

    def model_dims(self, model: tree.Model) -> int:
        """How many dims a model takes."""

    @property
    def declaring(self) -> tree.Model | None:
        """The model whose fields are read."""

    def module_dim(self, module: str, name: str) -> DimInfo | None:
        """A dim of an imported file."""

    def unsound(self, size: Size) -> str | None:
        """Why a size can't be for the dims' values; None where it can, or where they aren't all known."""

    def known_capitals(self) -> Sequence[str]:
        """Names of dims, models and data, for suggestions."""

    def known_axes(self) -> Sequence[str]:
        """Names that may stand in brackets, for suggestions."""

    def similar(self, name: str, candidates: Sequence[str]) -> str | None:
        """The candidate that was probably meant."""

    def is_lost(self, name: str) -> bool:
        """Whether the declaration of this name couldn't be read; nothing is said about it."""

    def lose(self, name: str) -> None:
        """Says nothing more about a name that nothing declares."""

    def report(
        self,
        code: str,
        message: str,
        node: tree.Node | Span,
        words: str = "",
        secondary: Sequence[Label] = (),
        notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:
        """Reports an error."""


# --- sizes -----------------------------------------------------------------------------------------------------------


def axis_of(scope: Scope, size: tree.Expr) -> Axis | None:
    """The axis that a size in brackets means; None after an error is reported."""
    match size:
        case tree.Name():
            return _named_axis(scope, size)
        case tree.Number():
            return _number_axis(scope, size)
        case tree.Group():
            return axis_of(scope, size.inner)
        case tree.Merged():
            parts = [axis_of(scope, part) for part in size.sizes]
            known = [part for part in parts if part is not None]
            return Axis.merged(known) if len(known) == len(parts) else None
        case tree.Binary() if size.op in ("+", "-", "*", "/"):
            return _computed_axis(scope, size)
        case tree.AnyAxes():
            if scope.any_axes():
                return ANY_AXES
            scope.report("E0213", "`..` can't stand here", size, helps=("write the axes out",))
            return None
        case tree.Attribute(of=tree.Name(name=module)):
            info = scope.module_dim(module, size.name)
            if info is not None:
                return info.axis
            if scope.is_lost(module):
                return None
            scope.report("E0201", f"there is no dim `{module}.{size.name}`", size)
            return None
        case tree.Axes(sizes=[single]):
            return axis_of(scope, single)
    if isinstance(size, tree.Tuple):
        written = " ".join(item.name if isinstance(item, tree.Name) else "..." for item in size.items)
        scope.report("E0214", "this isn't a size", size, helps=(f"several axes are written `[{written}]`",))
        return None
    scope.report(
        "E0214",
        "this isn't a size",
        size,
        notes=(
            "a size is made of whole numbers, dims and axis variables with `+ - * /`, or `(a b)` for a merged axis",
        ),
    )
    return None


def _named_axis(scope: Scope, size: tree.Name) -> Axis | None:
    name = size.name
    found = scope.axis_named(name)
    if found is not None:
        return found
    if scope.is_lost(name):
        return None
    if not name[:1].isupper():
        new = scope.new_axis(name)
        if new is not None:
            return new
    capital = name[:1].isupper()
    candidates = [other for other in scope.known_axes() if other[:1].isupper() == capital]
    similar = scope.similar(name, candidates) if len(name) > 1 else None  # any two letters are alike
    helps = [f"did you mean `{similar}`?"] if similar else []
    if name[:1].isupper():
        if not helps:
            scope.lose(name)
        helps = helps or [f"declare it, `dim {name} = 64`; a name that stands for any axis is small, `{name.lower()}`"]
        scope.report("E0201", f"there is no dim `{name}`", size, helps=helps)
    else:
        notes = ("an axis variable stands in the type of a parameter first, from which a call binds it",)
        scope.report("E0201", f"there is no axis `{name}` here", size, notes=notes, helps=helps)
    return None


def _number_axis(scope: Scope, size: tree.Number) -> Axis | None:
    if isinstance(size.value, int) and size.value >= 0:
        return Axis.of(size.value)
    scope.report("E0214", "a size is a whole number", size)
    return None


def _computed_axis(scope: Scope, size: tree.Binary) -> Axis | None:
    left, right = axis_of(scope, size.left), axis_of(scope, size.right)
    if left is None or right is None:
        return None
    for side, tree_side in ((left, size.left), (right, size.right)):
        if side is ANY_AXES:
            scope.report("E0214", "`..` isn't a size that can be computed with", tree_side)
            return None
    try:
        value = compute(size.op, left.size, right.size)
        problem = scope.unsound(value)
    except SizeError as error:
        problem = str(error)
    if problem is not None:
        scope.report("E0371", problem, size, helps=("sizes divide exactly, or the program doesn't check",))
        return None
    return Axis(None, value, (), left.batch or right.batch)


def compute(op: str, left: Size, right: Size) -> Size:
    """`left op right`.

    Raises:
        SizeError: a division that isn't exact.
    """
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    quotient = left / right
    if quotient.constant is None and not quotient.atoms:
        raise SizeError(f"`{left} / {right}` isn't a whole number")
    return quotient


# --- types -----------------------------------------------------------------------------------------------------------


def type_of_tree(scope: Scope, node: tree.TypeExpr) -> Type:
    """The type that is written; `WRONG` after an error is reported."""
    match node:
        case tree.TupleType():
            return TupleOf(tuple(type_of_tree(scope, item) for item in node.items))
        case tree.TensorType():
            return _bracketed(scope, node)
        case tree.NamedType():
            return _named(scope, node)
    return WRONG


def _bracketed(scope: Scope, node: tree.TensorType) -> Type:
    element_node = node.element
    if element_node is not None and element_node.name not in (*ELEMENT_NAMES, "Index", "NonNeg", "Prob"):
        held = _container(scope, node, element_node)
        if held is not None:
            return held
    axes = [axis_of(scope, size) for size in node.axes.sizes]
    element = F32 if element_node is None else element_of(scope, element_node)
    known = [axis for axis in axes if axis is not None]
    if len(known) < len(axes) or element is None:
        return WRONG
    if sum(axis is ANY_AXES for axis in known) > 1:
        scope.report("E0213", "`..` stands once in a type", node.axes, helps=("name the other axes",))
        return WRONG
    return Tensor(tuple(known), element)


def _container(scope: Scope, node: tree.TensorType, name: tree.NamedType) -> Type | None:
    """`[b] Example` or `[L] Block`; None where the word is neither."""
    data = scope.data_named(name.module, name.name)
    model = named_model(scope, name)
    if data is None and model is None:
        return None
    if len(node.axes.sizes) != 1:
        what = "a batch of examples has one axis" if data is not None else "a list of models has one axis"
        scope.report(
            "E0216", what, node.axes, helps=(f"write `[b] {name.name}`" if data else f"write `[L] {name.name}`",)
        )
        return WRONG
    axis = axis_of(scope, node.axes.sizes[0])
    if data is not None:
        return WRONG if axis is None else Batch(data, Axis(axis.name, axis.size, axis.parts, batch=True))
    of = model_type(scope, name)
    return ModelList(axis, of) if axis is not None and isinstance(of, ModelOf) else WRONG


def element_of(scope: Scope, node: tree.NamedType) -> Element | None:
    """The element that a word after the brackets means; None after an error is reported."""
    if node.name == "Index" and node.module is None:
        sizes = [argument for argument in node.arguments or [] if isinstance(argument, tree.Expr)]
        if len(sizes) != 1:
            scope.report("E0216", "`Index` takes one size", node, helps=("write `Index[N]`: whole numbers in 0..N",))
            return None
        axis = axis_of(scope, sizes[0])
        return Element.index(axis.size) if axis is not None else None
    element = element_named(node.name) if node.module is None and not node.arguments else None
    if element is None and not scope.is_lost(node.name):
        names = [*ELEMENT_NAMES, "NonNeg", "Prob", "Index", *scope.known_capitals()]
        similar = None if node.name in TYPES else scope.similar(node.name, names)
        helps = (f"did you mean `{similar}`?",) if similar else ("elements are " + ", ".join(names[:13]),)
        helps = (TYPES[node.name],) if node.name in TYPES else helps
        scope.report("E0205", f"there is no element `{node.name}`", node, helps=helps)
    return element


def named_model(scope: Scope, node: tree.NamedType) -> tree.Model | None:
    """The model that a type's word means; in a `BatchNorm` of one's own, which can't contain itself, the built-in."""
    model = scope.model_named(node.module, node.name)
    own = model is None or model is scope.declaring
    return BATCH_NORM.node if own and node.module is None and node.name == "BatchNorm" else model


def model_type(scope: Scope, node: tree.NamedType) -> Type:
    """`Linear[D 3*D]`, with as many sizes as the model takes."""
    model = named_model(scope, node)
    if model is None:
        return _unknown(scope, node)
    sizes = [argument for argument in node.arguments or [] if isinstance(argument, tree.Expr)]
    return model_with(scope, model, sizes, node)


def model_with(scope: Scope, model: tree.Model, sizes: Sequence[tree.Expr], node: tree.Node) -> Type:
    """A model with sizes for its dims."""
    wanted = scope.model_dims(model)
    if len(sizes) != wanted:
        dims = " ".join(dim.name for dim in model.dims)
        write = (
            f"write `{model.name}[{dims}]` with a size for each" if dims else f"write `{model.name}` without brackets"
        )
        scope.report(
            "E0702",
            f"`{model.name}` takes {_count(wanted)}, and {GIVEN.get(len(sizes), f'{len(sizes)} are')} given",
            node,
            helps=(write,),
        )
        return WRONG
    axes = [axis_of(scope, size) for size in sizes]
    known = [axis for axis in axes if axis is not None]
    return ModelOf(model, tuple(known)) if len(known) == len(axes) else WRONG


GIVEN = {0: "none is", 1: "one is"}


def _count(number: int) -> str:
    return "no sizes" if number == 0 else "one size" if number == 1 else f"{number} sizes"


def _named(scope: Scope, node: tree.NamedType) -> Type:
    name = node.name
    if scope.model_named(node.module, name) is not None:
        return model_type(scope, node)
    data = scope.data_named(node.module, name)
    if data is not None:
        scope.report(
            "E0802",
            f"`{name}` alone isn't a type of a value",
            node,
            helps=(f"write `[b] {name}` for a batch, or `Dataset[{name}]` for a dataset",),
        )
        return WRONG
    if node.module is None:
        if name in HOSTS:
            return Host(name)
        if name in OPTIMIZERS or name == "Grads":
            return _about_model(scope, node)
        if name == "Dataset":
            return _dataset(scope, node)
        if name == "BatchNorm":
            return model_type(scope, node)
        if name == "python":
            return PYTHON
        if name in (*ELEMENT_NAMES, "Index", "NonNeg", "Prob"):
            element = element_of(scope, node)
            written = str(element) if element is not None else name
            scope.report(
                "E0216",
                f"`{written}` is an element; a type has axes too",
                node,
                helps=(f"write `[] {written}` for a scalar, or `[n] {written}` with its axes",),
            )
            return WRONG
    return _unknown(scope, node)


def _unknown(scope: Scope, node: tree.NamedType) -> Wrong:
    if not scope.is_lost(node.name):
        names = [*scope.known_capitals(), *HOSTS, *OPTIMIZERS, "Grads", "Dataset", "BatchNorm"]
        similar = None if node.name in TYPES else scope.similar(node.name, names)
        helps = (f"did you mean `{similar}`?",) if similar else ()
        helps = (TYPES[node.name],) if node.name in TYPES else helps
        shown = f"{node.module}.{node.name}" if node.module else node.name
        scope.report("E0205", f"there is no type `{shown}`", node, helps=helps)
    return WRONG


def _about_model(scope: Scope, node: tree.NamedType) -> Type:
    inner = _argument_type(node)
    if inner is None:
        scope.report(
            "E0216",
            f"`{node.name}` says of which model it is",
            node,
            helps=(f"write `{node.name}[Net]` with the model's name",),
        )
        return WRONG
    model = type_of_tree(scope, inner) if isinstance(inner, tree.TensorType) else model_type(scope, inner)
    if not isinstance(model, (ModelOf, ModelList)):
        if not isinstance(model, Wrong):
            scope.report("E0216", f"`{node.name}` is of a model, and {model} isn't one", inner)
        return WRONG
    return Gradients(model) if node.name == "Grads" else Optimizer(node.name, model)


def _dataset(scope: Scope, node: tree.NamedType) -> Type:
    inner = _argument_type(node)
    if isinstance(inner, tree.TensorType):
        inner = None
    data = scope.data_named(inner.module, inner.name) if inner is not None else None
    if data is not None:
        return Dataset(data)
    if inner is not None and scope.model_named(inner.module, inner.name) is None:
        return _unknown(scope, inner)
    scope.report("E0801", "a dataset is made of a data", node, helps=("write `Dataset[Example]` with the data's name",))
    return WRONG


def _argument_type(node: tree.NamedType) -> tree.NamedType | tree.TensorType | None:
    """The one type in the brackets; a plain name may have been read as a size."""
    if node.arguments is None or len(node.arguments) != 1:
        return None
    argument = node.arguments[0]
    if isinstance(argument, (tree.NamedType, tree.TensorType)):
        return argument
    if isinstance(argument, tree.Name):
        return tree.NamedType(argument.start, argument.end, None, argument.name, None)
    if isinstance(argument, tree.Attribute) and isinstance(argument.of, tree.Name):
        return tree.NamedType(argument.start, argument.end, argument.of.name, argument.name, None)
    if isinstance(argument, tree.Index) and isinstance(argument.of, tree.Name):
        sizes: list[tree.Expr | tree.TypeExpr] = [item.value for item in argument.items]
        return tree.NamedType(argument.start, argument.end, None, argument.of.name, sizes)
    if isinstance(argument, tree.WithAxes) and isinstance(argument.of, tree.Name):
        return tree.NamedType(argument.start, argument.end, None, argument.of.name, list(argument.sizes))
    return None
