"""A cluster as a program of kernels on tiles.

Takes a cluster, the views of what it needs and which of its values are needed elsewhere; puts one instruction into the
draft, and gives the views of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from shapescript.devices.native.clusters import Cluster, Clusters
from shapescript.devices.native.larger import with_larger_kernels
from shapescript.devices.native.members import NORMS
from shapescript.devices.native.plan import Draft, Extent
from shapescript.devices.native.program import Op, Outside, Program
from shapescript.devices.native.views import ONE, ZERO, View, row_major
from shapescript.devices.reference.lowering import positions_among
from shapescript.ir.graph import Node
from shapescript.ops.rules import number_attribute
from shapescript.types.size import Size

ViewOf = Callable[[Node], View]


class TileLowering:
    """Lowers one cluster."""

    def __init__(
        self, draft: Draft, clusters: Clusters, kernels: Mapping[str, int], cluster: Cluster, view_of: ViewOf
    ) -> None:
        self.draft, self.clusters, self.kernels, self.cluster, self.view_of = draft, clusters, kernels, cluster, view_of
        self.program = Program()
        self.made: dict[int, int] = {}
        self.inner = frozenset[int]()

    def lower(self, needed: AbstractSet[int]) -> dict[int, View]:
        """Puts the instruction; gives the views of the members that are needed elsewhere."""
        cluster = self.cluster
        outside = {node.number: self._outside(node) for node in cluster.nodes}
        self.inner = cluster.inner if cluster.inner is not None else self._split(outside)
        outer = [dim for dim in range(len(cluster.sizes)) if dim not in self.inner]
        inner = sorted(self.inner)
        for node in cluster.nodes:
            self._operation(node, outside[node.number])
        views: dict[int, View] = {}
        outputs = []
        wanted = frozenset(self.made[number] for number in needed if number in self.made)
        self.program.ops = with_larger_kernels(self.program, wanted, self.kernels)
        defined = {reg: at for at, op in enumerate(self.program.ops) for reg in op.results}
        made: dict[int, int] = {}
        for node in cluster.nodes:
            if node.number not in needed:
                continue
            places = cluster.places[node.number]
            order = [dim for dim in (*outer, *inner) if dim in places]
            result = self.draft.buffer(node.element, [cluster.sizes[dim] for dim in order], cluster.fixed)
            outputs.append((self.made[node.number], result.buffer, False))
            made[result.buffer] = defined[self.made[node.number]]
            views[node.number] = result.permuted(
                [order.index(dim) for dim in places], [axis.size for axis in node.axes]
            )
        order = [*outer, *inner]
        whole_strides = row_major([cluster.sizes[dim] for dim in order])
        inputs = []
        linear: dict[int, int] = {}
        for reg, one in self.program.inputs:
            strides = [one.strides[dim] for dim in order]
            access = (one.buffer, self.draft.table.ref(one.offset), self.draft.refs(strides))
            inputs.append((reg, access))
            last = max((at for at, op in enumerate(self.program.ops) if reg in op.operands), default=-1)
            if one.offset == ZERO and tuple(strides) == whole_strides:
                linear[one.buffer] = max(last, linear.get(one.buffer, -1))
        node = cluster.nodes[-1]
        arguments = (
            self.draft.refs([cluster.sizes[dim] for dim in outer], node),
            self.draft.refs([cluster.sizes[dim] for dim in inner], node),
            cluster.whole,
            self.program.registers,
            inputs,
            outputs,
            self.program.numbers,
            [(self.kernels[op.kernel], op.results, op.operands) for op in self.program.ops],
        )
        reads = [one.buffer for _, one in self.program.inputs]
        kind = "optimizer" if any(op.kernel.startswith("adam.") for op in self.program.ops) else "tiles"
        instruction = self.draft.put(node, kind, "tiles", arguments, reads, list(made), cluster.fixed)
        instruction.nodes = tuple(cluster.nodes)
        instruction.linear = linear
        instruction.made = made
        return views

    # --- what comes from outside

    def _outside(self, node: Node) -> list[Outside | None]:
        """For each operand, how it is read from memory; None for a value of the cluster or a constant."""
        cluster = self.cluster
        each = self.clusters.kernels[node.number].shape == "each"
        found: list[Outside | None] = []
        for operand in node.operands:
            source, _ = self.clusters.source(operand)
            if source.number in cluster.places or (each and source.name == "constant"):
                found.append(None)
                continue
            view = self.view_of(operand)
            if each:
                at = positions_among(operand.axes, node.axes)
                dims = [cluster.places[node.number][place] for place in at]
            else:
                dims = self._operand_dims(node)
            strides = [ZERO] * len(cluster.sizes)
            for dim, stride in zip(dims, view.strides, strict=True):
                if cluster.sizes[dim] != ONE:
                    strides[dim] = stride
            found.append(Outside(source.element.name, view.buffer, view.offset, tuple(strides)))
        return found

    def _operand_dims(self, node: Node) -> list[int]:
        """The dims of the operand of a reduction or a row operation that comes from outside: its axes in order."""
        assert len(node.operands[0].axes) == len(self.cluster.sizes)
        return list(range(len(self.cluster.sizes)))

    def _split(self, outside: Mapping[int, Sequence[Outside | None]]) -> frozenset[int]:
        """The inner dims: so that what is repeated along some dims is read as rows or columns; else all are."""
        sizes = self.cluster.sizes
        every = frozenset(dim for dim in range(len(sizes)) if sizes[dim] != ONE)
        votes: dict[frozenset[int], int] = {}
        for operands in outside.values():
            for one in operands:
                if one is None:
                    continue
                used = frozenset(dim for dim in every if one.strides[dim] != ZERO)
                rest = every - used
                if not used or not rest:
                    continue
                if min(used) > max(rest):
                    votes[used] = votes.get(used, 0) + 1
                elif max(used) < min(rest):
                    votes[rest] = votes.get(rest, 0) + 1
        if not votes:
            return frozenset(range(len(sizes)))
        best = max(votes, key=lambda inner: votes[inner])
        first = min(best)
        return frozenset(range(first, len(sizes)))

    def _extent(self, strides: Sequence[Size]) -> Extent:
        used = {dim for dim, stride in enumerate(strides) if stride != ZERO}
        outer = {dim for dim in range(len(strides)) if dim not in self.inner}
        if not used:
            return Extent.ONE if strides else Extent.FULL
        if outer and used <= self.inner:
            return Extent.COLUMN
        if outer and used <= outer:
            return Extent.ROW
        return Extent.FULL

    # --- operations

    def _operand(self, operand: Node, outside: Outside | None, full: bool) -> int:
        source, _ = self.clusters.source(operand)
        if source.number in self.cluster.places:
            return self.made[source.number]
        if outside is None:
            value = source.attributes["value"]
            assert isinstance(value, (int, float))
            return self.program.number(value, source.element.name)
        extent = Extent.FULL if full else self._extent(outside.strides)
        key = ("outside", outside.buffer, outside.offset, outside.strides, outside.element, extent)
        known = self.program.known.get(key)
        if known is None:
            known = self.program.register(outside.element, extent)
            self.program.known[key] = known
            self.program.inputs.append((known, outside))
        return known

    def _operation(self, node: Node, outside: Sequence[Outside | None]) -> None:
        kernel = self.clusters.kernels[node.number]
        # what runs along rows reads its operand at each place, even where that is repeated
        full = kernel.shape != "each"
        operands = [self._operand(operand, one, full) for operand, one in zip(node.operands, outside, strict=True)]
        if kernel.swapped:
            operands.reverse()
        name = kernel.name
        if node.number in self.cluster.columns:
            assert kernel.column is not None
            name, extent = kernel.column, Extent.COLUMN
        elif self.cluster.is_full(self.cluster.places[node.number]):
            extent = Extent.FULL
        else:
            extent = Extent.ROW
        if kernel.shape == "row" and node.name in NORMS:
            default = 1e-5
            operands.append(self.program.number(number_attribute(node.attributes, "eps", default), "f64"))
        self.made[node.number] = self.program.register(node.element.name, extent)
        self.program.ops.append(Op(name, (self.made[node.number],), tuple(operands)))
