"""What a name can mean, and where that is declared, in this file or in one that it imports.

Gives `Symbol` and `Occurrence`; `find_names.py` finds them in a file. A parameter, a local and an axis variable belong
to their function, a field to its model or data.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shapescript.source import Span
from shapescript.syntax import tree
from shapescript.types.kinds import Batch, Gradients, ModelList, ModelOf, Type
from shapescript.types.typed import DataInfo, FieldInfo, ModelInfo, TypedProgram


@dataclass(frozen=True)
class Symbol:
    """Something with a name. `owner` is the function, the model or the data that it belongs to.

    `module` is the import by which this file sees it, if another file declares it.
    """

    kind: str
    name: str
    owner: str = ""
    module: str = ""


@dataclass(frozen=True)
class Occurrence:
    """A place where a name stands; `binds`: the name gets its meaning or its value here."""

    start: int
    end: int
    symbol: Symbol
    binds: bool = False
    node: tree.Node | None = field(default=None, compare=False)


@dataclass
class Kept:
    """The names found in a declaration when it began at `start`, while its body and the check of the file are these."""

    item: tree.Declaration
    checked: object
    body: object
    start: int
    found: list[Occurrence]


NamedItem = tree.Dim | tree.Constant | tree.Model | tree.Data | tree.Function | tree.Extern | tree.Import
KINDS: dict[type[tree.Node], str] = {
    tree.Dim: "dim",
    tree.Constant: "constant",
    tree.Model: "model",
    tree.Data: "data",
    tree.Function: "function",
    tree.Extern: "extern",
    tree.Import: "import",
}


# --- declarations of symbols -----------------------------------------------------------------------------------------


def declared(program: TypedProgram, symbol: Symbol) -> NamedItem | None:
    """The declaration of a dim, model, data, function, constant or import, in this file or an imported one."""
    if symbol.module:
        info = program.imports.get(symbol.module)
        if info is None or info.program is None:
            return None
        return declared(info.program, Symbol(symbol.kind, symbol.name, symbol.owner))
    tables = (program.functions, program.externs, program.dims, program.models, program.datas, program.constants)
    for table in (*tables, program.imports):
        found = table.get(symbol.name)
        if found is not None and found.node is not None:
            return found.node
    return None


def parameter_span(program: TypedProgram, symbol: Symbol, owner: NamedItem) -> Span | None:
    """Where a parameter of another file's function stands."""
    imported = program.imports[symbol.module].program
    if imported is None or not isinstance(owner, (tree.Function, tree.Extern)):
        return None
    for parameter in owner.parameters:
        if parameter.name == symbol.name:
            return imported.source.span(parameter.name_start, parameter.name_start + len(symbol.name))
    return None


def field_of(program: TypedProgram, symbol: Symbol) -> Span | None:
    """Where a field is declared."""
    info = owner_of(program, symbol)
    found = info.fields.get(symbol.name) if info is not None else None
    if info is None or found is None or info.source is None:
        return None
    return info.source.span(found.node.name_start, found.node.name_start + len(symbol.name))


def field_info(program: TypedProgram, symbol: Symbol) -> FieldInfo | None:
    """What is known about a field."""
    info = owner_of(program, symbol)
    return info.fields.get(symbol.name) if info is not None else None


def owner_of(program: TypedProgram, symbol: Symbol) -> ModelInfo | DataInfo | None:
    """The model or the data of a field."""
    if symbol.module:
        info = program.imports.get(symbol.module)
        if info is None or info.program is None:
            return None
        program = info.program
    return program.models.get(symbol.owner) or program.datas.get(symbol.owner)


def fields_owner(program: TypedProgram, of: Type | None) -> ModelInfo | DataInfo | None:
    """The model or the data whose fields a value of this type has."""
    if isinstance(of, ModelList):
        of = of.model
    if isinstance(of, Gradients):
        of = of.model
    if isinstance(of, ModelOf):
        return program.model_of.get(of.declaration)
    if isinstance(of, Batch):
        return program.data_of.get(of.data)
    return None
