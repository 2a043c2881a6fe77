"""Which values belong to parameters: those elementwise between a gradient and what is written back.

Takes a graph and how it rests; gives `Space`: the members, which under `shard params` may be worked on in shards, and
for the first of each, the gradients, a label (`g.w1`) by which a communication is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shapescript.ir.graph import Graph, Node
from shapescript.layout.laid import Resting
from shapescript.layout.roles import is_elementwise
from shapescript.types.axes import same_axes


@dataclass
class Space:
    """The numbers of the nodes that belong to parameters, and the labels of gradients."""

    members: set[int] = field(default_factory=set)
    labels: dict[int, str] = field(default_factory=dict)


def parameter_space(graph: Graph, resting: Resting) -> Space:
    """Walks back from what is written back, through elementwise operations on values of its shape."""
    space = Space()
    for place, source in resting.written.items():
        if resting.inputs[source] not in ("param", "state", "gradient"):
            continue
        written = graph.outputs[place]
        _walk(written, _name(resting, source), resting.inputs[source] == "param", space)
    return space


def _name(resting: Resting, source: int) -> str:
    return resting.names[source] if source < len(resting.names) else f"input{source}"


def _walk(written: Node, name: str, is_param: bool, space: Space) -> None:
    waiting = [written]
    while waiting:
        node = waiting.pop()
        if node.op is None or not node.axes or (node.number in space.members and not is_param):
            continue
        if is_param and space.labels.get(node.number):
            continue
        space.members.add(node.number)
        if is_param:
            space.labels[node.number] = f"g.{name}"
        if is_elementwise(node):
            waiting.extend(operand for operand in node.operands if same_axes(operand.axes, node.axes))


def label_of(node: Node, names: Mapping[int, str], labels: Mapping[int, str]) -> str:
    """What a value is called where it is shown: a gradient by its parameter, an input by its name, else by its op."""
    if node.op is None:
        return names.get(node.number, str(node.attributes["name"]))
    return labels.get(node.number, node.name)
