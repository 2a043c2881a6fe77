"""Runs a program's tree over the values of a domain: functions and statements.

Takes a `TypedProgram` and a `Domain`; what an expression means is read from `uses` by `expressions.py`. One evaluator
serves both domains: in the controller's, tensors are data and a device function is run as a whole; while a function is
specialised, tensors are nodes, calls are put in line and loops unrolled.

`training` is the mode of dropout and batch_norm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import length_hint

from shapescript.placement.errors import MOST_ROUNDS
from shapescript.source import Source
from shapescript.specialise import expressions
from shapescript.specialise.domain import Domain, problem
from shapescript.specialise.frame import TENSORS, Frame, batch_in, bind_call
from shapescript.specialise.rounds import Outline, Way, is_long, outline
from shapescript.specialise.values import BatchValue, ModelValue, Value
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import Batch, Host, Tensor, Type
from shapescript.types.size import Size
from shapescript.types.typed import FunctionInfo, TypedProgram
from shapescript.types.uses import CallUse, Default, FieldUse


class Stop(Exception):
    """A way out of a block: what ends the loop or the function."""


class BreakLoop(Stop):
    """`break`."""


class ContinueLoop(Stop):
    """`continue`."""


class ReturnValue(Stop):
    """`return`, with the value."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


def global_names(program: TypedProgram) -> frozenset[str]:
    """The names of axes and atoms that mean the same in every function: those of dims, in all files."""
    names: set[str] = set()
    for info in program.dims.values():
        names.update((info.name, *info.axis.size.atoms))
        if info.axis.name is not None:
            names.add(info.axis.name)
    for imported in program.imports.values():
        if imported.program is not None:
            names |= global_names(imported.program)
    return frozenset(names)


@dataclass
class Evaluator:
    """The program, the domain, and the sizes of the dims."""

    program: TypedProgram
    domain: Domain
    sizes: dict[str, int]
    seed: int = 0
    training: bool = False
    differentiating: bool = False
    globals: frozenset[str] = field(default_factory=frozenset)
    outlines: dict[tree.Function, Outline | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.globals = self.globals or global_names(self.program)

    # --- calls

    def frame(self, source: Source, info: FunctionInfo | None = None) -> Frame:
        """A new frame in this domain."""
        return Frame(self.domain, source, self.globals, info)

    @contextmanager
    def differentiated(self) -> Iterator[None]:
        """What runs within is differentiated: in training, and no loop in it is long."""
        before, self.differentiating = self.differentiating, True
        try:
            with self.mode(True):
                yield
        finally:
            self.differentiating = before

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Dropout and batch_norm act as in training, or as in evaluation."""
        before, self.training = self.training, training
        try:
            yield
        finally:
            self.training = before

    def call(self, caller: Frame, use: CallUse, given: Sequence[Value] | None = None) -> Value:
        """A call of a declared function; `given` stands in for arguments that are already values."""
        info = self.program.function_of[use.function]
        callee = self.frame(info.source, info)
        values = (
            list(given)
            if given is not None
            else [
                None if isinstance(argument, Default) else expressions.evaluate(self, caller, argument)
                for argument in use.arguments
            ]
        )
        for place, argument in enumerate(use.arguments):
            if isinstance(argument, Default):
                values[place] = expressions.evaluate(self, callee, argument.value)
        numbers = {
            parameter.name: value
            for parameter, value in zip(info.parameters, values, strict=True)
            if parameter.name in info.axes and isinstance(value, int)
        }
        bind_call(caller, callee, use.axes, use.spread, numbers)
        result = self.run(callee, values)
        if given is None:
            self._write_back(caller, callee, use, values)
        return result

    def _write_back(self, caller: Frame, callee: Frame, use: CallUse, values: Sequence[Value]) -> None:
        """`mut` arguments that aren't containers get the values that the callee left in its parameters."""
        assert callee.info is not None
        for parameter, argument, value in zip(callee.info.parameters, use.arguments, values, strict=True):
            now = callee.locals.get(parameter.name, value)
            changed = now is not value and isinstance(value, (*TENSORS, int, float, str))
            if parameter.mut and changed and not isinstance(argument, Default):
                self.assign(caller, argument, now)

    def apply(self, info: FunctionInfo, given: Mapping[str, Value]) -> tuple[Value, dict[str, Value]]:
        """A call from Python, its arguments by name; the second result is what the parameters hold at the end."""
        callee = self.frame(info.source, info)
        values: list[Value] = []
        for parameter in info.parameters:
            if parameter.name in given:
                values.append(given[parameter.name])
            else:
                assert parameter.default is not None, parameter.name
                values.append(expressions.evaluate(self, callee, parameter.default))
            value = values[-1]
            if parameter.name in info.axes and isinstance(value, int):
                callee.axes[parameter.name] = self.domain.local_axis(Axis(parameter.name, Size.of(value)))
        result = self.run(callee, values)
        return result, dict(callee.locals)

    def run(self, callee: Frame, values: Sequence[Value]) -> Value:
        """The body of a function whose axes are bound, on these arguments."""
        info = callee.info
        assert info is not None and isinstance(info.node, tree.Function)
        arguments = [
            self.received(callee, value, parameter.type)
            for parameter, value in zip(info.parameters, values, strict=True)
        ]
        by_name = {parameter.name: value for parameter, value in zip(info.parameters, arguments, strict=True)}
        steps = self.outline(info)
        if steps is not None:
            callee.locals.update(by_name)
            if is_long(self, callee, steps):
                return callee.conform(Way(self, callee, steps).run(), info.result)
            callee.locals.clear()
        done, result = self.domain.enter(info.node, arguments, callee, self.training)
        if done:
            return callee.conform(result, info.result)
        callee.locals.update(by_name)
        try:
            self.block(callee, info.node.body)
        except ReturnValue as returned:
            return callee.conform(returned.value, info.result)
        return None

    def outline(self, info: FunctionInfo) -> Outline | None:
        """How a device function with a long loop is gone through, where the controller calls it."""
        assert isinstance(info.node, tree.Function)
        if not self.domain.runs_whole(info.node):
            return None
        if info.node not in self.outlines:
            self.outlines[info.node] = outline(self.program, info, self.globals)
        return self.outlines[info.node]

    def received(self, callee: Frame, value: Value, of: Type) -> Value:
        """An argument as the callee's parameter has it."""
        if isinstance(of, Batch) and isinstance(value, BatchValue):
            return batch_in(callee, value, of.axis)
        if of == Host("float") and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return callee.conform(value, of)

    # --- statements

    def block(self, frame: Frame, body: Sequence[tree.Statement]) -> None:
        """Statements in order; a `Stop` is the way out."""
        for statement in body:
            self.statement(frame, statement)

    def statement(self, frame: Frame, statement: tree.Statement) -> None:
        """One statement."""
        match statement:
            case tree.Assign():
                self.assign(frame, statement.target, expressions.evaluate(self, frame, statement.value))
            case tree.Do():
                expressions.evaluate(self, frame, statement.value)
            case tree.Return():
                value = None if statement.value is None else expressions.evaluate(self, frame, statement.value)
                raise ReturnValue(value)
            case tree.For():
                self.loop(frame, statement)
            case tree.While():
                while expressions.truth(self, frame, statement.test):
                    if self.round(frame, statement.body):
                        break
            case tree.If():
                taken = expressions.truth(self, frame, statement.test)
                self.block(frame, statement.body if taken else statement.otherwise)
            case tree.Break():
                raise BreakLoop
            case tree.Continue():
                raise ContinueLoop
            case tree.Assert():
                self.check(frame, statement)

    def check(self, frame: Frame, statement: tree.Assert) -> None:
        """An assertion."""
        if expressions.truth(self, frame, statement.test):
            return
        words = ""
        if statement.message is not None:
            words = f": {expressions.evaluate(self, frame, statement.message)}"
        raise problem("E2110", f"`{frame.span(statement.test).text}` doesn't hold{words}", frame.span(statement.test))

    def round(self, frame: Frame, body: Sequence[tree.Statement]) -> bool:
        """One round of a loop; whether it ended the loop."""
        try:
            self.block(frame, body)
        except BreakLoop:
            return True
        except ContinueLoop:
            pass
        return False

    def loop(self, frame: Frame, statement: tree.For) -> None:
        """A `for`: over a range, models, batches, a tuple or what Python gives."""
        items = self.rounds(frame, statement)
        if self.differentiating and length_hint(items) > MOST_ROUNDS:
            message = f"this loop has {length_hint(items)} rounds, and what is differentiated may have {MOST_ROUNDS}"
            helps = ("write the loop as a `scan`: `carry, ys = scan(round, carry, xs, over=n)`",)
            raise problem("E1805", message, frame.span(statement.over), helps=helps)
        for item in items:
            self.bind_round(frame, statement, item)
            if self.round(frame, statement.body):
                break

    def rounds(self, frame: Frame, statement: tree.For) -> Iterator[Value]:
        """What a loop visits, one at a time."""
        over = expressions.evaluate(self, frame, statement.over)
        try:
            items: Iterator[Value] = iter(over)  # type: ignore[call-overload]
            own = isinstance(over, (range, list, tuple)) or type(over).__module__.startswith("shapescript.")
            return items if own else expressions.of_python(items, frame, statement.over)
        except TypeError:
            message = f"a loop can't visit a value of Python's type `{type(over).__name__}`"
            raise problem("E2111", message, frame.span(statement.over)) from None

    def bind_round(self, frame: Frame, statement: tree.For, item: Value) -> None:
        """Gives a loop's names what it visits."""
        if len(statement.names) == 1:
            self.assign(frame, statement.names[0], item)
        else:
            self.unpack(frame, statement.names, item, statement.names[0])

    # --- assignment

    def assign(self, frame: Frame, target: tree.Expr, value: Value) -> None:
        """Gives a target a value."""
        match target:
            case tree.Name():
                if target.name != "_":
                    frame.locals[target.name] = self._named(frame, target, value)
            case tree.Group():
                self.assign(frame, target.inner, value)
            case tree.Tuple():
                self.unpack(frame, target.items, value, target)
            case tree.Attribute():
                owner = expressions.evaluate(self, frame, target.of)
                use = self.program.uses.get(target)
                name = use.name if isinstance(use, FieldUse) else target.name
                assert isinstance(owner, ModelValue)
                owner.fields[name] = frame.conform(value, self.program.types.get(target))

    def _named(self, frame: Frame, target: tree.Name, value: Value) -> Value:
        """A value as its name has it: a batch goes by the axis that the checker gave the name's type."""
        of = self.program.types.get(target)
        if isinstance(of, Batch) and isinstance(value, BatchValue):
            return batch_in(frame, value, of.axis)
        if isinstance(of, Tensor) and isinstance(value, TENSORS):
            return frame.conform(value, of)
        return value

    def unpack(self, frame: Frame, targets: Sequence[tree.Expr], value: Value, node: tree.Expr) -> None:
        """Several targets, one value each."""
        try:
            items = list(value)  # type: ignore[call-overload]
        except TypeError:
            items = None
        if items is None or len(items) != len(targets):
            found = "one value" if items is None else f"{len(items)} values"
            raise problem("E2111", f"{len(targets)} names are given, and there is {found}", frame.span(node))
        for target, item in zip(targets, items, strict=True):
            self.assign(frame, target, item)

    # --- sizes

    def size_of(self, frame: Frame, axis: Axis) -> int | None:
        """How long an axis of the function is, where that is known now."""
        return self.domain.size_of(frame.axis(axis))
