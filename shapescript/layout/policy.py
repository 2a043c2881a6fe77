"""What is asked of a layout: along which atoms values are split on each mesh axis, and whether parameters are sharded.

Gives `Policy` and `policy_for`, which makes it of a program's `devices` options; how inputs rest (`rest_of`); and
`Splittable`, which says of a leaf by which atom it could be split. A batch's count is an atom that the graph's sizes
lack. A dim that is made of others (`dim Hd = 4*D`) stands for an atom: leaves of its size are split by its name. What
`whole(x)` gave, under a name of its own, is never split again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shapescript.ir.graph import Graph, Node
from shapescript.layout.mesh import Mesh
from shapescript.layout.words import SHARDED, WHOLE_WORD, Layout, Split, Word, leaves_of
from shapescript.types.axes import Axis
from shapescript.types.size import Size


@dataclass(frozen=True)
class Policy:
    """For each mesh axis the atoms that values are split along, the first that fits; `shard` shards over axis 0."""

    splits: tuple[tuple[str, ...], ...]
    shard: bool = False
    made: Mapping[Size, str] = field(default_factory=dict)
    """The dims among them that are made of others, by their sizes."""

    def atom_of(self, leaf: Axis) -> str | None:
        """By which atom a leaf would be split, or the name that stands for one."""
        return self.made.get(leaf.size) or atom_of(leaf)

    def dims(self, sizes: Mapping[str, int]) -> set[str]:
        """The dims that values are split along, batches left out; `sizes` are those of a graph."""
        made = self.made.values()
        return {atom for atoms in self.splits for atom in atoms if atom in sizes or atom in made}


def batch_atoms(graph: Graph) -> tuple[str, ...]:
    """The counts of batches, in the order of the inputs that have them."""
    found: dict[str, None] = {}
    for node in graph.inputs:
        for axis in node.axes:
            for leaf in leaves_of(axis):
                atom = atom_of(leaf)
                if atom is not None and atom not in graph.sizes:
                    found[atom] = None
    return tuple(found)


def atom_of(leaf: Axis) -> str | None:
    """The atom that a leaf's size is, if it is one alone."""
    terms = leaf.size.terms
    if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0][1] == 1:
        return terms[0][0][0][0]
    return None


def policy_for(
    graph: Graph, mesh: Mesh, splits: Sequence[str] = (), shard: bool = False, dims: Mapping[str, Size] | None = None
) -> Policy:
    """The policy of a `devices` line: the dims of its `split` lines, then the batch; on a mesh of two axes, apart.

    `dims` has the sizes of the dims that are made of others.
    """
    batches = batch_atoms(graph)
    made: dict[Size, str] = {}
    for name in splits:
        if dims and name in dims and dims[name] != Size.atom(name):
            made.setdefault(dims[name], name)
    if len(mesh.sizes) == 1:
        return Policy(((*splits, *batches),), shard, made)
    return Policy((batches, tuple(splits)), shard, made)


def rest_of(node: Node, tag: str, policy: Policy, sizes: Mapping[str, int]) -> Layout:
    """How an input with this tag lies between calls."""
    return tuple(_rest_word(node, tag, policy, m, sizes) for m in range(len(policy.splits)))


def _rest_word(node: Node, tag: str, policy: Policy, mesh_axis: int, sizes: Mapping[str, int]) -> Word:
    if tag == "whole":
        return WHOLE_WORD
    batch, dims = tag == "rows", policy.dims(sizes)
    for atom in policy.splits[mesh_axis]:
        if batch == (atom not in dims):
            for dim, axis in enumerate(node.axes):
                for number, leaf in enumerate(leaves_of(axis)):
                    if policy.atom_of(leaf) == atom:
                        return Split(atom, dim, number)
    flat = policy.shard and mesh_axis == 0 and node.axes and not batch
    return SHARDED if flat else WHOLE_WORD


class Splittable:
    """Which leaves of a graph may be split: those whose size is a policy's atom, unless `whole` made them."""

    def __init__(self, graph: Graph, policy: Policy) -> None:
        self._policy = policy
        self._atoms = {atom for axis in policy.splits for atom in axis}
        self._twins = _twins(graph)

    def atom(self, leaf: Axis) -> str | None:
        """By which atom a leaf may be split."""
        atom = self._policy.atom_of(leaf)
        return atom if atom in self._atoms and leaf.name not in self._twins else None


def _twins(graph: Graph) -> set[str | None]:
    """The names that batch axes get after `whole`, which no axis had before."""
    known = {leaf.name for node in graph.inputs for axis in node.axes for leaf in leaves_of(axis)}
    found: set[str | None] = set()
    gathered: set[int] = set()
    for node in graph.nodes:
        if node.name == "whole":
            gathered.add(node.number)
        elif node.name == "relabel":
            for old, new in zip(node.operands[0].axes, node.axes, strict=True):
                if not new.batch or new.name in known:
                    continue
                if node.operands[0].number in gathered or old.name in found:
                    found.add(new.name)
        elif node.operands and all(operand.number in gathered for operand in node.operands):
            gathered.add(node.number)
        if node.number not in gathered and node.name != "relabel":
            known.update(axis.name for axis in node.axes if axis.batch and axis.name not in found)
    return found
