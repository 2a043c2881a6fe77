"""Updates on parts: what stands between an all-reduce of gradients and the parameters is done on each device's part.

Takes a laid-out graph; gives one with the same results to the bit. An all-reduce is two halves: each device gets its
part combined, and the parts are put together. Where nothing but elementwise operations stands between a gradient and
what is written back, the second half may come after them: each device updates its part of the parameters alone and
holds the optimizer's state of that part alone. What is sent is what the all-reduce would send, so `plan` shows that.

It is done for whole launches, so that no more of them are made, and where the state is used by the update alone. Who
runs such a graph has to count the second half as sent with the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from shapescript.ir.graph import Node, Rewriter
from shapescript.layout.laid import LaidGraph, Part
from shapescript.layout.roles import is_elementwise
from shapescript.layout.words import SHARDED, Layout, all_whole, flat_atom, here, own
from shapescript.ops.registry import REGISTRY, Op
from shapescript.ops.rules import attribute
from shapescript.types.axes import Axis
from shapescript.types.size import Size

MOVED = ("relabel", "broadcast", "rearrange")


def in_halves(laid: LaidGraph) -> LaidGraph:
    """The graph with its updates on parts, where it has any that can be; else the same one."""
    if len(laid.mesh.sizes) != 1 or laid.mesh.count == 1 or laid.padded:
        return laid
    found = _Updates(laid)
    return _Halved(laid, found).halved() if found.sums else laid


class _Updates:
    """The nodes that are done on parts: `sums` are the all-reduces, `states` the inputs that rest in parts."""

    def __init__(self, laid: LaidGraph) -> None:
        self.laid = laid
        self.graph = laid.graph
        self.users: dict[int, list[Node]] = defaultdict(list)
        for node in self.graph.nodes:
            for operand in node.operands:
                self.users[operand.number].append(node)
        self.written = {
            self.graph.outputs[place].number: self.graph.inputs[source].number
            for place, source in laid.resting.written.items()
        }
        self.outputs = {node.number for node in self.graph.outputs}
        self.tags = {node.number: tag for node, tag in zip(self.graph.inputs, laid.resting.inputs, strict=False)}
        self.members = self._members()
        self.sums, self.states = self._parts()

    def _members(self) -> set[int]:
        """Elementwise nodes whose values go nowhere but to others of them, or back to where they came from."""
        members = {node.number for node in self.graph.nodes if self._may_be_member(node)}
        changed = True
        while changed:
            changed = False
            for number in sorted(members, reverse=True):
                if not all(user.number in members for user in self.users[number]):
                    members.remove(number)
                    changed = True
        return members

    def _may_be_member(self, node: Node) -> bool:
        if not is_elementwise(node) or node.name in MOVED or not node.axes or "axes" in node.attributes:
            return False
        if not all_whole(self.laid.layouts[node.number]) or not self._static(node):
            return False
        if any(operand.axes and operand.axes != node.axes for operand in node.operands):
            return False
        if node.number in self.outputs:
            times = sum(output is node for output in self.graph.outputs)
            return times == 1 and self.tags.get(self.written.get(node.number, -1)) in ("param", "state")
        return bool(self.users[node.number])

    def _static(self, node: Node) -> bool:
        return all(axis.size.atoms <= self.graph.sizes.keys() for axis in node.axes)

    def _parts(self) -> tuple[set[int], set[int]]:
        """The sums whose readers are all members, of launches with no others, and the states that they update."""
        wrong: set[int] = set()  # launches
        sums: dict[int, int] = {}
        for node in self.graph.nodes:
            if node.name != "all_reduce":
                continue
            launch = attribute(node.attributes, "launch", int)
            sums[node.number] = launch
            readers = self.users[node.number]
            fits = readers and all(user.number in self.members for user in readers)
            if not fits or node.attributes["kind"] != "sum" or node.number in self.outputs:
                wrong.add(launch)
        groups = self._groups()
        launches_of: dict[int, set[int]] = defaultdict(set)
        for number, launch in sums.items():
            launches_of[groups[number]].add(launch)
        for group, launches in launches_of.items():
            if not self._rests(group, groups):
                wrong |= launches
        while any(launches & wrong and launches - wrong for launches in launches_of.values()):
            # a group that can't be leaves its launches as they are, and so the other groups of those
            for launches in launches_of.values():
                if launches & wrong:
                    wrong |= launches
        kept = {groups[number] for number, launch in sums.items() if launch not in wrong}
        self.members = {number for number in self.members if groups[number] in kept}
        states = {
            node.number
            for node in self.graph.inputs
            if node.axes and self.tags.get(node.number) == "state" and groups.get(node.number) in kept
        }
        return {number for number, launch in sums.items() if launch not in wrong}, states

    def _groups(self) -> dict[int, int]:
        """What hangs together: members with the values of their shape that they read, by one of them."""
        above: dict[int, int] = {}

        def top(number: int) -> int:
            above.setdefault(number, number)
            while above[number] != number:
                above[number] = above[above[number]]
                number = above[number]
            return number

        for node in self.graph.nodes:
            top(node.number)
            if node.number in self.members:
                for operand in node.operands:
                    if operand.axes:
                        above[top(operand.number)] = top(node.number)
        for made, source in self.written.items():
            if made in self.members:
                above[top(source)] = top(made)
        return {number: top(number) for number in list(above)}

    def _rests(self, group: int, groups: dict[int, int]) -> bool:
        """Whether the states of a group are read and written by its members alone, and parameters are whole."""
        back = {source: made for made, source in self.written.items()}
        for node in self.graph.inputs:
            if groups[node.number] != group:
                continue
            if not all_whole(self.laid.layouts[node.number]):
                return False
            if self.tags.get(node.number) != "state":
                continue
            if node.number in self.outputs or back.get(node.number, -1) not in self.members:
                return False
            if any(user.number not in self.members for user in self.users[node.number]):
                return False
        return True


class _Halved(Rewriter):
    """Makes the new graph, and what is known of it."""

    def __init__(self, laid: LaidGraph, updates: _Updates) -> None:
        super().__init__(laid.graph)
        self.laid = laid
        self.updates = updates
        self.layouts: list[Layout] = []
        self.logical_of: list[Node] = []
        self.parts = list(laid.parts)
        self.taken: dict[int, Node] = {}

    def halved(self) -> LaidGraph:
        """The graph with everything beside it."""
        outputs = {node.number: node for node in self.old.outputs}
        for node in self.old.nodes:
            if node.number in self.updates.members or node.number in self.updates.states:
                self._on_part(node)
            elif node.number in self.updates.sums:
                self._half(node, "reduce_scatter", self.now[node.operands[0].number])
            else:
                self.keep(node)
                self._note(node, self.laid.layouts[node.number])
        gathered = [
            node
            for node in self.old.nodes
            if node.number in outputs
            and node.number in self.updates.members
            and self.updates.tags[self.updates.written[node.number]] == "param"
        ]
        launch = next(iter({self.old.nodes[number].attributes["launch"] for number in sorted(self.updates.sums)}))
        for node in gathered:
            part = self.now[node.number]
            self._add(node, REGISTRY["all_gather"], part, node.axes, {**self._flat(node), "launch": launch})
            self._note(node, self.laid.layouts[node.number])
        self.graph.outputs = [self.now[node.number] for node in self.old.outputs]
        numbers = {old.node: self.now[old.node].number for old in self.laid.communications}
        return replace(
            self.laid,
            graph=self.graph,
            layouts=self.layouts,
            communications=[replace(each, node=numbers[each.node]) for each in self.laid.communications],
            inputs=[self.layouts[node.number] for node in self.graph.inputs],
            outputs=[self.layouts[node.number] for node in self.graph.outputs],
            parts=self.parts,
            logical_of=self.logical_of,
        )

    def _on_part(self, node: Node) -> None:
        axes = self._part_axes(node)
        operands = tuple(self._part_of(operand) for operand in node.operands)
        made = self.graph.append(Node(node.op, operands, node.attributes, axes, node.element, node.span))
        self.now[node.number] = made
        if node.op is None:
            self.graph.inputs.append(made)
        self._note(node, (SHARDED,))

    def _part_of(self, node: Node) -> Node:
        """What a member reads: a scalar, what is on parts already, or the part of a whole value."""
        whole = node.number not in self.updates.members | self.updates.states | self.updates.sums
        if not node.axes or not whole:
            return self.now[node.number]
        if node.number not in self.taken:
            kept = self.now[node.number]
            self._half(node, "take_part", kept)
            self.taken[node.number] = self.now[node.number]
            self.now[node.number] = kept
        return self.taken[node.number]

    def _half(self, node: Node, name: str, x: Node) -> None:
        attributes = self._flat(node)
        attributes["axes"] = self._part_axes(node)
        if name == "reduce_scatter":
            attributes["launch"] = node.attributes["launch"]
        self._add(node, REGISTRY[name], x, self._part_axes(node), attributes)
        self._note(node, (SHARDED,))

    def _add(self, old: Node, op: Op, x: Node, axes: Iterable[Axis], attributes: dict[str, object]) -> None:
        made = Node(op, (x,), attributes, tuple(axes), old.element, old.span)
        self.now[old.number] = self.graph.append(made)

    def _note(self, old: Node, layout: Layout) -> None:
        self.layouts.append(layout)
        self.logical_of.append(self.laid.logical_of[old.number])

    def _length(self, node: Node) -> Size:
        total = Size.of(1)
        for axis in node.axes:
            total = total * axis.size
        return total

    def _flat(self, node: Node) -> dict[str, object]:
        """How a value is cut flat, as the attributes of a collective."""
        one, size = Size.of(1), self._length(node)
        return {
            "mesh_axis": 0,
            "axes": node.axes,
            "flat": True,
            "atom": flat_atom(0, size),
            "dim": 0,
            "before": one,
            "inner": one,
            "count": size,
            "padded": False,
        }

    def _part_axes(self, node: Node) -> tuple[Axis, ...]:
        """The one axis of a part; what is shared out is noted when it is first asked for."""
        size = self._length(node)
        atom = flat_atom(0, size)
        if all(part.atom != atom for part in self.parts):
            self.parts.append(Part(atom, 0, size))
            count = size.evaluate(self.graph.sizes)
            if count % self.laid.mesh.count == 0:
                self.graph.sizes[here(atom)] = self.graph.sizes[own(atom)] = count // self.laid.mesh.count
        return (Axis(None, Size.atom(here(atom))),)
