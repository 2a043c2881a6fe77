"""Elementwise operations: each place of the result comes from one place of each operand.

Gives the arithmetic, comparisons, choices, the functions of one number, and changes of element. The split of an axis
passes through all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shapescript.ops.registry import Op, RuleError, register, roles_by_name
from shapescript.ops.rules import Attributes, Operands, attribute, joined, lined_up, need_bool, need_float, one_name
from shapescript.types.element import BOOL, Element
from shapescript.types.kinds import Tensor

if TYPE_CHECKING:
    from shapescript.ir.builder import Builder
    from shapescript.ir.graph import Node

Gradient = Callable[["Builder", "Node", "Node"], Sequence["Node | None"]]
Refine = Callable[[Sequence[Element], Element], Element]
FIRST, SECOND, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})


def _nonneg_of_nonneg(elements: Sequence[Element], base: Element) -> Element:
    return base.refined("NonNeg") if all(element.is_nonneg for element in elements) else base


def _product(elements: Sequence[Element], base: Element) -> Element:
    if all(element.is_prob for element in elements):
        return base.refined("Prob")
    return _nonneg_of_nonneg(elements, base)


def _greater(elements: Sequence[Element], base: Element) -> Element:
    if all(element.is_prob for element in elements):
        return base.refined("Prob")
    return base.refined("NonNeg") if any(element.is_nonneg for element in elements) else base


def _smaller(elements: Sequence[Element], base: Element) -> Element:
    nonneg = all(element.is_nonneg for element in elements)
    return base.refined("Prob" if any(e.is_prob for e in elements) else "NonNeg") if nonneg else base


def _plain(elements: Sequence[Element], base: Element) -> Element:
    return base


def _always(refinement: str) -> Refine:
    return lambda elements, base: base.refined(refinement)


def _kept(elements: Sequence[Element], base: Element) -> Element:
    return elements[0] if elements[0].refinement in ("NonNeg", "Prob") else base


def _at_least_nonneg(elements: Sequence[Element], base: Element) -> Element:
    return base.refined("Prob" if elements[0].is_prob else "NonNeg")


def binary(
    name: str, signature: str, doc: str, example: str, refine: Refine, gradient: Gradient | None, linear: object = ()
) -> None:
    """Registers an operation on two numbers of one element."""

    def rule(operands: Operands, attributes: Attributes) -> Tensor:
        axes = lined_up(operands)
        base = one_name(operands)
        if base.is_bool:
            raise RuleError("E0508", f"`{name}` takes numbers, and these are bools", 0)
        same = operands[0].element == operands[1].element and name in ("maximum", "minimum")
        elements = [operand.element for operand in operands]
        return Tensor(axes, elements[0] if same else refine(elements, base))

    groups = linear if isinstance(linear, tuple) else ()
    register(Op(name, signature, rule, doc, example, roles_by_name, groups, gradient))


def _d_add(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return dy, dy


def _d_subtract(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return dy, b.negate(dy)


def _d_multiply(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, y = node.operands
    return b.multiply(dy, y), b.multiply(dy, x)


def _d_divide(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    part = b.divide(dy, node.operands[1])
    return part, b.negate(b.multiply(part, node))


def _d_flat(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return None, None


def _d_remainder(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, y = node.operands
    return dy, b.negate(b.multiply(dy, b.floor(b.divide(x, y))))


def _d_power(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    x, y = node.operands
    # to the power of 0 everything is 1, with no slope, at a base of 0 too
    flat = b.equal(y, 0)
    lower = b.subtract(b.where(flat, b.full_like(y, 1), y), 1)
    by_x = b.multiply(dy, b.multiply(y, b.power(x, lower)))
    if y.name == "constant":
        return by_x, None
    # at a base of 0 the logarithm is infinite, and the power doesn't change with a positive exponent
    inside = b.where(b.greater(x, 0), x, b.full_like(x, 1))
    log = b.log(b.refine(inside, x.element.refined("NonNeg")))
    return by_x, b.multiply(dy, b.multiply(node, log))


def _d_extreme(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    """Goes to the operand that was chosen, and in halves to two equal ones."""
    x, y = node.operands
    half = b.where(b.equal(x, y), b.multiply(dy, 0.5), b.full_like(dy, 0))
    first = b.greater(x, y) if node.name == "maximum" else b.less(x, y)
    second = b.less(x, y) if node.name == "maximum" else b.greater(x, y)
    return b.where(first, dy, half), b.where(second, dy, half)


binary("add", "x + y", "The sum.", "ones[n] + ones[n]", _nonneg_of_nonneg, _d_add, (BOTH,))
binary("subtract", "x - y", "The difference.", "ones[n] - ones[n]", _plain, _d_subtract, (BOTH,))
binary("multiply", "x * y", "The product.", "ones[n] * ones[n]", _product, _d_multiply, (FIRST, SECOND))
binary("divide", "x / y", "The quotient.", "ones[n] / full[n](2)", _nonneg_of_nonneg, _d_divide, (FIRST,))
binary("floor_divide", "x // y", "The quotient, rounded down.", "full[n](7) // full[n](2)", _nonneg_of_nonneg, _d_flat)
binary("remainder", "x % y", "What x // y leaves, with y's sign.", "full[n](7) % full[n](2)", _plain, _d_remainder)
binary("power", "x ** y", "x to the power of y.", "full[n](2) ** full[n](3)", _nonneg_of_nonneg, _d_power)
binary("maximum", "maximum(x, y)", "The greater.", "maximum(ones[n], zeros[n])", _greater, _d_extreme)
binary("minimum", "minimum(x, y)", "The smaller.", "minimum(ones[n], zeros[n])", _smaller, _d_extreme)


def comparison(name: str, sign: str) -> None:
    """Registers a comparison of two numbers of one element."""

    def rule(operands: Operands, attributes: Attributes) -> Tensor:
        one_name(operands)
        return Tensor(lined_up(operands), BOOL)

    doc = f"Whether x {sign} y, at each place; false for nan." if sign != "!=" else "Whether x and y differ."
    register(Op(name, f"x {sign} y -> bool", rule, doc, f"ones[n] {sign} zeros[n]", roles_by_name))


for _name, _sign in zip(
    "equal not_equal less less_equal greater greater_equal".split(), "== != < <= > >=".split(), strict=True
):
    comparison(_name, _sign)


def _logic_rule(operands: Operands, attributes: Attributes) -> Tensor:
    for number, operand in enumerate(operands):
        need_bool(operand, "and, or, not", number)
    return Tensor(lined_up(operands), BOOL)


register(Op("and", "x and y", _logic_rule, "Whether both hold.", "ones[n] > 0 and ones[n] < 2", roles_by_name))
register(Op("or", "x or y", _logic_rule, "Whether one holds.", "ones[n] > 0 or ones[n] < 2", roles_by_name))
register(Op("not", "!x", _logic_rule, "Whether it doesn't hold.", "!(ones[n] > 0)", roles_by_name))


def _where_rule(operands: Operands, attributes: Attributes) -> Tensor:
    need_bool(operands[0], "where")
    return Tensor(lined_up(operands), joined(operands[1:]))


def _d_where(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    zero = b.full_like(dy, 0)
    return None, b.where(node.operands[0], dy, zero), b.where(node.operands[0], zero, dy)


register(
    Op(
        "where",
        "where(c: [n] bool, x: [n], y: [n]) -> [n]",
        _where_rule,
        "x where c holds, else y. What isn't chosen has no gradient, whatever it is.",
        "where(ones[n] > 0, ones[n], zeros[n])",
        roles_by_name,
        (frozenset({1, 2}),),
        _d_where,
    )
)


def unary(
    name: str,
    doc: str,
    refine: Refine,
    gradient: Callable[[Builder, Node, Node, Node], Node] | None,
    *,
    whole: bool = False,
    nonneg: bool = False,
    linear: bool = False,
    example: str | None = None,
) -> None:
    """Registers a function of one number. Its `gradient` takes the builder, x, y and dy.

    `whole`: also of whole numbers. `nonneg`: asks for a value known to be 0 or more.
    """

    def rule(operands: Operands, attributes: Attributes) -> Tensor:
        (operand,) = operands
        element = operand.element
        if element.is_bool or not whole:
            need_float(operand, name)
        if nonneg and not element.is_nonneg:
            helps = ["say that it can't be below 0: `x as NonNeg`, or make it so: `relu(x)`, `square(x)`"]
            raise RuleError("E0504", f"`{name}` asks for a `NonNeg`, and this is `{element}`", 0, helps=helps)
        return Tensor(operand.axes, refine([element], element.base))

    def whole_gradient(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
        assert gradient is not None
        return (gradient(b, node.operands[0], node, dy),)

    register(
        Op(
            name,
            f"{name}(x)",
            rule,
            doc,
            example or f"{name}(ones[n])",
            roles_by_name,
            (FIRST,) if linear else (),
            whole_gradient if gradient is not None else None,
        )
    )


def _zero(b: Builder, x: Node, y: Node, dy: Node) -> Node:
    return b.full_like(x, 0)


def _d_sqrt(b: Builder, x: Node, y: Node, dy: Node) -> Node:
    """0 at 0, where the true slope is infinite: so a norm of zeros has a gradient of 0."""
    at_zero = b.equal(y, 0)
    slope = b.divide(0.5, b.where(at_zero, b.full_like(y, 1), y))
    return b.where(at_zero, b.full_like(dy, 0), b.multiply(dy, slope))


def _d_gelu(b: Builder, x: Node, y: Node, dy: Node) -> Node:
    share = b.multiply(b.add(b.erf(b.multiply(x, math.sqrt(0.5))), 1), 0.5)
    density = b.multiply(b.exp(b.multiply(b.square(x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return b.multiply(dy, b.add(share, b.multiply(x, density)))


def _d_gelu_tanh(b: Builder, x: Node, y: Node, dy: Node) -> Node:
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    squared = b.square(x)
    tanh = b.tanh(b.multiply(b.multiply(x, b.add(b.multiply(squared, cubic), 1)), scale))
    inner = b.multiply(b.add(b.multiply(squared, 3 * cubic), 1), scale)
    slope = b.multiply(b.multiply(x, b.subtract(1, b.square(tanh))), inner)
    return b.multiply(dy, b.multiply(b.add(b.add(tanh, 1), slope), 0.5))


def _d_silu(b: Builder, x: Node, y: Node, dy: Node) -> Node:
    share = b.sigmoid(x)
    return b.multiply(dy, b.multiply(share, b.add(b.multiply(x, b.subtract(1, share)), 1)))


def _d_relu(b: Builder, x: Node, y: Node, dy: Node) -> Node:
    return b.where(b.greater(x, 0), dy, b.full_like(dy, 0))


unary("negate", "The negative.", _plain, lambda b, x, y, dy: b.negate(dy), whole=True, linear=True, example="-ones[n]")
unary("abs", "x without its sign; its gradient at 0 is 0.", _at_least_nonneg,
      lambda b, x, y, dy: b.multiply(dy, b.sign(x)), whole=True)  # fmt: skip
unary("exp", "e to the power of x.", _always("NonNeg"), lambda b, x, y, dy: b.multiply(dy, y))
unary("expm1", "exp(x) - 1, exact near 0.", _plain, lambda b, x, y, dy: b.multiply(dy, b.add(y, 1)))
unary("log", "The natural logarithm.", _plain, lambda b, x, y, dy: b.divide(dy, x), nonneg=True,
      example="log(ones[n] as NonNeg)")  # fmt: skip
unary("log1p", "log(1 + x), exact near 0.", _nonneg_of_nonneg, lambda b, x, y, dy: b.divide(dy, b.add(x, 1)))
unary("sqrt", "The square root; its gradient at 0 is 0.", _at_least_nonneg, _d_sqrt, nonneg=True,
      example="sqrt(ones[n] as NonNeg)")  # fmt: skip
unary("rsqrt", "1 / sqrt(x).", _always("NonNeg"),
      lambda b, x, y, dy: b.multiply(dy, b.multiply(b.multiply(b.square(y), y), -0.5)))  # fmt: skip
unary("square", "x times x.", _at_least_nonneg, lambda b, x, y, dy: b.multiply(dy, b.multiply(x, 2)), whole=True)
unary("sin", "The sine.", _plain, lambda b, x, y, dy: b.multiply(dy, b.cos(x)))
unary("cos", "The cosine.", _plain, lambda b, x, y, dy: b.negate(b.multiply(dy, b.sin(x))))
unary("tanh", "The hyperbolic tangent.", _plain, lambda b, x, y, dy: b.multiply(dy, b.subtract(1, b.square(y))))
unary("sigmoid", "1 / (1 + exp(-x)).", _always("Prob"),
      lambda b, x, y, dy: b.multiply(dy, b.multiply(y, b.subtract(1, y))))  # fmt: skip
unary("relu", "x, or 0 where it is negative; its gradient at 0 is 0.", _at_least_nonneg, _d_relu, whole=True)
unary("gelu", "x times the share of the normal distribution below x, exactly.", _plain, _d_gelu)
unary("gelu_tanh", "gelu by its approximation with tanh.", _plain, _d_gelu_tanh,
      example="gelu(ones[n], approximate=true)")  # fmt: skip
unary("silu", "x times sigmoid(x).", _plain, _d_silu)
unary("softplus", "log(1 + exp(x)), whatever the size of x.", _always("NonNeg"),
      lambda b, x, y, dy: b.multiply(dy, b.sigmoid(x)))  # fmt: skip
unary("erf", "The error function.", _plain,
      lambda b, x, y, dy: b.multiply(dy, b.multiply(b.exp(b.negate(b.square(x))), 2 / math.sqrt(math.pi))))  # fmt: skip
unary("floor", "The whole number below.", _kept, _zero, whole=True)
unary("ceil", "The whole number above.", _kept, _zero, whole=True)
unary("round", "The nearest whole number, halves to the even one.", _kept, _zero, whole=True)
unary("sign", "-1, 0 or 1.", _kept, _zero, whole=True)


def _is_nan_rule(operands: Operands, attributes: Attributes) -> Tensor:
    need_float(operands[0], "is_nan")
    return Tensor(operands[0].axes, BOOL)


register(Op("is_nan", "is_nan(x) -> bool", _is_nan_rule, "Whether x is no number.", "is_nan(ones[n])", roles_by_name))


def _cast_rule(operands: Operands, attributes: Attributes) -> Tensor:
    return Tensor(operands[0].axes, attribute(attributes, "element", Element))


def _refine_rule(operands: Operands, attributes: Attributes) -> Tensor:
    element = attribute(attributes, "element", Element)
    if element.name != operands[0].element.name:
        raise RuleError("E0510", f"`{operands[0].element}` isn't a `{element}` by what is known of it alone", 0)
    return Tensor(operands[0].axes, element)


def _same_rule(operands: Operands, attributes: Attributes) -> Tensor:
    return operands[0]


def _d_cast(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (b.cast(dy, node.operands[0].element.base),)


def _d_same(b: Builder, node: Node, dy: Node) -> Sequence[Node | None]:
    return (dy,)


register(
    Op("cast", "x as f32", _cast_rule, "x as another element.", "ones[n] as f64", roles_by_name, (FIRST,), _d_cast)
)
register(
    Op(
        "refine",
        "x as NonNeg",
        _refine_rule,
        "x, of which the program asserts more; an `Index` is checked when it runs.",
        "ones[n] as NonNeg",
        roles_by_name,
        (FIRST,),
        _d_same,
    )
)
register(
    Op(
        "stop_gradient",
        "stop_gradient(x)",
        _same_rule,
        "x, through which no gradient flows.",
        "stop_gradient(ones[n])",
        roles_by_name,
        (FIRST,),
    )
)
register(
    Op(
        "again",
        "remat(f, args...)",
        _same_rule,
        "x, from which `remat` computes anew: what follows from it isn't what followed from x before.",
        "stop_gradient(ones[n])",
        roles_by_name,
        (FIRST,),
        _d_same,
    )
)


def _finite_rule(operands: Operands, attributes: Attributes) -> Tensor:
    need_float(operands[0], "require_finite")
    attribute(attributes, "what", str)
    return operands[0]


register(
    Op(
        "require_finite",
        "require_finite(x: [..]) -> [..]",
        _finite_rule,
        "x as it is; what `clip` asks of a gradient: an infinite value or nan is an error that says where.",
        "ones[n]",
        roles_by_name,
        (),
        _d_same,
    )
)
