"""What an editor shows under the pointer: a name's meaning, an expression's type, and where a function runs.

Gives Markdown and the part of the text that it is about. What a line sends between the devices is `lines.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shapescript.editor.analysis import Analysis
from shapescript.editor.find_names import item_at, occurrence_at
from shapescript.editor.lines import line_facts
from shapescript.editor.symbols import Occurrence, Symbol, declared, field_info, owner_of
from shapescript.editor.vocabulary import TYPES, describe
from shapescript.placement.kinds import Placement
from shapescript.source import Source
from shapescript.syntax import tree
from shapescript.types.kinds import ModelList, ModelOf, Nothing, Tensor, Type, Wrong
from shapescript.types.size import SizeError
from shapescript.types.typed import FunctionInfo, ModelInfo, TypedProgram
from shapescript.types.unify import substitute_type


@dataclass(frozen=True)
class Hover:
    """Markdown about the text from `start` to `end`."""

    start: int
    end: int
    text: str


def hover(analysis: Analysis, offset: int) -> Hover | None:
    """What there is to say about what stands at an offset."""
    found = occurrence_at(analysis, offset)
    facts = line_facts(analysis, analysis.source.position(offset)[0])
    if found is not None:
        text = about(analysis, found)
        if text:
            return Hover(found.start, found.end, "\n\n".join([text, *facts]))
    expression = expression_at(analysis, offset)
    if expression is not None:
        of = analysis.typed.types.get(expression)
        if is_known(of):
            return Hover(expression.start, expression.end, "\n\n".join([code(str(of)), *facts]))
    if facts:
        line = analysis.source.position(offset)[0]
        start = analysis.source.line_starts[line - 1]
        return Hover(start, start + len(analysis.source.line(line)), "\n\n".join(facts))
    return None


def is_known(of: Type | None) -> bool:
    """Is it a type worth showing?"""
    return of is not None and not isinstance(of, (Wrong, Nothing))


def code(text: str) -> str:
    """Text as a block of the language."""
    return f"```shapescript\n{text}\n```"


def expression_at(analysis: Analysis, offset: int) -> tree.Expr | None:
    """The innermost expression at an offset that has a type."""
    item = item_at(analysis, offset)
    if item is None:
        return None
    types = analysis.typed.types
    best: tree.Expr | None = None
    for node in item.walk():
        if isinstance(node, tree.Expr) and node.start <= offset < node.end and is_known(types.get(node)):
            if best is None or node.end - node.start <= best.end - best.start:
                best = node
    return best


# --- names -----------------------------------------------------------------------------------------------------------


def about(analysis: Analysis, found: Occurrence) -> str:
    """What a name means, in Markdown; empty where there is nothing to say."""
    symbol = found.symbol
    program = analysis.typed
    match symbol.kind:
        case "builtin":
            known = describe(symbol.name)
            gives = type_words(analysis, found)
            return "\n\n".join([code(known.signature), known.doc, *gives]) if known is not None else ""
        case "type":
            return "\n\n".join([code(symbol.name), TYPES.get(symbol.name, "")]).strip()
        case "local":
            return about_local(analysis, found)
        case "axis":
            return about_axis(analysis, symbol)
        case "field":
            info = field_info(program, symbol)
            if info is None:
                return ""
            word = f"{info.word} " if info.word else ""
            owner = owner_of(program, symbol)
            written = info.node.type
            source = owner.source if owner is not None else None
            kind = source.text[written.start : written.end] if source is not None else str(info.type)
            return "\n\n".join([code(f"{word}{symbol.name}: {kind}"), f"a field of `{symbol.owner}`"])
        case "member":
            return code(f"{symbol.module}.{symbol.name}") + "\n\nPython, called in the controller"
        case "import":
            return about_import(program, symbol)
    node = declared(program, symbol)
    home = program.imports[symbol.module].program if symbol.module else program
    return about_declaration(analysis, home, node) if node is not None and home is not None else ""


def type_words(analysis: Analysis, found: Occurrence) -> Iterator[str]:
    """What the call of a built-in gives here."""
    expression = expression_at(analysis, found.start)
    of = analysis.typed.types.get(expression) if expression is not None else None
    if expression is not None and is_known(of) and not isinstance(expression, tree.Name):
        yield f"gives `{of}`"


def about_local(analysis: Analysis, found: Occurrence) -> str:
    """A parameter or a local: its type at this place."""
    program = analysis.typed
    symbol = found.symbol
    of = program.types.get(found.node) if isinstance(found.node, tree.Expr) else None
    info = function_info(program, Symbol("function", symbol.owner))
    parameter = next((p for p in info.parameters if p.name == symbol.name), None) if info is not None else None
    if of is None and parameter is not None:
        of = parameter.type
    if of is None or not is_known(of):
        return ""
    word = "mut " if parameter is not None and parameter.mut else ""
    return code(f"{word}{symbol.name}: {of}")


def about_axis(analysis: Analysis, symbol: Symbol) -> str:
    """An axis variable of a function."""
    info = function_info(analysis.typed, Symbol("function", symbol.owner))
    axis = info.axes.get(symbol.name) if info is not None else None
    batch = axis is not None and axis.batch
    words = "the batch's axis: split over the devices where there are several" if batch else "an axis"
    return "\n\n".join([code(symbol.name), f"{words} of `{symbol.owner}`"])


def function_info(program: TypedProgram, symbol: Symbol) -> FunctionInfo | None:
    """What is known of a function by its name."""
    return program.functions.get(symbol.name) or program.externs.get(symbol.name)


def about_import(program: TypedProgram, symbol: Symbol) -> str:
    """An import."""
    info = program.imports.get(symbol.name)
    if info is None:
        return ""
    if info.python:
        return code(f"import python {info.module}") + "\n\nPython, called in the controller"
    names = []
    if info.program is not None:
        names = [*info.program.functions, *info.program.models, *info.program.datas, *info.program.dims]
    listed = ", ".join(f"`{name}`" for name in names)
    return code(f"import {info.module}") + (f"\n\ndeclares {listed}" if listed else "")


def about_declaration(analysis: Analysis, program: TypedProgram, node: tree.Declaration) -> str:
    """A function, a model, a data, a dim or a constant."""
    source = program.source
    parts: list[str] = []
    match node:
        case tree.Function() | tree.Extern():
            parts.append(code(head_of(source, node)))
            placement = analysis.placed.kinds.get(node) if analysis.placed and isinstance(node, tree.Function) else None
            if placement is not None:
                parts.append(runs_where(placement))
        case tree.Model():
            parts.append(code(source.text[node.start : node.end].rstrip()))
            info = program.models.get(node.name)
            count = parameter_count(program, info) if info is not None else None
            if count is not None:
                parts.append(f"{count:,} parameters")
        case tree.Dim():
            parts.append(code(source.text[node.start : node.end]))
            dim = program.dims.get(node.name)
            written = isinstance(node.value, tree.Number)
            if dim is not None and dim.value is not None and not written:
                parts.append(f"= {dim.value:,}")
        case _:
            parts.append(code(source.text[node.start : node.end].rstrip()))
    return "\n\n".join([*parts, *comments_above(source, node.start)])


def head_of(source: Source, node: tree.Function | tree.Extern) -> str:
    """A function's signature, as written, in one line."""
    if isinstance(node, tree.Extern):
        return " ".join(source.text[node.start : node.end].split())
    ends = [parameter.end for parameter in node.parameters]
    end = node.result.end if node.result is not None else max(ends, default=node.name_start + len(node.name))
    text = " ".join(source.text[node.start : end].split()).replace("( ", "(").rstrip(",")
    if node.result is not None:
        return text.replace(", )", ")")
    return text + (")" if node.parameters else "()")


def runs_where(placement: Placement) -> str:
    """Where a function runs, and why."""
    kind = placement.kind.value
    words = {"device": "runs on the devices", "controller": "runs in the controller", "host": "host values alone"}
    because = f": {placement.words}, line {placement.span.line}" if placement.span is not None else ""
    return words.get(kind, kind) + because


def parameter_count(program: TypedProgram, info: ModelInfo) -> int | None:
    """How many numbers a model without dims of its own learns; None where a size isn't known."""
    if info.dims:
        return None
    sizes = program.known_sizes()

    def count(of: Type) -> int:
        if isinstance(of, Tensor):
            total = 1
            for axis in of.axes:
                total *= axis.size.evaluate(sizes)
            return total
        if isinstance(of, ModelList):
            return of.length.size.evaluate(sizes) * count(of.model)
        if isinstance(of, ModelOf):
            inner = program.model_of[of.declaration]
            bound = dict(zip(inner.dims, of.arguments, strict=True))
            return sum(
                count(substitute_type(each.type, bound)) for each in inner.fields.values() if each.word != "state"
            )
        return 0

    try:
        return sum(count(each.type) for each in info.fields.values() if each.word != "state")
    except (SizeError, KeyError, RecursionError):
        return None


def comments_above(source: Source, start: int) -> list[str]:
    """The comment lines that stand right above a declaration."""
    lines: list[str] = []
    number = source.position(start)[0] - 1
    while number >= 1 and source.line(number).startswith("#"):
        lines.insert(0, source.line(number).lstrip("# "))
        number -= 1
    return [" ".join(lines)] if lines else []
