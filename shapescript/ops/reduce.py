"""Reductions over axes: sum, max, min, prod, any, all, logsumexp, argmax, argmin.

Equal greatest values share the gradient of `max` (.5, .5, 0); `argmax` takes the first. Where all is -inf, the gradient
of `logsumexp` is 0. The sum of whole numbers or bools is an i64. Means are in `statistics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shapescript.ops.registry import MAX, MIN, SUM, WHOLE, Op, Roles, over_axes, register, roles_by_name
from shapescript.ops.rules import Attributes, added, count, need_bool, need_float, numbers, places_over, wider, without
from shapescript.types.element import BOOL, Element
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node

Gradient = Callable[["Builder", "Node", "Node"], "Sequence[Node | None]"]


def roles_over(word: str) -> Callable[[Node], Roles]:
    """The roles of an op in which the axes of `over` have this word, and each other axis maps."""

    def roles(node: Node) -> Roles:
        return roles_by_name(node, [(axis, word) for axis in over_axes(node.attributes)])

    return roles


def _reduction(
    name: str,
    doc: str,
    element: Callable[[str, Tensor], Element],
    word: str,
    gradient: Gradient | None,
    linear: tuple[frozenset[int], ...] = (),
    taken: str = "",
) -> None:
    def rule(operands: Sequence[Tensor], attributes: Attributes) -> Tensor:
        count(name, operands, 1)
        return Tensor(without(operands[0].axes, attributes), element(name, operands[0]))

    register(
        Op(
            name,
            f"{name}(x: [.. n ..], over=n) -> [.. ..]",
            rule,
            doc,
            f"{name}(ones[n]{taken}, over=n)",
            roles_over(word),
            linear,
            gradient,
        )
    )


def _added(name: str, x: Tensor) -> Element:
    return added(x.element)


def _multiplied(name: str, x: Tensor) -> Element:
    numbers([x], name)
    return x.element if x.element.is_float else Element("i64")


def _chosen(name: str, x: Tensor) -> Element:
    numbers([x], name)
    return x.element


def _decided(name: str, x: Tensor) -> Element:
    need_bool(x, name)
    return BOOL


def _float(name: str, x: Tensor) -> Element:
    return need_float(x, name).base


def _sum_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (b.broadcast(dy, node.operands[0].axes),)


def _best_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, over = node.operands[0], over_axes(node.attributes)
    best = b.equal(x, b.broadcast(node, x.axes))
    ties = b.sum(b.cast(best, wider(x.element).refined("NonNeg")), over=over)
    shared = b.divide(dy, b.cast(ties, dy.element))
    return (b.where(best, b.broadcast(shared, x.axes), 0.0),)


def _prod_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    # With one zero only its own place has a gradient, with two none has: no quotient by a zero is taken.
    x, over = node.operands[0], over_axes(node.attributes)
    zero = b.equal(x, 0)
    others = b.where(zero, 1.0, x)
    product = b.prod(others, over=over)
    zeros = b.sum(zero, over=over)
    alone = b.where(b.equal(zeros, 1), product, 0.0)
    none = b.where(b.equal(zeros, 0), product, 0.0)
    rest = b.where(zero, b.broadcast(alone, x.axes), b.divide(b.broadcast(none, x.axes), others))
    return (b.multiply(b.broadcast(dy, x.axes), rest),)


def _logsumexp_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    # Where everything is -inf the result is -inf and the gradient 0.
    x = node.operands[0]
    dead = b.equal(node, float("-inf"))
    share = b.exp(b.subtract(x, b.broadcast(b.where(dead, 0.0, node), x.axes)))
    return (b.multiply(b.broadcast(dy, x.axes), share),)


_reduction("sum", "The sum over some axes.", _added, SUM, _sum_gradient, (frozenset({0}),))
_reduction("max", "The greatest over some axes; equal ones share the gradient.", _chosen, MAX, _best_gradient)
_reduction("min", "The least over some axes; equal ones share the gradient.", _chosen, MIN, _best_gradient)
_reduction("prod", "The product over some axes.", _multiplied, WHOLE, _prod_gradient)
_reduction("any", "Whether any holds, over some axes.", _decided, WHOLE, None, (), " > 0")
_reduction("all", "Whether all hold, over some axes.", _decided, WHOLE, None, (), " > 0")
_reduction("logsumexp", "log(sum(exp(x))) over some axes, for any x.", _float, WHOLE, _logsumexp_gradient)


def _place(name: str, doc: str) -> None:
    def rule(operands: Sequence[Tensor], attributes: Attributes) -> Tensor:
        count(name, operands, 1)
        numbers(operands, name)
        at = places_over(operands[0], attributes)[0]
        return Tensor(without(operands[0].axes, attributes), Element.index(operands[0].axes[at].size))

    signature = f"{name}(x: [.. n ..], over=n) -> [.. ..] Index[n]"
    register(Op(name, signature, rule, doc, f"{name}(ones[n], over=n)", roles_over(WHOLE)))


_place("argmax", "Where the greatest stands along an axis, the first of equal ones.")
_place("argmin", "Where the least stands along an axis, the first of equal ones.")
