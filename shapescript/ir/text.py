"""A graph as text, a node a line, for people and for tests that compare it with a file.

Takes a `Graph`; gives lines such as `%3 [b Hd] = contract(%0, %1) axes=[b Hd]`, and the place in the program where
`places` is asked for.
"""

from __future__ import annotations

from shapescript.ir.graph import Graph, Node
from shapescript.types.axes import Axis


def show_value(value: object) -> str:
    """An attribute as written: axes and sizes as a user writes them, a string in quotes."""
    if isinstance(value, tuple):
        return "[" + " ".join(map(show_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Axis) and value.parts:
        return "(" + " ".join(map(show_value, value.parts)) + ")"
    return str(value).replace(" ", "") if not isinstance(value, Axis) else str(value)


def show_node(node: Node, places: bool = False) -> str:
    """One line."""
    operands = ", ".join(f"%{operand.number}" for operand in node.operands)
    attributes = "".join(f" {name}={show_value(value)}" for name, value in node.attributes.items())
    place = f"  # {node.span.place}" if places and node.span is not None else ""
    return f"%{node.number} {node.type} = {node.name}({operands}){attributes}{place}"


def show_graph(graph: Graph, places: bool = False) -> str:
    """All nodes, then the outputs, then the sizes that are known."""
    lines = [show_node(node, places) for node in graph.nodes]
    lines.append("return " + ", ".join(f"%{node.number}" for node in graph.outputs))
    if graph.sizes:
        lines.append("where " + ", ".join(f"{name} = {size}" for name, size in sorted(graph.sizes.items())))
    return "\n".join(lines) + "\n"
