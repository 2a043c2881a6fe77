"""Makes graphs: each node is checked by its op's rule as it is made.

Takes a `Graph` and names of ops; gives `Builder`, with `emit` for any op and a method for each primitive. A Python
number among the operands becomes a constant of the element of the tensors beside it. A composite op is expanded at
once, so a graph holds primitives only. `span` is the place in the program that new nodes are blamed on.

Errors of a rule go to the caller as `RuleError`: the checker has already passed the program, so one here is a mistake
of the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shapescript.ir.graph import Graph, Node
from shapescript.ops.registry import REGISTRY, RuleError, position_of
from shapescript.source import Span
from shapescript.types.axes import Axis, same_axes
from shapescript.types.element import F32, I64, Element
from shapescript.types.size import Size

Operand = Node | int | float | bool
Over = Axis | Sequence[Axis]


def constant_element(value: int | float | bool, element: Element) -> Element:
    """The element of a number beside tensors of `element`: what is known of its sign is kept."""
    if not element.is_float:
        return element.base
    return element.refined("Prob" if 0 <= value <= 1 else "NonNeg" if value >= 0 else None)


def several(over: Over) -> tuple[Axis, ...]:
    """One axis or several as a tuple."""
    return (over,) if isinstance(over, Axis) else tuple(over)


class Builder:
    """Puts nodes into a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.span: Span | None = None
        self._key: Node | None = None

    @contextmanager
    def at(self, span: Span | None) -> Iterator[None]:
        """New nodes are blamed on `span`, where one is given."""
        before = self.span
        self.span = span if span is not None else before
        try:
            yield
        finally:
            self.span = before

    def emit(self, op_name: str, *operands: Operand, span: Span | None = None, **attributes: object) -> Node:
        """A new node, or the nodes that a composite op stands for.

        Raises:
            RuleError: the operands aren't what the op takes.
        """
        op = REGISTRY.get(op_name)
        if op is None:
            raise RuleError("E0201", f"there is no operation `{op_name}`")
        with self.at(span):
            nodes = self._as_nodes(operands)
            result = op.rule([node.type for node in nodes], attributes)
            if op.expand is not None:
                return op.expand(self, nodes, attributes)
            return self.graph.append(Node(op, tuple(nodes), attributes, result.axes, result.element, self.span))

    def _as_nodes(self, operands: Sequence[Operand]) -> list[Node]:
        if all(isinstance(operand, Node) for operand in operands):
            return [operand for operand in operands if isinstance(operand, Node)]
        beside = [o.element for o in operands if isinstance(o, Node)]
        element = next((e for e in beside if not e.is_bool), beside[0] if beside else F32)
        return [o if isinstance(o, Node) else self.constant(o, constant_element(o, element)) for o in operands]

    # --- made from nothing -----------------------------------------------------------------------------------------

    def constant(self, value: int | float | bool, element: Element = F32) -> Node:
        """A scalar."""
        return self.emit("constant", value=float(value) if element.is_float else value, element=element)

    def full(self, value: int | float | bool, axes: Sequence[Axis], element: Element = F32) -> Node:
        """One number at every place."""
        scalar = self.constant(value, element)
        return self.broadcast(scalar, axes) if axes else scalar

    def full_like(self, x: Node, value: int | float | bool) -> Node:
        """One number at every place of x."""
        return self.full(value, x.axes, constant_element(value, x.element))

    def iota(self, over: Axis, element: Element = I64) -> Node:
        """0, 1, 2 … along an axis."""
        return self.emit("iota", over=over, element=element)

    def size(self, over: Axis, element: Element = F32) -> Node:
        """How long an axis is; of a batch's, its true count."""
        return self.emit("size", over=over, element=element)

    def random_key(self) -> Node:
        """The number of the controller's call, one node for the whole graph."""
        if self._key is None:
            self._key = next((node for node in self.graph.nodes if node.name == "random_key"), None)
        if self._key is None:
            self._key = self.emit("random_key")
        return self._key

    def random_uniform(self, axes: Sequence[Axis], place: int, element: Element = F32) -> Node:
        """Numbers from 0 up to 1, drawn at `place` of the program."""
        return self.emit("random_uniform", self.random_key(), axes=tuple(axes), place=place, element=element)

    def random_normal(self, axes: Sequence[Axis], place: int, element: Element = F32) -> Node:
        """Standard normal numbers, drawn at `place` of the program."""
        return self.emit("random_normal", self.random_key(), axes=tuple(axes), place=place, element=element)

    def random_integers(self, axes: Sequence[Axis], place: int, bound: Size) -> Node:
        """Whole numbers from 0 up to `bound`, drawn at `place` of the program."""
        return self.emit("random_integers", self.random_key(), axes=tuple(axes), place=place, bound=bound)

    # --- shapes ----------------------------------------------------------------------------------------------------

    def broadcast(self, x: Node, axes: Sequence[Axis]) -> Node:
        """x repeated along the axes that it lacks."""
        return x if x.axes == tuple(axes) else self.emit("broadcast", x, axes=tuple(axes))

    def relabel(self, x: Node, axes: Sequence[Axis]) -> Node:
        """x under other axes of the same sizes."""
        return x if x.axes == tuple(axes) else self.emit("relabel", x, axes=tuple(axes))

    def rearrange(self, x: Node, axes: Sequence[Axis]) -> Node:
        """x with the leaf parts of its axes in another order and grouping."""
        return x if x.axes == tuple(axes) else self.emit("rearrange", x, axes=tuple(axes))

    def slice(self, x: Node, over: Axis, start: Size, stop: Size, result: Axis) -> Node:
        """The places from `start` up to `stop` of an axis."""
        return self.emit("slice", x, over=over, start=start, stop=stop, result=result)

    def pad(self, x: Node, over: Axis, before: Size, after: Size, value: int | float | bool, result: Axis) -> Node:
        """x with `value` before and after it along an axis."""
        return self.emit("pad", x, over=over, before=before, after=after, value=value, result=result)

    def concat(self, operands: Sequence[Node], over: Axis, position: int) -> Node:
        """Tensors end to end along their axis number `position`, which becomes `over`."""
        return self.emit("concat", *operands, over=over, position=position)

    def flip(self, x: Node, over: Axis) -> Node:
        """x backwards along an axis."""
        return self.emit("flip", x, over=over)

    def roll(self, x: Node, over: Axis, shift: Size) -> Node:
        """x moved along an axis, what leaves at one end coming back at the other."""
        return self.emit("roll", x, over=over, shift=shift)

    def gather(self, x: Node, index: Node, over: Axis) -> Node:
        """x looked up along an axis."""
        return self.emit("gather", x, index, over=over)

    def scatter_add(self, x: Node, index: Node, over: Axis, axes: Sequence[Axis]) -> Node:
        """x added into the places of an axis."""
        return self.emit("scatter_add", x, index, over=over, axes=tuple(axes))

    def contract(self, a: Node, b: Node, axes: Sequence[Axis]) -> Node:
        """The product of two tensors, summed over what the result lacks."""
        return self.emit("contract", a, b, axes=tuple(axes))

    def sum_to(self, x: Node, axes: Sequence[Axis]) -> Node:
        """The transpose of broadcasting: x summed or repeated until it has exactly these axes."""
        axes = tuple(axes)
        if x.axes == axes:
            return x
        if not same_axes(x.axes, axes):
            left = list(axes)
            extra = []
            for axis in x.axes:
                at = position_of(left, axis)
                if at is None:
                    extra.append(axis)
                else:
                    del left[at]
            if extra:
                x = self.sum(x, over=extra)
            if not same_axes(x.axes, axes):
                x = self.broadcast(x, axes)
        return self.relabel(x, axes)

    # --- elements --------------------------------------------------------------------------------------------------

    def cast(self, x: Node, element: Element) -> Node:
        """x as another element."""
        return x if x.element == element else self.emit("cast", x, element=element)

    def refine(self, x: Node, element: Element) -> Node:
        """x, of which more is known, or less."""
        return x if x.element == element else self.emit("refine", x, element=element)

    def where(self, condition: Node, x: Operand, y: Operand) -> Node:
        """x where the condition holds, else y."""
        return self.emit("where", condition, x, y)

    # --- of two operands ----------------------------------------------------------------------------------------------

    def add(self, x: Operand, y: Operand) -> Node:
        """x + y."""
        return self.emit("add", x, y)

    def subtract(self, x: Operand, y: Operand) -> Node:
        """x - y."""
        return self.emit("subtract", x, y)

    def multiply(self, x: Operand, y: Operand) -> Node:
        """x * y."""
        return self.emit("multiply", x, y)

    def divide(self, x: Operand, y: Operand) -> Node:
        """x / y."""
        return self.emit("divide", x, y)

    def floor_divide(self, x: Operand, y: Operand) -> Node:
        """x // y, downwards."""
        return self.emit("floor_divide", x, y)

    def remainder(self, x: Operand, y: Operand) -> Node:
        """x % y, with the sign of y."""
        return self.emit("remainder", x, y)

    def power(self, x: Operand, y: Operand) -> Node:
        """x ** y."""
        return self.emit("power", x, y)

    def maximum(self, x: Operand, y: Operand) -> Node:
        """The greater of x and y."""
        return self.emit("maximum", x, y)

    def minimum(self, x: Operand, y: Operand) -> Node:
        """The smaller of x and y."""
        return self.emit("minimum", x, y)

    def equal(self, x: Operand, y: Operand) -> Node:
        """x == y."""
        return self.emit("equal", x, y)

    def not_equal(self, x: Operand, y: Operand) -> Node:
        """x != y."""
        return self.emit("not_equal", x, y)

    def less(self, x: Operand, y: Operand) -> Node:
        """x < y."""
        return self.emit("less", x, y)

    def less_equal(self, x: Operand, y: Operand) -> Node:
        """x <= y."""
        return self.emit("less_equal", x, y)

    def greater(self, x: Operand, y: Operand) -> Node:
        """x > y."""
        return self.emit("greater", x, y)

    def greater_equal(self, x: Operand, y: Operand) -> Node:
        """x >= y."""
        return self.emit("greater_equal", x, y)

    def and_(self, x: Operand, y: Operand) -> Node:
        """x and y."""
        return self.emit("and", x, y)

    def or_(self, x: Operand, y: Operand) -> Node:
        """x or y."""
        return self.emit("or", x, y)

    # --- of one operand -----------------------------------------------------------------------------------------------

    def not_(self, x: Node) -> Node:
        """not x."""
        return self.emit("not", x)

    def negate(self, x: Node) -> Node:
        """-x."""
        return self.emit("negate", x)

    def abs(self, x: Node) -> Node:
        """x without its sign."""
        return self.emit("abs", x)

    def exp(self, x: Node) -> Node:
        """e ** x."""
        return self.emit("exp", x)

    def expm1(self, x: Node) -> Node:
        """e ** x - 1, exact near 0."""
        return self.emit("expm1", x)

    def log(self, x: Node) -> Node:
        """The natural logarithm."""
        return self.emit("log", x)

    def log1p(self, x: Node) -> Node:
        """log(1 + x), exact near 0."""
        return self.emit("log1p", x)

    def sqrt(self, x: Node) -> Node:
        """The square root."""
        return self.emit("sqrt", x)

    def rsqrt(self, x: Node) -> Node:
        """1 / sqrt(x)."""
        return self.emit("rsqrt", x)

    def square(self, x: Node) -> Node:
        """x * x."""
        return self.emit("square", x)

    def sin(self, x: Node) -> Node:
        """The sine."""
        return self.emit("sin", x)

    def cos(self, x: Node) -> Node:
        """The cosine."""
        return self.emit("cos", x)

    def tanh(self, x: Node) -> Node:
        """The hyperbolic tangent."""
        return self.emit("tanh", x)

    def sigmoid(self, x: Node) -> Node:
        """1 / (1 + exp(-x))."""
        return self.emit("sigmoid", x)

    def relu(self, x: Node) -> Node:
        """x, or 0 where it is negative."""
        return self.emit("relu", x)

    def gelu(self, x: Node) -> Node:
        """x times the normal distribution's share below x."""
        return self.emit("gelu", x)

    def gelu_tanh(self, x: Node) -> Node:
        """gelu by its approximation with tanh."""
        return self.emit("gelu_tanh", x)

    def silu(self, x: Node) -> Node:
        """x * sigmoid(x)."""
        return self.emit("silu", x)

    def softplus(self, x: Node) -> Node:
        """log(1 + exp(x))."""
        return self.emit("softplus", x)

    def erf(self, x: Node) -> Node:
        """The error function."""
        return self.emit("erf", x)

    def floor(self, x: Node) -> Node:
        """The whole number below."""
        return self.emit("floor", x)

    def ceil(self, x: Node) -> Node:
        """The whole number above."""
        return self.emit("ceil", x)

    def round(self, x: Node) -> Node:
        """The nearest whole number, halves to the even one."""
        return self.emit("round", x)

    def sign(self, x: Node) -> Node:
        """-1, 0 or 1."""
        return self.emit("sign", x)

    def is_nan(self, x: Node) -> Node:
        """Whether x is no number."""
        return self.emit("is_nan", x)

    def stop_gradient(self, x: Node) -> Node:
        """x, through which no gradient flows."""
        return self.emit("stop_gradient", x)

    # --- along axes ---------------------------------------------------------------------------------------------------

    def sum(self, x: Node, over: Over) -> Node:
        """The sum, over some axes."""
        return self.emit("sum", x, over=several(over))

    def max(self, x: Node, over: Over) -> Node:
        """The greatest, over some axes."""
        return self.emit("max", x, over=several(over))

    def min(self, x: Node, over: Over) -> Node:
        """The least, over some axes."""
        return self.emit("min", x, over=several(over))

    def prod(self, x: Node, over: Over) -> Node:
        """The product, over some axes."""
        return self.emit("prod", x, over=several(over))

    def any(self, x: Node, over: Over) -> Node:
        """Whether any holds, over some axes."""
        return self.emit("any", x, over=several(over))

    def all(self, x: Node, over: Over) -> Node:
        """Whether all hold, over some axes."""
        return self.emit("all", x, over=several(over))

    def logsumexp(self, x: Node, over: Over) -> Node:
        """log(sum(exp(x))), whatever the size of x, over some axes."""
        return self.emit("logsumexp", x, over=several(over))

    def argmax(self, x: Node, over: Axis) -> Node:
        """Where the greatest stands, along an axis."""
        return self.emit("argmax", x, over=over)

    def argmin(self, x: Node, over: Axis) -> Node:
        """Where the least stands, along an axis."""
        return self.emit("argmin", x, over=over)

    def softmax(self, x: Node, over: Axis) -> Node:
        """exp(x), to a sum of one, along an axis."""
        return self.emit("softmax", x, over=over)

    def log_softmax(self, x: Node, over: Axis) -> Node:
        """The logarithm of softmax, along an axis."""
        return self.emit("log_softmax", x, over=over)

    def cumsum(self, x: Node, over: Axis) -> Node:
        """Running sums, along an axis."""
        return self.emit("cumsum", x, over=over)

    def cumprod(self, x: Node, over: Axis) -> Node:
        """Running products, along an axis."""
        return self.emit("cumprod", x, over=over)

    def sort(self, x: Node, over: Axis) -> Node:
        """The values in rising order, along an axis."""
        return self.emit("sort", x, over=over)

    def argsort(self, x: Node, over: Axis) -> Node:
        """Where the values in rising order stand, along an axis."""
        return self.emit("argsort", x, over=over)

    def layer_norm(self, x: Node, over: Over, eps: float = 1e-5) -> Node:
        """x to mean 0 and variance 1, over some axes."""
        return self.emit("layer_norm", x, over=several(over), eps=eps)

    def rms_norm(self, x: Node, over: Over, eps: float = 1e-5) -> Node:
        """x to a mean square of 1, over some axes."""
        return self.emit("rms_norm", x, over=several(over), eps=eps)

    def topk_values(self, x: Node, over: Axis, k: Size, result: Axis) -> Node:
        """The k greatest, in falling order."""
        return self.emit("topk_values", x, over=over, k=k, result=result)

    def topk_indices(self, x: Node, over: Axis, k: Size, result: Axis) -> Node:
        """Where the k greatest stand."""
        return self.emit("topk_indices", x, over=over, k=k, result=result)

    def gradient(self, loss: Node, w: Node) -> Node:
        """How a scalar changes with w; the differentiate pass puts the computation here."""
        return self.emit("gradient", loss, w)
