"""The device function that E1803 tells the user to write, with its call.

Takes the first training call of a controller function; gives the help's text. Where a type can't be written, the
help says in words what to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from shapescript.syntax import tree
from shapescript.types.kinds import Batch, Gradients, Host, ModelOf, Optimizer, Tensor, TupleOf, Type
from shapescript.types.typed import FunctionInfo, TypedProgram
from shapescript.types.uses import BuiltinUse, LocalUse

WRITABLE = (Tensor, Batch, ModelOf, Optimizer, Gradients, Host)
IN_WORDS = "move this call, and the `update` that follows it, to a function of their own, and call that here"


def function_to_write(typed: TypedProgram, info: FunctionInfo, node: tree.Function, at: tree.Expr) -> str:
    """The help: a function that holds the training call and the updates after it, and the line that calls it."""
    statements = training_statements(typed, node, at)
    if not statements:
        return IN_WORDS
    bound = [name.name for statement in statements for name in targets(statement)]
    parameters = parameters_of(typed, statements, set(bound))
    if parameters is None:
        return IN_WORDS
    parameters = dict(sorted(parameters.items(), key=lambda each: not each[1][0]))  # what is changed comes first
    first = statements[0]
    result = result_of(typed, first)
    given = bound[0] if bound and result else None
    signature = ", ".join(f"{'mut ' if mut else ''}{name}: {written(kind)}" for name, (mut, kind) in parameters.items())
    arguments = ", ".join(f"{'mut ' if mut else ''}{name}" for name, (mut, _) in parameters.items())
    name = next(
        free for free in ("step", "train_step", "one_step") if free == "one_step" or free not in typed.functions
    )
    lines = ["write a function of its own, and call it here:"]
    lines.append(f"    fn {name}({signature}){f' -> {result}' if given else ''}:")
    for statement in statements:
        lines += ["        " + line.strip() for line in info.source.text[statement.start : statement.end].splitlines()]
    if given:
        lines.append(f"        return {given}")
    lines.append(f"and here: `{f'{given} = ' if given else ''}{name}({arguments})`")
    return "\n".join(lines)


def written(kind: Type) -> str:
    """A type as it stands in a signature; a batch's axis has the usual name."""
    return f"[b] {kind.data.name}" if isinstance(kind, Batch) else str(kind)


def training_statements(typed: TypedProgram, node: tree.Function, at: tree.Expr) -> list[tree.Statement]:
    """The statement of the call, with those right after it up to the last `update` of its block."""
    for block in blocks(node.body):
        for number, statement in enumerate(block):
            if (
                isinstance(statement, (tree.Assign, tree.Do))
                and statement.start <= at.start
                and at.end <= statement.end
            ):
                following = block[number + 1 :]
                updates = [k for k, later in enumerate(following) if updates_a_model(typed, later)]
                chosen = following[: updates[-1] + 1] if updates else []
                return (
                    [statement, *chosen] if all(isinstance(c, (tree.Assign, tree.Do)) for c in chosen) else [statement]
                )
    return []


def blocks(body: list[tree.Statement]) -> Iterator[list[tree.Statement]]:
    """A body and those inside it."""
    yield body
    for statement in body:
        if isinstance(statement, (tree.For, tree.While)):
            yield from blocks(statement.body)
        elif isinstance(statement, tree.If):
            yield from blocks(statement.body)
            yield from blocks(statement.otherwise)


def updates_a_model(typed: TypedProgram, statement: tree.Statement) -> bool:
    """Is this statement a call of `update`?"""
    use = typed.uses.get(statement.value) if isinstance(statement, tree.Do) else None
    return isinstance(use, BuiltinUse) and use.name == "update"


def targets(statement: tree.Statement) -> Iterator[tree.Name]:
    """The names that a statement binds."""
    if isinstance(statement, tree.Assign):
        yield from (name for name in statement.target.walk() if isinstance(name, tree.Name))


def parameters_of(
    typed: TypedProgram, statements: list[tree.Statement], bound: set[str]
) -> dict[str, tuple[bool, Type]] | None:
    """The locals that the statements use, each with whether it is changed and its type, or None."""
    found: dict[str, tuple[bool, Type]] = {}
    for statement in statements:
        changed = {
            at.value.name
            for at in statement.walk()
            if isinstance(at, tree.Argument) and at.mut and isinstance(at.value, tree.Name)
        }
        for at in statement.walk():
            if not isinstance(at, tree.Name) or at.name in bound:
                continue
            kind = typed.types.get(at)
            if not isinstance(typed.uses.get(at), LocalUse) or kind is None:
                continue
            if not isinstance(kind, WRITABLE):
                return None
            before = found.get(at.name, (False, kind))
            found[at.name] = (before[0] or at.name in changed, kind)
    return found


def result_of(typed: TypedProgram, statement: tree.Statement) -> str | None:
    """The type of the loss, as the function's result."""
    kind = typed.types.get(statement.value) if isinstance(statement, tree.Assign) else None
    if isinstance(kind, TupleOf) and kind.items and isinstance(kind.items[0], Tensor):
        return str(kind.items[0])
    return str(kind) if isinstance(kind, (Tensor, Gradients)) else None
