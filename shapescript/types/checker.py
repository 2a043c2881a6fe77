"""The checker: from a parsed file to a typed program.

`check_program` is what the rest of the compiler calls. It resolves the declarations, imports first, then checks each
body once, and gives all diagnostics of the file in the order of the text. An imported file is checked in the same run
(`load_module` gives its source and its tree; None if there is no such file), shares the tables of types and uses, and
its diagnostics are among the program's.

Expressions are `check_expressions.py`'s, bodies `check_statements.py`'s. Brackets nest a hundred deep at most, which
the parser sees to; `check_program` makes room on the stack for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.diagnostics.follow_ons import without_follow_ons
from shapescript.names import collect_names
from shapescript.room import room
from shapescript.source import Source
from shapescript.syntax import tree
from shapescript.syntax.parse import Parsed
from shapescript.types.check_calls import say_mismatch
from shapescript.types.check_core import Core
from shapescript.types.check_declarations import Declarations, check_datas, check_models
from shapescript.types.check_dims import check_constants, check_devices, check_dims, check_split
from shapescript.types.check_expressions import check_expression
from shapescript.types.check_functions import check_after, check_signatures
from shapescript.types.check_statements import check_function
from shapescript.types.kinds import (
    FLOAT,
    INT,
    PythonValue,
    Type,
    Wrong,
)
from shapescript.types.typed import BATCH_NORM, BATCH_NORM_F64, DevicesInfo, FunctionInfo, ImportInfo, TypedProgram

LoadModule = Callable[[str], "tuple[Source, Parsed] | None"]


def _nothing_to_load(name: str) -> tuple[Source, Parsed] | None:
    return None


def check_program(
    source: Source,
    parsed: Parsed,
    load_module: LoadModule = _nothing_to_load,
    dims: Mapping[str, int] | None = None,
    devices: tree.DeviceSpec | DevicesInfo | None = None,
    *,
    module: bool = False,
) -> TypedProgram:
    """Checks a file and what it imports.

    Args:
        source: the file's text.
        parsed: its tree, with the errors of its text.
        load_module: gives the text and the tree of the file that `import name` means.
        dims: values that take the place of the dims' own.
        devices: takes the place of the `devices` line's devices; its options stay.
        module: checks the file as one that another imports, which has no `devices` line.
    """
    return check_file(source, parsed, load_module, dims, devices, module=module).program


@dataclass
class Checked:
    """A checked file whose bodies can be checked again one by one, as an editor does; what each of them reported.

    `lost` are the names that a body found nowhere: nothing more is said about them in the bodies after it.
    """

    program: TypedProgram
    here: Declarations
    of_declarations: list[Diagnostic] = field(default_factory=list)
    of_bodies: dict[str, list[Diagnostic]] = field(default_factory=dict)
    lost: dict[str, set[str]] = field(default_factory=dict)

    def check_body(self, info: FunctionInfo) -> None:
        """The defaults and the body of a function, whose signature is checked."""
        before = set(self.here.names.lost)
        self.here.diagnostics = self.of_bodies[info.name] = []
        core = Core(self.here, None, check_expression)
        for parameter in info.parameters:
            if parameter.default is not None:
                _check_default(core, parameter.default, parameter.type, parameter.name)
        check_function(Core(self.here, info, check_expression))
        self.lost[info.name] = self.here.names.lost - before

    def check_bodies(self) -> None:
        """Every body."""
        for info in self.program.functions.values():
            self.check_body(info)

    def check_body_again(self, info: FunctionInfo, earlier: Iterable[tree.Statement]) -> bool:
        """Checks a function whose body, and nothing else of it, is another one now; `earlier` is the body it had.

        False where other bodies may depend on what is found: then nothing but a new check of the file is right.
        """
        for statement in earlier:
            for node in statement.walk():
                self.program.uses.pop(node, None)
                if isinstance(node, tree.Expr):
                    self.program.types.pop(node, None)
        for parameter in info.parameters:
            if parameter.default is not None:
                self.program.types.pop(parameter.default, None)
        info.forget_body()
        known = self.lost[info.name]
        with room():
            self.check_body(info)
        return not known and not self.lost[info.name] and self.here.suggestions_left > 0

    def finish(self) -> None:
        """What needs every body to be checked; then all diagnostics in their order."""
        self.here.diagnostics = []
        check_after(self.here)
        found = [*self.of_declarations, *self.here.diagnostics]
        for diagnostics in self.of_bodies.values():
            found += diagnostics
        self.program.diagnostics = sorted(without_follow_ons(set(found)), key=lambda each: each.sort_key)


def check_file(
    source: Source,
    parsed: Parsed,
    load_module: LoadModule = _nothing_to_load,
    dims: Mapping[str, int] | None = None,
    devices: tree.DeviceSpec | DevicesInfo | None = None,
    *,
    module: bool = False,
) -> Checked:
    """`check_program`, with what it takes to check a body again."""
    program = TypedProgram(source)
    load_module = lru_cache(maxsize=None)(load_module)
    program.model_of[BATCH_NORM.node] = BATCH_NORM_F64 if _trains_f64(parsed, load_module, set()) else BATCH_NORM
    with room():
        return _check_file(program, parsed, load_module, dims or {}, devices, (), module)


def _trains_f64(parsed: Parsed, load_module: LoadModule, seen: set[str]) -> bool:
    """Whether a `param` of the program, or of a file it imports, is f64: the states of `BatchNorm` then are too."""
    for item in parsed.items:
        if isinstance(item, tree.Model) and any(map(_is_f64_param, item.members)):
            return True
        if isinstance(item, tree.Import) and not item.python and item.module not in seen:
            seen.add(item.module)
            loaded = load_module(item.module)
            if loaded is not None and _trains_f64(loaded[1], load_module, seen):
                return True
    return False


def _is_f64_param(member: tree.Field) -> bool:
    of = member.type
    return (
        member.word == "param"
        and isinstance(of, tree.TensorType)
        and of.element is not None
        and (of.element.module, of.element.name) == (None, "f64")
    )


def _check_file(
    program: TypedProgram,
    parsed: Parsed,
    load_module: LoadModule,
    dims: Mapping[str, int],
    devices: tree.DeviceSpec | DevicesInfo | None,
    path: tuple[str, ...],
    module: bool = False,
) -> Checked:
    names = collect_names(program.source, parsed.items, module=bool(path) or module)
    prefix = path[-1] + "." if path else ""
    here = Declarations(names, program, prefix)
    here.diagnostics.extend(parsed.diagnostics)
    _check_imports(here, load_module, path)
    check_devices(here)
    check_constants(here)
    check_dims(here, dims)
    for name in dims:
        if name not in names.dims and not path:
            here.report("E0201", f"there is no dim `{name}` to give a value to", here.source.span(0, 0))
    if devices is not None:
        program.devices = overridden(program.devices, devices)
        here.diagnostics = [each for each in here.diagnostics if each.code != "E1001"]
    check_split(here, program.devices)
    check_models(here)
    check_datas(here)
    check_signatures(here)
    _check_initialisers(here)
    checked = Checked(program, here, [*program.diagnostics, *here.diagnostics])
    checked.check_bodies()
    checked.finish()
    return checked


def overridden(own: DevicesInfo | None, spec: tree.DeviceSpec | DevicesInfo) -> DevicesInfo:
    """The devices of the command line, with the options of the program's own line."""
    if isinstance(spec, DevicesInfo):
        kind, numbers = spec.kind, spec.numbers
    else:
        kind = spec.kind
        numbers = tuple(
            number
            for part in spec.numbers
            for number in ([part.first] if part.last is None else range(part.first, part.last))
        )
    if own is None:
        return DevicesInfo(kind, numbers)
    return replace(own, kind=kind, numbers=numbers)


def _check_imports(here: Declarations, load_module: LoadModule, path: tuple[str, ...]) -> None:
    program = here.program
    for name, node in here.names.imports.items():
        if node.python:
            program.imports[name] = ImportInfo(name, node.module, True, node)
            continue
        if node.module in path:
            here.report("E0902", f"`{node.module}` imports itself, by way of this file", node)
            here.names.lost.add(name)
            continue
        loaded = load_module(node.module)
        if loaded is None:
            here.report(
                "E0902",
                f"there is no file `{node.module}.ss` beside this one",
                node,
                helps=(f"write `import python {node.module}` if it is Python",),
            )
            here.names.lost.add(name)
            continue
        source, parsed = loaded
        inner = TypedProgram(
            source,
            types=program.types,
            uses=program.uses,
            model_of=program.model_of,
            data_of=program.data_of,
            function_of=program.function_of,
        )
        _check_file(inner, parsed, load_module, {}, None, (*path, node.module))
        program.imports[name] = ImportInfo(name, node.module, False, node, inner)
        program.diagnostics.extend(inner.diagnostics)


def _check_initialisers(here: Declarations) -> None:
    core = Core(here, None, check_expression)
    for info in here.program.models.values():
        core.axes = {}
        for each in info.fields.values():
            for name, expr in (each.initialiser.arguments if each.initialiser is not None else {}).items():
                of = core.type_of(expr)
                if not isinstance(of, (Wrong, PythonValue)) and of not in (INT, FLOAT):
                    core.report("E0703", f"`{name}` of an initialiser is a number, and this is {of}", expr)


def _check_default(core: Core, default: tree.Expr, wanted: Type, name: str) -> None:
    of = core.type_of(default)
    if isinstance(of, Wrong):
        return
    mismatch = core.accepts(wanted, of)
    if mismatch is not None:
        say_mismatch(core, mismatch, default, f"`{name}`")
