"""Which functions run on the devices, which in the controller, and which on host values alone.

Takes a `TypedProgram`; gives a `Placement` for each function, imported ones too, with the place that made it so.
A function that prints, loops over a dataset, makes a model or calls Python is a controller function, and so is one
that calls such a one; else one with a tensor, a model or a batch in it is a device function; the rest are host
functions. A function that is differentiated doesn't make the one that asks for it a controller function: if it can't
be differentiated, that is an error of its own (`errors.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from shapescript.source import Span
from shapescript.syntax import tree
from shapescript.types.kinds import (
    NOTHING,
    Batch,
    Batches,
    Dataset,
    Gradients,
    ModelList,
    ModelOf,
    Optimizer,
    PythonValue,
    Tensor,
    TupleOf,
    Type,
)
from shapescript.types.typed import FunctionInfo, TypedProgram
from shapescript.types.uses import BuiltinUse, CallUse, CastUse, ModelUse


class Kind(Enum):
    """Where a function runs."""

    DEVICE = "device"
    CONTROLLER = "controller"
    HOST = "host"


@dataclass(frozen=True)
class Placement:
    """Where a function runs; `span` is what made it so, with `words` on it (None for a host function).

    `callee` is the function whose call made it so; `why` names another reason: `print`, `python` or `other`.
    """

    kind: Kind
    span: Span | None = None
    words: str = ""
    callee: tree.Function | None = None
    why: str = "other"


DIFFERENTIATING = frozenset(("value_and_grad", "grad"))
CONTROLLER_WORDS = {
    "python": "calls Python",
    "print": "prints",
    "log": "logs",
    "save": "writes a file",
    "load": "reads a file",
    "save_checkpoint": "writes a file",
    "load_checkpoint": "reads a file",
    "time": "reads the clock",
    "copy": "makes a model",
    "sgd": "makes an optimizer's state",
    "adam": "makes an optimizer's state",
    "adamw": "makes an optimizer's state",
    "lion": "makes an optimizer's state",
    "map": "calls Python",
    "filter": "calls Python",
}
SCHEDULES = ("warmup_cosine", "warmup_linear", "cosine", "exponential", "steps")
LOOKING = frozenset(("int", "float", "bool", "str", *SCHEDULES))


Found = TypeVar("Found")


def remembered(info: FunctionInfo, key: Hashable, find: Callable[[], Found]) -> Found:
    """What there is to know about a function's body, found out once for each body; nodes in it may have moved since."""
    if key not in info.of_body:
        info.of_body[key] = find()
    found: Found = info.of_body[key]
    return found


def body_nodes(info: FunctionInfo) -> list[tree.Node]:
    """All nodes of a function's body, in the order of the text's grammar."""
    body = info.node.body if isinstance(info.node, tree.Function) else []
    return remembered(info, "nodes", lambda: [node for statement in body for node in statement.walk()])


def branches(info: FunctionInfo) -> list[tree.If | tree.While | tree.Assert | tree.For]:
    """The statements of a body that ask for a value, or go round."""
    kinds = (tree.If, tree.While, tree.Assert, tree.For)
    return remembered(info, "branches", lambda: [at for at in body_nodes(info) if isinstance(at, kinds)])


def calls_in(typed: TypedProgram, info: FunctionInfo) -> list[tuple[tree.Node, tree.Function, bool]]:
    """The calls of functions in a body: the place, the function, and whether it is differentiated."""

    def find() -> list[tuple[tree.Node, tree.Function, bool]]:
        found = ((at, called(typed, at)) for at in body_nodes(info))
        return [(at, *call) for at, call in found if call is not None]

    return remembered(info, "calls", find)


def called(typed: TypedProgram, node: tree.Node) -> tuple[tree.Function, bool] | None:
    """The function that a node calls, and whether it differentiates it."""
    use = typed.uses.get(node)
    if isinstance(use, CallUse):
        return use.function, False
    if isinstance(use, BuiltinUse) and use.call is not None:
        return use.call.function, use.name in DIFFERENTIATING
    return None


def place_functions(typed: TypedProgram) -> dict[tree.Function, Placement]:
    """Where each function of a program and of its imports runs."""
    infos = {node: info for node, info in typed.function_of.items() if isinstance(node, tree.Function)}
    kinds: dict[tree.Function, Placement] = {}
    for node, info in infos.items():
        reason = controller_reason(typed, info)
        if reason is not None:
            kinds[node] = reason
    calls = calls_of(typed, infos)
    spread(calls, kinds, Kind.CONTROLLER)
    for node, info in infos.items():
        if node not in kinds:
            reason = device_reason(typed, info)
            if reason is not None:
                kinds[node] = reason
    spread(calls, kinds, Kind.DEVICE)
    return {node: kinds.get(node, Placement(Kind.HOST)) for node in infos}


Calls = dict[tree.Function, list[tuple[tree.Function, Span]]]


def calls_of(typed: TypedProgram, infos: dict[tree.Function, FunctionInfo]) -> Calls:
    """For each function those that call it, each with the place of the call; not those that differentiate it."""
    found: Calls = {node: [] for node in infos}
    for node, info in infos.items():
        for at, callee, differentiates in calls_in(typed, info):
            if not differentiates and callee in found:
                found[callee].append((node, info.source.span(at.start, at.end)))
    return found


def spread(calls: Calls, kinds: dict[tree.Function, Placement], kind: Kind) -> None:
    """Gives the kind to the functions that call one of it, and to those that call them."""
    waiting = deque(node for node, placement in kinds.items() if placement.kind is kind)
    while waiting:
        callee = waiting.popleft()
        for caller, span in calls[callee]:
            if caller not in kinds:
                kinds[caller] = Placement(kind, span, f"calls `{callee.name}`, a {kind.value} function", callee)
                waiting.append(caller)


# --- controller ------------------------------------------------------------------------------------------------------


def controller_reason(typed: TypedProgram, info: FunctionInfo) -> Placement | None:
    """What of its own makes this a controller function: the first such place of its text."""
    reason = remembered(info, "controller", lambda: controller_place(typed, info))
    if reason is None:
        return None
    at, words, why = reason
    end = at.over.end if isinstance(at, tree.For) else at.end
    return Placement(Kind.CONTROLLER, info.source.span(at.start, end), words, None, why)


def controller_place(typed: TypedProgram, info: FunctionInfo) -> tuple[tree.Node, str, str] | None:
    """The place that makes this a controller function, with words for it."""
    found: list[tuple[tree.Node, str, str]] = []
    for parameter in info.parameters:
        words = held_by_controller(parameter.type)
        if words:
            found.append((parameter.node, words, "other"))
    for at in body_nodes(info):
        reason = controller_use(typed, at)
        if reason is not None:
            found.append((at, *reason))
    return min(found, key=lambda each: (rank(each[2]), each[0].start, each[2] != "python"), default=None)


def rank(why: str) -> int:
    """What a function does says more than what it makes, and that more than what it holds."""
    return {"other": 2, "makes": 1}.get(why, 0)


def controller_use(typed: TypedProgram, at: tree.Node) -> tuple[str, str] | None:
    """Why a node runs in the controller, if it does: words, and a word for the reason."""
    use = typed.uses.get(at)
    if isinstance(use, BuiltinUse):
        if use.name in CONTROLLER_WORDS:
            words = CONTROLLER_WORDS[use.name]
            why = {"print": "print", "log": "print", "python": "python"}.get(use.name, "does")
            return words, "makes" if words.startswith("makes") else why
        if use.name in LOOKING and any(isinstance(typed.types.get(v), Tensor) for v in use.arguments.values()):
            return "looks at a tensor's value", "does"
    if isinstance(use, ModelUse):
        return "makes a model", "makes"
    if isinstance(use, CastUse) and isinstance(at, tree.As) and isinstance(typed.types.get(at.value), PythonValue):
        return "gives a value from Python its type", "does"
    if isinstance(at, tree.For):
        over = held_by_controller(typed.types.get(at.over, NOTHING))
        return (f"loops over {over}", "does") if over else None
    if isinstance(at, tree.Expr):
        held = held_by_controller(typed.types.get(at, NOTHING))
        return (held, "other") if held else None
    return None


def held_by_controller(kind: Type) -> str | None:
    """Words for a value that only the controller holds."""
    if isinstance(kind, (Dataset, Batches)):
        return "a dataset"
    if isinstance(kind, PythonValue):
        return "a value from Python"
    if isinstance(kind, TupleOf):
        return next((words for words in map(held_by_controller, kind.items) if words), None)
    return None


# --- devices ---------------------------------------------------------------------------------------------------------


def device_reason(typed: TypedProgram, info: FunctionInfo) -> Placement | None:
    """What makes this a device function: the first place of its text with a value that lies on the devices."""
    for parameter in info.parameters:
        words = held_by_devices(parameter.type)
        if words:
            span = info.source.span(parameter.node.start, parameter.node.end)
            return Placement(Kind.DEVICE, span, words)
    for at in body_nodes(info):
        kind = typed.types.get(at) if isinstance(at, tree.Expr) else None
        words = held_by_devices(kind) if kind is not None else None
        if words:
            return Placement(Kind.DEVICE, info.source.span(at.start, at.end), words)
    return None


def held_by_devices(kind: Type) -> str | None:
    """Words for a value that lies on the devices."""
    if isinstance(kind, Tensor):
        return "a tensor"
    if isinstance(kind, Batch):
        return "a batch"
    if isinstance(kind, (ModelOf, ModelList)):
        return "a model"
    if isinstance(kind, Optimizer):
        return "an optimizer's state"
    if isinstance(kind, Gradients):
        return "gradients"
    if isinstance(kind, TupleOf):
        return next((words for words in map(held_by_devices, kind.items) if words), None)
    return None
