"""Attention in torch: its fused kernel, over `[rows, 1, queries, features]`.

The axes that queries, keys and values share become rows; the queries' own become one, and so do the values'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F

from shapescript.devices.reference.lowering import Run, Step, line_up, lowers
from shapescript.ir.graph import Node
from shapescript.ops.attention import query_axes
from shapescript.ops.registry import position_of
from shapescript.types.axes import Axis, contains


def _flat(x: torch.Tensor, order: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
    """A value with its axes in an order, so many of them at a time made one."""
    x = x.permute(*order)
    shape, at = [], 0
    for count in counts:
        shape.append(math.prod(x.shape[at : at + count]))
        at += count
    return x.reshape(shape)


@lowers("attention")
def attention(node: Node, static: Mapping[str, int]) -> Step:
    """torch's scaled dot product attention."""
    q, k, v, *masks = node.operands
    over, feature = node.attributes["keys"], node.attributes["feature"]
    assert isinstance(over, Axis) and isinstance(feature, Axis)
    queries = query_axes(q.axes, k.axes, feature)
    shared = [axis for axis in q.axes if axis != feature and not contains(queries, axis)]
    own = [axis for axis in v.axes if axis != over and not contains(shared, axis)]
    causal = bool(node.attributes.get("causal"))

    def at(axes: Sequence[Axis], wanted: Sequence[Axis]) -> list[int]:
        places = [position_of(axes, axis) for axis in wanted]
        return [place for place in places if place is not None]

    order_q = at(q.axes, [*shared, *queries, feature])
    order_k, order_v = at(k.axes, [*shared, over, feature]), at(v.axes, [*shared, over, *own])
    made = [*shared, *queries, *own]
    back = at(made, node.axes)
    scored = [*shared, *queries, over]
    turn = line_up(masks[0].axes, scored) if masks else None

    def mask_of(mask: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """The mask as `[rows or 1, 1, queries, keys]`."""
        mask = mask if turn is None else turn(mask)
        mask = mask.reshape((1,) * (len(scored) - mask.dim()) + tuple(mask.shape))
        rows = list(mask.shape[: len(shared)])
        rows = list(sizes[: len(shared)]) if any(n != 1 for n in rows) else rows
        mask = mask.expand(*rows, *sizes[len(shared) :])
        return mask.reshape(math.prod(rows), 1, -1, sizes[-1])

    def step(run: Run, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        flat_q = _flat(q, order_q, (len(shared), len(queries), 1)).unsqueeze(1)
        flat_k = _flat(k, order_k, (len(shared), 1, 1)).unsqueeze(1)
        flat_v = _flat(v, order_v, (len(shared), 1, len(own))).unsqueeze(1)
        shape = [axis.size.evaluate(run.sizes) for axis in made]
        if flat_q.numel() == 0 or flat_v.numel() == 0:
            return q.new_zeros(shape).permute(back)
        mask = dead = None
        if masks:
            mask = mask_of(masks[0], [*shape[: len(shared) + len(queries)], flat_k.shape[2]])
            # a kernel may give nan for a query that looks at nothing: it looks at all, and what it gets is left out
            dead = ~mask.any(-1, keepdim=True)
            mask = mask | dead
        y = F.scaled_dot_product_attention(flat_q, flat_k, flat_v, mask, is_causal=causal)
        if dead is not None:
            y = y.masked_fill(dead, 0)
        return y.reshape(shape).permute(back)

    return step
