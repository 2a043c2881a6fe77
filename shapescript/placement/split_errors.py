"""What can't be done to a value that is split across the devices: E1901 and E1902.

Takes the typed program and the split axes of its functions; gives diagnostics. With one device nothing is split.
"""

from __future__ import annotations

from collections.abc import Iterator

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.placement.kinds import body_nodes, remembered
from shapescript.placement.splits import Splits, axes_of, carried, split_functions
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import Tensor
from shapescript.types.typed import FunctionInfo, TypedProgram
from shapescript.types.uses import BuiltinUse, Fixed, HostOperand, OpUse, PythonUse

# Operations that need the axis they work along in one piece, with what each does along it.
ALONG = {
    "softmax": "a softmax",
    "log_softmax": "a softmax",
    "logsumexp": "a logsumexp",
    "layer_norm": "a norm",
    "rms_norm": "a norm",
    "sort": "a sort",
    "argsort": "a sort",
    "cumsum": "a cumulative sum",
    "cumprod": "a cumulative product",
    "prod": "a product",
    "argmax": "an argmax",
    "argmin": "an argmin",
    "topk_values": "a topk",
    "topk_indices": "a topk",
    "gather": "indexing",
    "slice": "indexing",
    "concat": "joining",
    "pad": "padding",
    "flip": "a flip",
    "roll": "a roll",
}


def split_errors(typed: TypedProgram) -> Iterator[Diagnostic]:
    """All errors of this kind; none with one device."""
    count = typed.devices.count if typed.devices is not None else 1
    if count < 2:
        return
    for node, splits in split_functions(typed).items():
        info = typed.function_of[node]
        # a place that is right stays so while the body is the same one; of one that isn't, the words are made anew
        for at in wrong_places(info, splits, count):
            yield from errors_at(info, splits, at, count)


def wrong_places(info: FunctionInfo, splits: Splits, count: int) -> list[tree.Node]:
    """The nodes of a body that have an error."""

    def find() -> list[tree.Node]:
        return [at for at in body_nodes(info) if next(errors_at(info, splits, at, count), None) is not None]

    return remembered(info, ("wrong", splits.names, count), find)


def errors_at(info: FunctionInfo, splits: Splits, at: tree.Node, count: int) -> Iterator[Diagnostic]:
    """The errors of a node."""
    use = splits.typed.uses.get(at)
    if isinstance(use, BuiltinUse) and use.name == "python":
        yield from python_on_split(info, splits, use, count)
    elif isinstance(use, BuiltinUse) and use.name == "scan" and isinstance(at, tree.Expr):
        yield from scan_along_split(info, splits, at, use)
    elif isinstance(use, OpUse) and isinstance(at, tree.Expr):
        error = op_error(info, splits, at, use)
        if error is not None:
            yield error


# --- E1901 -----------------------------------------------------------------------------------------------------------


def python_on_split(info: FunctionInfo, splits: Splits, use: BuiltinUse, count: int) -> Iterator[Diagnostic]:
    """Python called with a value that is split."""
    function = use.arguments[""]
    function_span = info.source.span(function.start, function.end)
    given = [*use.rest, *(value for name, value in use.arguments.items() if name)]
    for value in given:
        labels = sorted(splits.of(value))
        if not labels:
            continue
        span = info.source.span(value.start, value.end)
        yield Diagnostic(
            "E1901",
            f"`{span.text}` is split across the {count} devices, but `{function_span.text}` is Python, "
            "which runs in the controller",
            Label(span, f"split along its batch axis `{labels[0]}`"),
            (Label(function_span, "a Python function"),),
            (
                f"with {count} devices each one holds part of every batch, and Python calls run once, in the "
                "controller; this one would gather the batch through the controller's CPU at every step",
            ),
            (python_help(splits.typed, function, span.text),),
        )


def python_help(typed: TypedProgram, function: tree.Expr, value: str) -> str:
    """What to do about it: another place for the function, or `whole`."""
    use = typed.uses.get(function)
    if not isinstance(use, PythonUse) or use.attribute is None:
        return f"write `whole({value})`, which gathers it to the controller, in the order of the rows"
    name = use.attribute.split(".")[-1]
    return (
        f"move `{name}` into the dataset, so it runs on each example as it's loaded, or declare it per example with "
        f'`extern fn {name}(...) = "{use.module}.{use.attribute}"`, so each device runs it on its own examples'
    )


# --- E1902 -----------------------------------------------------------------------------------------------------------


def op_error(info: FunctionInfo, splits: Splits, at: tree.Expr, use: OpUse) -> Diagnostic | None:
    """The first thing in an operation, or in those it is made of, that can't be split exactly."""
    for part in use.parts:
        error = op_error(info, splits, at, part)
        if error is not None:
            return error
    for operand in use.operands:
        error = op_error(info, splits, at, operand) if isinstance(operand, OpUse) else None
        if error is not None:
            return error
    if not use.operands:
        return None
    labels = splits.of_operand(use.operands[0])
    if use.op in ALONG:
        for axis in along(use):
            inside = [splits.of_operand(operand) for operand in use.operands] if use.op == "concat" else [labels]
            if any(carried(each, (axis,)) for each in inside):
                return cannot_split(info, splits, at, use, f"{ALONG[use.op]} along `{axis}`", str(axis))
    together = frozenset[str]().union(*map(splits.of_operand, use.operands))
    if len(together) > 1 and len(use.operands) > 1:
        first, *rest = sorted(together)
        words = f"an operation on values split along `{first}` and along `{rest[0]}`"
        return cannot_split(info, splits, at, use, words, first)
    return None


def along(use: OpUse) -> list[Axis]:
    """The axes that an operation works along."""
    over = use.attributes.get("over")
    axes = over if isinstance(over, tuple) else (over,)
    return [axis for axis in axes if isinstance(axis, Axis)]


def cannot_split(info: FunctionInfo, splits: Splits, at: tree.Expr, use: OpUse, words: str, axis: str) -> Diagnostic:
    """The error, on the operand that is split where there is one in the text."""
    operand = split_operand(splits, use)
    marked = operand if operand is not None else at
    span = info.source.span(marked.start, marked.end)
    secondary = () if marked is at else (Label(info.source.span(at.start, at.end), "can't be split exactly"),)
    shown = f"`whole({span.text})`" if operand is not None else "`whole(x)`"
    return Diagnostic(
        "E1902",
        f"{words} can't be split exactly across the devices",
        Label(span, f"split along `{axis}`"),
        secondary,
        ("each device holds part of every batch, and this needs all of it at once",),
        (f"write {shown}, which gathers it to every device, exactly; `plan` shows the bytes that it sends",),
    )


def split_operand(splits: Splits, use: OpUse) -> tree.Expr | None:
    """The operand with a text of its own that is split; the last one where several are, as the first may stay so."""
    found: tree.Expr | None = None
    for operand in use.operands:
        if isinstance(operand, OpUse):
            found = split_operand(splits, operand) or found
        elif not isinstance(operand, (HostOperand, Fixed)) and splits.of(operand):
            found = operand
    return found


def scan_along_split(info: FunctionInfo, splits: Splits, at: tree.Expr, use: BuiltinUse) -> Iterator[Diagnostic]:
    """A scan along a split axis, whose rounds need each other's results."""
    values = [*use.rest, *use.arguments.values()]
    labels = frozenset[str]().union(*(splits.of(value) for value in values if axes_of(splits.typed.types.get(value))))
    for axis in use.over:
        if carried(labels, (axis,)):
            operation = OpUse("scan", tuple(v for v in values if isinstance(splits.typed.types.get(v), Tensor)))
            yield cannot_split(info, splits, at, operation, f"a scan along `{axis}`", str(axis))
