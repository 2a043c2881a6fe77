"""The tree of a program: what the parser makes and every later stage reads.

Each node has `start` and `end`, offsets into the text of its file. Nodes are compared by identity, so that later
stages keep what they find out about a node in tables of their own; nothing is ever written into the tree.
Sizes in brackets are expressions too: `Name`, `Number`, `Binary`, `Group`, `Merged` and `AnyAxes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(slots=True, eq=False)
class Node:
    """Anything of the tree."""

    start: int
    end: int

    def children(self) -> Iterator[Node]:
        """The nodes directly below, in the order of the text's grammar."""
        for name in _may_hold_nodes(type(self)):
            value = getattr(self, name)
            if isinstance(value, Node):
                yield value
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, Node):
                        yield item

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(list(node.children())))

    def show(self) -> str:
        """The tree in one line, `(Kind field ...)`, for tests and for reading."""
        shown = (_show(getattr(self, f.name)) for f in fields(self) if f.name not in ("start", "end"))
        return "(" + " ".join([type(self).__name__, *(s for s in shown if s)]) + ")"


PLAIN = frozenset(("int", "str", "bool", "int | float", "str | None", "int | None"))


_HOLDERS: dict[str, tuple[str, ...]] = {}


def _may_hold_nodes(kind: type[Node]) -> tuple[str, ...]:
    """The fields of a kind of node that hold nodes, alone or in a list; found once, as every walk asks for them."""
    known = _HOLDERS.get(kind.__name__)
    if known is None:
        known = _HOLDERS[kind.__name__] = tuple(f.name for f in fields(kind) if f.type not in PLAIN)
    return known


def _show(value: object) -> str:
    if isinstance(value, Node):
        return value.show()
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(map(_show, value)) + "]"
    return "" if value is None or value is False else str(value)


# --- expressions -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Expr(Node):
    """An expression, or a size in brackets."""


@dataclass(slots=True, eq=False)
class Name(Expr):
    """`x`; also `inf`, `nan`, `pi`, which are ordinary names that mean something unless hidden."""

    name: str


@dataclass(slots=True, eq=False)
class Number(Expr):
    """`64`, `1_000`, `0.02`, `3e-4`; `value` is an int when the text has no point and no exponent."""

    value: int | float


@dataclass(slots=True, eq=False)
class String(Expr):
    """`"text"`, with its escapes already read."""

    value: str


@dataclass(slots=True, eq=False)
class Bool(Expr):
    """`true` or `false`."""

    value: bool


@dataclass(slots=True, eq=False)
class Group(Expr):
    """`(x)`: one thing in round brackets."""

    inner: Expr


@dataclass(slots=True, eq=False)
class Tuple(Expr):
    """`(a, b)`, `a, b` or `(a,)`."""

    items: list[Expr]


@dataclass(slots=True, eq=False)
class Axes(Expr):
    """`[b n D]` where a value could stand: after `over=`, as an argument, after a maker. `sizes` may be empty."""

    sizes: list[Expr]


@dataclass(slots=True, eq=False)
class Merged(Expr):
    """`(H Dh)` in an axis list: one axis made of several."""

    sizes: list[Expr]


@dataclass(slots=True, eq=False)
class AnyAxes(Expr):
    """`..` in an axis list: any axes."""


@dataclass(slots=True, eq=False)
class Attribute(Expr):
    """`of.name`; `name_start` is where the name begins."""

    of: Expr
    name: str
    name_start: int


@dataclass(slots=True, eq=False)
class Argument(Node):
    """One argument of a call: `e`, `name=e`, `mut x` or `name=mut x`."""

    name: str | None
    mut: bool
    value: Expr


@dataclass(slots=True, eq=False)
class Pattern(Node):
    """`b n (H Dh) -> b H n Dh, h=4`: the axes of each operand, those of the result, and sizes given by name."""

    operands: list[Axes]
    result: Axes
    sizes: list[Argument]


@dataclass(slots=True, eq=False)
class Call(Expr):
    """`function(arguments)`, with `pattern` where one stands in the brackets.

    `x |> f(a)` is a `Pipe`, not a call.
    """

    function: Expr
    arguments: list[Argument]
    pattern: Pattern | None


@dataclass(slots=True, eq=False)
class Slice(Expr):
    """`a..b`, `a..`, `..b` or `..` in an index; `a..b` elsewhere is a `Range`."""

    first: Expr | None
    last: Expr | None


@dataclass(slots=True, eq=False)
class IndexItem(Node):
    """`axis=value` or `value` in an index; `axis` is the size expression that names the axis (`n`, `N+1`, `1`)."""

    axis: Expr | None
    value: Expr


@dataclass(slots=True, eq=False)
class Index(Expr):
    """`of[items]`. `zeros[n]`, one axis after a maker, is an `Index` too: names decide."""

    of: Expr
    items: list[IndexItem]


@dataclass(slots=True, eq=False)
class WithAxes(Expr):
    """`of[b n D]`: two axes or more after a maker or a model."""

    of: Expr
    sizes: list[Expr]


@dataclass(slots=True, eq=False)
class Binary(Expr):
    """`left op right` for `or and == != < <= > >= + - * / // % @ **`."""

    op: str
    left: Expr
    right: Expr


@dataclass(slots=True, eq=False)
class Unary(Expr):
    """`op operand` for `- ! not`."""

    op: str
    operand: Expr


@dataclass(slots=True, eq=False)
class Range(Expr):
    """`first..last`, outside an index."""

    first: Expr
    last: Expr


@dataclass(slots=True, eq=False)
class Pipe(Expr):
    """`value |> target`: `target` is a function, or a call that takes the value first."""

    value: Expr
    target: Expr


@dataclass(slots=True, eq=False)
class As(Expr):
    """`value as type`."""

    value: Expr
    type: TypeExpr


# --- types -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class TypeExpr(Node):
    """A type as written."""


@dataclass(slots=True, eq=False)
class NamedType(TypeExpr):
    """`int`, `Example`, `Index[V]`, `Linear[D 3*D]`, `AdamW[nets.Mlp]`; an argument is a size or a type."""

    module: str | None
    name: str
    arguments: list[Expr | TypeExpr] | None


@dataclass(slots=True, eq=False)
class TensorType(TypeExpr):
    """`[b n D] element`; `element` also names a data or a model: `[b] Example`, `[L] Block`."""

    axes: Axes
    element: NamedType | None


@dataclass(slots=True, eq=False)
class TupleType(TypeExpr):
    """`([b C], [])`."""

    items: list[TypeExpr]


# --- statements ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Statement(Node):
    """A statement."""


@dataclass(slots=True, eq=False)
class Assign(Statement):
    """`target = value`; a target is a `Name`, an `Attribute` or a `Tuple` of targets."""

    target: Expr
    value: Expr


@dataclass(slots=True, eq=False)
class Do(Statement):
    """A call by itself."""

    value: Expr


@dataclass(slots=True, eq=False)
class Return(Statement):
    """`return` or `return value`."""

    value: Expr | None


@dataclass(slots=True, eq=False)
class For(Statement):
    """`for names in over:`."""

    names: list[Name]
    over: Expr
    body: list[Statement]


@dataclass(slots=True, eq=False)
class While(Statement):
    """`while test:`."""

    test: Expr
    body: list[Statement]


@dataclass(slots=True, eq=False)
class If(Statement):
    """`if test:` with an `otherwise` that holds one `If` for `elif`."""

    test: Expr
    body: list[Statement]
    otherwise: list[Statement]


@dataclass(slots=True, eq=False)
class Break(Statement):
    """`break`."""


@dataclass(slots=True, eq=False)
class Continue(Statement):
    """`continue`."""


@dataclass(slots=True, eq=False)
class Pass(Statement):
    """`pass`."""


@dataclass(slots=True, eq=False)
class Assert(Statement):
    """`assert test, message`."""

    test: Expr
    message: Expr | None


@dataclass(slots=True, eq=False)
class Lost(Statement):
    """Lines that couldn't be parsed; the error is already reported. `body` is what was understood under them.

    `names` are those that the lines seem to bind: uses of them aren't unknown.
    """

    body: list[Statement]
    names: list[str]


# --- declarations ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Declaration(Node):
    """What stands at the left margin. `name` and `name_start` are of the thing declared."""


@dataclass(slots=True, eq=False)
class DeviceNumber(Node):
    """`2`, or `0..8`, which stops before 8; `last` is None for a single number."""

    first: int
    last: int | None


@dataclass(slots=True, eq=False)
class DeviceSpec(Node):
    """`cpu`, `cuda[0 1 2]`, `cuda[0..8]`; `numbers` is empty without brackets."""

    kind: str
    numbers: list[DeviceNumber]


@dataclass(slots=True, eq=False)
class DeviceOption(Node):
    """`shard params`, `split H` or `split H by 2`; `by` is None where nothing says it."""

    word: str
    name: str
    name_start: int
    by: int | None


@dataclass(slots=True, eq=False)
class Devices(Declaration):
    """`devices SPEC` with its options."""

    spec: DeviceSpec
    options: list[DeviceOption]


@dataclass(slots=True, eq=False)
class Dim(Declaration):
    """`dim NAME = value`; no value: it is given from outside."""

    name: str
    name_start: int
    value: Expr | None


@dataclass(slots=True, eq=False)
class Constant(Declaration):
    """`rate = 0.1` at the left margin."""

    name: str
    name_start: int
    value: Expr


@dataclass(slots=True, eq=False)
class Field(Node):
    """A field of a model or a data. `word` is `param`, `state` or None; `value` is its initialiser."""

    word: str | None
    name: str
    name_start: int
    type: TypeExpr
    value: Expr | None


@dataclass(slots=True, eq=False)
class Model(Declaration):
    """`model NAME[dims]:`."""

    name: str
    name_start: int
    dims: list[Name]
    members: list[Field]


@dataclass(slots=True, eq=False)
class Data(Declaration):
    """`data NAME:`."""

    name: str
    name_start: int
    members: list[Field]


@dataclass(slots=True, eq=False)
class Parameter(Node):
    """`name: type`, `mut name: type`, either with `= default`."""

    mut: bool
    name: str
    name_start: int
    type: TypeExpr
    default: Expr | None


@dataclass(slots=True, eq=False)
class Function(Declaration):
    """`fn name(parameters) -> result:`."""

    name: str
    name_start: int
    parameters: list[Parameter]
    result: TypeExpr | None
    body: list[Statement]


@dataclass(slots=True, eq=False)
class Extern(Declaration):
    """`extern fn name(parameters) -> result = "module.attr"`."""

    name: str
    name_start: int
    parameters: list[Parameter]
    result: TypeExpr | None
    target: String


@dataclass(slots=True, eq=False)
class Import(Declaration):
    """`import python module as name` or `import module as name`; `name` is the local name, dots kept if no `as`."""

    python: bool
    module: str
    name: str
    name_start: int


@dataclass(slots=True, eq=False)
class LostDeclaration(Declaration):
    """A declaration whose head couldn't be parsed; the error is already reported.

    `name` is the name it seems to declare, if one stands there: uses of it aren't unknown.
    """

    name: str | None
    body: list[Statement]
