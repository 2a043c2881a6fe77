"""Fusion: nodes that go over the same space become one cluster, and so one pass over memory.

Takes a graph; gives `Clusters`: what each node is done with, and the units of work in an order in which each stands
after what it needs. A unit is a cluster of kernels on tiles, or a single other node, or the all-reduces of one launch.
Collectives stay in the program's order: every device must come to them in the same one, whatever its executor.

A node joins the cluster of an operand where both have the same space, and where nothing that it needs besides waits for
that cluster. A cluster's space has outer dims and inner ones, along which its reductions run; what a reduction gives
has a value for each row, and may be used again in the same cluster where rows aren't too long. A reduction along the
outer dims ends there: its result is known only when all tiles are done.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shapescript.devices.native.members import WHOLE_ROWS, Kernel, kernel_of, through
from shapescript.devices.native.members import Mapping as AxisMapping
from shapescript.devices.reference.executor import fixed_nodes
from shapescript.devices.reference.lowering import over_positions, positions_among
from shapescript.ir.graph import Graph, Node
from shapescript.types.size import Size

LONGEST_ROW = 16384
"""Up to how many places of a row a cluster keeps in registers."""


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(eq=False)
class Unit:
    """Work that is done at once: a cluster's nodes, a single node, or the all-reduces of one launch."""

    number: int
    nodes: list[Node]
    fixed: bool


@dataclass(eq=False)
class Cluster(Unit):
    """Kernels over one space. `places` has, for each axis of a member, the dim of the space."""

    sizes: list[Size] = field(default_factory=list)
    inner: frozenset[int] | None = None
    whole: bool = False
    places: dict[int, tuple[int, ...]] = field(default_factory=dict)
    columns: set[int] = field(default_factory=set)

    @property
    def outer(self) -> frozenset[int]:
        """The dims that aren't inner ones."""
        return frozenset(range(len(self.sizes))) - (self.inner or frozenset())

    def is_full(self, places: Sequence[int]) -> bool:
        """Whether a value with these dims has one for each place of the space."""
        return len(places) == len(self.sizes)


class Clusters:
    """The units of a graph."""

    def __init__(self, graph: Graph, kernels: dict[str, int], checked: Mapping[int, Node]) -> None:
        self.graph = graph
        self.kernels: dict[int, Kernel] = {}
        for node in graph.nodes:
            kernel = kernel_of(node, kernels)
            if kernel is not None:
                self.kernels[node.number] = kernel
        self.units: dict[int, Unit] = {}
        self.unit_of: dict[int, Unit] = {}
        self._seen: dict[int, tuple[Node, AxisMapping]] = {}
        self._before: dict[int, int] = {}  # the units that one needs, as bits
        self._count = 0
        self._after: dict[int, int] = {}  # a collective's unit and that of the collective before it
        self._collective: Unit | None = None
        self._fixed = fixed_nodes(graph)
        for node in graph.nodes:
            if node.op is None or (self.source(node)[0] is not node and node.number not in checked):
                continue
            kernel = self.kernels.get(node.number)
            if node.name in COLLECTIVES:
                self._place_collective(node)
            elif kernel is None:
                self._put(node, Unit(self._next(), [], node.number in self._fixed))
            elif kernel.shape == "each":
                self._place_each(node)
            else:
                self._place_along(node, kernel)

    def source(self, node: Node) -> tuple[Node, AxisMapping]:
        """The node whose value this one shows, and its axes."""
        return through(node, self._seen)

    def in_order(self) -> list[Unit]:
        """The units, each after those that it needs, else as the program has them."""
        needs = {number: self._needed(unit) for number, unit in self.units.items()}
        users: dict[int, list[int]] = {}
        for number, needed in needs.items():
            for other in needed:
                users.setdefault(other, []).append(number)
        left = {number: len(needed) for number, needed in needs.items()}
        last = {number: unit.nodes[-1].number for number, unit in self.units.items()}
        ready = [(last[number], number) for number, count in left.items() if count == 0]
        heapq.heapify(ready)
        found = []
        while ready:
            _, number = heapq.heappop(ready)
            found.append(self.units[number])
            for user in users.get(number, ()):
                left[user] -= 1
                if left[user] == 0:
                    heapq.heappush(ready, (last[user], user))
        assert len(found) == len(self.units), "clusters wait for one another"
        return found

    # --- who needs whom

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _operand_units(self, node: Node) -> set[int]:
        found = set()
        for operand in node.operands:
            unit = self.unit_of.get(self.source(operand)[0].number)
            if unit is not None:
                found.add(unit.number)
        return found

    def _needed(self, unit: Unit) -> set[int]:
        found = {number for node in unit.nodes for number in self._operand_units(node)} - {unit.number}
        before = self._after.get(unit.number)
        return found if before is None else found | {before}

    def _bits(self, units: Iterable[int]) -> int:
        found = 0
        for number in units:
            found |= self._before[number] | 1 << number
        return found

    def _put(self, node: Node, unit: Unit) -> None:
        """Makes a node part of a unit, new or old."""
        needed = self._operand_units(node) | ({self._after[unit.number]} if unit.number in self._after else set())
        bits = self._bits(needed - {unit.number}) & ~(1 << unit.number)
        if unit.number not in self.units:
            self.units[unit.number] = unit
            self._before[unit.number] = bits
        else:
            self._add_before(unit.number, bits)
        unit.nodes.append(node)
        self.unit_of[node.number] = unit

    def _add_before(self, number: int, bits: int) -> None:
        if bits & ~self._before[number] == 0:
            return
        self._before[number] |= bits
        for other, before in self._before.items():
            if before >> number & 1:
                self._before[other] = before | bits

    def _may_join(self, node: Node, cluster: Cluster) -> bool:
        """Whether nothing else that the node needs waits for the cluster."""
        if cluster.fixed != (node.number in self._fixed):
            return False
        others = self._operand_units(node) - {cluster.number}
        return all(not self._before[other] >> cluster.number & 1 for other in others)

    def _place_collective(self, node: Node) -> None:
        """A collective stands after the one before it; one of the same launch joins that."""
        last = self._collective
        if last is None or not _of_one_launch(last.nodes[0], node):
            unit = Unit(self._next(), [], False)
            if last is not None:
                self._after[unit.number] = last.number
            self._collective = last = unit
        self._put(node, last)

    # --- each place by itself

    def _sources(self, node: Node) -> list[tuple[Node, AxisMapping]]:
        """The operands' sources; the source's axis for each axis of the node."""
        found = []
        for operand in node.operands:
            source, mapping = self.source(operand)
            places = positions_among(operand.axes, node.axes)
            axes = [places.index(at) if at in places else None for at in range(len(node.axes))]
            found.append((source, tuple(None if at is None else mapping[at] for at in axes)))
        return found

    def _place_each(self, node: Node) -> None:
        sources = self._sources(node)
        candidates: dict[int, Cluster] = {}
        for source, _ in sources:
            unit = self.unit_of.get(source.number)
            if isinstance(unit, Cluster) and source.number not in unit.columns:
                candidates[unit.number] = unit
        joined: Cluster | None = None
        places: tuple[int, ...] = ()
        for number in sorted(candidates, reverse=True):
            cluster = candidates[number]
            if joined is None:
                found = self._dims_of(node, sources, cluster)
                if found is not None and self._may_join(node, cluster) and self._keep_rows(sources, cluster):
                    joined, places = cluster, found
        if joined is None:
            cluster = Cluster(self._next(), [], node.number in self._fixed, [axis.size for axis in node.axes])
            cluster.places[node.number] = tuple(range(len(node.axes)))
            self._put(node, cluster)
            return
        joined.places[node.number] = places
        self._put(node, joined)
        if joined.is_full(places):
            for number in sorted(candidates, reverse=True):
                other = candidates[number]
                if other is not joined:
                    self._merge(joined, other, node, sources)

    def _dims_of(
        self, node: Node, sources: Sequence[tuple[Node, AxisMapping]], cluster: Cluster
    ) -> tuple[int, ...] | None:
        """The dims of a cluster that the axes of a node are, by its operands there; None where it doesn't fit."""
        dims: list[int | None] = [None] * len(node.axes)
        for source, mapping in sources:
            if self.unit_of.get(source.number) is not cluster:
                continue
            if source.number in cluster.columns:
                return None
            for at, axis in enumerate(mapping):
                if axis is None:
                    continue
                dim = cluster.places[source.number][axis]
                if dims[at] not in (None, dim):
                    return None
                dims[at] = dim
        open_axes = [at for at, dim in enumerate(dims) if dim is None]
        if open_axes:
            # a value of each row, used at each place of it: any dims of these lengths will do
            left = [dim for dim in range(len(cluster.sizes)) if dim not in dims]
            if [node.axes[at].size for at in open_axes] != [cluster.sizes[dim] for dim in left]:
                return None
            for at, dim in zip(open_axes, left, strict=True):
                dims[at] = dim
        found = tuple(dim for dim in dims if dim is not None)
        if len(set(found)) != len(found):
            return None
        if cluster.is_full(found) or (cluster.inner is not None and set(found) == cluster.outer):
            return found
        return None

    def _keep_rows(self, sources: Sequence[tuple[Node, AxisMapping]], cluster: Cluster) -> bool:
        """Whether a node may use what it needs of a cluster: values of rows only where rows are kept."""
        for source, _ in sources:
            if self.unit_of.get(source.number) is cluster and not cluster.is_full(cluster.places[source.number]):
                if not self._may_be_whole(cluster, cluster.inner or frozenset()):
                    return False
                cluster.whole = True
        return True

    def _may_be_whole(self, cluster: Cluster, inner: frozenset[int]) -> bool:
        if cluster.whole:
            return True
        length = 1
        for dim in inner:
            size = cluster.sizes[dim]
            if not size.atoms <= self.graph.sizes.keys():
                return False
            length *= size.evaluate(self.graph.sizes)
        return length <= LONGEST_ROW

    def _merge(self, cluster: Cluster, other: Cluster, node: Node, sources: Sequence[tuple[Node, AxisMapping]]) -> None:
        """Takes another cluster in, of which a node of this one needs something, where both have one space."""
        if other.number not in self.units or other.fixed != cluster.fixed:
            return
        if len(other.sizes) != len(cluster.sizes):
            return
        if self._before[other.number] >> cluster.number & 1 or self._waits_between(cluster, other):
            return
        dims = self._dims_of(node, sources, other)
        if dims is None or not other.is_full(dims) or self._uses_results(cluster, other):
            return
        to = dict(zip(dims, cluster.places[node.number], strict=True))
        inner = None if other.inner is None else frozenset(to[dim] for dim in other.inner)
        if inner is not None and cluster.inner is not None and inner != cluster.inner:
            return
        if (cluster.whole or other.whole) and not (self._may_be_whole(cluster, inner or cluster.inner or frozenset())):
            return
        cluster.inner = cluster.inner if inner is None else inner
        cluster.whole = cluster.whole or other.whole
        cluster.columns |= other.columns
        for number, places in other.places.items():
            cluster.places[number] = tuple(to[dim] for dim in places)
        cluster.nodes = sorted([*cluster.nodes, *other.nodes], key=lambda each: each.number)
        for member in other.nodes:
            self.unit_of[member.number] = cluster
        del self.units[other.number]
        mine, others = 1 << cluster.number, 1 << other.number
        before = (self._before[cluster.number] | self._before.pop(other.number)) & ~(mine | others)
        self._before[cluster.number] = before
        for number, bits in self._before.items():
            if bits & (mine | others):
                self._before[number] = bits & ~others | mine | before

    def _waits_between(self, cluster: Cluster, other: Cluster) -> bool:
        """Whether something that the cluster needs, besides the other one, itself waits for the other one."""
        return any(
            number != other.number and self._before[number] >> other.number & 1 for number in self._needed(cluster)
        )

    def _uses_results(self, cluster: Cluster, other: Cluster) -> bool:
        """Whether a cluster needs what a reduction of the other one gives."""
        return any(
            self.unit_of.get(source.number) is other and not other.is_full(other.places[source.number])
            for node in cluster.nodes
            for source in (self.source(operand)[0] for operand in node.operands)
        )

    # --- along rows

    def _place_along(self, node: Node, kernel: Kernel) -> None:
        operand = node.operands[0]
        source, mapping = self.source(operand)
        over = over_positions(node)
        rest = [at for at in range(len(operand.axes)) if at not in over]
        unit = self.unit_of.get(source.number)
        if (
            isinstance(unit, Cluster)
            and source.number not in unit.columns
            and unit.is_full(unit.places[source.number])
            and self._may_join(node, unit)
        ):
            dims = [None if axis is None else unit.places[source.number][axis] for axis in mapping]
            found = [dim for dim in dims if dim is not None]
            if len(found) == len(dims) == len(set(found)) == len(unit.sizes):
                if self._join_along(node, kernel, unit, [found[at] for at in over], [found[at] for at in rest], found):
                    return
        cluster = Cluster(self._next(), [], node.number in self._fixed, [axis.size for axis in operand.axes])
        every = list(range(len(operand.axes)))
        if not self._join_along(node, kernel, cluster, over, rest, every, alone=True):
            raise AssertionError(f"{node!r} fits no cluster")

    def _join_along(
        self,
        node: Node,
        kernel: Kernel,
        cluster: Cluster,
        over: list[int],
        rest: list[int],
        every: list[int],
        alone: bool = False,
    ) -> bool:
        along, across = frozenset(over), frozenset(rest)
        last = len(cluster.sizes) - 1
        column = kernel.column is not None and bool(across)
        if cluster.inner is None and (not column or last in along):
            by_row = True
        else:
            by_row = cluster.inner == along
        if by_row:
            whole = kernel.shape == "row" or node.name in WHOLE_ROWS
            if whole and not alone and not self._may_be_whole(cluster, along):
                return False
            cluster.whole = cluster.whole or whole
            cluster.inner = along
            cluster.places[node.number] = tuple(every if kernel.shape == "row" else rest)
        elif column and cluster.inner in (None, across):
            cluster.inner = across
            cluster.places[node.number] = tuple(rest)
            cluster.columns.add(node.number)
        else:
            return False
        self._put(node, cluster)
        return True


def _of_one_launch(node: Node, other: Node) -> bool:
    launch = node.attributes.get("launch")
    return node.name == other.name and launch is not None and launch == other.attributes.get("launch")


def static_length(sizes: Iterable[Size], known: Mapping[str, int]) -> int | None:
    """How many places some sizes make; None where it depends on a count."""
    length = 1
    for size in sizes:
        if not size.atoms <= known.keys():
            return None
        length *= size.evaluate(known)
    return length
