"""The names of a file: what each one means and where else it stands.

Gives the `Occurrence`s of a declaration, each with the `Symbol` that it means. A name is looked up as it is written,
so that a program that doesn't check yet has its names too; what a field belongs to is read from the checked types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from shapescript.editor.analysis import Analysis
from shapescript.editor.symbols import (
    KINDS,
    Kept,
    NamedItem,
    Occurrence,
    Symbol,
    declared,
    field_of,
    fields_owner,
    parameter_span,
)
from shapescript.source import Source, Span
from shapescript.syntax import tree
from shapescript.types.check_expressions import BUILTIN_NAMES
from shapescript.types.check_types import HOSTS, OPTIMIZERS
from shapescript.types.element import ELEMENT_NAMES
from shapescript.types.operations import MAKERS
from shapescript.types.typed import DataInfo, FunctionInfo, ModelInfo

TYPE_NAMES = frozenset(
    (*HOSTS, *OPTIMIZERS, *ELEMENT_NAMES, "f32", "Index", "NonNeg", "Prob", "Dataset", "Grads", "BatchNorm")
)
AXIS_OPTIONS = frozenset(("over", "keep"))
NAMED_BY_AXES = frozenset(("rename", "pad", "roll", "flip", "rearrange", "split", "repeat", "einsum", "attention"))
NUMBERS = frozenset(("inf", "nan", "pi"))


def occurrences(analysis: Analysis, item: tree.Declaration) -> list[Occurrence]:
    """The names in a declaration, in the order of the text; kept until it or what it depends on changes."""
    _ = analysis.typed  # what is kept belongs to one check of the file
    body = getattr(item, "body", None)
    kept = analysis.names.get(id(item))
    if kept is not None and kept.item is item and kept.checked is analysis.checked and kept.body is body:
        by = item.start - kept.start
        if by:
            kept.found = [replace(each, start=each.start + by, end=each.end + by) for each in kept.found]
            kept.start = item.start
        return kept.found
    finder = _Finder(analysis)
    finder.declaration(item)
    found = sorted(set(finder.found), key=lambda each: (each.start, each.end))
    analysis.names[id(item)] = Kept(item, analysis.checked, body, item.start, found)
    return found


def all_occurrences(analysis: Analysis) -> Iterator[Occurrence]:
    """The names of the file."""
    for item in analysis.items:
        yield from occurrences(analysis, item)


def item_at(analysis: Analysis, offset: int) -> tree.Declaration | None:
    """The declaration at an offset: the last that begins before it."""
    found = None
    for item in analysis.items:
        if item.start <= offset:
            found = item
    return found


def occurrence_at(analysis: Analysis, offset: int) -> Occurrence | None:
    """The name at an offset, or just before it."""
    item = item_at(analysis, offset)
    if item is None:
        return None
    around = [each for each in occurrences(analysis, item) if each.start <= offset <= each.end]
    return max(around, key=lambda each: each.start, default=None)


def references(analysis: Analysis, symbol: Symbol) -> list[Occurrence]:
    """Every place of this file where a symbol stands."""
    return [each for each in all_occurrences(analysis) if each.symbol == symbol]


def definition(analysis: Analysis, symbol: Symbol) -> Span | None:
    """Where a symbol gets its meaning."""
    program = analysis.typed
    if symbol.kind == "field":
        return field_of(program, symbol)
    if symbol.kind in ("local", "axis"):
        owner = declared(program, Symbol("function", symbol.owner, module=symbol.module))
        if symbol.module and owner is not None:
            return parameter_span(program, symbol, owner)
        for item in analysis.items:
            if getattr(item, "name", None) == symbol.owner:
                places = [each for each in occurrences(analysis, item) if each.symbol == symbol]
                first = next((each for each in places if each.binds), places[0] if places else None)
                return analysis.source.span(first.start, first.end) if first is not None else None
        return None
    node = declared(program, symbol)
    source: Source = analysis.source
    if symbol.module:
        imported = program.imports[symbol.module].program
        if imported is None:
            return None
        source = imported.source
    if symbol.kind == "import":
        info = program.imports.get(symbol.name)
        if info is not None and info.program is not None:
            return info.program.source.span(0, 0)
    if node is None:
        return None
    return source.span(node.name_start, node.name_start + len(symbol.name))


class _Finder:
    """Goes through one declaration."""

    def __init__(self, analysis: Analysis) -> None:
        self.program = analysis.typed
        self.text = analysis.text
        self.source = analysis.source
        self.found: list[Occurrence] = []
        self.function = ""
        self.locals: set[str] = set()
        self.globals = {
            item.name: KINDS[type(item)] for item in analysis.items if type(item) in KINDS and hasattr(item, "name")
        }

    def add(self, start: int, name: str, symbol: Symbol, binds: bool = False, node: tree.Node | None = None) -> None:
        self.found.append(Occurrence(start, start + len(name), symbol, binds, node))

    # --- declarations

    def declaration(self, item: tree.Declaration) -> None:
        kind = KINDS.get(type(item))
        if kind is not None and isinstance(item, NamedItem):
            name = item.name
            self.add(item.name_start, name, Symbol(kind, name), binds=True, node=item)
        match item:
            case tree.Devices():
                for option in item.options:
                    if option.word == "split":
                        self.add(option.name_start, option.name, Symbol("dim", option.name))
            case tree.Dim() | tree.Constant() if item.value is not None:
                self.value(item.value)
            case tree.Model() | tree.Data():
                if isinstance(item, tree.Model):
                    self.function = item.name
                    for dim in item.dims:
                        self.add(dim.start, dim.name, Symbol("axis", dim.name, item.name), binds=True)
                        self.locals.discard(dim.name)
                for member in item.members:
                    symbol = Symbol("field", member.name, item.name)
                    self.add(member.name_start, member.name, symbol, binds=True, node=member)
                    self.type(member.type)
                    if member.value is not None:
                        self.value(member.value)
            case tree.Function() | tree.Extern():
                self.signature(item)
                for statement in item.body if isinstance(item, tree.Function) else ():
                    self.statement(statement)
            case tree.LostDeclaration():
                self.function = item.name or ""
                self.locals = bound_names(item.body)
                for statement in item.body:
                    self.statement(statement)

    def signature(self, item: tree.Function | tree.Extern) -> None:
        self.function = item.name
        body = item.body if isinstance(item, tree.Function) else []
        self.locals = {parameter.name for parameter in item.parameters} | bound_names(body)
        for parameter in item.parameters:
            symbol = Symbol("local", parameter.name, item.name)
            self.add(parameter.name_start, parameter.name, symbol, binds=True, node=parameter)
            self.type(parameter.type)
            if parameter.default is not None:
                self.value(parameter.default)
        if item.result is not None:
            self.type(item.result)

    # --- statements

    def statement(self, statement: tree.Statement) -> None:
        match statement:
            case tree.Assign():
                self.value(statement.value)
                self.target(statement.target)
            case tree.For():
                self.value(statement.over)
                for name in statement.names:
                    self.target(name)
            case tree.If() | tree.While():
                self.value(statement.test)
            case tree.Do():
                self.value(statement.value)
            case tree.Return() if statement.value is not None:
                self.value(statement.value)
            case tree.Assert():
                self.value(statement.test)
                if statement.message is not None:
                    self.value(statement.message)
        for inner in statement.children():
            if isinstance(inner, tree.Statement):
                self.statement(inner)

    def target(self, target: tree.Expr) -> None:
        if isinstance(target, tree.Name):
            if target.name != "_":
                symbol = Symbol("local", target.name, self.function)
                self.add(target.start, target.name, symbol, binds=True, node=target)
        elif isinstance(target, (tree.Tuple, tree.Group)):
            for inner in target.children():
                if isinstance(inner, tree.Expr):
                    self.target(inner)
        else:
            self.value(target)

    # --- values

    def value(self, expr: tree.Expr) -> None:
        match expr:
            case tree.Name():
                self.name(expr)
            case tree.Attribute():
                self.attribute(expr)
            case tree.Call():
                self.call(expr)
            case tree.Index():
                self.index(expr)
            case tree.WithAxes():
                self.value(expr.of)
                self.sizes(expr.sizes)
            case tree.Axes() | tree.Merged():
                self.sizes(expr.sizes)
            case tree.As():
                self.value(expr.value)
                self.type(expr.type)
            case _:
                for inner in expr.children():
                    if isinstance(inner, tree.Expr):
                        self.value(inner)

    def name(self, node: tree.Name) -> None:
        name = node.name
        if name in self.locals:
            symbol = Symbol("local", name, self.function)
        elif name in self.globals:
            symbol = Symbol(self.globals[name], name)
        elif name in BUILTIN_NAMES or name in NUMBERS:
            symbol = Symbol("builtin", name)
        elif name in TYPE_NAMES:
            symbol = Symbol("type", name)
        elif self.function:
            symbol = Symbol("axis", name, self.function)
        else:
            return
        self.add(node.start, name, symbol, node=node)

    def attribute(self, node: tree.Attribute) -> None:
        self.value(node.of)
        of = node.of
        if isinstance(of, tree.Name) and of.name not in self.locals and self.globals.get(of.name) == "import":
            self.member(of.name, node.name, node.name_start, node)
            return
        owner = fields_owner(self.program, self.program.types.get(of))
        if owner is not None and node.name in owner.fields:
            self.add(node.name_start, node.name, self.field(owner, node.name), node=node)

    def field(self, owner: ModelInfo | DataInfo, name: str) -> Symbol:
        """The symbol of a field, which another file may declare."""
        module = ""
        if owner.source is not None and owner.source is not self.source:
            for info in self.program.imports.values():
                if info.program is not None and info.program.source == owner.source:
                    module = info.name
        return Symbol("field", name, owner.name, module)

    def member(self, module: str, name: str, start: int, node: tree.Node | None = None) -> None:
        """A name of another file or of Python."""
        info = self.program.imports.get(module)
        kind = "member"
        if info is not None and info.program is not None:
            found = declared(info.program, Symbol("", name))
            kind = KINDS.get(type(found), "member") if found is not None else "member"
        self.add(start, name, Symbol(kind, name, module=module), node=node)

    def call(self, node: tree.Call) -> None:
        self.value(node.function)
        callee = self.callee(node.function)
        for argument in node.arguments:
            if argument.name is not None:
                self.argument_name(argument, callee)
            if argument.name in AXIS_OPTIONS or callee == "rename" and argument.name is not None:
                self.size(argument.value)
            else:
                self.value(argument.value)
        if node.pattern is not None:
            for side in (*node.pattern.operands, node.pattern.result):
                self.sizes(side.sizes)
            for given in node.pattern.sizes:
                if given.name is not None:
                    self.add(given.start, given.name, self.axis(given.name))
                self.value(given.value)

    def callee(self, function: tree.Expr) -> FunctionInfo | DataInfo | str | None:
        """What a call calls: what is known of a function or a data, or the name of a built-in."""
        if isinstance(function, tree.Name):
            name = function.name
            if name in self.locals:
                return None
            if name in self.globals:
                known = self.program.functions.get(name) or self.program.externs.get(name)
                return known or self.program.datas.get(name)
            return name
        return None

    def argument_name(self, argument: tree.Argument, callee: FunctionInfo | DataInfo | str | None) -> None:
        name = argument.name or ""
        if isinstance(callee, FunctionInfo):
            self.add(argument.start, name, Symbol("local", name, callee.name))
        elif isinstance(callee, DataInfo):
            self.add(argument.start, name, Symbol("field", name, callee.name))
        elif callee in NAMED_BY_AXES and name not in AXIS_OPTIONS and name not in ("value", "mask"):
            self.add(argument.start, name, self.axis(name))

    def index(self, node: tree.Index) -> None:
        self.value(node.of)
        of = node.of
        maker = (
            isinstance(of, tree.Name)
            and of.name not in self.locals
            and (of.name in MAKERS or of.name in TYPE_NAMES or self.globals.get(of.name) == "model")
        )
        for item in node.items:
            if item.axis is not None:
                self.size(item.axis)
            if maker and item.axis is None:
                self.size(item.value)
            else:
                self.value(item.value)

    # --- sizes and types

    def sizes(self, sizes: Iterable[tree.Node]) -> None:
        for size in sizes:
            if isinstance(size, tree.TypeExpr):
                self.type(size)
            elif isinstance(size, tree.Expr):
                self.size(size)

    def axis(self, name: str) -> Symbol:
        """What a name in brackets means."""
        if self.globals.get(name) in ("dim", "model", "data", "constant"):
            return Symbol(self.globals[name], name)
        if name in self.locals and self.is_int(name):
            return Symbol("local", name, self.function)
        if name in TYPE_NAMES:
            return Symbol("type", name)
        return Symbol("axis", name, self.function)

    def is_int(self, name: str) -> bool:
        """Is it an `int` parameter of the function, which may stand for an axis?"""
        info = self.program.functions.get(self.function)
        return info is not None and any(p.name == name and str(p.type) == "int" for p in info.parameters)

    def size(self, node: tree.Expr) -> None:
        match node:
            case tree.Name():
                self.add(node.start, node.name, self.axis(node.name), node=node)
            case tree.Attribute(of=tree.Name(name=module)):
                self.add(node.of.start, module, Symbol("import", module), node=node.of)
                self.member(module, node.name, node.name_start, node)
            case tree.Axes() | tree.Merged():
                self.sizes(node.sizes)
            case _:
                self.sizes(node.children())

    def type(self, node: tree.TypeExpr) -> None:
        match node:
            case tree.NamedType():
                at = node.start
                if node.module is not None:
                    self.add(at, node.module, Symbol("import", node.module))
                    at = self.text.find(node.name, at + len(node.module))
                    self.member(node.module, node.name, at, node)
                elif node.name in self.globals:
                    self.add(at, node.name, Symbol(self.globals[node.name], node.name), node=node)
                else:
                    self.add(at, node.name, Symbol("type", node.name), node=node)
                self.sizes(node.arguments or ())
            case tree.TensorType():
                self.sizes(node.axes.sizes)
                if node.element is not None:
                    self.type(node.element)
            case tree.TupleType():
                for item in node.items:
                    self.type(item)


def bound_names(body: Iterable[tree.Statement]) -> set[str]:
    """The names that statements give a value."""
    names: set[str] = set()
    for statement in body:
        for node in statement.walk():
            match node:
                case tree.Assign():
                    names |= set(target_names(node.target))
                case tree.For():
                    names |= {name.name for name in node.names}
                case tree.Lost():
                    names |= set(node.names)
    return names - {"_"}


def target_names(target: tree.Expr) -> Iterator[str]:
    """The names of a target."""
    if isinstance(target, tree.Name):
        yield target.name
    elif isinstance(target, (tree.Tuple, tree.Group)):
        for inner in target.children():
            if isinstance(inner, tree.Expr):
                yield from target_names(inner)
