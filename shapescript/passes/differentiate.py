"""Replaces `gradient(loss, w)` nodes by the computation, in reverse over the program.

Takes a graph with such nodes; gives one without. Gradients of one loss share one sweep. Nodes are taken over in
program order, so where a loss itself holds a gradient, that one is already plain operations when the sweep meets it.

A gradient flows through floats only, never through `stop_gradient`; what several uses send back is added up in the
order of the sweep, and where nothing comes back it is zero. What `remat` marks is computed again where the first
gradient of it is needed, from the values that it had from outside, so that its own need not be kept till then. What an
op does with its gradient is the op's own `gradient`; the transpose of lining axes up, a sum over what an operand lacks,
is here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node, Rewriter, live_nodes


class NoGradient(Exception):
    """A float operation without a gradient stands between a loss and what it is differentiated by.

    `node` is the operation, whose span is the place to show.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(f"`{node.name}` has no gradient")
        self.node = node


def differentiate(graph: Graph) -> Graph:
    """The graph with its gradients computed.

    Raises:
        NoGradient: an operation on the way has none.
    """
    if not any(node.name == "gradient" for node in graph.nodes):
        return graph
    live = live_nodes(graph)
    wanted: dict[int, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.name == "gradient" and node.number in live:
            wanted[node.operands[0].number].append(node)
    rewriter = Rewriter(graph)
    builder = Builder(rewriter.graph)
    for node in graph.nodes:
        if node.number in rewriter.now or (node.number not in live and node.op is not None):
            continue
        if node.name != "gradient":
            rewriter.keep(node)
            continue
        again = _Again(builder, _repeated(graph, rewriter))
        _replace(builder, rewriter, node, wanted[node.operands[0].number], again)
    return rewriter.finish()


def _repeated(graph: Graph, rewriter: Rewriter) -> list[frozenset[int]]:
    """The numbers, in the new graph, of the nodes that are computed again together."""
    found = []
    for numbers in graph.repeated:
        now = (rewriter.now.get(number) for number in numbers if graph.nodes[number].name != "gradient")
        found.append(frozenset(node.number for node in now if node is not None))
    return found


class _Again:
    """Copies of the nodes of marked ranges, made when the first of a range is asked for; the widest range counts."""

    def __init__(self, builder: Builder, ranges: Sequence[frozenset[int]]) -> None:
        self.builder = builder
        self.range_of: dict[int, frozenset[int]] = {}
        for numbers in sorted(ranges, key=len):
            self.range_of.update(dict.fromkeys(numbers, numbers))
        self.copies: dict[int, Node] = {}

    def __call__(self, node: Node) -> Node:
        """The copy of a node; itself where it isn't computed again."""
        numbers = self.range_of.get(node.number)
        if numbers is None:
            return node
        if node.number not in self.copies:
            outside: dict[int, Node] = {}
            for number in sorted(numbers):
                self.copies[number] = self._copy(self.builder.graph.nodes[number], outside)
        return self.copies[node.number]

    def _copy(self, node: Node, outside: dict[int, Node]) -> Node:
        if not node.operands or node.op is None or node.name.startswith("extern"):
            return node
        operands = tuple(self._operand(operand, outside) for operand in node.operands)
        return self.builder.graph.append(Node(node.op, operands, node.attributes, node.axes, node.element, node.span))

    def _operand(self, operand: Node, outside: dict[int, Node]) -> Node:
        if operand.number in self.copies:
            return self.copies[operand.number]
        if not operand.operands and operand.op is not None:
            return operand
        if operand.number not in outside:
            place = len(self.builder.graph.nodes)
            outside[operand.number] = self.builder.emit("again", operand, span=operand.span, place=place)
        return outside[operand.number]


def _replace(builder: Builder, rewriter: Rewriter, first: Node, together: Sequence[Node], again: _Again) -> None:
    """Puts the gradients of one loss where the first of them stands; those by later values than that are zero."""
    loss = rewriter.now[first.operands[0].number]
    known = [(node, rewriter.now.get(node.operands[1].number)) for node in together]
    found = sweep(builder, loss, [w for _, w in known if w is not None], first, again)
    for node, w in known:
        gradient = found.get(w.number) if w is not None else None
        with builder.at(node.span):
            if gradient is None:
                gradient = builder.full(0, node.axes, node.element.base)
            gradient = builder.sum_to(gradient, node.axes)
            if gradient.element != node.element:
                gradient = builder.refine(gradient, node.element)
        rewriter.now[node.number] = gradient


def sweep(builder: Builder, loss: Node, by: Sequence[Node], blamed: Node, again: _Again) -> dict[int, Node]:
    """The gradients of `loss` by each of `by` that it depends on, by number."""
    graph = builder.graph
    active = _between(graph, loss, by)
    if loss.number not in active:
        return {}
    ends = {node.number for node in by}
    found: dict[int, Node] = {}
    pending: dict[int, list[Node]] = defaultdict(list)
    with builder.at(blamed.span):
        pending[loss.number].append(builder.full(1, loss.axes, loss.element.base))
    for number in range(loss.number, min(ends) - 1, -1):
        parts = pending.pop(number, None)
        if parts is None:
            continue
        node = graph.nodes[number]
        with builder.at(node.span):
            total = parts[0]
            for part in parts[1:]:
                total = builder.add(total, part)
            if number in ends:
                found[number] = total
                if total.number > loss.number and blamed.span is not None:
                    total.span = blamed.span  # a gradient is made where it is asked for, and what it costs stands there
            for operand, part in _to_operands(builder, node, total, active, again):
                pending[operand.number].append(part)
    return found


def _between(graph: Graph, loss: Node, by: Sequence[Node]) -> set[int]:
    """The numbers of the nodes through which `loss` depends on one of `by`."""
    below = {node.number for node in by if node.element.is_float}
    if not below:
        return below
    for node in graph.nodes[min(below) : loss.number + 1]:
        if node.element.is_float and node.name != "stop_gradient":
            if any(operand.number in below for operand in node.operands):
                below.add(node.number)
    return below


def _to_operands(builder: Builder, node: Node, total: Node, active: set[int], again: _Again) -> list[tuple[Node, Node]]:
    """What a node sends back to those of its operands that lie on a way from the loss."""
    if node.op is None or not any(operand.number in active for operand in node.operands):
        return []
    if node.name == "stop_gradient":
        return []
    if node.op.gradient is None:
        raise NoGradient(node)
    parts = node.op.gradient(builder, again(node), total)
    return [
        (operand, builder.sum_to(part, operand.axes))
        for operand, part in zip(node.operands, parts, strict=True)
        if part is not None and operand.number in active
    ]
