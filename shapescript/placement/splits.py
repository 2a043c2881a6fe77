"""Along which axes the values of a function are split across the devices.

Takes the typed program; gives `Splits`, which says it of each expression. A batch is split along its axis, and what is
computed from it along the axes that descend from there, under whatever name; `whole(x)` isn't split. An axis of a
plain tensor parameter is split if some call in the program binds it to a split one. This is the checker's view, by
names alone; how each value lies in the end is worked out on the compiled function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shapescript.placement.kinds import body_nodes, calls_in, remembered
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import Batch, Tensor, TupleOf, Type
from shapescript.types.typed import FunctionInfo, TypedProgram
from shapescript.types.uses import (
    BuiltinUse,
    CallUse,
    DataUse,
    Default,
    Fixed,
    HostOperand,
    LocalUse,
    Operand,
    OpUse,
)

Labels = frozenset[str]
NONE: Labels = frozenset()


def axes_of(kind: Type | None) -> tuple[Axis, ...]:
    """The axes of a type's tensors, all together."""
    if isinstance(kind, Tensor):
        return kind.axes
    if isinstance(kind, Batch):
        return (kind.axis,)
    if isinstance(kind, TupleOf):
        return tuple(axis for item in kind.items for axis in axes_of(item))
    return ()


def carried(labels: Labels, axes: Iterable[Axis]) -> Labels:
    """Those of the axes that are split, or have a part that is."""
    return frozenset(str(axis) for axis in axes if str(axis) in labels or any(str(p) in labels for p in axis.parts))


class Splits:
    """The split axes of one function's expressions; `names` are the axis variables that its callers split."""

    def __init__(self, typed: TypedProgram, info: FunctionInfo, names: Labels) -> None:
        self.typed = typed
        self.names = names
        self.locals: dict[str, Labels] = {}
        self.known: dict[tree.Expr, Labels] = {}
        for parameter in info.parameters:
            self.locals[parameter.name] = self.of_type(parameter.type)
        for _ in range(2):  # what a loop's round leaves is seen by the next
            self.known.clear()
            for at in body_nodes(info):
                if isinstance(at, tree.Assign):
                    self.assign(at.target, self.of(at.value))
                elif isinstance(at, tree.For):
                    for name in at.names:
                        self.assign(name, self.of_type(self.typed.types.get(name)))
        self.known.clear()

    def assign(self, target: tree.Expr, labels: Labels) -> None:
        """A name may be split along all that any value of it is split along."""
        if isinstance(target, tree.Name):
            self.locals[target.name] = self.locals.get(target.name, NONE) | labels
        elif isinstance(target, tree.Tuple):
            for item in target.items:
                self.assign(item, labels)

    def of_type(self, kind: Type | None) -> Labels:
        """The split axes of a value of which only the type is known."""
        return frozenset(str(axis) for axis in axes_of(kind) if axis.batch or str(axis) in self.names)

    def of(self, expr: tree.Expr) -> Labels:
        """The split axes of an expression."""
        found = self.known.get(expr)
        if found is None:
            found = self.known[expr] = self.compute(expr)
        return found

    def compute(self, expr: tree.Expr) -> Labels:
        """The split axes of an expression that wasn't asked for before."""
        use, kind = self.typed.uses.get(expr), self.typed.types.get(expr)
        axes = axes_of(kind)
        if isinstance(expr, tree.Name) and (isinstance(use, LocalUse) or use is None):
            labels = self.locals.get(expr.name)
            return self.of_type(kind) if labels is None else carried(labels, axes)
        if isinstance(expr, tree.Group):
            return self.of(expr.inner)
        if isinstance(expr, tree.Tuple):
            return frozenset[str]().union(*map(self.of, expr.items))
        if isinstance(use, OpUse):
            parts = use.parts or (use,)
            return carried(frozenset[str]().union(*(self.of_op(part) for part in parts)), axes)
        if isinstance(use, BuiltinUse):
            if use.name == "whole":
                return NONE
            inside = [*use.arguments.values(), *use.rest]
        elif isinstance(use, CallUse):
            inside = [argument for argument in use.arguments if not isinstance(argument, Default)]
        elif isinstance(use, DataUse):
            inside = list(use.fields.values())
        else:
            inside = [child for child in expr.children() if isinstance(child, tree.Expr)]
        held = [child for child in inside if axes_of(self.typed.types.get(child))]
        if not held:
            return self.of_type(kind)
        return carried(frozenset[str]().union(*map(self.of, held)), axes)

    def of_op(self, use: OpUse) -> Labels:
        """The split axes of an operation that may have no text of its own."""
        labels = frozenset[str]().union(*map(self.of_operand, use.operands))
        wanted = use.attributes.get("axes")
        axes = [axis for axis in wanted if isinstance(axis, Axis)] if isinstance(wanted, tuple) else []
        if not any(map(self.has_axes, use.operands)):
            return frozenset(str(axis) for axis in axes if axis.batch or str(axis) in self.names)
        if use.op == "relabel" and len(use.operands) == 1:
            before = self.operand_axes(use.operands[0])
            if before is not None and len(before) == len(axes):
                return frozenset(str(new) for old, new in zip(before, axes, strict=True) if str(old) in labels)
        return carried(labels, axes) if axes else labels

    def of_operand(self, operand: Operand) -> Labels:
        """The split axes of an operand."""
        if isinstance(operand, OpUse):
            return self.of_op(operand)
        return NONE if isinstance(operand, (HostOperand, Fixed)) else self.of(operand)

    def has_axes(self, operand: Operand) -> bool:
        """Whether an operand could be split."""
        if isinstance(operand, OpUse):
            return "axes" in operand.attributes or any(map(self.has_axes, operand.operands))
        return not isinstance(operand, (HostOperand, Fixed)) and bool(axes_of(self.typed.types.get(operand)))

    def operand_axes(self, operand: Operand) -> tuple[Axis, ...] | None:
        """The axes of an operand, where they are known."""
        if isinstance(operand, OpUse):
            axes = operand.attributes.get("axes")
            return tuple(axis for axis in axes if isinstance(axis, Axis)) if isinstance(axes, tuple) else None
        return None if isinstance(operand, (HostOperand, Fixed)) else axes_of(self.typed.types.get(operand))

    def bound(self, call: CallUse) -> Labels:
        """The callee's axis variables that this call binds to split axes."""
        given = [argument for argument in call.arguments if not isinstance(argument, Default)]
        labels = frozenset[str]().union(*map(self.of, given))
        axes: Mapping[str, Axis] = call.axes
        return frozenset(name for name, axis in axes.items() if carried(labels, (axis,)))


def split_functions(typed: TypedProgram) -> dict[tree.Function, Splits]:
    """The split axes in each function, with what their callers split, worked out until nothing changes."""
    infos = {node: info for node, info in typed.function_of.items() if isinstance(node, tree.Function)}
    names: dict[tree.Function, Labels] = dict.fromkeys(infos, NONE)
    found: dict[tree.Function, Splits] = {}
    waiting = list(infos)
    while waiting:
        node = waiting.pop(0)
        found[node] = splits_of(typed, infos[node], names[node])
        for callee, bound in bindings(typed, infos[node], found[node]):
            if callee not in names:
                continue
            wider = names[callee] | bound
            if wider != names[callee]:
                names[callee] = wider
                if callee not in waiting:
                    waiting.append(callee)
    return found


def splits_of(typed: TypedProgram, info: FunctionInfo, names: Labels) -> Splits:
    """The split axes in a function whose callers split these axis variables."""
    return remembered(info, ("splits", names), lambda: Splits(typed, info, names))


def bindings(typed: TypedProgram, info: FunctionInfo, splits: Splits) -> list[tuple[tree.Function, Labels]]:
    """The functions that a body calls, each with the axis variables that it binds to split axes."""

    def find() -> list[tuple[tree.Function, Labels]]:
        found: list[tuple[tree.Function, Labels]] = []
        for at, callee, _ in calls_in(typed, info):
            use = typed.uses[at]
            call = use if isinstance(use, CallUse) else use.call if isinstance(use, BuiltinUse) else None
            assert call is not None
            found.append((callee, splits.bound(call)))
        return found

    return remembered(info, ("bindings", splits.names), find)
