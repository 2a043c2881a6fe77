"""Turns laid-out steps into one device's graph.

Takes `Steps`; gives a `LaidGraph`. Each value gets its local axes; an op whose split leaf is looked up in, scattered
into or reduced to a best becomes the operation on a device's part; places along a split axis are counted from where
the part begins. Each node is made by its op's rule, on local axes, so a layout that doesn't fit is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shapescript.ir.builder import Builder
from shapescript.ir.graph import Graph, Node
from shapescript.layout.laid import Communication, LaidGraph, Part
from shapescript.layout.masks import around
from shapescript.layout.policy import atom_of
from shapescript.layout.shards import label_of
from shapescript.layout.steps import SENT, Conversion, Step, Steps
from shapescript.layout.words import (
    SHARDED,
    WHOLE_WORD,
    Layout,
    Partial,
    Sharded,
    Split,
    first,
    flat_atom,
    here,
    leaf_at,
    leaves_of,
    local_axes,
    own,
    room,
)
from shapescript.ops.registry import REGISTRY, over_axes
from shapescript.ops.rules import places_over
from shapescript.types.axes import Axis
from shapescript.types.element import I64
from shapescript.types.kinds import Tensor
from shapescript.types.size import Size


def emit(laid: Steps) -> LaidGraph:
    """The graph."""
    emitter = Emitter(laid)
    for step in laid.steps:
        emitter.emit(step)
    return emitter.finish()


class Emitter:
    """Makes one graph, step by step."""

    def __init__(self, laid: Steps) -> None:
        self.laid = laid
        self.graph = Graph(sizes=dict(laid.logical.sizes))
        self.builder = Builder(self.graph)
        self.nodes: list[Node] = []
        self.layouts: list[Layout] = []
        self.logical_of: list[Node] = []
        self.communications: list[Communication] = []
        self.parts: dict[str, Part] = {}
        self.rooms = {atom: Size.atom(room(atom)) for atom in laid.batches} if laid.padded else {}
        self.input_layouts: list[Layout] = []

    def finish(self) -> LaidGraph:
        """The graph and what is known of it."""
        laid = self.laid
        self.graph.outputs = [self.nodes[number] for number in laid.outputs]
        return LaidGraph(
            self.graph,
            laid.mesh,
            self.layouts,
            self.communications,
            self.input_layouts,
            [laid.steps[number].layout for number in laid.outputs],
            list(laid.logical.inputs),
            list(laid.logical.outputs),
            list(self.parts.values()),
            laid.padded,
            laid.resting,
            self.logical_of,
        )

    def emit(self, step: Step) -> None:
        """One step's nodes; the last of them is its value."""
        # How long a value laid flat is may depend on how it is split besides.
        for mesh_axis, word in sorted(enumerate(step.layout), key=lambda item: isinstance(item[1], Sharded)):
            self._know_part(step, mesh_axis, word)
        operands = [self.nodes[number] for number in step.operands]
        with self.builder.at(step.span or step.value.span):
            if step.conversion is not None:
                node = self._conversion(step, step.conversion, operands[0])
            elif step.value.op is None:
                node = self._input(step)
            else:
                node = self._operation(step, operands)
        self.nodes.append(node)
        made = len(self.graph.nodes) - len(self.layouts)
        self.layouts.extend([step.layout] * made)
        self.logical_of.extend([step.value] * made)

    def axes(self, step: Step) -> tuple[Axis, ...]:
        """The axes of a step's value on one device."""
        return local_axes(step.value.axes, step.layout, self.rooms)

    def make(self, name: str, operands: Sequence[Node], attributes: Mapping[str, object]) -> Node:
        """A node by its op's rule."""
        op = REGISTRY[name]
        result = op.rule([operand.type for operand in operands], attributes)
        node = Node(op, tuple(operands), attributes, result.axes, result.element, self.builder.span)
        return self.graph.append(node)

    # --- parts

    def _know_part(self, step: Step, mesh_axis: int, word: object) -> None:
        if isinstance(word, Split):
            size = leaf_at(step.value.axes, word).size
            self._part(Part(word.atom, mesh_axis, size, word.atom in self.laid.batches))
        elif isinstance(word, Sharded):
            self._part(self._flat(step, mesh_axis))

    def _flat(self, step: Step, mesh_axis: int) -> Part:
        size = self._flat_size(step, mesh_axis)
        return Part(flat_atom(mesh_axis, size), mesh_axis, size)

    def _flat_size(self, step: Step, mesh_axis: int) -> Size:
        total = Size.of(1)
        for axis in self._around(step, mesh_axis):
            total = total * axis.size
        return total

    def _around(self, step: Step, mesh_axis: int) -> tuple[Axis, ...]:
        """The axes that the value would have if it were whole along a mesh axis."""
        layout = (*step.layout[:mesh_axis], WHOLE_WORD, *step.layout[mesh_axis + 1 :])
        return local_axes(step.value.axes, layout, self.rooms)

    def _part(self, part: Part) -> None:
        if part.atom in self.parts:
            return
        self.parts[part.atom] = part
        sizes, n = self.graph.sizes, self.laid.mesh.sizes[part.mesh_axis]
        if part.size.atoms <= sizes.keys():
            count = part.size.evaluate(sizes)
            if count % n == 0:  # the same on each device, and so known before anything runs
                sizes[here(part.atom)] = sizes[own(part.atom)] = count // n

    # --- conversions

    def _conversion(self, step: Step, conversion: Conversion, x: Node) -> Node:
        kind, mesh_axis = conversion.kind, conversion.mesh_axis
        if kind == "all_reduce":
            how = conversion.before.kind if isinstance(conversion.before, Partial) else "sum"
            node = self.builder.emit("all_reduce", x, kind=how, mesh_axis=mesh_axis, launch=step.launch)
        elif kind == "keep_first":
            node = self.builder.emit("keep_first", x, mesh_axis=mesh_axis)
        else:
            node = self._moved(step, conversion, x)
        if kind in SENT:
            values = Size.of(1)
            for axis in self._around(step, mesh_axis):
                values = values * axis.size
            label = label_of(step.value, laid_names(self.laid), self.laid.labels)
            before, after = str(conversion.before), str(conversion.after)
            self.communications.append(
                Communication(
                    node.number,
                    kind,
                    mesh_axis,
                    before,
                    after,
                    label,
                    values,
                    node.element,
                    node.span,
                    step.launch,
                    step.note,
                )
            )
        return node

    def _moved(self, step: Step, conversion: Conversion, x: Node) -> Node:
        """A conversion to or from a part."""
        kind, mesh_axis, axes = conversion.kind, conversion.mesh_axis, self.axes(step)
        around_axes = self._around(step, mesh_axis)
        if kind == "all_to_all":
            joined = self._cut(step, conversion.before, around_axes, x, "joined_")
            cut = self._cut(step, conversion.after, around_axes, x, "cut_")
            return self.make("all_to_all", [x], {"mesh_axis": mesh_axis, "axes": axes, **joined, **cut})
        part = conversion.before if kind == "all_gather" else conversion.after
        if isinstance(part, Sharded):
            size = Size.of(1)
            for axis in around_axes:
                size = size * axis.size
            one, atom = Size.of(1), flat_atom(mesh_axis, size)
            flat = {
                "atom": atom,
                "dim": 0,
                "before": one,
                "inner": one,
                "count": size,
                "padded": False,
            }
            return self.make(kind, [x], {"mesh_axis": mesh_axis, "axes": axes, "flat": True, **flat})
        place = self._cut(step, part, around_axes, x, "")
        return self.make(kind, [x], {"mesh_axis": mesh_axis, "axes": axes, "flat": False, **place})

    def _cut(self, step: Step, word: object, axes: Sequence[Axis], x: Node, prefix: str) -> dict[str, object]:
        """Where a value is cut, as the attributes of a collective."""
        assert isinstance(word, Split)
        before, inner = around(axes[word.dim], word.leaf)
        count = leaf_at(step.value.axes, word).size
        padded = self.laid.padded and word.atom in self.laid.batches
        values = {
            "atom": word.atom,
            "dim": word.dim,
            "before": before,
            "inner": inner,
            "count": count,
            "padded": padded,
        }
        return {prefix + name: value for name, value in values.items()}

    # --- operations

    def _input(self, step: Step) -> Node:
        node = self.graph.input(
            str(step.value.attributes["name"]), self.axes(step), step.value.element, step.value.span
        )
        self.input_layouts.append(step.layout)
        return node

    def _operation(self, step: Step, operands: list[Node]) -> Node:
        made = SPECIAL.get(step.value.name, _plain)(self, step, operands)
        wanted = self.axes(step)
        if made.axes != wanted:
            got, asked = Tensor(made.axes, made.element), Tensor(wanted, step.value.element)
            raise ValueError(f"{step.value!r} at {step.layout} gives {got}, and should give {asked}")
        return made

    def split_of(self, step: Step, place: int) -> list[Split]:
        """The words by which an operand of a step is split."""
        return [word for word in self.laid.steps[step.operands[place]].layout if isinstance(word, Split)]

    def over(self, step: Step, operand: Node) -> object:
        """The attribute `over`, as the local operand calls its axes."""
        value = step.value
        if any(isinstance(word, Sharded) for word in self.laid.steps[step.operands[0]].layout):
            return operand.axes
        logical = value.operands[0]
        found = tuple(operand.axes[at] for at in places_over(Tensor(logical.axes), value.attributes))
        return found if isinstance(value.attributes["over"], tuple) else found[0]


def _plain(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    attributes = dict(step.value.attributes)
    if "axes" in attributes:
        attributes["axes"] = emitter.axes(step)
    if "over" in attributes and operands and "position" not in attributes:
        attributes["over"] = emitter.over(step, operands[0])
    return emitter.make(step.value.name, operands, attributes)


def _as_is(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    return emitter.make(step.value.name, operands, step.value.attributes)


def _attention(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    """The axes that it names are whole, and so are as they were."""
    return emitter.make(step.value.name, operands, {**step.value.attributes, "axes": emitter.axes(step)})


def _offset(emitter: Emitter, word: Split, axes: Sequence[Axis]) -> Size:
    """Where a device's part begins along an axis of which it splits the outermost leaf."""
    _, inner = around(axes[word.dim], word.leaf)
    return Size.atom(first(word.atom)) * inner


def _iota(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    b, axes, element = emitter.builder, emitter.axes(step), step.value.element
    word = next((word for word in step.layout if isinstance(word, Split)), None)
    if word is None:
        return b.iota(axes[0], element if not emitter.rooms else element.base)
    begin = b.size(Axis(None, _offset(emitter, word, axes)), element.base)
    return b.add(b.iota(axes[0], element.base), begin)


def _random(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    """A draw of a part knows where it stands in the whole."""
    attributes = {**step.value.attributes, "axes": emitter.axes(step)}
    splits = [word for word in step.layout if isinstance(word, Split)]
    if splits or emitter.rooms:
        attributes["whole"] = step.value.axes
        attributes["dims"] = tuple(word.dim for word in splits)
        attributes["leaves"] = tuple(word.leaf for word in splits)
        attributes["firsts"] = tuple(Size.atom(first(word.atom)) for word in splits)
    return emitter.make(step.value.name, operands, attributes)


def _gather(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    b, (x, index) = emitter.builder, operands
    at = places_over(Tensor(step.value.operands[0].axes), step.value.attributes)[0]
    over = x.axes[at]
    if index.element.bound is not None and index.element.bound != over.size:
        index = b.refine(index, I64)
    word = next((word for word in emitter.split_of(step, 0) if word.dim == at), None)
    if word is None:
        return b.gather(x, index, over)
    count = step.value.operands[0].axes[at].size
    begin, real = _offset(emitter, word, x.axes), Size.atom(own(word.atom)) * around(x.axes[at], word.leaf)[1]
    return b.emit("part_gather", x, index, over=over, axes=emitter.axes(step), first=begin, own=real, count=count)


def _scatter(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    b, (x, index) = emitter.builder, operands
    axes = emitter.axes(step)
    at = places_over(Tensor(step.value.axes), step.value.attributes)[0]
    if index.element.bound is not None and index.element.bound != axes[at].size:
        index = b.refine(index, I64)
    word = next((word for word in step.layout if isinstance(word, Split) and word.dim == at), None)
    if word is None:
        return b.scatter_add(x, index, axes[at], axes)
    count = step.value.axes[at].size
    begin = _offset(emitter, word, axes)
    return b.emit("part_scatter", x, index, over=axes[at], axes=axes, first=begin, count=count)


def _best(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    """The greatest or least of a part that may be empty, though the whole isn't."""
    gone = places_over(Tensor(step.value.operands[0].axes), step.value.attributes)
    words = emitter.laid.steps[step.operands[0]].layout
    if SHARDED not in words and not any(isinstance(word, Split) and word.dim in gone for word in words):
        return _plain(emitter, step, operands)
    count = Size.of(1)
    for axis in over_axes(step.value.attributes):
        count = count * axis.size
    over = emitter.over(step, operands[0])
    return emitter.builder.emit("part_best", operands[0], over=over, kind=step.value.name, count=count)


def _mask(emitter: Emitter, step: Step, operands: list[Node]) -> Node:
    attributes = dict(step.value.attributes)
    dim, leaf = attributes["dim"], attributes["leaf"]
    assert isinstance(dim, int) and isinstance(leaf, int)
    axes = emitter.axes(step)
    attributes["before"], attributes["inner"] = around(axes[dim], leaf)
    atom = atom_of(leaves_of(step.value.axes[dim])[leaf])
    if atom is not None and any(isinstance(w, Split) and (w.dim, w.leaf) == (dim, leaf) for w in step.layout):
        attributes["count"] = Size.atom(own(atom))
    return emitter.make("mask", operands, attributes)


def laid_names(laid: Steps) -> dict[int, str]:
    """What the inputs are called, by number."""
    return {node.number: name for node, name in zip(laid.logical.inputs, laid.resting.names, strict=False)}


SPECIAL: dict[str, Callable[[Emitter, Step, list[Node]], Node]] = {
    "constant": _as_is,
    "size": _as_is,
    "random_key": _as_is,
    "attention": _attention,
    "iota": _iota,
    "random_uniform": _random,
    "random_normal": _random,
    "random_integers": _random,
    "gather": _gather,
    "scatter_add": _scatter,
    "max": _best,
    "min": _best,
    "mask": _mask,
}
"""What isn't the same op with local axes in its attributes."""
