"""Long loops of a device function that the controller calls: each round is a run of its own, and isn't unrolled.

Takes a function; gives `Outline`, a way to evaluate it in the controller in which the statements around and within its
long loops are device functions of their own (`Block`), specialised and run as any other. A loop is long from
`MOST_ROUNDS` + 1 rounds. The number of the round is open, a scalar tensor, so that one plan serves all rounds; where
the body needs it known (as a size, or in an `if`) each number gets its own plan.

A function stays in one piece if an axis that a pattern names in one statement is needed in another, or if a model
itself is given another name: then its loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.placement.errors import MOST_ROUNDS, rounds_of
from shapescript.specialise.expressions import evaluate, truth
from shapescript.specialise.values import Value
from shapescript.syntax import tree
from shapescript.types.axes import ANY_AXES, Axis
from shapescript.types.element import I64
from shapescript.types.kinds import (
    INT,
    Batch,
    Gradients,
    ModelList,
    ModelOf,
    Nothing,
    Optimizer,
    RangeOf,
    Tensor,
    TupleOf,
    Type,
)
from shapescript.types.typed import FunctionInfo, ParameterInfo, TypedProgram
from shapescript.types.uses import CallUse, LocalUse

if TYPE_CHECKING:
    from shapescript.specialise.evaluator import Evaluator
    from shapescript.specialise.frame import Frame

CONTAINERS = (ModelOf, ModelList, Optimizer)
HOST_CODES = ("E2111", "E2112", "E2116")
"""What compiling says where it needs a number that is open."""
RESULT = "the result"


@dataclass
class Block:
    """Statements that are compiled together: `inputs` are the locals they need, `outputs` those that are needed later.

    `calls` are the functions made of them, by whether the rounds' numbers are open.
    """

    statements: list[tree.Statement]
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    rounds: tuple[str, ...]
    returns: bool = False
    calls: dict[bool, CallUse] = field(default_factory=dict)
    needs_number: bool = False


@dataclass
class Loop:
    """A loop whose rounds are gone through by the controller."""

    node: tree.For
    body: list[Step]


@dataclass
class Choice:
    """An `if` with such a loop, or a way out, in it."""

    node: tree.If
    body: list[Step]
    otherwise: list[Step]


@dataclass
class Leave:
    """`break` or `continue`."""

    node: tree.Statement


Step: TypeAlias = "Block | Loop | Choice | Leave"


@dataclass
class Outline:
    """How a function is gone through; `loops` are those that may be long."""

    info: FunctionInfo
    steps: list[Step]
    loops: list[tree.For]


class _Unfit(Exception):
    """The function stays in one piece."""


# --- outlining -------------------------------------------------------------------------------------------------------


def outline(program: TypedProgram, info: FunctionInfo, global_names: frozenset[str]) -> Outline | None:
    """The outline of a device function with a loop that may be long; None for any other."""
    if not isinstance(info.node, tree.Function):
        return None
    loops = [node for node in _outer_loops(info.node.body) if _may_be_long(program, node)]
    if not loops:
        return None
    try:
        return Outline(info, _Outliner(program, info, global_names).steps(info.node.body, ()), loops)
    except _Unfit:
        return None


def _outer_loops(body: Sequence[tree.Statement]) -> Iterator[tree.For]:
    """The loops that stand in a body or in a branch of it, and those within them."""
    for statement in body:
        match statement:
            case tree.For():
                yield statement
                yield from _outer_loops(statement.body)
            case tree.If():
                yield from _outer_loops(statement.body)
                yield from _outer_loops(statement.otherwise)


def _may_be_long(program: TypedProgram, node: tree.For) -> bool:
    if not isinstance(program.types.get(node.over), RangeOf):
        return False
    rounds = rounds_of(program, node.over)
    return rounds is None or rounds > MOST_ROUNDS


class _Outliner:
    def __init__(self, program: TypedProgram, info: FunctionInfo, global_names: frozenset[str]) -> None:
        self.program = program
        self.info = info
        assert isinstance(info.node, tree.Function)
        self.body = info.node.body
        self.globals = global_names
        self.assigned: dict[str, list[Type | None]] = {}
        for node in (node for statement in self.body for node in statement.walk() if isinstance(node, tree.Assign)):
            for name in node.target.walk():
                if isinstance(name, tree.Name):
                    self.assigned.setdefault(name.name, []).append(program.types.get(name))

    def steps(self, body: Sequence[tree.Statement], rounds: tuple[str, ...]) -> list[Step]:
        """The steps of a body; `rounds` are the names that number the rounds of the loops around it."""
        found: list[Step] = []
        waiting: list[tree.Statement] = []

        def flush(returns: bool = False) -> None:
            if waiting:
                found.append(self.block(list(waiting), rounds, returns))
                waiting.clear()

        for statement in body:
            match statement:
                case tree.For() if self.is_outer(statement):
                    flush()
                    names = tuple(name.name for name in statement.names)
                    found.append(Loop(statement, self.steps(statement.body, (*rounds, *names))))
                case tree.If() if self.is_outer(statement):
                    flush()
                    inner = self.steps(statement.body, rounds), self.steps(statement.otherwise, rounds)
                    found.append(Choice(statement, *inner))
                case tree.Break() | tree.Continue():
                    flush()
                    found.append(Leave(statement))
                case tree.Return():
                    waiting.append(statement)
                    flush(returns=True)
                case _:
                    waiting.append(statement)
        flush()
        return found

    def is_outer(self, statement: tree.For | tree.If) -> bool:
        """Whether the controller decides it: a loop that may be long is in it, or a way out of such a loop."""
        if isinstance(statement, tree.For):
            inside = list(_outer_loops([statement]))
            return any(_may_be_long(self.program, node) for node in inside) or self.returns(statement)
        return (
            any(_may_be_long(self.program, node) for node in _outer_loops([statement]))
            or self.returns(statement)
            or _leaves([*statement.body, *statement.otherwise])
        )

    def returns(self, statement: tree.Statement) -> bool:
        return any(isinstance(node, tree.Return) for node in statement.walk())

    def block(self, statements: list[tree.Statement], rounds: tuple[str, ...], returns: bool) -> Block:
        reads, writes = self.reads_and_writes(statements)
        inside = {node for statement in statements for node in statement.walk() if isinstance(node, tree.Name)}
        elsewhere = {
            node.name
            for statement in self.body
            for node in statement.walk()
            if isinstance(node, tree.Name) and node not in inside
        }
        elsewhere |= {parameter.name for parameter in self.info.parameters if parameter.mut}
        inputs = {name: self.crossing(of) for name, of in reads.items()}
        self.bind_axes(inputs)
        outputs = {
            name: self.crossing(of) for name, of in writes.items() if name in elsewhere or (rounds and name in reads)
        }
        if any(isinstance(of, CONTAINERS) for of in outputs.values()):
            raise _Unfit
        return Block(statements, inputs, outputs, tuple(name for name in rounds if name in inputs), returns)

    def bind_axes(self, inputs: dict[str, Type]) -> None:
        """Adds the parameters that tell what axis variables are, of which the inputs don't."""
        told = {axis.name for of in inputs.values() for axis in _axes_of(of)}
        told |= {name for name, of in inputs.items() if of == INT}
        for variable in self.info.axes:
            if variable in told:
                continue
            teller = next((each for each in self.info.parameters if _tells(each, variable)), None)
            if teller is None or any(of != teller.type for of in self.assigned.get(teller.name, ())):
                raise _Unfit
            inputs[teller.name] = teller.type
            told |= {axis.name for axis in _axes_of(teller.type)} | {variable}

    def crossing(self, of: Type) -> Type:
        """A type that can go from one block to another: of axes that the signature has, or of fixed sizes."""
        for axis in _axes_of(of):
            atoms = {axis.name} if axis.name is not None else set(axis.size.atoms)
            for name in atoms - {ANY_AXES.name}:
                own = self.info.axes.get(str(name))
                if own is not None and axis.name is not None and axis.size != own.size:
                    raise _Unfit
                if own is None and not self.is_global(str(name)):
                    raise _Unfit
        return of

    def is_global(self, name: str) -> bool:
        return name in self.globals

    def reads_and_writes(self, statements: Sequence[tree.Statement]) -> tuple[dict[str, Type], dict[str, Type]]:
        """The locals that are read before they are given a value here, and those that get one, with their types."""
        reads: dict[str, Type] = {}
        writes: dict[str, Type] = {}

        def read(node: tree.Node | None, known: set[str]) -> None:
            for each in node.walk() if node is not None else ():
                if isinstance(each, tree.Name) and isinstance(self.program.uses.get(each), LocalUse):
                    if each.name not in known and each.name not in reads:
                        reads[each.name] = self.program.types[each]

        def write(target: tree.Expr, known: set[str], sure: bool) -> None:
            match target:
                case tree.Name():
                    if target.name != "_":
                        if not sure and target.name not in known and target.name not in reads:
                            self.maybe(target, reads)
                        writes[target.name] = self.program.types.get(target, Nothing())
                        known.add(target.name)
                case tree.Tuple():
                    for item in target.items:
                        write(item, known, sure)
                case tree.Group():
                    write(target.inner, known, sure)
                case _:
                    read(target, known)

        def visit(body: Sequence[tree.Statement], known: set[str], sure: bool) -> None:
            for statement in body:
                match statement:
                    case tree.Assign():
                        read(statement.value, known)
                        write(statement.target, known, sure)
                    case tree.For():
                        read(statement.over, known)
                        inner = set(known) | {name.name for name in statement.names}
                        visit(statement.body, inner, False)
                    case tree.While():
                        read(statement.test, known)
                        visit(statement.body, set(known), False)
                    case tree.If():
                        read(statement.test, known)
                        branches = set(known), set(known)
                        visit(statement.body, branches[0], False)
                        visit(statement.otherwise, branches[1], False)
                        known |= branches[0] & branches[1]
                    case _:
                        read(statement, known)

        visit(statements, set(), True)
        return reads, writes

    def maybe(self, target: tree.Name, reads: dict[str, Type]) -> None:
        """A local that may be given a value here keeps the one it has, if it has one: that is an input too."""
        before = any(
            isinstance(node, tree.Name) and node.name == target.name and node.start < target.start
            for statement in self.body
            for node in statement.walk()
        ) or any(parameter.name == target.name for parameter in self.info.parameters)
        if before:
            reads[target.name] = self.program.types.get(target, Nothing())


def _tells(parameter: ParameterInfo, variable: str) -> bool:
    """Whether an argument for it says what an axis variable is."""
    if parameter.type == INT:
        return parameter.name == variable
    return any(axis.name == variable for axis in _axes_of(parameter.type))


def _leaves(body: Sequence[tree.Statement]) -> bool:
    """Whether a `break` or `continue` here leaves a loop around it."""
    for statement in body:
        match statement:
            case tree.Break() | tree.Continue():
                return True
            case tree.If():
                if _leaves([*statement.body, *statement.otherwise]):
                    return True
    return False


def _axes_of(of: Type) -> Iterator[Axis]:
    match of:
        case Tensor():
            for axis in of.axes:
                yield from axis.parts or (axis,)
        case Batch():
            yield of.axis
        case TupleOf():
            for item in of.items:
                yield from _axes_of(item)
        case ModelOf():
            yield from of.arguments
        case ModelList():
            yield from of.model.arguments
        case Optimizer() | Gradients():
            yield from _axes_of(of.model)


# --- running ---------------------------------------------------------------------------------------------------------


def is_long(ev: Evaluator, frame: Frame, found: Outline) -> bool:
    """Whether one of its loops is long, as far as that is known when it is called."""
    for node in found.loops:
        rounds = rounds_of(ev.program, node.over)
        if rounds is None:
            try:
                over = evaluate(ev, frame, node.over)
            except ProgramError:
                continue
            rounds = len(over) if isinstance(over, range) else 0
        if rounds > MOST_ROUNDS:
            return True
    return False


class Way:
    """Goes through an outline in the controller."""

    def __init__(self, ev: Evaluator, frame: Frame, found: Outline) -> None:
        self.ev, self.frame, self.outline = ev, frame, found

    def run(self) -> Value:
        """The result of the function, whose arguments are in the frame."""
        from shapescript.specialise.evaluator import ReturnValue

        try:
            self.steps(self.outline.steps)
        except ReturnValue as returned:
            return returned.value
        return None

    def steps(self, steps: Sequence[Step]) -> None:
        from shapescript.specialise.evaluator import BreakLoop, ContinueLoop

        for step in steps:
            match step:
                case Block():
                    self.block(step)
                case Loop():
                    self.loop(step)
                case Choice():
                    self.steps(step.body if truth(self.ev, self.frame, step.node.test) else step.otherwise)
                case Leave():
                    raise BreakLoop if isinstance(step.node, tree.Break) else ContinueLoop

    def loop(self, step: Loop) -> None:
        from shapescript.specialise.evaluator import BreakLoop, ContinueLoop

        for item in self.ev.rounds(self.frame, step.node):
            self.ev.bind_round(self.frame, step.node, item)
            try:
                self.steps(step.body)
            except BreakLoop:
                break
            except ContinueLoop:
                continue

    def block(self, block: Block) -> None:
        numbers = {name: self.frame.locals[name] for name in block.rounds}
        if numbers and not block.needs_number:
            for name, number in numbers.items():
                if isinstance(number, int):
                    self.frame.locals[name] = self.ev.domain.constant(number, I64)
            try:
                self.call(block, True)
                return
            except ProgramError as error:
                if error.diagnostic.code not in HOST_CODES:
                    raise
                block.needs_number = True
            finally:
                self.frame.locals.update(numbers)
        self.call(block, False)

    def call(self, block: Block, open_numbers: bool) -> None:
        """Runs a block as a device function of its own, and takes over what it gives."""
        from shapescript.specialise.evaluator import ReturnValue

        use = block.calls.get(open_numbers)
        if use is None:
            use = block.calls[open_numbers] = self.function(block, open_numbers)
        missing = [name for name in block.inputs if name not in self.frame.locals]
        if missing:
            evaluate(self.ev, self.frame, use.arguments[list(block.inputs).index(missing[0])])  # type: ignore[arg-type]
        result = self.ev.call(self.frame, use)
        values = result if isinstance(result, tuple) else ()
        for (name, of), value in zip(block.outputs.items(), values, strict=False):
            self.frame.locals[name] = self.frame.conform(value, of)
        if block.returns:
            raise ReturnValue(values[-1])

    def function(self, block: Block, open_numbers: bool) -> CallUse:
        """The function that a block is, declared as the checker would have it."""
        info = self.outline.info
        program = self.ev.program
        first, last = block.statements[0], block.statements[-1]
        start, end = first.start, last.end

        def local(name: str, of: Type) -> tree.Name:
            node = tree.Name(start, end, name)
            program.types[node] = of
            program.uses[node] = LocalUse(name)
            return node

        body = list(block.statements)
        given: list[tree.Expr] = [local(name, of) for name, of in block.outputs.items()]
        kinds = list(block.outputs.values())
        if block.returns:
            assert isinstance(last, tree.Return)
            body.pop()
            value = last.value
            given.append(value if value is not None else tree.Tuple(start, end, []))
            kinds.append(info.result if value is not None else TupleOf(()))
        result = tree.Tuple(start, end, given)
        program.types[result] = TupleOf(tuple(kinds))
        body.append(tree.Return(start, end, result))
        parameters = []
        for name, of in block.inputs.items():
            mut = isinstance(of, CONTAINERS)
            kind = Tensor((), I64) if open_numbers and name in block.rounds and of == INT else of
            node = tree.Parameter(start, end, mut, name, start, tree.NamedType(start, end, None, name, None), None)
            parameters.append(ParameterInfo(name, kind, mut, None, node))
        line = info.source.span(start, end).line
        nodes = [parameter.node for parameter in parameters]
        function = tree.Function(start, end, f"{info.name}, line {line}", start, nodes, None, body)
        program.function_of[function] = FunctionInfo(
            function.name, tuple(parameters), TupleOf(tuple(kinds)), info.axes, function, info.source, info.spread
        )
        self.ev.domain.add_part(function)
        arguments = tuple(local(name, of) for name, of in block.inputs.items())
        return CallUse(function, arguments, info.axes, (ANY_AXES,) if info.spread else None)
