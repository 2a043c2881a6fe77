"""Graphs: building, verifying, printing and simplifying them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.ir.text import show_graph
from shapescript.ir.verify import MalformedGraph, faults, verify
from shapescript.ops.registry import REGISTRY, RuleError
from shapescript.passes.pipeline import run_passes
from shapescript.passes.simplify import simplify
from shapescript.types.axes import Axis
from shapescript.types.element import F32, I64

B = Axis.named("b", batch=True)
D, HD = Axis.named("D"), Axis.named("Hd")
GOLDEN = Path(__file__).parent / "golden" / "graph.txt"


def small() -> tuple[Graph, Builder, Node, Node]:
    graph = Graph(sizes={"D": 4, "Hd": 3})
    return graph, Builder(graph), graph.input("x", (B, D), F32), graph.input("w", (D, HD), F32)


def test_a_number_takes_the_element_of_the_tensor_beside_it() -> None:
    _, b, x, _ = small()
    y = b.add(x, 2)
    assert y.operands[1].name == "constant" and y.operands[1].element.name == "f32"
    assert y.axes == (B, D)


def test_the_rule_refuses_as_the_node_is_made() -> None:
    graph, b, x, w = small()
    before = len(graph.nodes)
    with pytest.raises(RuleError):
        b.add(x, w)
    assert len(graph.nodes) == before


def test_a_well_formed_graph_has_no_faults() -> None:
    graph, b, x, w = small()
    graph.outputs = [b.relu(b.contract(x, w, (B, HD)))]
    assert faults(graph) == []


def test_use_before_definition_is_a_fault() -> None:
    graph, b, x, w = small()
    y = b.relu(x)
    z = b.relu(y)
    y.operands = (z,)
    with pytest.raises(MalformedGraph, match="doesn't stand before"):
        verify(graph)


def test_a_result_that_the_rule_does_not_give_is_a_fault() -> None:
    graph, b, x, w = small()
    y = b.relu(x)
    y.axes = (B,)
    assert any("its rule gives" in fault for fault in faults(graph))


def test_a_node_of_another_graph_is_a_fault() -> None:
    graph, b, x, _ = small()
    y = b.relu(x)
    other = Graph().input("x", (B, D), F32)
    y.operands = (other,)
    assert any("of another graph" in fault for fault in faults(graph))
    graph.outputs = [other]
    assert any("isn't in the graph" in fault for fault in faults(graph))


def test_equal_computations_are_made_once() -> None:
    graph, b, x, w = small()
    graph.outputs = [b.add(b.exp(x), b.exp(x)), b.exp(w)]
    small_graph = verify(simplify(graph))
    assert [node.name for node in small_graph.nodes].count("exp") == 2


def test_one_and_one_point_oh_are_not_the_same_constant() -> None:
    graph, b, _, _ = small()
    graph.outputs = [b.constant(0.0), b.constant(-0.0), b.constant(0, I64)]
    assert len([node for node in simplify(graph).nodes if node.name == "constant"]) == 3


def test_what_changes_nothing_and_what_nobody_needs_goes() -> None:
    graph, b, x, w = small()
    b.exp(x)
    graph.outputs = [b.negate(b.negate(b.add(b.multiply(x, 1.0), 0.0)))]
    small_graph = verify(simplify(graph))
    assert [node.name for node in small_graph.nodes] == ["input", "input"]
    assert small_graph.outputs == [small_graph.inputs[0]]


def test_the_text_of_a_graph() -> None:
    graph, b, x, w = small()
    h = b.tanh(b.contract(x, w, (B, HD)))
    loss = b.divide(b.sum(b.multiply(h, h), over=(B, HD)), b.size(B))
    graph.outputs = [loss, b.gradient(loss, w)]
    assert show_graph(run_passes(graph, checked=True)) == GOLDEN.read_text()


def test_a_long_chain_is_no_matter() -> None:
    graph, b, x, w = small()
    y = x
    for _ in range(5000):
        y = b.multiply(b.sin(y), 1.5)
    loss = b.sum(y, over=(B, D))
    graph.outputs = [loss, b.gradient(loss, x)]
    assert len(verify(run_passes(graph)).nodes) < 40_000


def test_every_op_says_what_it_is() -> None:
    for name, op in REGISTRY.items():
        assert op.name == name and op.doc and op.signature
