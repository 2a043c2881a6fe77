"""What the layouter gives: one device's graph, how its values lie, and what it sends.

`LaidGraph.graph` is the same for every device; what differs is in the counts, which `counts_for` works out for one
device. Doesn't run anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shapescript.ir.graph import Graph, Node
from shapescript.layout.mesh import Mesh, first_of, parts
from shapescript.layout.words import Layout, first, here, own, room
from shapescript.source import Span
from shapescript.types.element import Element
from shapescript.types.size import Size


@dataclass(frozen=True)
class Resting:
    """How inputs and outputs lie between calls.

    `inputs` has a tag for each input: `param`, `state`, `gradient`, `rows` (split along its batch axis) or `whole`.
    `written` says of an output which input it is written back to, as which it then rests. `names` are what inputs are
    called where they are shown.
    """

    inputs: tuple[str, ...]
    written: Mapping[int, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """What is shared out over a mesh axis: `atom` is the name of its count, which is `size`."""

    atom: str
    mesh_axis: int
    size: Size
    batch: bool = False


@dataclass(frozen=True)
class Communication:
    """One collective: the local graph's node, what it does to which logical value, and how much it carries.

    `values` may depend on a batch's count. `span` is the line that made what is sent, or that needs it whole, as `note`
    then says. Those of one `launch` go as one.
    """

    node: int
    kind: str
    mesh_axis: int
    before: str
    after: str
    label: str
    values: Size
    element: Element
    span: Span | None
    launch: int
    note: str = ""


@dataclass
class LaidGraph:
    """One device's graph. `layouts[i]` is how the value of node i lies; `inputs` and `outputs` are those of its ends.

    `logical_inputs` and `logical_outputs` are the nodes of the logical graph at its ends, whose axes are those of the
    whole values, and `logical_of[i]` is the one whose value node i makes or helps to; `parts` are the counts that are
    shared out; `padded` says that rows beyond the real ones are garbage, on which nothing depends.
    """

    graph: Graph
    mesh: Mesh
    layouts: list[Layout]
    communications: list[Communication]
    inputs: list[Layout]
    outputs: list[Layout]
    logical_inputs: list[Node]
    logical_outputs: list[Node]
    parts: list[Part]
    padded: bool = False
    resting: Resting = field(default_factory=lambda: Resting(()))
    logical_of: list[Node] = field(default_factory=list)

    def counts_for(
        self, device: int, counts: Mapping[str, int], most: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """The counts that one device runs with: the whole ones, and what is its own of each part.

        `most` has the counts for which a padded graph has room (the full batch's).
        """
        found = dict(counts)
        sizes = {**self.graph.sizes, **counts}
        place = self.mesh.coordinates(device)
        for part in self.parts:
            n, at = self.mesh.sizes[part.mesh_axis], place[part.mesh_axis]
            count = part.size.evaluate({**sizes, **found})
            found[own(part.atom)] = found[here(part.atom)] = parts(count, n)[at]
            found[first(part.atom)] = first_of(count, n, at)
            if self.padded and part.batch:
                widest = parts(max((most or counts)[part.atom], count), n)[0]
                found[here(part.atom)] = widest
                found[room(part.atom)] = widest * n
        return found


def total(values: Sequence[Size], counts: Mapping[str, int]) -> int:
    """The sum of some sizes."""
    return sum(size.evaluate(counts) for size in values)
