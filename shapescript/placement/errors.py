"""What can't run where it stands: E1801, E1803, E1804 and E1805.

Takes the typed program and where each function runs; gives diagnostics. A function gets one of each at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.placement.extract import function_to_write
from shapescript.placement.kinds import DIFFERENTIATING, Kind, Placement, body_nodes, branches, calls_in
from shapescript.source import Source, Span
from shapescript.syntax import tree
from shapescript.types.kinds import ModelList, Tensor
from shapescript.types.size import SizeError
from shapescript.types.typed import FunctionInfo, TypedProgram
from shapescript.types.uses import BuiltinUse, ConstantUse, DimUse

Kinds = dict[tree.Function, Placement]
MOST_ROUNDS = 64
TRAINING = frozenset((*DIFFERENTIATING, "update"))


def placement_errors(typed: TypedProgram, kinds: Kinds) -> Iterator[Diagnostic]:
    """All errors of this kind."""
    for node, placement in kinds.items():
        info = typed.function_of[node]
        if placement.kind is Kind.CONTROLLER:
            yield from training_in_controller(typed, info, node, placement)
        elif placement.kind is Kind.DEVICE:
            yield from choices_by_tensors(typed, info, node)
    yield from not_differentiable(typed, kinds)
    yield from long_loops(typed, kinds)


def span_of(source: Source, node: tree.Node) -> Span:
    """The text of a node."""
    return source.span(node.start, node.end)


# --- E1801 -----------------------------------------------------------------------------------------------------------


def choices_by_tensors(typed: TypedProgram, info: FunctionInfo, node: tree.Function) -> Iterator[Diagnostic]:
    """`if`, `while` and `assert` on a tensor, whose value isn't known when a device function is compiled."""
    helps = {
        "if": "choose place by place with `where(c, a, b)`, or decide in the function that calls this one",
        "while": "loop in the function that calls this one, or a known number of times",
        "assert": "assert it in the function that calls this one",
    }
    for at in branches(info):
        if isinstance(at, (tree.If, tree.While, tree.Assert)) and isinstance(typed.types.get(at.test), Tensor):
            word = type(at).__name__.lower()
            yield Diagnostic(
                "E1801",
                f"`{word}` on a tensor in `{node.name}`, which runs on the devices",
                Label(span_of(info.source, at.test), "known only when it runs"),
                notes=("a device function is compiled before the values of its tensors are known",),
                helps=(helps[word],),
            )


# --- E1803 -----------------------------------------------------------------------------------------------------------


def training_in_controller(
    typed: TypedProgram, info: FunctionInfo, node: tree.Function, placement: Placement
) -> Iterator[Diagnostic]:
    """`value_and_grad`, `grad` and `update` where the controller runs."""
    found = [at for at in body_nodes(info) if isinstance(at, tree.Expr) and trains(typed, at)]
    found.sort(key=lambda at: at.start)
    if not found:
        return
    use = typed.uses[found[0]]
    assert isinstance(use, BuiltinUse)
    labels = tuple(Label(span_of(info.source, at), "this too") for at in found[1:])
    if placement.span is not None:
        labels = (Label(placement.span, f"`{node.name}` {does(placement.words)}"), *labels)
    yield Diagnostic(
        "E1803",
        f"`{use.name}` runs on the devices, but `{node.name}` is a controller function",
        Label(span_of(info.source, found[0]), "belongs in a device function"),
        labels,
        ("a function that loops over a dataset, prints, saves or calls Python runs once, in the controller",),
        (function_to_write(typed, info, node, found[0]),),
    )


def does(words: str) -> str:
    """`a dataset` as what a function does."""
    return f"has {words}" if words.startswith("a ") else words


def trains(typed: TypedProgram, at: tree.Expr) -> bool:
    """Is this a call that belongs in a device function?"""
    use = typed.uses.get(at)
    return isinstance(use, BuiltinUse) and use.name in TRAINING


# --- E1804 -----------------------------------------------------------------------------------------------------------


def not_differentiable(typed: TypedProgram, kinds: Kinds) -> Iterator[Diagnostic]:
    """What is differentiated, and runs in the controller."""
    told: set[tree.Function] = set()
    for node in kinds:
        info = typed.function_of[node]
        for at, loss, differentiates in calls_in(typed, info):
            if not differentiates or loss not in kinds or kinds[loss].kind is not Kind.CONTROLLER:
                continue
            leaf = loss
            seen = {leaf}
            while (callee := kinds[leaf].callee) is not None and callee not in seen:
                leaf = callee
                seen.add(leaf)
            if leaf in told:
                continue
            told.add(leaf)
            yield controller_error(
                typed, kinds[leaf], leaf, loss, Label(span_of(info.source, at), "differentiated here")
            )


def controller_error(
    typed: TypedProgram, placement: Placement, leaf: tree.Function, loss: tree.Function, asked: Label
) -> Diagnostic:
    """The error on the place that makes what is differentiated a controller function."""
    assert placement.span is not None
    inside = f"`{loss.name}`" if leaf is loss else f"`{leaf.name}`, which `{loss.name}` calls"
    text = placement.span.text
    if placement.why == "print":
        verb = ", is differentiated, so it can't print" if leaf is not loss else " is differentiated, so it can't print"
        message = inside + verb
        name, value = shown_value(typed, leaf, placement.span)
        help = f'to print a value from a device function, write `show("{name}", {value})`'
    elif placement.why == "python":
        message = f"`{text.split('(')[0]}` is Python, and {inside} is differentiated"
        help = "call it in a controller function, before the step, and pass what it gives as an argument"
    else:
        message = f"{inside} is differentiated, but it is a controller function"
        help = "move this to the function that trains"
    note = "what is differentiated is compiled for the devices, and holds tensor operations only"
    return Diagnostic("E1804", message, Label(placement.span, placement.words), (asked,), (note,), (help,))


def shown_value(typed: TypedProgram, leaf: tree.Function, span: Span) -> tuple[str, str]:
    """What a print shows, as `show` takes it: a name and a tensor."""
    for at in body_nodes(typed.function_of[leaf]):
        use = typed.uses.get(at)
        if isinstance(use, BuiltinUse) and (at.start, at.end) == (span.start, span.end):
            values = [*use.rest, *use.arguments.values()]
            names = [value.value for value in values if isinstance(value, tree.String)]
            for value in values:
                if isinstance(typed.types.get(value), Tensor):
                    text = span.source.text[value.start : value.end]
                    return (names[0] if names else text), text
    return "h", "h"


# --- E1805 -----------------------------------------------------------------------------------------------------------


def differentiated(typed: TypedProgram, kinds: Kinds) -> dict[tree.Function, Label]:
    """Every function that is differentiated, alone or called by one that is, with the place that asks for it."""
    found: dict[tree.Function, Label] = {}
    waiting: list[tuple[tree.Function, Label]] = []
    for node in kinds:
        info = typed.function_of[node]
        for at, callee, differentiates in calls_in(typed, info):
            if differentiates:
                waiting.append((callee, Label(span_of(info.source, at), "differentiated here")))
    while waiting:
        node, label = waiting.pop()
        if node in found or node not in kinds:
            continue
        found[node] = label
        waiting += [(callee, label) for _, callee, _ in calls_in(typed, typed.function_of[node])]
    return found


def long_loops(typed: TypedProgram, kinds: Kinds) -> Iterator[Diagnostic]:
    """Loops of too many rounds in what is differentiated, as each is unrolled there."""
    for node, label in differentiated(typed, kinds).items():
        info = typed.function_of[node]
        for at in branches(info):
            rounds = rounds_of(typed, at.over) if isinstance(at, tree.For) else None
            if rounds is None or rounds <= MOST_ROUNDS or not isinstance(at, tree.For):
                continue
            yield Diagnostic(
                "E1805",
                f"this loop has {rounds} rounds, and what is differentiated may have {MOST_ROUNDS}",
                Label(span_of(info.source, at.over), f"{rounds} rounds"),
                (label,),
                ("a loop in what is differentiated is unrolled, and each round keeps its values for the way back",),
                (
                    "write the body as a function `fn round(carry: [b D], x: [b D]) -> ([b D], [b D])` and the loop as "
                    "`carry, ys = scan(round, carry, xs, over=n)`",
                ),
            )


def rounds_of(typed: TypedProgram, over: tree.Expr) -> int | None:
    """How many rounds a loop has, where that is known before a run."""
    while isinstance(over, tree.Group):
        over = over.inner
    use = typed.uses.get(over)
    if isinstance(use, BuiltinUse) and use.name == "reversed":
        return rounds_of(typed, next(iter(use.arguments.values())))
    if isinstance(typed.types.get(over), ModelList):
        return None
    if not isinstance(over, tree.Range):
        return None
    first, last = known(typed, over.first), known(typed, over.last)
    return None if first is None or last is None else last - first


def known(typed: TypedProgram, value: tree.Expr) -> int | None:
    """A whole number that is known before a run."""
    use = typed.uses.get(value)
    if isinstance(value, tree.Number):
        return value.value if isinstance(value.value, int) else None
    if isinstance(value, tree.Group):
        return known(typed, value.inner)
    if isinstance(use, ConstantUse):
        return use.value if isinstance(use.value, int) else None
    if isinstance(use, DimUse):
        try:
            return use.size.evaluate(typed.known_sizes())
        except SizeError:
            return None
    if isinstance(value, tree.Binary) and value.op in ("+", "-", "*"):
        left, right = known(typed, value.left), known(typed, value.right)
        if left is None or right is None:
            return None
        return left + right if value.op == "+" else left - right if value.op == "-" else left * right
    return None
