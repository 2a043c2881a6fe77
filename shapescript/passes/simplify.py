"""Makes a graph smaller without changing what it computes.

Takes a graph; gives one in which equal computations are made once, operations that change nothing are left out, and
what no output needs is gone. Inputs stay, used or not. The results are the same to the bit, but for the sign of a
zero. Random draws of one place are one draw, so they too are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from shapescript.ir.graph import Graph, Node, Rewriter, live_nodes


def simplify(graph: Graph) -> Graph:
    """The smaller graph."""
    return without_dead(_merged(graph))


def without_dead(graph: Graph) -> Graph:
    """The graph without nodes that no output depends on."""
    live = live_nodes(graph)
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.number in live or node.op is None:
            rewriter.keep(node)
    return rewriter.finish()


def _merged(graph: Graph) -> Graph:
    """Common subexpressions made once, and what changes nothing left out, in one walk."""
    rewriter = Rewriter(graph)
    known: dict[Hashable, Node] = {}
    for node in graph.nodes:
        operands = rewriter.operands(node)
        same = _unchanged(node, operands)
        if same is not None and same.axes == node.axes and same.element == node.element:
            rewriter.now[node.number] = same
            continue
        key = _key(node, operands)
        if node.op is not None and key in known:
            rewriter.now[node.number] = known[key]
        else:
            known[key] = rewriter.keep(node)
    return rewriter.finish()


def _key(node: Node, operands: tuple[Node, ...]) -> Hashable:
    attributes = tuple((name, _exact(value)) for name, value in sorted(node.attributes.items()))
    return node.name, tuple(operand.number for operand in operands), attributes


def _exact(value: object) -> Hashable:
    """A value that equals another's only where both are the same: 1, 1.0 and true differ, and -0.0 from 0.0."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    if isinstance(value, (bool, int, float)):
        return type(value).__name__, repr(value)
    return value if isinstance(value, Hashable) else repr(value)


def _unchanged(node: Node, operands: tuple[Node, ...]) -> Node | None:
    """The operand that the node's result equals, if there is one; its axes may yet differ."""
    find = UNCHANGED.get(node.name)
    return find(operands) if find is not None else None


def _first(operands: tuple[Node, ...]) -> Node | None:
    return operands[0]


def _beside(value: int, right_only: bool = False) -> Callable[[tuple[Node, ...]], Node | None]:
    """Finds the operand beside a constant of this value."""

    def find(operands: tuple[Node, ...]) -> Node | None:
        left, right = operands
        if _is_constant(right, value):
            return left
        return right if not right_only and _is_constant(left, value) else None

    return find


def _is_constant(node: Node, value: int) -> bool:
    while node.name in ("broadcast", "refine", "relabel"):
        node = node.operands[0]
    return node.name == "constant" and node.attributes["value"] == value and not node.element.is_bool


def _inner(name: str) -> Callable[[tuple[Node, ...]], Node | None]:
    """Finds x in an operation that undoes itself."""
    return lambda operands: operands[0].operands[0] if operands[0].name == name else None


UNCHANGED: dict[str, Callable[[tuple[Node, ...]], Node | None]] = {
    "add": _beside(0),
    "subtract": _beside(0, right_only=True),
    "multiply": _beside(1),
    "divide": _beside(1, right_only=True),
    "negate": _inner("negate"),
    "not": _inner("not"),
    "broadcast": _first,
    "relabel": _first,
    "rearrange": _first,
    "cast": _first,
    "stop_gradient": _first,
}
