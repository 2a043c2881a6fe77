"""Graphs as bytes, for another process of the same version of the package.

An op goes by its name, and is the registry's again on the other side. Nodes go as a list, operands by number, so that
a long graph needs no deep recursion. Only for the project's own processes: the bytes are pickled.
"""

from __future__ import annotations

import pickle
from typing import TypeAlias

from shapescript.ir.graph import Graph, Node
from shapescript.ops.registry import REGISTRY

_Flat: TypeAlias = tuple[str | None, tuple[int, ...], dict[str, object], object, object, object]


def encode_graph(graph: Graph) -> bytes:
    """A graph as bytes."""
    nodes: list[_Flat] = [
        (
            None if node.op is None else node.op.name,
            tuple(operand.number for operand in node.operands),
            dict(node.attributes),
            node.axes,
            node.element,
            node.span,
        )
        for node in graph.nodes
    ]
    inputs = [node.number for node in graph.inputs]
    outputs = [node.number for node in graph.outputs]
    return pickle.dumps((nodes, inputs, outputs, dict(graph.sizes)), protocol=pickle.HIGHEST_PROTOCOL)


def decode_graph(data: bytes | memoryview) -> Graph:
    """The graph of some bytes.

    Raises:
        KeyError: an op isn't in the registry.
    """
    nodes, inputs, outputs, sizes = pickle.loads(data)
    graph = Graph(sizes=sizes)
    for name, operands, attributes, axes, element, span in nodes:
        op = None if name is None else REGISTRY[name]
        graph.append(Node(op, tuple(graph.nodes[number] for number in operands), attributes, axes, element, span))
    graph.inputs = [graph.nodes[number] for number in inputs]
    graph.outputs = [graph.nodes[number] for number in outputs]
    return graph
