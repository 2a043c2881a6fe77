"""From the editor's parts to the protocol's data: places, diagnostics, kinds and colours."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types as lsp

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.editor.analysis import Analysis
from shapescript.editor.structure import MODIFIERS, TOKEN_KINDS, colours
from shapescript.editor.text import Place, Positions

COMPLETION_KINDS = {
    "keyword": lsp.CompletionItemKind.Keyword,
    "function": lsp.CompletionItemKind.Function,
    "class": lsp.CompletionItemKind.Class,
    "struct": lsp.CompletionItemKind.Struct,
    "type": lsp.CompletionItemKind.Interface,
    "variable": lsp.CompletionItemKind.Variable,
    "constant": lsp.CompletionItemKind.Constant,
    "property": lsp.CompletionItemKind.Field,
    "module": lsp.CompletionItemKind.Module,
    "enumMember": lsp.CompletionItemKind.EnumMember,
    "typeParameter": lsp.CompletionItemKind.TypeParameter,
    "value": lsp.CompletionItemKind.Value,
}
SYMBOL_KINDS = {
    "dim": lsp.SymbolKind.EnumMember,
    "constant": lsp.SymbolKind.Constant,
    "model": lsp.SymbolKind.Class,
    "data": lsp.SymbolKind.Struct,
    "function": lsp.SymbolKind.Function,
    "extern": lsp.SymbolKind.Function,
    "import": lsp.SymbolKind.Module,
    "field": lsp.SymbolKind.Field,
}
LEGEND = lsp.SemanticTokensLegend(token_types=list(TOKEN_KINDS), token_modifiers=list(MODIFIERS))


def spot(position: lsp.Position) -> Place:
    """A place of the protocol."""
    return Place(position.line, position.character)


def place_of(positions: Positions, offset: int) -> lsp.Position:
    """An offset as a place of the protocol."""
    place = positions.place(offset)
    return lsp.Position(place.line, place.column)


def range_of(positions: Positions, start: int, end: int) -> lsp.Range:
    """A part of a text."""
    return lsp.Range(place_of(positions, start), place_of(positions, end))


def uri_of(path: Path) -> str:
    """The URI of a file."""
    return path.resolve().as_uri()


def notice(analysis: Analysis, diagnostic: Diagnostic) -> lsp.Diagnostic:
    """What the checker says, with its notes and helps; of an imported file it stands at the import."""
    span = diagnostic.primary.span
    here = span.source is analysis.source
    start, end = (span.start, span.end) if here else import_of(analysis, span.source.name)
    message = diagnostic.message if here else f"{span.place}: {diagnostic.message}"
    parts = [message + (f"\n{diagnostic.primary.words}" if diagnostic.primary.words else "")]
    parts += [f"note: {note}" for note in diagnostic.notes]
    parts += [f"help: {help}" for help in diagnostic.helps]
    severity = lsp.DiagnosticSeverity.Warning if diagnostic.severity == "warning" else lsp.DiagnosticSeverity.Error
    related = [related_of(analysis, label) for label in diagnostic.secondary if label.words]
    return lsp.Diagnostic(
        range_of(analysis.positions, start, end),
        "\n".join(parts),
        severity,
        diagnostic.code,
        source="shapescript",
        related_information=related or None,
    )


def related_of(analysis: Analysis, label: Label) -> lsp.DiagnosticRelatedInformation:
    """Another place that explains a diagnostic."""
    span = label.span
    here = span.source is analysis.source
    positions = analysis.positions if here else Positions(span.source.text, analysis.encoding)
    uri = uri_of(analysis.path if here else Path(span.source.name))
    return lsp.DiagnosticRelatedInformation(lsp.Location(uri, range_of(positions, span.start, span.end)), label.words)


def import_of(analysis: Analysis, name: str) -> tuple[int, int]:
    """Where a file is imported by which another one comes in."""
    for info in analysis.typed.imports.values():
        if info.program is not None and info.program.source.name == name:
            return info.node.start, info.node.end
    first = next((info for info in analysis.typed.imports.values() if info.program is not None), None)
    return (first.node.start, first.node.end) if first is not None else (0, 0)


def encoded(analysis: Analysis, start: int, end: int) -> list[int]:
    """The colours of names, each relative to the one before, as the protocol has them."""
    data: list[int] = []
    line = column = 0
    for colour in colours(analysis, start, end):
        place = analysis.positions.place(colour.start)
        bits = sum(1 << MODIFIERS.index(modifier) for modifier in colour.modifiers)
        ahead = place.column - (column if place.line == line else 0)
        data += [place.line - line, ahead, colour.length, TOKEN_KINDS.index(colour.kind), bits]
        line, column = place.line, place.column
    return data
