"""Contractions as products of matrices, on the views of their operands.

Takes a `contract` node and its operands' views; puts a `product` into the draft. Axes fall into those of both operands
and the result (a product for each), of one operand and the result (rows, columns), and of both operands alone, which
are summed. An operand is copied only where its strides can't be those of a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

from shapescript.devices.native.plan import ELEMENTS, Draft
from shapescript.devices.native.views import ONE, ZERO, View, length_of
from shapescript.devices.reference.lowering_shapes import lettered
from shapescript.ir.graph import Node
from shapescript.types.size import Size

ELEMENT_NAMES = ("f32", "f64")


def is_product(node: Node) -> bool:
    """Whether a contraction is a product of matrices of floats: no axis of one operand alone is summed."""
    left, right, result = lettered([*(operand.axes for operand in node.operands), node.axes])
    whole = set(left) <= set(right) | set(result) and set(right) <= set(left) | set(result)
    return (
        whole and node.element.name in ELEMENT_NAMES and all(o.element.name == node.element.name for o in node.operands)
    )


def lower_product(draft: Draft, node: Node, views: Sequence[View], fixed: bool) -> View:
    """Puts the product; gives the view of its result."""
    letters = lettered([*(operand.axes for operand in node.operands), node.axes])
    left, right, result = letters
    a, b = views
    batch = [letter for letter in result if letter in left and letter in right]
    rows = [letter for letter in result if letter in left and letter not in right]
    columns = [letter for letter in result if letter in right and letter not in left]
    if rows and columns and result.index(columns[0]) < result.index(rows[0]):
        a, b, left, right, rows, columns = b, a, right, left, columns, rows
    summed = [letter for letter in left if letter in right and letter not in result]
    size_of = {
        letter: size for text, view in ((left, a), (right, b)) for letter, size in zip(text, view.sizes, strict=True)
    }
    operands = []
    order = summed
    for which, (view, text) in enumerate(((a, left), (b, right))):
        own = rows if which == 0 else columns
        operands.append(_Matrix.of(view, text, batch, own, order))
    first, second = operands
    if not first.fits or not second.fits:
        # the summed axes may lie better in the other operand's order
        other = [letter for letter in right if letter in summed]
        turned = [
            _Matrix.of(view, text, batch, own, other) for view, text, own in ((a, left, rows), (b, right, columns))
        ]
        if sum(not each.fits for each in turned) < sum(not each.fits for each in operands):
            operands, order = turned, other
    ready = [
        each if each.fits else _copied(draft, node, each, batch, own, order, size_of, fixed)
        for each, own in zip(operands, (rows, columns), strict=True)
    ]
    natural = [*batch, *rows, *columns]
    made = draft.buffer(node.element, [size_of[letter] for letter in natural], fixed)
    m, n, k = (length_of([size_of[letter] for letter in group]) for group in (rows, columns, order))
    left_access = draft.access(ready[0].view, [*ready[0].batch, ready[0].own, ready[0].summed])
    right_access = draft.access(ready[1].view, [*ready[1].batch, ready[1].summed, ready[1].own])
    arguments = (
        ELEMENTS[node.element.name],
        draft.refs([size_of[letter] for letter in batch], node),
        draft.table.ref(m, node),
        draft.table.ref(n, node),
        draft.table.ref(k, node),
        left_access,
        right_access,
        made.buffer,
    )
    reads = [each.view.buffer for each in ready]
    draft.put(node, "product", "product", arguments, reads, [made.buffer], fixed)
    return made.permuted([natural.index(letter) for letter in result], [axis.size for axis in node.axes])


class _Matrix:
    """An operand as matrices: strides of the batch's axes, and one for the own axes and one for the summed ones."""

    def __init__(self, view: View, text: str, batch: Sequence[Size], own: Size | None, summed: Size | None) -> None:
        self.view, self.text = view, text
        self.batch = list(batch)
        self.fits = own is not None and summed is not None and (own == ONE or summed == ONE)
        self.own, self.summed = own or ONE, summed or ONE

    @staticmethod
    def of(view: View, text: str, batch: Sequence[str], own: Sequence[str], summed: Sequence[str]) -> _Matrix:
        stride = dict(zip(text, view.strides, strict=True))
        size = dict(zip(text, view.sizes, strict=True))
        return _Matrix(
            view,
            text,
            [stride[letter] for letter in batch],
            _joined([(size[letter], stride[letter]) for letter in own]),
            _joined([(size[letter], stride[letter]) for letter in summed]),
        )


def _joined(axes: Sequence[tuple[Size, Size]]) -> Size | None:
    """The stride of axes as one; None where they don't lie side by side, or are repetitions."""
    real = [(size, stride) for size, stride in axes if size != ONE]
    if not real:
        return ONE
    for (_, outer), (size, inner) in zip(real, real[1:], strict=False):
        if outer != inner * size:
            return None
    return None if real[-1][1] == ZERO else real[-1][1]


def _copied(
    draft: Draft,
    node: Node,
    matrix: _Matrix,
    batch: Sequence[str],
    own: Sequence[str],
    summed: Sequence[str],
    size_of: dict[str, Size],
    fixed: bool,
) -> _Matrix:
    """An operand moved so that it is a matrix."""
    letters = [*batch, *own, *summed]
    into = draft.buffer(node.element, [size_of[letter] for letter in letters], fixed)
    places = [matrix.text.index(letter) for letter in letters]
    source = matrix.view.permuted(places, [size_of[letter] for letter in letters])
    draft.copy(node, source, into, fixed)
    return _Matrix.of(into, "".join(letters), batch, own, summed)
