"""Statements: assignment, loops, branches and returns.

Takes a `Core` and a body; keeps types and uses, reports what is wrong. A name may change its type in straight-line
code; where paths meet, the types must join (`scopes.join`), and a loop's body is checked again with the wider type.

`check_body` gives whether control can reach the end of a block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shapescript.diagnostics.diagnostic import Label
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.check_calls import is_mutable, not_mutable, say_mismatch
from shapescript.types.check_core import Core, Loop, root_of
from shapescript.types.kinds import (
    INT,
    PYTHON,
    STR,
    WRONG,
    Batch,
    Batches,
    Dataset,
    Gradients,
    Host,
    ModelList,
    ModelOf,
    Nothing,
    PythonValue,
    RangeOf,
    Tensor,
    TupleOf,
    Type,
    Wrong,
)
from shapescript.types.scopes import Local, Locals, join
from shapescript.types.uses import FieldUse


def check_function(core: Core) -> None:
    """The body of a function, and that it returns on every path."""
    info = core.info
    assert info is not None and isinstance(info.node, tree.Function)
    open_end = check_body(core, info.node.body)
    if open_end and not isinstance(info.result, (Nothing, Wrong)) and not _has_lost(info.node.body):
        name = core.here.source.span(info.node.name_start, info.node.name_start + len(info.name))
        core.report(
            "E0603",
            f"`{info.name}` doesn't return on every path",
            name,
            f"gives {info.result}",
            helps=("end each path with `return`, or take `->` out if nothing is returned",),
        )


def _has_lost(body: Sequence[tree.Statement]) -> bool:
    return any(isinstance(node, tree.Lost) for statement in body for node in statement.walk())


def check_body(core: Core, body: Sequence[tree.Statement]) -> bool:
    """A block; whether its end can be reached."""
    reached = True
    for statement in body:
        if not check_statement(core, statement):
            reached = False
    return reached


def check_statement(core: Core, statement: tree.Statement) -> bool:
    """One statement; whether control goes on after it."""
    match statement:
        case tree.Assign():
            _assign(core, statement)
        case tree.Do():
            core.type_of(statement.value)
        case tree.Return():
            _return(core, statement)
            return False
        case tree.For():
            _for(core, statement)
        case tree.While():
            check_test(core, statement.test, "while")
            _loop(core, statement.body, {}, statement.test)
        case tree.If():
            return _if(core, statement)
        case tree.Break() | tree.Continue():
            word = "break" if isinstance(statement, tree.Break) else "continue"
            if not core.loops:
                core.report("E0206", f"`{word}` stands outside any loop", statement)
            else:
                _leave(core, core.loops[-1])
            return False
        case tree.Assert():
            check_test(core, statement.test, "assert")
            if statement.message is not None:
                message = core.type_of(statement.message)
                if not isinstance(message, (Wrong, PythonValue)) and message != STR:
                    core.report(
                        "E0611", f"the message of an assert is a string, and this is {message}", statement.message
                    )
        case tree.Lost():
            _lost(core, statement)
            return True
    return True


def _lost(core: Core, statement: tree.Lost) -> None:
    """What couldn't be read may give its names any value, so nothing is said about them."""
    line = core.span(statement).text.split("\n")[0].split("#")[0]
    given = line.split("=")[0] if "=" in line else line
    for name in re.findall(r"[a-z_]\w*", line):
        if name in given or core.locals.get(name) is None:
            core.locals.set(name, Local(WRONG, core.span(statement)))
    for inner in statement.body:
        check_statement(core, inner)


# --- assignment ------------------------------------------------------------------------------------------------------


def _assign(core: Core, statement: tree.Assign) -> None:
    value = core.type_of(statement.value)
    if isinstance(value, Nothing):
        core.report("E0609", "this gives no value to assign", statement.value, helps=("write the call by itself",))
        value = WRONG
    mutable = True
    root = root_of(statement.value)
    if root is not None and isinstance(value, (ModelOf, ModelList)):
        mutable = is_mutable(core, root.name)
    _bind(core, statement.target, value, mutable, statement.value)


def _bind(core: Core, target: tree.Expr, value: Type, mutable: bool, source: tree.Expr) -> None:
    match target:
        case tree.Group():
            _bind(core, target.inner, value, mutable, source)
        case tree.Name():
            if isinstance(value, Nothing) and target.name != "_":
                core.report("E0609", "there is no value here to keep", target, helps=("write `_` in its place",))
                value = WRONG
            assign_name(core, target, value, mutable)
        case tree.Tuple():
            _unpack(core, target, value, source)
        case tree.Attribute():
            _assign_field(core, target, value, source)
        case _:
            core.report(
                "E0610",
                "this can't be assigned to",
                target,
                helps=("assign to a name, to a field `m.field` of a model that is `mut`, or to several names `a, b`",),
            )


def assign_name(core: Core, target: tree.Name, value: Type, mutable: bool = True) -> None:
    """Gives a name a value."""
    name = target.name
    if name == "_":
        return
    if name[:1].isupper():
        core.report(
            "E0203",
            f"a value's name begins with a small letter, and `{name}` doesn't",
            target,
            helps=(f"call it `{name[:1].lower()}{name[1:]}`",),
        )
    local = Local(value, core.span(target), mutable)
    for loop in core.loops:
        before = loop.known.get(name)
        joined = join(before.type, value) if before is not None else None
        loop.known[name] = local if joined is None else Local(joined, local.span, mutable)
    core.set_type(target, value)
    core.locals.set(name, local)


def _unpack(core: Core, target: tree.Tuple, value: Type, source: tree.Expr) -> None:
    wanted = len(target.items)
    if isinstance(value, (PythonValue, Wrong)):
        for item in target.items:
            _bind(core, item, value, True, source)
        return
    if isinstance(value, TupleOf) and len(value.items) == wanted:
        sources = source.items if isinstance(source, tree.Tuple) and len(source.items) == wanted else [source] * wanted
        for item, kind, each in zip(target.items, value.items, sources, strict=True):
            _bind(core, item, kind, True, each)
        return
    if isinstance(value, TupleOf):
        message = f"{wanted} names are given, and the value holds {len(value.items)}: {value}"
    else:
        message = f"{wanted} names are given, and the value is one: {value}"
    core.report("E0608", message, target, secondary=(Label(core.span(source), f"{value}"),))
    for item in target.items:
        _bind(core, item, WRONG, True, source)


def _assign_field(core: Core, target: tree.Attribute, value: Type, source: tree.Expr) -> None:
    of = core.type_of(target.of)
    if isinstance(of, Wrong):
        return
    if not isinstance(of, ModelOf):
        what = "a batch's fields don't change" if isinstance(of, Batch) else f"{of} has no fields to assign to"
        core.report("E0610", what, target, helps=("only a field of a model that is `mut` can be assigned",))
        return
    kind = core.type_of(target)
    if isinstance(kind, Wrong):
        return
    core.use(target, FieldUse(target.name))
    root = root_of(target)
    if root is not None and not is_mutable(core, root.name):
        not_mutable(core, root, target)
        return
    mismatch = core.accepts(kind, value)
    if mismatch is not None:
        say_mismatch(core, mismatch, source, f"`{core.source_text(target)}`")
    elif core.info is not None:
        core.info.field_changes.append(target)


# --- simple statements -----------------------------------------------------------------------------------------------


def _return(core: Core, statement: tree.Return) -> None:
    info = core.info
    assert info is not None
    if statement.value is None:
        if not isinstance(info.result, (Nothing, Wrong)):
            core.report("E0603", f"`{info.name}` gives {info.result}, and this returns nothing", statement)
        return
    value = core.type_of(statement.value)
    if isinstance(value, Wrong) or isinstance(info.result, Wrong):
        return
    if isinstance(info.result, Nothing):
        if not isinstance(value, Nothing):
            core.report(
                "E0603",
                f"`{info.name}` says nothing of a result, and this returns {value}",
                statement.value,
                helps=(f"write `-> {value}` in its signature",) if not isinstance(value, PythonValue) else (),
            )
        return
    mismatch = core.accepts(info.result, value)
    if mismatch is not None:
        node = info.node.result
        labels = (Label(core.span(node), "the result's type"),) if node is not None else ()
        say_mismatch(core, mismatch, statement.value, f"what `{info.name}` returns", labels)


def check_test(core: Core, test: tree.Expr, word: str) -> None:
    """The test of an `if`, a `while` or an `assert`: a bool, or a scalar tensor of one."""
    of = core.type_of(test)
    if isinstance(of, (Wrong, PythonValue)) or of == Host("bool"):
        return
    if isinstance(of, Tensor) and of.element.is_bool:
        if not of.axes:
            return
        core.report(
            "E0611",
            f"`{word}` asks one question, and this is {of}",
            test,
            helps=(
                "say which: `any(x, over=...)` or `all(x, over=...)`; or choose place by place with `where(c, a, b)`",
            ),
        )
        return
    helps = ("write the comparison: `x != 0`",) if isinstance(of, Host) and of.name != "str" else ()
    core.report("E0611", f"`{word}` asks for a bool, and this is {of}", test, helps=helps)


# --- branches --------------------------------------------------------------------------------------------------------


def _if(core: Core, statement: tree.If) -> bool:
    base = core.locals
    ends: list[Locals] = []
    at: tree.If | None = statement
    while at is not None:
        check_test(core, at.test, "if")
        core.locals = base.branch()
        if check_body(core, at.body):
            ends.append(core.locals)
        core.locals = base
        rest = at.otherwise
        if len(rest) == 1 and isinstance(rest[0], tree.If):
            at = rest[0]
            continue
        core.locals = base.branch()
        if check_body(core, rest):
            ends.append(core.locals)
        core.locals = base
        at = None
    _meet(core, base, ends)
    return bool(ends)


def _meet(core: Core, base: Locals, ends: list[Locals]) -> None:
    """After the branches: the names that any of them changed, joined."""
    names: dict[str, None] = {}
    for end in ends:
        names.update(dict.fromkeys(end.changes))
    for name in names:
        found = [end.changes.get(name) or base.get(name) for end in ends]
        known = [local for local in found if local is not None]
        changed = [local for end in ends if (local := end.changes.get(name)) is not None]
        kind, clash = known[0].type, None
        for local in known[1:]:
            joined = join(kind, local.type)
            if joined is None:
                clash = local if local.span != known[0].span else known[0]
                joined = WRONG
                break
            kind = joined
        last = changed[-1]
        if clash is not None:
            other = next(local for local in known if local.span != clash.span or local is not clash)
            _two_types(core, name, clash, other)
            kind = WRONG
        maybe = len(known) < len(found) or any(local.maybe for local in known)
        base.set(name, Local(kind, last.span, all(local.mutable for local in known), False, maybe))


def _two_types(core: Core, name: str, clash: Local, other: Local) -> None:
    core.report(
        "E0207",
        f"`{name}` is {clash.type} by one path and {other.type} by another",
        clash.span,
        f"here {clash.type}",
        (Label(other.span, f"here {other.type}"),),
        helps=("give the two values two names",),
    )


# --- loops -----------------------------------------------------------------------------------------------------------


def _for(core: Core, statement: tree.For) -> None:
    over = core.type_of(statement.over)
    items = _rounds(core, statement, over)
    mutable = True
    root = root_of(statement.over)
    if root is not None and isinstance(over, ModelList):
        mutable = is_mutable(core, root.name)
    names = {name: (kind, mutable) for name, kind in zip(statement.names, items, strict=True)}
    _loop(core, statement.body, names, None)


def _rounds(core: Core, statement: tree.For, over: Type) -> list[Type]:
    """The types of the names in each round."""
    count = len(statement.names)
    if isinstance(over, (PythonValue, Wrong)):
        return [PYTHON if isinstance(over, PythonValue) else WRONG] * count
    kind = _element(core, statement, over)
    if count == 1 or isinstance(kind, Wrong):
        return [kind] * count
    if isinstance(kind, TupleOf) and len(kind.items) == count:
        return list(kind.items)
    helps = ["name the batch, `for batch in ...`, whose fields are `batch.x`"] if isinstance(kind, Batch) else []
    message = f"{count} names are given, and each round has one value"
    message += ", a batch" if isinstance(kind, Batch) else f": {kind}"
    core.report("E0608", message, statement.names[0], helps=helps)
    return [WRONG] * count


def _element(core: Core, statement: tree.For, over: Type) -> Type:
    match over:
        case RangeOf():
            return INT
        case Batches():
            return Batch(over.data, batch_axis(core, statement))
        case ModelList():
            return over.model
        case Gradients(model=ModelList() as models):
            return Gradients(models.model)
        case TupleOf() if over.items:
            kind: Type | None = over.items[0]
            for item in over.items[1:]:
                kind = join(kind, item) if kind is not None else None
            if kind is not None:
                return kind
            core.report(
                "E0613", f"the values of {over} are of different types, so a loop can't visit them", statement.over
            )
            return WRONG
        case Dataset():
            helps: tuple[str, ...] = (f"write `{core.source_text(statement.over)} |> batches(64)`",)
            message = "a dataset is visited in batches"
        case Tensor():
            helps = ("loop over its places, `for i in 0..N:` with `x[n=i]`, or use the tensor as a whole",)
            message = f"a loop can't visit {over}"
        case Host(name="int"):
            helps = (f"write `0..{core.source_text(statement.over)}`",)
            message = "a loop visits a range, and this is one int"
        case _:
            helps = ()
            message = f"a loop can't visit {over}"
    core.report("E0613", message, statement.over, helps=helps)
    return WRONG


def batch_axis(core: Core, statement: tree.For) -> Axis:
    """The axis of the batches that a loop visits.

    With `drop_last=true` each batch is full, and its axis is that of the size; else it is the loop's own.
    """
    for node in statement.over.walk():
        if isinstance(node, tree.Call) and isinstance(node.function, tree.Name) and node.function.name == "batches":
            drops = [a for a in node.arguments if a.name == "drop_last"]
            sizes = [a.value for a in node.arguments if a.name in (None, "n")]
            if drops and isinstance(drops[0].value, tree.Bool) and drops[0].value.value and sizes:
                value = sizes[-1]
                size = core.size_of(value)
                if size is not None:
                    named = isinstance(value, tree.Name)
                    known = core.axis_named(value.name) if isinstance(value, tree.Name) and named else None
                    return known if known is not None else Axis.of(size)
    return Axis.named(statement.names[0].name if statement.names else "b", batch=True)


def _loop(
    core: Core, body: Sequence[tree.Statement], targets: dict[tree.Name, tuple[Type, bool]], test: tree.Expr | None
) -> None:
    """A body, as often as it takes for the types of its names to stand still."""
    base = core.locals
    loop = Loop(base)
    core.loops.append(loop)
    mark = core.mark()
    while True:
        loop.widened, loop.missed = {}, False
        core.locals = start = base.branch()
        for target, (kind, mutable) in targets.items():
            assign_name(core, target, kind, mutable)
        core.locals = start.branch()
        if check_body(core, body):
            _leave(core, loop)
        core.locals = base
        if not loop.widened and (not loop.missed or loop.tried):
            break
        loop.tried = loop.missed
        core.forget(mark)
        _widen(core, base, loop, test)
    core.loops.pop()
    for name, local in start.changes.items():
        base.set(name, Local(local.type, local.span, local.mutable, False, True))
    for name, local in loop.known.items():
        if base.get(name) is None:
            base.set(name, Local(local.type, local.span, True, False, True))


def _widen(core: Core, base: Locals, loop: Loop, test: tree.Expr | None) -> None:
    """Gives the names from before the loop their wider types, and looks at the test with them."""
    for name, kind in loop.widened.items():
        local = base.get(name)
        if local is not None:
            base.set(name, Local(kind, local.span, local.mutable, False, local.maybe))
    if test is not None:
        _forget_below(core, test)
        check_test(core, test, "while")


def _forget_below(core: Core, expr: tree.Expr) -> None:
    for node in expr.walk():
        if isinstance(node, tree.Expr):
            core.program.types.pop(node, None)


def _leave(core: Core, loop: Loop) -> None:
    """The end of a round, from wherever it ends: what was there before the loop must have kept its type."""
    for name, local in core.locals.changed_since(loop.base):
        before = loop.base.get(name)
        if before is None or before.maybe or isinstance(local.type, Wrong) or isinstance(before.type, Wrong):
            continue
        joined = join(before.type, local.type)
        if joined is None:
            core.report(
                "E0207",
                f"`{name}` is {before.type} before the loop and {local.type} after a round",
                local.span,
                f"here {local.type}",
                (Label(before.span, f"here {before.type}"),),
                helps=("give it one type: another name in the loop, or a first value of the same type",),
            )
        elif joined != before.type and not isinstance(joined, Gradients):
            earlier = loop.widened.get(name)
            loop.widened[name] = joined if earlier is None else (join(earlier, joined) or joined)
