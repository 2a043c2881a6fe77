"""`dropout` and `batch_norm`: what acts in one way in training and in another in evaluation.

Each checks one `Invocation` and keeps a `BuiltinUse`; `mut` in the use of a `batch_norm` says that it updates the
running statistics.
"""

from __future__ import annotations

from shapescript.syntax import tree
from shapescript.types.axes import Axis, same
from shapescript.types.check_arguments import (
    A_TENSOR,
    NUMBER,
    Signature,
    Wanted,
    keep,
    take,
)
from shapescript.types.check_calls import Invocation
from shapescript.types.check_core import Core, literal_number
from shapescript.types.kinds import (
    WRONG,
    ModelOf,
    Tensor,
    Type,
)
from shapescript.types.typed import BATCH_NORM
from shapescript.types.uses import BuiltinUse

# --- layers that act by mode -----------------------------------------------------------------------------------------


def dropout(core: Core, call: Invocation) -> Type:
    given = take(core, call, Signature("dropout", {"x": A_TENSOR, "rate": NUMBER}, 2))
    if given is None:
        return WRONG
    x = core.type_of(given["x"].value)
    assert isinstance(x, Tensor)
    if not x.element.is_float:
        core.report("E0552", f"`dropout` scales floats, and this is {x}", given["x"].value, helps=("write `x as f32`",))
        return WRONG
    rate = literal_number(given["rate"].value)
    if rate is not None and not 0 <= rate <= 1:
        core.report("E0607", f"the rate of a dropout is in 0..1, and this is {rate}", given["rate"].value)
    kept = "NonNeg" if x.element.is_nonneg else None
    return keep(core, call, "dropout", given, Tensor(x.axes, x.element.refined(kept), x.normalised))


def batch_norm(core: Core, call: Invocation) -> Type:
    arguments = [argument for argument in call.arguments if argument.name != "over"]
    over = [argument for argument in call.arguments if argument.name == "over"]
    mut = {"bn"} if any(argument.mut for argument in arguments) else set()
    norm: Wanted = (
        "a `BatchNorm`",
        lambda of: isinstance(of, ModelOf) and of.declaration is BATCH_NORM.node,
    )
    wanted = {"x": A_TENSOR, "bn": norm, "momentum": NUMBER, "eps": NUMBER}
    inner = Invocation(call.node, call.function, arguments, call.pattern)
    given = take(core, inner, Signature("batch_norm", wanted, 2, frozenset(mut)))
    if given is None:
        return WRONG
    x, bn = core.type_of(given["x"].value), core.type_of(given["bn"].value)
    assert isinstance(x, Tensor) and isinstance(bn, ModelOf)
    if not over:
        rest = " ".join(str(axis) for axis in x.axes if not same(axis, bn.arguments[0]))
        core.report("E0601", "`batch_norm` also needs `over`", call.node, helps=(f"write `over=[{rest}]`",))
        return WRONG
    axes = _over(core, over[0].value, x)
    if axes is None:
        return WRONG
    left = [axis for axis in x.axes if not any(axis == each for each in axes)]
    if len(left) != 1 or not same(left[0], bn.arguments[0]):
        shown = " ".join(map(str, left))
        core.report(
            "E0305",
            f"`batch_norm` keeps one axis, `{bn.arguments[0]}`, and here [{shown}] is left",
            over[0].value,
            notes=(f"the value is {x}",),
        )
        return WRONG
    if not mut and core.info is not None:
        core.info.plain_batch_norms.append(call.node)
    values = {key: argument.value for key, argument in given.items()}
    result = Tensor(x.axes, x.element.base)
    core.use(
        call.node,
        BuiltinUse("batch_norm", {**values, **({"mut": given["bn"].value} if mut else {})}, over=axes, result=result),
    )
    return result


def _over(core: Core, expr: tree.Expr, x: Tensor) -> tuple[Axis, ...] | None:
    sizes = expr.sizes if isinstance(expr, tree.Axes) else [expr]
    axes: list[Axis] = []
    for size in sizes:
        axis = core.axis_of(size)
        if axis is None:
            return None
        found = [each for each in x.axes if same(axis, each)]
        if len(found) != 1:
            shown = " ".join(map(str, x.axes))
            core.report("E0305", f"`{axis}` isn't an axis of this value", size, notes=(f"its axes are [{shown}]",))
            return None
        axes.append(found[0])
    return tuple(axes)
