"""Functions: signatures, defaults, extern functions, and what only shows once every body is checked.

Takes the `Declarations` of a file with its dims, models and data resolved; fills `functions` and `externs`. After the
bodies: recursion (E0604), a `batch_norm` without `mut` in what is differentiated (E0706), a loss that doesn't use its
model (E0707). The bodies themselves are `check_statements.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.names import case_problem, declared_twice, name_span
from shapescript.syntax import tree
from shapescript.types import check_types
from shapescript.types.axes import Axis
from shapescript.types.check_declarations import Declarations
from shapescript.types.kinds import NOTHING, Batch, Host, Tensor, TupleOf, Type, Wrong
from shapescript.types.typed import FunctionInfo, ParameterInfo
from shapescript.types.unify import substitute_type


class SignatureScope(Declarations):
    """Sizes and types within one signature: small names are axis variables, new at their first place."""

    def __init__(self, here: Declarations, node: tree.Function | tree.Extern) -> None:
        super().__init__(here.names, here.program, here.prefix)
        self.diagnostics = here.diagnostics
        self.wrong_dims = here.wrong_dims
        self.integers = {
            parameter.name
            for parameter in node.parameters
            if isinstance(parameter.type, tree.NamedType) and parameter.type.name == "int"
        }
        self.variables: dict[str, Axis] = {}
        self.spread = False
        self.in_result = False
        self.unclear = False  # a parameter's type is wrong, so the result's variables may be those it would have had

    def axis_named(self, name: str) -> Axis | None:
        found = self.variables.get(name)
        if found is not None:
            return found
        if name in self.integers:
            self.variables[name] = Axis.named(name)
            return self.variables[name]
        return super().axis_named(name)

    def new_axis(self, name: str) -> Axis | None:
        if self.in_result and not self.unclear:
            return None
        self.variables[name] = Axis.named(name)
        return self.variables[name]

    def any_axes(self) -> bool:
        self.spread = self.spread or not self.in_result
        return self.spread

    def known_axes(self) -> list[str]:
        return [*self.variables, *self.names.dims]


def check_signatures(here: Declarations) -> None:
    """Every function's and extern's signature."""
    for name, function in here.names.functions.items():
        info = signature(here, function)
        here.program.functions[name] = info
        here.program.function_of[function] = info
    for name, extern in here.names.externs.items():
        info = signature(here, extern)
        here.program.externs[name] = info
        here.program.function_of[extern] = info
        _check_extern(here, extern, info)


def signature(here: Declarations, node: tree.Function | tree.Extern) -> FunctionInfo:
    """The types of a function's parameters and of its result, over its own axis variables."""
    scope = SignatureScope(here, node)
    found: dict[str, tuple[tree.Parameter, Type]] = {}
    for parameter in node.parameters:
        of = check_types.type_of_tree(scope, parameter.type)
        scope.unclear = scope.unclear or isinstance(of, Wrong)
        if parameter.name in found:
            earlier = found[parameter.name][0]
            where = f" in `{node.name}`"
            here.diagnostics.append(declared_twice(here.source, parameter.name, parameter, earlier, where))
            continue
        problem = case_problem(here.source, parameter, "a parameter", "small")
        if problem is not None:
            here.diagnostics.append(problem)
        found[parameter.name] = (parameter, of)
    scope.in_result = True
    result = NOTHING if node.result is None else check_types.type_of_tree(scope, node.result)
    batches = batch_names(of for _, of in found.values())
    variables = {name: _marked(axis, batches) for name, axis in scope.variables.items()}
    parameters = tuple(
        ParameterInfo(name, mark_batch(of, batches), parameter.mut, parameter.default, parameter)
        for name, (parameter, of) in found.items()
    )
    return FunctionInfo(
        node.name, parameters, mark_batch(result, batches), variables, node, here.source, spread=scope.spread
    )


def batch_names(kinds: Iterable[Type]) -> frozenset[str]:
    """The names of the axes of the batches among these types."""
    names: set[str] = set()
    for kind in kinds:
        if isinstance(kind, Batch) and kind.axis.name is not None:
            names.add(kind.axis.name)
        elif isinstance(kind, TupleOf):
            names |= batch_names(kind.items)
    return frozenset(names)


def _marked(axis: Axis, batches: frozenset[str]) -> Axis:
    return Axis(axis.name, axis.size, axis.parts, axis.batch or axis.name in batches)


def mark_batch(of: Type, batches: frozenset[str]) -> Type:
    """The type with the axes of these names marked as the batch's."""
    if not batches:
        return of
    return substitute_type(of, {name: Axis.named(name, batch=True) for name in batches})


def _check_extern(here: Declarations, node: tree.Extern, info: FunctionInfo) -> None:
    if "." not in node.target.value or not all(part.isidentifier() for part in node.target.value.split(".")):
        here.report(
            "E0904",
            "an extern function names what it calls as `module.attribute`",
            node.target,
            helps=(f'write `= "augment.{node.name}"`',),
        )
    firsts: list[tuple[tree.Node, Axis]] = []
    for parameter in info.parameters:
        of = parameter.type
        if parameter.mut:
            here.report("E0904", "an extern function changes none of its arguments", parameter.node)
        if isinstance(of, Tensor) and of.axes:
            firsts.append((parameter.node.type, of.axes[0]))
        elif not isinstance(of, (Tensor, Host, Wrong)):
            here.report("E0904", f"an extern function takes tensors and numbers, and this is {of}", parameter.node.type)
    for kind in info.result.items if isinstance(info.result, TupleOf) else (info.result,):
        if isinstance(kind, Wrong):
            continue
        if not isinstance(kind, Tensor) or not kind.axes:
            here.report(
                "E0904",
                "an extern function gives a tensor whose first axis is the examples'",
                node.result or name_span(here.source, node),
            )
        elif not firsts or kind.axes[0] != firsts[0][1]:
            axis = firsts[0][1] if firsts else Axis.named("b")
            here.report(
                "E0904",
                f"the first axis of an extern function's result is the examples', `{axis}`",
                node.result or node,
                notes=("it works on each example by itself, so what it gives has the same examples",),
            )


# --- after the bodies ------------------------------------------------------------------------------------------------


def check_after(here: Declarations) -> None:
    """What needs every body to be checked."""
    _check_recursion(here)
    _check_differentiated(here)


def _check_recursion(here: Declarations) -> None:
    state: dict[tree.Function, int] = {}
    for start in here.program.functions.values():
        if not isinstance(start.node, tree.Function) or start.node in state:
            continue
        state[start.node] = 1
        stack = [(start, iter(list(start.calls.items())))]
        while stack:
            info, calls = stack[-1]
            step = next(calls, None)
            if step is None:
                assert isinstance(info.node, tree.Function)
                state[info.node] = 2
                stack.pop()
                continue
            callee, place = step
            target = here.program.function_of.get(callee)
            if target is None or target.source is not here.source:
                continue
            if state.get(callee) == 1:
                _recursion(here, info, target, place)
            elif state.get(callee) is None:
                state[callee] = 1
                stack.append((target, iter(list(target.calls.items()))))


def _recursion(here: Declarations, info: FunctionInfo, target: FunctionInfo, place: tree.Node) -> None:
    message = f"`{target.name}` calls itself"
    if info is not target:
        message += f", by way of `{info.name}`"
    here.report(
        "E0604",
        message,
        place,
        secondary=(Label(name_span(here.source, target.node), "this function"),),
        notes=("what runs on the devices is compiled without calls, so functions don't call themselves",),
        helps=("write a loop",),
    )


def _check_differentiated(here: Declarations) -> None:
    reported: set[tree.Node] = set()
    for info in here.program.functions.values():
        for loss, place in info.differentiated:
            _check_loss(here, here.program.function_of, loss, place, reported)


def _check_loss(
    here: Declarations,
    functions: Mapping[tree.Function | tree.Extern, FunctionInfo],
    loss: tree.Function,
    place: tree.Node,
    reported: set[tree.Node],
) -> None:
    info = functions[loss]
    if info.parameters and info.parameters[0].name not in info.mentioned and loss not in reported:
        reported.add(loss)
        first = info.parameters[0]
        here.report(
            "E0707",
            f"`{info.name}` doesn't use its model `{first.name}`, so there is nothing to differentiate",
            place,
            secondary=(Label(name_span(info.source, first.node), "never used"),),
            helps=(f"use `{first.name}` in `{info.name}`, or hand in the model that it does use",),
        )
    todo, seen = [loss], {loss}
    while todo:
        at = functions[todo.pop()]
        for node in at.plain_batch_norms:
            if node in reported:
                continue
            reported.add(node)
            here.diagnostics.append(_plain_batch_norm(here, at, node, place))
        for node in at.field_changes:
            if node not in reported:
                reported.add(node)
                here.diagnostics.append(_field_change(here, at, node, place))
        for callee in at.trained_calls:
            if callee not in seen and callee in functions:
                seen.add(callee)
                todo.append(callee)


def _field_change(here: Declarations, at: FunctionInfo, node: tree.Node, place: tree.Node) -> Diagnostic:
    return Diagnostic(
        "E0712",
        "a field of a model can't be changed in what is differentiated",
        Label(at.source.span(node.start, node.end)),
        (Label(here.span(place), "differentiated here"),),
        helps=("return the new value beside the loss, and assign it after `value_and_grad`",),
    )


def _plain_batch_norm(here: Declarations, at: FunctionInfo, node: tree.Node, place: tree.Node) -> Diagnostic:
    return Diagnostic(
        "E0706",
        "this `batch_norm` is differentiated, and can't update its running statistics without `mut`",
        Label(at.source.span(node.start, node.end)),
        (Label(here.span(place), "differentiated here"),),
        helps=(
            "write `batch_norm(x, mut m.bn, over=...)`, with `mut m` in the signature and at each call, "
            "up to `value_and_grad(loss, mut m, batch)`",
        ),
    )
