"""Chooses how each value lies, and puts in the conversions between.

Takes a differentiated, simplified logical graph, a mesh, a policy and how inputs and outputs rest; gives a
`LaidGraph`. For each op and each mesh axis, the first that fits:

1. a partial operand of a linear group, used once: the whole group partial, and so is the result; and likewise for
   partial greatest values and their `maximum`;
2. a leaf of the op's index space that the policy splits: operands that have it are split, and so is the result,
   or it is partial where the leaf is gone;
3. elementwise on shards of parameters, their state and their gradients: sharded; their sum, greatest or least over all
   axes: partial;
4. else whole.

Conversions are made when first asked for and kept; a completed version of a value hides the partial one, so that a
chain of partial sums is completed once, at its root, and blamed on the line that made it partial.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from shapescript.ir.graph import Graph, Node
from shapescript.layout.buckets import launch_together
from shapescript.layout.emit import emit
from shapescript.layout.expand import with_expansions
from shapescript.layout.laid import LaidGraph, Resting
from shapescript.layout.masks import with_masks
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import Policy, Splittable, batch_atoms, rest_of
from shapescript.layout.roles import (
    EXTREMES,
    MOVES,
    PARTIAL_KINDS,
    REDUCED_SHARDS,
    LeafRole,
    is_elementwise,
    leaf_roles,
    linear_groups,
)
from shapescript.layout.shards import parameter_space
from shapescript.layout.steps import Conversion, Step, Steps, kind_of, live_steps, reordered
from shapescript.layout.unify import in_parts
from shapescript.layout.verify import verify
from shapescript.layout.words import SHARDED, SUMMED, WHOLE_WORD, Layout, Partial, Sharded, Split, Whole, Word
from shapescript.ops.registry import INDEX, OWN
from shapescript.source import Span
from shapescript.types.axes import same_axes

Choice = tuple[list[Word], Word]


def lay_out(
    graph: Graph, mesh: Mesh, policy: Policy, resting: Resting, padded: bool = False, checked: bool = False
) -> LaidGraph:
    """One device's graph; `checked` verifies the steps between the passes, as under test."""
    laid = lay_steps(graph, mesh, policy, resting, padded)
    if checked:
        verify(laid)
    launch_together(laid)
    if checked:
        verify(laid)
    return emit(laid)


def lay_steps(graph: Graph, mesh: Mesh, policy: Policy, resting: Resting, padded: bool = False) -> Steps:
    """The steps, in program order."""
    batches = batch_atoms(graph)
    graph = in_parts(with_expansions(graph, policy), policy)
    if padded:
        graph = with_masks(graph, batches)
    laid = Steps(graph, mesh, policy, resting, padded, batches=batches)
    Layouter(laid).lay()
    reordered(laid, [number for number, live in enumerate(live_steps(laid.steps, laid.outputs)) if live])
    return laid


class Layouter:
    """Lays out one graph."""

    def __init__(self, laid: Steps) -> None:
        self.laid = laid
        self.graph, self.policy = laid.logical, laid.policy
        self.mesh_axes = range(len(laid.mesh.sizes))
        self.whole: Layout = (WHOLE_WORD,) * len(laid.mesh.sizes)
        self.splittable = Splittable(laid.logical, laid.policy)
        self.versions: list[dict[Layout, int]] = [{} for _ in laid.logical.nodes]
        self.uses = [0] * len(laid.logical.nodes)
        for node in self.graph.nodes:
            for operand in node.operands:
                self.uses[operand.number] += 1
        for node in self.graph.outputs:
            self.uses[node.number] += 1
        self.space = parameter_space(self.graph, laid.resting)
        laid.labels = self.space.labels
        self.gathered: OrderedDict[int, int] = OrderedDict()
        """Sharded parameters that lie whole for now, with the count of their values, the last used at the end."""
        self.views: dict[int, tuple[int, list[Layout], Layout]] = {}
        """What is a sharded parameter's values moved: the parameter, and how it was made of what layout."""
        self.user: Span | None = None
        """The line that asks for a value: what an input's conversion is blamed on."""
        self.asking: tuple[Node, frozenset[str]] | None = None
        """The operation that asks for its operands, and the atoms along which it can work on parts of them."""
        self.room = 2 * max((self._values(node) for node in self.graph.inputs if self._sharded(node)), default=0)

    def lay(self) -> None:
        """All steps, and the outputs."""
        for place, node in enumerate(self.graph.inputs):
            layout = rest_of(node, self.laid.resting.inputs[place], self.policy, self.graph.sizes)
            self._add(Step(node, (), layout, None, node.span))
        for node in self.graph.nodes:
            if node.op is not None and node.name != "mask":
                self._lay_node(node)
        self.asking = None
        for place, node in enumerate(self.graph.outputs):
            source = self.laid.resting.written.get(place)
            if source is None:
                layout = self._resting_output(node)
            else:
                tag = self.laid.resting.inputs[source]
                layout = rest_of(self.graph.inputs[source], tag, self.policy, self.graph.sizes)
            self.laid.outputs.append(self.at(node, layout))

    def _lay_node(self, node: Node) -> None:
        roles = self._roles(node)
        choices = [self.choose(node, m, roles) for m in self.mesh_axes]
        self.user, self.asking = node.span, (node, frozenset(atom for atom, _ in roles))
        operands = [
            self.at(operand, tuple(words[place] for words, _ in choices)) for place, operand in enumerate(node.operands)
        ]
        layout = tuple(result for _, result in choices)
        span = node.span
        partial = [m for m, word in enumerate(layout) if isinstance(word, Partial)]
        if partial:
            # A partial sum that goes on through a linear op is blamed on the line that made it partial, the last of
            # several: what it is added to was there already.
            made = [
                number
                for number in operands
                if isinstance(self.laid.steps[number].layout[partial[0]], Partial)
                and not self._kept_first(self.laid.steps[number])
            ]
            span = self.laid.steps[max(made)].span if made else span
        self._add(Step(node, tuple(operands), layout, None, span))
        root = self._viewed(node)
        if root is not None:
            wanted = [tuple(words[place] for words, _ in choices) for place in range(len(operands))]
            self.views[node.number] = root, wanted, layout

    def _viewed(self, node: Node) -> int | None:
        """The sharded parameter whose values a node moves, if that is all it does."""
        if node.name not in ("relabel", "rearrange", "refine", "stop_gradient", "slice"):
            return None
        (operand,) = node.operands
        if operand.number in self.views:
            return self.views[operand.number][0]
        return operand.number if self._sharded(operand) else None

    def _kept_first(self, step: Step) -> bool:
        return step.conversion is not None and step.conversion.kind == "keep_first"

    def _add(self, step: Step) -> int:
        number = len(self.laid.steps)
        self.laid.steps.append(step)
        self.versions[step.value.number][step.layout] = number
        return number

    # --- what is known of values

    def _values(self, node: Node) -> int:
        total = 1
        for axis in node.axes:
            total *= axis.size.evaluate(self.graph.sizes)
        return total

    def _sharded(self, node: Node) -> bool:
        """Whether an input rests in shards."""
        if not self.policy.shard or node.op is not None:
            return False
        tag = self.laid.resting.inputs[self.graph.inputs.index(node)]
        return SHARDED in rest_of(node, tag, self.policy, self.graph.sizes)

    def see(self, node: Node, mesh_axis: int) -> Word:
        """How a value lies on one mesh axis; a completed version hides a partial one."""
        if node.name == "mask":
            return self.see(node.operands[0], mesh_axis)
        words = [layout[mesh_axis] for layout in self.versions[node.number]]
        if not words:  # let go of, to be made again when it is asked for
            return self.views[node.number][2][mesh_axis]
        return next((word for word in words if not isinstance(word, Partial)), words[0])

    def _resting_output(self, node: Node) -> Layout:
        """How an output lies that isn't written back: a scalar sum may stay partial, rows may stay split."""
        words: list[Word] = []
        for m in self.mesh_axes:
            word = self.see(node, m)
            if isinstance(word, Partial) and (node.axes or word.kind != "sum"):
                word = WHOLE_WORD
            words.append(WHOLE_WORD if isinstance(word, Sharded) else word)
        return tuple(words)

    # --- choosing

    def _roles(self, node: Node) -> list[tuple[str, LeafRole]]:
        """The leaves along which the node could be split, with the atoms."""
        found = []
        for role in leaf_roles(node):
            atom = self.splittable.atom(role.leaf)
            if atom is not None and self._can_be_split(node, role):
                found.append((atom, role))
        return found

    def _can_be_split(self, node: Node, role: LeafRole) -> bool:
        if role.word == INDEX:
            place = role.operands[0]
            return place is not None and place[1] == 0 and not node.element.is_bool
        if role.word == OWN:
            return role.result is not None and role.result[1] == 0
        if node.name == "iota":
            return role.result is not None and role.result[1] == 0
        return True

    def choose(self, node: Node, mesh_axis: int, roles: Sequence[tuple[str, LeafRole]]) -> Choice:
        """The words of the operands and of the result on one mesh axis: the rules, in their order."""
        seen = [self.see(operand, mesh_axis) for operand in node.operands]
        chosen = self._chosen(mesh_axis, roles, seen)
        partial = self._goes_on_partial(node, seen, chosen is None or node.name in MOVES)
        if partial is not None:
            return [SUMMED if i in partial else WHOLE_WORD for i in range(len(seen))], SUMMED
        if chosen is not None:
            return split_along(*chosen)
        extreme = self._goes_on_extreme(node, seen)
        if extreme is not None:
            return list(seen), extreme
        sharded = self._on_shards(node, mesh_axis, seen)
        if sharded is not None:
            return sharded
        return [WHOLE_WORD] * len(seen), WHOLE_WORD

    def _chosen(
        self, mesh_axis: int, roles: Sequence[tuple[str, LeafRole]], seen: Sequence[Word]
    ) -> tuple[str, LeafRole] | None:
        """The first atom of the policy that a leaf has; of its leaves that along which most operands are split."""
        for atom in self.policy.splits[mesh_axis]:
            found = [role for own, role in roles if own == atom]
            if found:
                best = max(found, key=lambda role: _agreeing(atom, role, seen))
                return atom, best
        return None

    def _goes_on_partial(self, node: Node, seen: Sequence[Word], free: bool) -> frozenset[int] | None:
        """The linear group whose operands may stay partial."""
        if not free or not any(word == SUMMED for word in seen):
            return None
        lazy = {
            i
            for i, operand in enumerate(node.operands)
            if seen[i] == SUMMED and self._used_once(operand) and len(node.axes) <= len(operand.axes)
        }
        for group in linear_groups(node):
            if group & lazy and all(seen[i] == SUMMED or isinstance(seen[i], Whole) for i in group):
                return group
        return None

    def _goes_on_extreme(self, node: Node, seen: Sequence[Word]) -> Word | None:
        """The greater of partial greatest values is one too, and a whole value is a partial one as it is."""
        word = EXTREMES.get(node.name)
        if word is None or word not in seen or any(each != word and not isinstance(each, Whole) for each in seen):
            return None
        held = [operand for operand, each in zip(node.operands, seen, strict=True) if each == word]
        small = all(self._used_once(operand) and len(node.axes) <= len(operand.axes) for operand in held)
        return word if small else None

    def _used_once(self, node: Node) -> bool:
        if node.name == "mask" and self.uses[node.operands[0].number] != 1:
            return False
        return self.uses[node.number] == 1

    def _on_shards(self, node: Node, mesh_axis: int, seen: Sequence[Word]) -> Choice | None:
        """Elementwise on shards, or their sum, greatest or least."""
        if not self.policy.shard or mesh_axis != 0:
            return None
        if node.name in REDUCED_SHARDS and not node.axes and node.operands[0].axes:
            operand = node.operands[0]
            if self._is_shard(operand, seen[0]):
                return [SHARDED], REDUCED_SHARDS[node.name]
        if not node.axes or not is_elementwise(node):
            return None
        full = [same_axes(operand.axes, node.axes) for operand in node.operands]
        if not any(at and self._is_shard(node.operands[i], seen[i]) for i, at in enumerate(full)):
            return None
        for at, operand, word in zip(full, node.operands, seen, strict=True):
            if (not at and operand.axes) or (at and isinstance(word, Split)):
                return None
        self.space.members.add(node.number)
        return [SHARDED if at else WHOLE_WORD for at in full], SHARDED

    def _is_shard(self, node: Node, word: Word) -> bool:
        return isinstance(word, Sharded) or (word == SUMMED and node.number in self.space.members)

    # --- converting

    def at(self, node: Node, layout: Layout) -> int:
        """The step that gives a value at a layout, made if it isn't there."""
        found = self.versions[node.number].get(layout)
        if found is not None:
            root = self.views[node.number][0] if node.number in self.views else node.number
            if root in self.gathered:
                self.gathered.move_to_end(root)
            return found
        if not self.versions[node.number] and node.number in self.views:
            _, wanted, made = self.views[node.number]
            operands = tuple(self.at(operand, lay) for operand, lay in zip(node.operands, wanted, strict=True))
            self._add(Step(node, operands, made, None, node.span))
            return self.at(node, layout)
        if node.name == "mask":
            # Selection comes after any conversion, in the layout of the op that reduces.
            return self._add(Step(node, (self.at(node.operands[0], layout),), layout, None, node.span))
        if self._made_anywhere(node) and not any(isinstance(word, Partial) for word in layout):
            operands = tuple(self.at(operand, self.whole) for operand in node.operands)
            return self._add(Step(node, operands, layout, None, node.span))
        versions = self.versions[node.number]
        number = min(versions.values(), key=lambda n: _cost(self.laid.steps[n].layout, layout))
        return self._converted(node, number, layout)

    def _made_anywhere(self, node: Node) -> bool:
        """Whether a value costs nothing to make at any layout: one number everywhere, or places along an axis."""
        return node.name == "broadcast" and not node.operands[0].axes

    def _converted(self, node: Node, number: int, layout: Layout) -> int:
        """One mesh axis at a time; shards, flat parts of what else is split, are undone first and done last."""
        current = self.laid.steps[number].layout
        for m in self.mesh_axes:
            if isinstance(current[m], Sharded):  # even where it ends in shards again: they are parts of another rest
                number, current = self._towards(node, number, current, m, WHOLE_WORD)
        for m in sorted(self.mesh_axes, key=lambda m: isinstance(layout[m], Sharded)):
            if current[m] != layout[m]:
                if kind_of(current[m], layout[m]) is None:
                    number, current = self._towards(node, number, current, m, WHOLE_WORD)
                number, current = self._towards(node, number, current, m, layout[m])
        return number

    def _towards(self, node: Node, number: int, current: Layout, mesh_axis: int, word: Word) -> tuple[int, Layout]:
        """One conversion along one mesh axis, if it isn't there."""
        after = (*current[:mesh_axis], word, *current[mesh_axis + 1 :])
        return self._one(node, number, mesh_axis, current[mesh_axis], after), after

    def _one(self, node: Node, number: int, mesh_axis: int, before: Word, layout: Layout) -> int:
        found = self.versions[node.number].get(layout)
        if found is not None:
            return found
        after = layout[mesh_axis]
        kind = kind_of(before, after)
        assert kind is not None, f"{before} can't become {after} at once"
        span = self.laid.steps[number].span or self.user
        if isinstance(before, Sharded) and isinstance(after, Whole) and node.op is None:
            self._make_room(node)
        note = self._why_whole(before, after)
        if note and self.user is not None:
            span = self.user
        return self._add(Step(node, (number,), layout, Conversion(kind, mesh_axis, before, after), span, note=note))

    def _why_whole(self, before: Word, after: Word) -> str:
        """Words for what is sent because a split dim can't be followed through an operation."""
        if not (isinstance(before, Split) and isinstance(after, (Whole, Split))) or self.asking is None:
            return ""
        node, followed = self.asking
        if before.atom in followed or before.atom in self.laid.batches:
            return ""
        if node.name in ("relabel", "rearrange"):
            return f"`{before.atom}` goes into an axis that isn't split here"
        return f"`{node.name}` needs `{before.atom}` whole"

    def _make_room(self, node: Node) -> None:
        """A parameter is gathered: those gathered long before it are let go, to be gathered again if needed."""
        self.gathered[node.number] = self._values(node)
        while sum(self.gathered.values()) > self.room and len(self.gathered) > 1:
            oldest, _ = self.gathered.popitem(last=False)
            kept = {lay: n for lay, n in self.versions[oldest].items() if not self._was_gathered(n)}
            self.versions[oldest] = kept
            for number, (root, _, _) in self.views.items():
                if root == oldest:
                    self.versions[number] = {}

    def _was_gathered(self, number: int) -> bool:
        """Whether a step gives a whole version of a sharded parameter, or what was made of one."""
        step = self.laid.steps[number]
        while step.conversion is not None:
            if isinstance(step.conversion.before, Sharded):
                return True
            step = self.laid.steps[step.operands[0]]
        return False


def _agreeing(atom: str, role: LeafRole, seen: Sequence[Word]) -> int:
    return sum(
        place is not None and word == Split(atom, *place) for place, word in zip(role.operands, seen, strict=True)
    )


def split_along(atom: str, role: LeafRole) -> Choice:
    """Rule 2: operands split where they have the leaf; the result split, or partial where it lacks it."""
    operands: list[Word] = [WHOLE_WORD if place is None else Split(atom, *place) for place in role.operands]
    if role.result is not None:
        return operands, Split(atom, *role.result)
    return operands, Partial(PARTIAL_KINDS[role.word])


COSTS: dict[type[Word], int] = {Whole: 0, Partial: 4, Split: 2, Sharded: 2}


def _cost(have: Layout, wanted: Layout) -> int:
    """A measure of what it takes to get from one layout to another."""
    total = 0
    for before, after in zip(have, wanted, strict=True):
        if before != after:
            total += COSTS[type(before)] * (2 if isinstance(after, (Whole, Partial)) else 1)
    return total
