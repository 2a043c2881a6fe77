"""Where an axis of one operand stands in parts that another has as one (`D` meets `(H Dh)`), it is given the parts.

Takes a logical graph and a policy; gives one in which both are in parts, wherever one of these is a dim that the
policy splits: a free `relabel` before the operation, and one behind it where the result has the axis as one. A name of
the compiler's own that such an axis gets on its way into a product keeps the parts. So a product over `(H Dh)` works
on the split parts; going back from them is a gather, and only where something asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node, Rewriter
from shapescript.layout.policy import Policy
from shapescript.layout.roles import is_elementwise
from shapescript.layout.words import leaves_of
from shapescript.types.axes import Axis
from shapescript.types.size import Size


def in_parts(graph: Graph, policy: Policy) -> Graph:
    """The graph, with the parts of axes known where they are split."""
    dims = policy.dims(graph.sizes)
    if not dims:
        return graph

    def split(axis: Axis) -> bool:
        """Whether one of an axis's parts is a dim that is split."""
        return bool(axis.parts) and any(policy.atom_of(leaf) in dims for leaf in leaves_of(axis))

    graph = _with_named_parts(graph, split)
    rewriter = Rewriter(graph)
    builder = Builder(rewriter.graph)
    for node in graph.nodes:
        wanted = _parted(node, split)
        if wanted is None:
            rewriter.keep(node)
            continue
        operand_axes, result_axes = wanted
        with builder.at(node.span):
            operands = [
                builder.relabel(operand, axes)
                for operand, axes in zip(rewriter.operands(node), operand_axes, strict=True)
            ]
            attributes = dict(node.attributes)
            if "axes" in attributes:
                attributes["axes"] = result_axes
            assert node.op is not None
            result = node.op.rule([operand.type for operand in operands], attributes)
            made = rewriter.graph.append(
                Node(node.op, tuple(operands), attributes, result.axes, result.element, node.span)
            )
            rewriter.now[node.number] = builder.relabel(made, node.axes)
    return rewriter.finish()


def _with_named_parts(graph: Graph, split: Callable[[Axis], bool]) -> Graph:
    """The graph, in which the names that a relabel gives to an axis in parts have these parts too."""
    known = {axis.name for node in graph.inputs for axis in node.axes}
    found: dict[str, Axis] = {}
    for node in graph.nodes:
        if node.name == "relabel":
            for old, new in zip(node.operands[0].axes, node.axes, strict=True):
                parts = found[old.name].parts if old.name is not None and old.name in found else old.parts
                own = new.name is not None and new.name not in known and new.size != Size.atom(new.name)
                if own and not new.parts and parts and split(replace(old, parts=parts)):
                    found.setdefault(str(new.name), replace(new, parts=parts))
    if not found:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        copy = rewriter.keep(node)
        if node.op is not None:
            attributes = {name: _substituted(value, found) for name, value in node.attributes.items()}
            result = node.op.rule([operand.type for operand in copy.operands], attributes)
            copy.attributes, copy.axes, copy.element = attributes, result.axes, result.element
    return rewriter.finish()


def _substituted(value: object, found: Mapping[str, Axis]) -> object:
    if isinstance(value, tuple):
        return tuple(_substituted(item, found) for item in value)
    if not isinstance(value, Axis):
        return value
    if value.name is not None and value.name in found and not value.parts:
        return replace(found[value.name], batch=value.batch)
    if value.parts:
        parts = tuple(_substituted(part, found) for part in value.parts)
        return replace(value, parts=tuple(part for part in parts if isinstance(part, Axis)))
    return value


def _parted(node: Node, split: Callable[[Axis], bool]) -> tuple[list[tuple[Axis, ...]], tuple[Axis, ...]] | None:
    """The axes of the operands and of the result with their parts; None where nothing changes."""
    if node.op is None or node.op.roles is None or not (node.name == "contract" or is_elementwise(node)):
        return None
    operands = [list(operand.axes) for operand in node.operands]
    result = list(node.axes)
    changed = False
    for role in node.op.roles(node):
        held = [(axes, place) for axes, place in zip(operands, role.operands, strict=True) if place is not None]
        if role.result is not None:
            held.append((result, role.result))
        parted = next((axes[place] for axes, place in held if split(axes[place])), None)
        if parted is None:
            continue
        for axes, place in held:
            if not axes[place].parts and axes[place].size == parted.size:
                axes[place] = replace(axes[place], parts=parted.parts, batch=axes[place].batch or parted.batch)
                changed = True
    return ([tuple(axes) for axes in operands], tuple(result)) if changed else None
