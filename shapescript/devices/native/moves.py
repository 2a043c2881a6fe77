"""What moves or makes values without arithmetic: lookups, joins, padding, draws, and the checks of values.

`lower_move` puts the instructions for a node and gives the view of its result; None for an operation that has none
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shapescript.devices.native.plan import Draft, Place, bits_of
from shapescript.devices.native.views import ONE, ZERO, View, length_of, plain
from shapescript.devices.reference.lowering import axes_of, over_position
from shapescript.ir.graph import Node
from shapescript.ops.registry import over_axes, position_of
from shapescript.types.axes import same
from shapescript.types.size import Size

Lower = Callable[[Draft, Node, Sequence[View], bool], View | None]
NUMBERS = ("f64", "f32", "i64")
DRAWS = {"random_uniform": 0, "random_normal": 1, "random_integers": 2}
RANGE, FINITE = 0, 1


def lower_move(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    """The result of a node, made by moves; None where the operation isn't one of them."""
    lowering = LOWERINGS.get(node.name)
    return lowering(draft, node, views, fixed) if lowering is not None else None


def size_of(value: object) -> Size:
    """An attribute that is a size."""
    if isinstance(value, int):
        return Size.of(value)
    assert isinstance(value, Size)
    return value


def fill_with(draft: Draft, node: Node, view: View) -> None:
    """A constant in memory."""
    value = node.attributes["value"]
    assert isinstance(value, (int, float))
    _fill(draft, node, view, value, True)


def _fill(draft: Draft, node: Node, view: View, value: float | int, fixed: bool) -> None:
    name = draft.buffers[view.buffer].element
    draft.put(node, "fill", "fill", (view.buffer, -1, bits_of(value, name)), [], [view.buffer], fixed)


def _sizes(node: Node) -> list[Size]:
    return [axis.size for axis in node.axes]


def _size(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    if node.element.name not in NUMBERS:
        return None
    made = draft.buffer(node.element, (), fixed)
    length = draft.table.ref(over_axes(node.attributes)[0].size, node)
    draft.put(node, "fill", "fill", (made.buffer, length, 0), [], [made.buffer], fixed)
    return made


def _iota(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    if node.element.name not in NUMBERS:
        return None
    made = draft.buffer(node.element, _sizes(node), fixed)
    draft.put(node, "fill", "iota", (made.buffer,), [], [made.buffer], fixed)
    return made


def _draw(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    if node.element.name not in NUMBERS:
        return None
    first = ZERO
    if "whole" in node.attributes:
        found = _first_row(node)
        if found is None:
            return None
        first = found
    at = next((i for i, axis in enumerate(node.axes) if axis.batch), None)
    sizes = _sizes(node)
    order = list(range(len(sizes)))
    if at is not None:
        order = [at, *(i for i in order if i != at)]
    made = draft.buffer(node.element, [sizes[i] for i in order], fixed)
    others = length_of([size for i, size in enumerate(sizes) if i != at])
    bound = draft.table.ref(size_of(node.attributes["bound"]), node) if node.name == "random_integers" else -1
    arguments = (
        DRAWS[node.name],
        made.buffer,
        views[0].buffer,
        node.attributes["place"],
        -1 if at is None else draft.table.ref(sizes[at], node),
        draft.table.ref(others, node),
        bound,
        draft.table.ref(first, node) if "whole" in node.attributes else -1,
    )
    draft.put(node, "random", "random", arguments, [views[0].buffer], [made.buffer], fixed)
    return made.permuted([order.index(i) for i in range(len(sizes))], sizes)


def _first_row(node: Node) -> Size | None:
    """Where the rows of a device's part of a draw begin; None where it isn't whole rows of the batch axis."""
    whole = axes_of(node, "whole")
    dims, leaves, firsts = (node.attributes[name] for name in ("dims", "leaves", "firsts"))
    at = next((i for i, axis in enumerate(whole) if axis.batch), None)
    if dims == ():
        return ZERO
    if at is None or dims != (at,) or leaves != (0,) or whole[at].parts:
        return None
    assert isinstance(firsts, tuple) and isinstance(firsts[0], Size)
    return firsts[0]


def _flip(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    at, x = over_position(node), views[0]
    strides = (*x.strides[:at], -x.strides[at], *x.strides[at + 1 :])
    turned = View(x.buffer, x.sizes, strides, x.offset + (x.sizes[at] - ONE) * x.strides[at])
    made = draft.buffer(node.element, _sizes(node), fixed)
    draft.copy(node, turned, made, fixed)
    return made


def _concat(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    at = node.attributes["position"]
    assert isinstance(at, int)
    made = draft.buffer(node.element, _sizes(node), fixed)
    start = ZERO
    for operand, view in zip(node.operands, views, strict=True):
        length = operand.axes[at].size
        draft.copy(node, view, made.cut(at, start, length), fixed)
        start = start + length
    return made


def _pad(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    at, value = over_position(node), node.attributes["value"]
    assert isinstance(value, (int, float))
    if node.element.name not in (*NUMBERS, "bool"):
        return None
    made = draft.buffer(node.element, _sizes(node), fixed)
    _fill(draft, node, made, value, fixed)
    before = size_of(node.attributes["before"])
    draft.copy(node, views[0], made.cut(at, before, node.operands[0].axes[at].size), fixed)
    return made


def _gather(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    x, index = views
    x_axes, index_axes = node.operands[0].axes, node.operands[1].axes
    if node.operands[1].element.name != "i64":
        return None
    over, at = over_axes(node.attributes)[0], over_position(node)
    shared: dict[int, int] = {}  # an axis of x and the axis of the index that it is
    for i, axis in enumerate(index_axes):
        place = None if same(axis, over) else position_of(x_axes, axis)
        if place is not None and place != at:
            shared[place] = i
    others = [i for i in range(len(index_axes)) if i not in shared.values()]
    sizes: list[Size] = []
    along_x: list[Size] = []
    along_index: list[Size] = []
    for place in range(len(x_axes)):
        if place == at:
            for i in others:
                sizes.append(index.sizes[i])
                along_x.append(ZERO)
                along_index.append(index.strides[i])
        else:
            sizes.append(x.sizes[place])
            along_x.append(x.strides[place])
            along_index.append(index.strides[shared[place]] if place in shared else ZERO)
    made = draft.buffer(node.element, sizes, fixed)
    arguments = (
        draft.refs(sizes, node),
        draft.access(x, along_x),
        draft.access(index, along_index),
        draft.table.ref(x.strides[at]),
        draft.table.ref(x.sizes[at], node),
        made.buffer,
    )
    draft.put(node, "gather", "gather", arguments, [x.buffer, index.buffer], [made.buffer], fixed)
    return plain(made.buffer, _sizes(node))


def _scatter_add(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View | None:
    x, index = views
    x_axes, index_axes = node.operands[0].axes, node.operands[1].axes
    if node.element.name not in NUMBERS or node.operands[1].element.name != "i64":
        return None
    over, result = over_axes(node.attributes)[0], axes_of(node)
    in_x: dict[int, int] = {}  # an axis of the index and the axis of x that it is
    for i, axis in enumerate(index_axes):
        place = position_of(x_axes, axis)
        if place is None:
            return None
        in_x[i] = place
    kept = [i for i, a in enumerate(index_axes) if not same(a, over) and position_of(result, a) is not None]
    rest = [p for p in range(len(x_axes)) if p not in in_x.values()]
    # as the reference executor has them: the axes that line up, the looked-up one, the rest
    made_axes = [index_axes[i] for i in kept] + [over] + [x_axes[p] for p in rest]
    made_from: list[int | None] = [*(in_x[i] for i in kept), None, *rest]
    turn = [next(k for k, a in enumerate(made_axes) if same(a, axis)) for axis in result]
    made = draft.buffer(node.element, _sizes(node), fixed)
    along_result = [ZERO] * len(x_axes)
    step = ZERO
    for place, k in enumerate(turn):
        source = made_from[k]
        if source is None:
            step = made.strides[place]
        else:
            along_result[source] = made.strides[place]
    along_index = [ZERO] * len(x_axes)
    for i, place in in_x.items():
        along_index[place] = index.strides[i]
    arguments = (
        draft.refs(x.sizes, node),
        draft.access(x),
        draft.access(index, along_index),
        draft.access(made, along_result),
        draft.table.ref(step),
        draft.table.ref(over.size, node),
    )
    draft.put(node, "scatter", "scatter", arguments, [x.buffer, index.buffer], [made.buffer], fixed)
    return made


LOWERINGS: dict[str, Lower] = {
    "size": _size,
    "iota": _iota,
    "random_uniform": _draw,
    "random_normal": _draw,
    "random_integers": _draw,
    "flip": _flip,
    "concat": _concat,
    "pad": _pad,
    "gather": _gather,
    "scatter_add": _scatter_add,
}


# --- checks ----------------------------------------------------------------------------------------------------------


def is_checked(node: Node) -> bool:
    """Whether a node's values are looked at: what must be finite, a `cast` or `refine` to an `Index`."""
    if node.name == "require_finite":
        return True
    if node.name not in ("cast", "refine") or node.element.refinement != "Index" or node.element.bound is None:
        return False
    return node.name == "cast" or node.operands[0].element != node.element


def check(draft: Draft, node: Node, view: View, fixed: bool) -> bool:
    """Looks at values that may be wrong; False where there is nothing here to do it."""
    fixed = fixed and draft.buffers[view.buffer].place is Place.FIXED
    if node.name == "require_finite":
        if node.element.name not in ("f64", "f32"):
            return False
        kind, count = FINITE, draft.table.ref(ONE)
    else:
        assert node.element.bound is not None
        kind, count = RANGE, draft.table.ref(node.element.bound, node)
    arguments = (kind, draft.refs(view.sizes, node), draft.access(view), count)
    draft.put(node, "check", "check", arguments, [view.buffer], [], fixed)
    return True
