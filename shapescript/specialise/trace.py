"""The domain in which tensors are nodes of a graph: what a device function becomes.

Gives `TraceDomain`. Functions are put in line and loops unrolled by the evaluator; nothing can be looked at. A random
draw's place is its number in the graph, so that each call and each round draws its own numbers. A name that a pattern
introduces gets an axis of a name that no other has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from shapescript.ir.builder import Builder, Operand
from shapescript.ir.graph import Graph, Node
from shapescript.source import Span
from shapescript.specialise.builtins import SHARED
from shapescript.specialise.domain import Builtin, problem
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.expressions import evaluate, extern_arguments
from shapescript.specialise.frame import TENSORS, Frame
from shapescript.specialise.values import BatchValue, TensorValue, Value, is_tensor
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.kinds import Tensor, Type
from shapescript.types.size import Size, SizeError
from shapescript.types.uses import BuiltinUse, ExternUse

PRODUCTS = ("contract", "conv", "conv_transpose", "attention")
DRAWS = ("random_uniform", "random_normal", "random_integers")


class RoundingBuilder(Builder):
    """A builder that rounds the operands of products while `rounding` names an element."""

    rounding: Element | None = None

    def emit(self, op_name: str, *operands: Operand, span: Span | None = None, **attributes: object) -> Node:
        """A new node; the operands of a product first become `rounding`, and f32 again to be added up."""
        if op_name in PRODUCTS and self.rounding is not None:
            operands = tuple(self._rounded(each) if isinstance(each, Node) else each for each in operands)
        return super().emit(op_name, *operands, span=span, **attributes)

    def _rounded(self, x: Node) -> Node:
        assert self.rounding is not None
        if x.element.name != "f32":
            return x
        return super().emit("cast", super().emit("cast", x, element=self.rounding), element=x.element)


class TraceDomain:
    """Makes one graph."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.graph = Graph(sizes=dict(sizes))
        self.builder = RoundingBuilder(self.graph)
        self.builtins: Mapping[str, Builtin] = TRACED
        self.shown: list[tuple[str, Node]] = []
        self._names: dict[str, int] = {}
        self._draws = 0

    def emit(
        self, op: str, operands: Sequence[TensorValue], attributes: Mapping[str, object], span: Span | None
    ) -> Node:
        """A node; a draw gets its key and its place."""
        nodes = [each for each in operands if isinstance(each, Node)]
        assert len(nodes) == len(operands), f"an operand of `{op}` isn't a node"
        if op == "random_key":
            return self.builder.random_key()
        if op == "extern":  # two calls are two, even with the same arguments
            self._draws += 1
            attributes = {**attributes, "place": self._draws}
        if op in DRAWS:
            self._draws += 1
            attributes = {**attributes, "place": self._draws}
            nodes = nodes or [self.builder.random_key()]
        return self.builder.emit(op, *nodes, span=span, **attributes)

    def constant(self, value: int | float | bool, element: Element) -> Node:
        """A scalar."""
        return self.builder.constant(value, element)

    def local_axis(self, axis: Axis) -> Axis:
        """An axis with a name of its own; of unknown size, it stays an atom."""
        name = axis.name or "axis"
        number = self._names.get(name, 0) + 1
        self._names[name] = number
        fresh = name if number == 1 and name not in self.graph.sizes else f"{name}.{number}"
        size = Size.atom(fresh) if axis.size == Size.atom(name) else axis.size
        return Axis(fresh, size, (), axis.batch)

    def reserve(self, names: Sequence[str]) -> None:
        """Names that no axis of a pattern may get."""
        for name in names:
            self._names[name] = 1

    def learn(self, sizes: Mapping[str, int]) -> None:
        """Nothing: the sizes of a graph are known before it is made."""

    def size_of(self, axis: Axis) -> int | None:
        """How long an axis is; None for one with a batch's count in it."""
        try:
            return axis.size.evaluate(self.graph.sizes)
        except SizeError:
            return None

    def number(self, value: TensorValue, span: Span) -> int | float | bool:
        """A constant's value; any other tensor isn't known."""
        if isinstance(value, Node) and value.name == "constant":
            known = value.attributes["value"]
            assert isinstance(known, (int, float, bool))
            return known
        raise problem(
            "E2112",
            "this depends on a value that isn't known while the function is compiled",
            span,
            ("a `float` argument stays open, so that another value compiles nothing anew; a tensor is open too",),
            ("choose place by place with `where(c, a, b)`, or hand in a `bool`, which is known",),
        )

    def blamed(self, span: Span) -> AbstractContextManager[None]:
        """New nodes without a span get this one."""
        return self.builder.at(span)

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Marks the nodes that are made within it."""
        first = len(self.graph.nodes)
        yield
        self.graph.repeated.append(range(first, len(self.graph.nodes)))

    @contextmanager
    def rounded_products(self, element: str) -> Iterator[None]:
        """Within it, the operands of products are rounded."""
        before, self.builder.rounding = self.builder.rounding, Element(element)
        try:
            yield
        finally:
            self.builder.rounding = before

    def from_python(self, frame: Frame, value: Value, of: Type, span: Span) -> Value:
        """Nothing comes from Python while a function is compiled."""
        raise problem("E2116", f"a value of Python's can't become {of} while a function is compiled", span)

    def runs_whole(self, function: tree.Function) -> bool:
        """None is."""
        return False

    def add_part(self, function: tree.Function) -> None:
        """Nothing: every call is put in line."""

    def enter(
        self, function: tree.Function, arguments: list[Value], frame: Frame, training: bool
    ) -> tuple[bool, Value]:
        """Every call is put in line."""
        return False, None


def _show(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """`show("h", x)`: the value becomes an output that the controller prints."""
    name = evaluate(ev, frame, use.arguments["name"])
    value = evaluate(ev, frame, use.arguments["x"])
    domain = ev.domain
    assert isinstance(domain, TraceDomain)
    if is_tensor(value):
        assert isinstance(value, Node)
        domain.shown.append((str(name), value))
    return None


def _extern(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """A call of an `extern fn`: an operation, which calls Python when the graph runs."""
    own = ev.program.uses[expr]
    assert isinstance(own, ExternUse)
    if not isinstance(own.result, Tensor):
        message = f"an `extern fn` in a device function gives one tensor, and this gives {own.result}"
        raise problem("E2116", message, frame.span(expr))
    operands = [value for value in extern_arguments(ev, frame, own) if isinstance(value, TENSORS)]
    if len(operands) != len(own.arguments):
        raise problem("E2116", "an `extern fn` in a device function takes tensors", frame.span(expr))
    attributes = {
        "target": own.function.target.value,
        "axes": frame.axes_of(own.result.axes),
        "element": frame.element(own.result.element),
    }
    return ev.domain.emit("extern", operands, attributes, frame.span(expr))


def _whole(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """`whole(x)`: an operation, which a layout over several devices gathers for; of a batch, one for each field."""
    span = frame.span(expr)

    def gathered(value: Value) -> Value:
        if isinstance(value, Node):
            return ev.domain.emit("whole", [value], {}, span)
        return value

    value = evaluate(ev, frame, use.arguments["x"])
    if isinstance(value, BatchValue):
        return BatchValue(value.data, value.axis, {name: gathered(part) for name, part in value.fields.items()})
    return gathered(value)


TRACED: dict[str, Builtin] = {**SHARED, "show": _show, "extern": _extern, "whole": _whole}
