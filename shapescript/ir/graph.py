"""Graphs of tensor operations, one result a node, in program order.

Takes ops from the registry; gives `Graph` and `Node`. A node is never changed once it stands in a graph: a pass makes
a new graph, by `Rewriter` where it keeps most of the old one. Doesn't check anything: `builder.py` and `verify.py` do.

`Graph.sizes` has the value of each static atom; an atom that isn't there is a batch's count, known when a graph is run.
`Graph.repeated` has the numbers of the nodes that are computed again where a gradient needs them, range by range, until
`differentiate` has seen to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shapescript.ops.registry import Op
from shapescript.source import Span
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.kinds import Tensor


@dataclass(slots=True, eq=False)
class Node:
    """One operation and its result; `op` is None for an input of the graph, whose name is the attribute `name`."""

    op: Op | None
    operands: tuple[Node, ...]
    attributes: Mapping[str, object]
    axes: tuple[Axis, ...]
    element: Element
    span: Span | None = None
    number: int = -1

    @property
    def name(self) -> str:
        """The op's name, or `input`."""
        return "input" if self.op is None else self.op.name

    @property
    def type(self) -> Tensor:
        """Its axes and element as a type."""
        return Tensor(self.axes, self.element)

    def __repr__(self) -> str:
        return f"%{self.number} {self.name} {self.type}"


@dataclass(slots=True)
class Graph:
    """Nodes in program order: an operand stands before its users, and `nodes[i].number` is i."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    repeated: list[range] = field(default_factory=list)

    def append(self, node: Node) -> Node:
        """Puts a new node at the end and numbers it."""
        node.number = len(self.nodes)
        self.nodes.append(node)
        return node

    def input(self, name: str, axes: Sequence[Axis], element: Element, span: Span | None = None) -> Node:
        """A new input, after those that are there."""
        node = self.append(Node(None, (), {"name": name}, tuple(axes), element, span))
        self.inputs.append(node)
        return node


class Rewriter:
    """A new graph made from an old one, node by node; `now` maps a number of the old graph to what stands for it."""

    def __init__(self, old: Graph) -> None:
        self.old = old
        self.graph = Graph(sizes=dict(old.sizes))
        self.now: dict[int, Node] = {}

    def operands(self, node: Node) -> tuple[Node, ...]:
        """What stands for the operands of an old node."""
        return tuple(self.now[operand.number] for operand in node.operands)

    def keep(self, node: Node) -> Node:
        """Takes an old node over as it is, on what stands for its operands."""
        copy = Node(node.op, self.operands(node), node.attributes, node.axes, node.element, node.span)
        self.now[node.number] = self.graph.append(copy)
        if node.op is None:
            self.graph.inputs.append(copy)
        return copy

    def finish(self) -> Graph:
        """The new graph, with the outputs of the old one."""
        self.graph.outputs = [self.now[node.number] for node in self.old.outputs]
        return self.graph


def live_nodes(graph: Graph) -> set[int]:
    """The numbers of the nodes that an output depends on."""
    live = {node.number for node in graph.outputs}
    for node in reversed(graph.nodes):
        if node.number in live:
            live.update(operand.number for operand in node.operands)
    return live
