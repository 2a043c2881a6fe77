"""Lowers a graph to a plan: instructions over numbered buffers.

Takes a graph after the passes; gives `Lowered`. Values that are only looked at otherwise (broadcast, permuted, cut)
are views of the buffer below them. An operation without a kernel becomes a call of the reference executor's. Values
that devices combine go to their transport's functions in C++ where it has any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shapescript import _executor
from shapescript.devices.native import moves
from shapescript.devices.native.clusters import Cluster, Clusters, Unit
from shapescript.devices.native.members import own_mapping
from shapescript.devices.native.plan import Called, Draft, Instruction, Place
from shapescript.devices.native.products import is_product, lower_product
from shapescript.devices.native.sizes import SizeTable
from shapescript.devices.native.tiles import TileLowering
from shapescript.devices.native.views import ONE, View, merged, plain, rearrangement, split_and_permuted
from shapescript.devices.reference.lowering import over_position
from shapescript.ir.graph import Graph, Node
from shapescript.layout.words import first
from shapescript.types.size import Size

HALVES = {"reduce_scatter": 1, "all_gather": 2}
"""The halves of an all-reduce that `layout/halves.py` makes, known by their launch; as csrc/cpu/plan.hpp has them."""
COMBINES = {"sum": 0, "max": 1, "min": 2}
"""As csrc/cpu/collectives.h numbers them."""


@dataclass(frozen=True)
class Cut:
    """A slice, whose ends are looked at when the counts are known."""

    node: Node
    axis: int
    start: object
    stop: object


@dataclass
class Lowered:
    """A plan and what the executor needs besides: who did what, for errors, profiles and calls."""

    plan: _executor.Plan
    table: SizeTable
    draft: Draft
    instructions: list[Instruction]
    calls: dict[int, Called]
    cuts: list[Cut]
    output_views: list[View]
    views: dict[int, View]
    key_buffer: int
    inputs: list[int]
    replaced: dict[int, int]
    launches: list[tuple[Node, ...]]


def lower(
    graph: Graph,
    replaces: Mapping[int, int] | None = None,
    kernels: Mapping[str, int] | None = None,
    combines: bool = False,
) -> Lowered:
    """The plan of a graph; `replaces` are outputs that may take the memory of an input.

    `kernels` are those of another device by name; the plan is C++'s own only without them. `combines` says that the
    devices' values are combined in C++; else the transport is called for that.
    """
    return _Lowering(graph, replaces or {}, kernels, combines).lower()


class _Lowering:
    def __init__(
        self, graph: Graph, replaces: Mapping[int, int], kernels: Mapping[str, int] | None, combines: bool
    ) -> None:
        self.graph = graph
        self.combines = combines
        self.launches: list[tuple[Node, ...]] = []
        self.replaces = replaces
        self.kernels = _executor.kernel_numbers() if kernels is None else dict(kernels)
        self.checked = {node.number: node for node in graph.nodes if moves.is_checked(node)}
        self.clusters = Clusters(graph, self.kernels, self.checked)
        self.draft = Draft(SizeTable(graph.sizes))
        self.views: dict[int, View] = {}
        self.cuts: list[Cut] = []
        self.key_buffer = -1
        self.needed = self._needed()

    def lower(self) -> Lowered:
        inputs = []
        for node in self.graph.inputs:
            view = self.draft.buffer(node.element, [axis.size for axis in node.axes], False, Place.INPUT)
            self.views[node.number] = view
            inputs.append(view.buffer)
        for unit in self.clusters.in_order():
            self._unit(unit)
        outputs = [self._output(node) for node in self.graph.outputs]
        replaced = self._replaced(inputs, [view.buffer for view in outputs])
        plan = self.draft.finish(inputs, [view.buffer for view in outputs], self.key_buffer)
        return Lowered(
            plan,
            self.draft.table,
            self.draft,
            self.draft.instructions,
            self.draft.calls,
            self.cuts,
            outputs,
            self.views,
            self.key_buffer,
            inputs,
            replaced,
            self.launches,
        )

    # --- what is needed

    def _needed(self) -> set[int]:
        """The members of clusters whose values are read outside of their clusters."""
        needed: set[int] = set()

        def want(node: Node) -> None:
            while node.op is not None and node.name != "constant" and self._shows(node):
                node = node.operands[0]
            needed.add(node.number)

        for node in self.graph.outputs:
            want(node)
        for node in self.checked.values():
            want(node)
        for unit in self.clusters.units.values():
            for node in unit.nodes:
                for operand in node.operands:
                    source, _ = self.clusters.source(operand)
                    inside = isinstance(unit, Cluster) and source.number in unit.places
                    if not inside or source.number in unit.columns:  # type: ignore[attr-defined]
                        want(operand)
        return needed

    def _shows(self, node: Node) -> bool:
        """Whether a node's value is a view of its operand's, or a copy made for one."""
        return own_mapping(node) is not None or node.name in ("rearrange", "slice") or self._is_flat_part(node)

    def _is_flat_part(self, node: Node) -> bool:
        """Whether a node is a device's part of a value laid flat, which is looked at where the value lies."""
        return node.name == "take_part" and node.attributes["flat"] is True and self.combines

    def _is_half(self, node: Node) -> bool:
        return node.name in HALVES and "launch" in node.attributes and self.combines

    # --- views

    def view_of(self, node: Node) -> View:
        """Where a value lies; what must be copied for that is copied now."""
        view = self.views.get(node.number)
        if view is None:
            view = self.views[node.number] = self._view(node)
        return view

    def _view(self, node: Node) -> View:
        sizes = [axis.size for axis in node.axes]
        if node.name == "constant":
            view = self.draft.buffer(node.element, (), True)
            moves.fill_with(self.draft, node, view)
            return view
        below = self.view_of(node.operands[0])
        mapping = own_mapping(node)
        if mapping is not None:
            return below.permuted(mapping, sizes)
        if node.name == "rearrange":
            how = rearrangement(node.operands[0].axes, node.axes)
            leaves = split_and_permuted(below, how)
            found = merged(leaves, how.after, sizes)
            if found is None:
                fixed = self._is_fixed(node)
                into = self.draft.buffer(node.element, leaves.sizes, fixed)
                self.draft.copy(node, leaves, into, fixed)
                found = plain(into.buffer, sizes)
            return found
        if self._is_flat_part(node):
            if not below.contiguous or _length(below.sizes) != self.draft.buffers[below.buffer].length:
                fixed = self._is_fixed(node)
                into = self.draft.buffer(node.element, below.sizes, fixed)
                self.draft.copy(node, below, into, fixed)
                below = into
            return View(below.buffer, tuple(sizes), (ONE,), Size.atom(first(str(node.attributes["atom"]))))
        assert node.name == "slice", node
        start, stop = (moves.size_of(node.attributes[name]) for name in ("start", "stop"))
        at = over_position(node)
        return below.cut(at, start, node.axes[at].size)

    def _is_fixed(self, node: Node) -> bool:
        return all(self.draft.buffers[self.view_of(operand).buffer].place is Place.FIXED for operand in node.operands)

    # --- units

    def _unit(self, unit: Unit) -> None:
        if isinstance(unit, Cluster):
            tiles = TileLowering(self.draft, self.clusters, self.kernels, unit, self.view_of)
            self.views.update(tiles.lower(self.needed))
            nodes: Sequence[Node] = unit.nodes
        else:
            nodes = unit.nodes
            if unit.nodes[0].name == "all_reduce" or self._is_half(unit.nodes[0]):
                self._all_reduce(unit.nodes)
                return
            if own_mapping(unit.nodes[0]) is None:
                self._single(unit.nodes[0], unit.fixed)
        for node in nodes:
            if node.number not in self.checked:
                continue
            view = self.view_of(node)
            if not moves.check(self.draft, node, view, unit.fixed):
                self._call(node, [view], unit.fixed)

    def _single(self, node: Node, fixed: bool) -> None:
        if node.name == "constant":
            return
        if node.name == "random_key":
            view = self.draft.buffer(node.element, (), False, Place.INPUT)
            self.key_buffer = view.buffer
            self.views[node.number] = view
            return
        if node.name == "slice":
            self.cuts.append(Cut(node, over_position(node), node.attributes["start"], node.attributes["stop"]))
            return
        if node.name == "rearrange" or self._is_flat_part(node):
            return
        views = [self.view_of(operand) for operand in node.operands]
        if node.name == "contract" and is_product(node):
            self.views[node.number] = lower_product(self.draft, node, views, fixed)
            return
        made = moves.lower_move(self.draft, node, views, fixed)
        self.views[node.number] = made if made is not None else self._call(node, views, fixed)

    def _all_reduce(self, nodes: Sequence[Node]) -> None:
        """The all-reduces of one launch, or one half of each; those of one element as one instruction."""
        views = [self.view_of(node.operands[0]) for node in nodes]
        results = [self.draft.buffer(node.element, [axis.size for axis in node.axes], False) for node in nodes]
        self.views.update((node.number, result) for node, result in zip(nodes, results, strict=True))
        reads, writes = [view.buffer for view in views], [result.buffer for result in results]
        if not self.combines:
            number = len(self.draft.instructions)
            instruction = self.draft.put(nodes[0], "call", "call", (reads, writes), reads, writes, False)
            instruction.nodes = tuple(nodes)
            self.draft.calls[number] = Called(tuple(nodes), tuple((view,) for view in views), tuple(results))
            return
        half = HALVES.get(nodes[0].name, 0)
        if nodes[0].name != "all_gather":  # which is sent with the first half
            self.launches.append(tuple(nodes))
        for at, (node, view) in enumerate(zip(nodes, views, strict=True)):
            sizes = [axis.size for axis in node.operands[0].axes]
            if not view.contiguous or _length(sizes) != self.draft.buffers[view.buffer].length:
                into = self.draft.buffer(node.element, sizes, False)
                self.draft.copy(node, view, into, False)
                reads[at] = into.buffer
        elements = [self.draft.buffers[buffer].element for buffer in reads]
        for element in dict.fromkeys(elements):
            own = [at for at, each in enumerate(elements) if each == element]
            ins, outs = [reads[at] for at in own], [writes[at] for at in own]
            leader = nodes[own[0]]
            mesh_axis, how = leader.attributes["mesh_axis"], COMBINES[str(leader.attributes.get("kind", "sum"))]
            method, more = ("half_reduce", (half,)) if half else ("all_reduce", ())
            arguments = (mesh_axis, how, ins, outs, *more)
            instruction = self.draft.put(leader, "all_reduce", method, arguments, ins, outs, False)
            instruction.nodes = tuple(nodes[at] for at in own)

    def _call(self, node: Node, views: Sequence[View], fixed: bool) -> View:
        result = self.draft.buffer(node.element, [axis.size for axis in node.axes], fixed)
        number = len(self.draft.instructions)
        reads = [view.buffer for view in views]
        self.draft.put(node, "call", "call", (reads, [result.buffer]), reads, [result.buffer], fixed)
        self.draft.calls[number] = Called((node,), (tuple(views),), (result,))
        return result

    # --- ends

    def _output(self, node: Node) -> View:
        """An output's buffer, which is the caller's: what made the value writes there, or it is copied at the end."""
        view = self.view_of(node)
        sizes = [axis.size for axis in node.axes]
        buffer = self.draft.buffers[view.buffer]
        if buffer.place is Place.RUN and view.contiguous and _length(sizes) == buffer.length:
            buffer.place = Place.OUTPUT
            return plain(view.buffer, sizes)
        into = self.draft.buffer(node.element, sizes, False, Place.OUTPUT)
        self.draft.copy(node, View(view.buffer, tuple(sizes), view.strides, view.offset), into, False)
        return into

    def _replaced(self, inputs: Sequence[int], outputs: Sequence[int]) -> dict[int, int]:
        """Of the outputs that may take an input's memory, those that can: nothing reads the input after the output
        is begun, but for reads place by place by what makes the output, up to the operation that makes it; and
        nothing is checked any more."""
        found = {}
        for output, given in self.replaces.items():
            buffer, source = outputs[output], inputs[given]
            if self.draft.buffers[buffer].length != self.draft.buffers[source].length:
                continue
            if self.draft.buffers[buffer].element != self.draft.buffers[source].element:
                continue
            if self._may_replace(buffer, source):
                found[output] = given
        return found

    def _may_replace(self, buffer: int, source: int) -> bool:
        begun = False
        for instruction in self.draft.instructions:
            if begun and (source in instruction.reads or instruction.kind == "check"):
                return False
            if buffer in instruction.writes:
                begun = True
                if source not in instruction.reads:
                    continue
                if source not in instruction.linear or instruction.reads.count(source) > 1:
                    return False
                if instruction.made.get(buffer, -1) < instruction.linear[source]:
                    return False
        return begun


def _length(sizes: Sequence[Size]) -> Size:
    length = Size.of(1)
    for size in sizes:
        length = length * size
    return length
