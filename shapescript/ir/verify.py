"""What a well-formed graph is, as a table of checks.

Takes a `Graph`; `faults` gives a line for each thing that is wrong with it, and `verify` raises them. Each op's rule
is asked again, so a pass that put a node on operands it can't have is caught here. Runs between any two passes under
test. Doesn't run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shapescript.ir.graph import Graph, Node
from shapescript.ir.text import show_node
from shapescript.ops.registry import REGISTRY, RuleError
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.size import Size


class MalformedGraph(Exception):
    """A graph that isn't well-formed: a mistake of the compiler, never of the program."""


def _numbers(graph: Graph, node: Node) -> Iterator[str]:
    if not 0 <= node.number < len(graph.nodes) or graph.nodes[node.number] is not node:
        yield "its number isn't its place in the graph"


def _operands(graph: Graph, node: Node) -> Iterator[str]:
    for operand in node.operands:
        if not 0 <= operand.number < node.number:
            yield f"operand %{operand.number} doesn't stand before it"
        elif graph.nodes[operand.number] is not operand:
            yield f"operand %{operand.number} is of another graph"


def _attributes(graph: Graph, node: Node) -> Iterator[str]:
    for name, value in node.attributes.items():
        for item in value if isinstance(value, tuple) else (value,):
            if not isinstance(item, (int, float, bool, str, Axis, Size, Element)):
                yield f"the attribute `{name}` holds {item!r}"


def _op(graph: Graph, node: Node) -> Iterator[str]:
    if node.op is None:
        if node.operands:
            yield "an input has operands"
        return
    if REGISTRY.get(node.op.name) is not node.op:
        yield "its op isn't the registry's"
    elif not node.op.primitive:
        yield "its op is a composite, which should have been expanded"
    else:
        yield from _rule_again(node)


def _rule_again(node: Node) -> Iterator[str]:
    assert node.op is not None
    try:
        result = node.op.rule([operand.type for operand in node.operands], node.attributes)
    except RuleError as error:
        yield f"its rule refuses: {error.message}"
        return
    if result.axes != node.axes or result.element != node.element:
        yield f"its rule gives {result}"


CHECKS: tuple[tuple[str, Callable[[Graph, Node], Iterator[str]]], ...] = (
    ("numbers follow the program's order", _numbers),
    ("operands stand before their users", _operands),
    ("attributes hold plain data", _attributes),
    ("the op's rule gives this result", _op),
)


def faults(graph: Graph) -> list[str]:
    """Everything that is wrong with a graph, a line each."""
    found = [
        f"{show_node(node)}: {fault} ({title})"
        for node in graph.nodes
        for title, check in CHECKS
        for fault in check(graph, node)
    ]
    for word, nodes in (("input", graph.inputs), ("output", graph.outputs)):
        for node in nodes:
            if not 0 <= node.number < len(graph.nodes) or graph.nodes[node.number] is not node:
                found.append(f"{word} %{node.number} isn't in the graph")
    listed = [node.number for node in graph.inputs]
    if listed != [node.number for node in graph.nodes if node.op is None]:
        found.append("the inputs aren't the nodes without an op, in order")
    return found


def verify(graph: Graph) -> Graph:
    """The graph itself, if it is well-formed.

    Raises:
        MalformedGraph: it isn't; the text has a line for each fault.
    """
    found = faults(graph)
    if found:
        raise MalformedGraph("\n".join(found))
    return graph
