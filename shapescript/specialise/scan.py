"""`scan`: a function called at each place of an axis, with a carry.

The rounds are put one after the other; what they give is joined along the axis again, where it stood.
"""

from __future__ import annotations

from shapescript.specialise.domain import problem
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.expressions import evaluate
from shapescript.specialise.frame import TENSORS, Frame
from shapescript.specialise.values import TensorValue, Value
from shapescript.syntax import tree
from shapescript.types.axes import Axis, same
from shapescript.types.kinds import Nothing, TupleOf
from shapescript.types.size import Size
from shapescript.types.uses import BuiltinUse, Default


def scan(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    """`carry, ys = scan(f, args..., carry, xs, over=n)`."""
    assert use.call is not None
    values = [None if isinstance(each, Default) else evaluate(ev, frame, each) for each in use.call.arguments]
    axis = frame.axis(use.over[0])
    count = ev.domain.size_of(axis)
    if count is None:
        message = (
            f"the rounds of a `scan` are counted when it is compiled, and how long `{use.over[0]}` is isn't known then"
        )
        raise problem("E2116", message, frame.span(expr))
    carry, sequence = values[-2], values[-1]
    alone = not (isinstance(use.result, TupleOf) and not isinstance(use.result.items[-1], Nothing))
    made: list[Value] = []
    for place in range(count):
        result = ev.call(frame, use.call, [*values[:-2], carry, _at(ev, sequence, axis, place)])
        if alone:
            carry = result
        else:
            assert isinstance(result, tuple)
            carry, one = result
            made.append(one)
    return carry, (None if alone or not made else _joined(ev, made, axis, _place_of(sequence, axis)))


def _place_of(value: Value, axis: Axis) -> int:
    """Where the axis stands in what is scanned."""
    if isinstance(value, tuple):
        return _place_of(value[0], axis)
    assert isinstance(value, TENSORS)
    return next(place for place, each in enumerate(value.axes) if same(each, axis))


def _at(ev: Evaluator, value: Value, axis: Axis, place: int) -> Value:
    """One place of an axis, which leaves the value."""
    if isinstance(value, tuple):
        return tuple(_at(ev, each, axis, place) for each in value)
    assert isinstance(value, TENSORS)
    own = next(each for each in value.axes if same(each, axis))
    one = Axis(None, Size.of(1))
    attributes = {"over": own, "start": Size.of(place), "stop": Size.of(place + 1), "result": one}
    cut: TensorValue = ev.domain.emit("slice", (value,), attributes, None)
    left = tuple(each for each in value.axes if each is not own)
    return ev.domain.emit("rearrange", (cut,), {"axes": left}, None)


def _joined(ev: Evaluator, made: list[Value], axis: Axis, place: int) -> Value:
    """The values of all rounds, side by side along the axis."""
    if isinstance(made[0], tuple):
        columns = [[each[i] for each in made if isinstance(each, tuple)] for i in range(len(made[0]))]
        return tuple(_joined(ev, column, axis, place) for column in columns)
    parts: list[TensorValue] = []
    for number, each in enumerate(made):
        assert isinstance(each, TENSORS)
        # the last part is as long as the axis without the others, so that the sizes add up to the axis's own
        length = Size.of(1) if number < len(made) - 1 else axis.size - Size.of(len(made) - 1)
        axes = (*each.axes[:place], Axis(None, length), *each.axes[place:])
        parts.append(ev.domain.emit("broadcast", (each,), {"axes": axes}, None))
    return ev.domain.emit("concat", parts, {"over": axis, "position": place}, None)
