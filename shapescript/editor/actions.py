"""Code actions: the checker's fixes, each as an edit, and all safe ones at once."""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol import types as lsp

from shapescript.diagnostics.diagnostic import Fix
from shapescript.editor.analysis import Analysis
from shapescript.editor.protocol import notice, range_of, spot


def actions(analysis: Analysis, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """What mends the errors of a part of the text."""
    positions = analysis.positions
    start, end = positions.offset(spot(params.range.start)), positions.offset(spot(params.range.end))
    uri = params.text_document.uri
    only = params.context.only
    found: list[lsp.CodeAction] = []
    safe: list[Fix] = []
    for diagnostic in analysis.diagnostics():
        span = diagnostic.primary.span
        for fix in diagnostic.fixes:
            if any(edit.span.source is not analysis.source for edit in fix.edits):
                continue
            if fix.safe:
                safe.append(fix)
            if span.start <= end and start <= span.end and wanted(only, lsp.CodeActionKind.QuickFix):
                found.append(
                    lsp.CodeAction(
                        fix.title,
                        lsp.CodeActionKind.QuickFix,
                        [notice(analysis, diagnostic)],
                        is_preferred=fix.safe,
                        edit=edit_of(analysis, uri, [fix]),
                    )
                )
    if safe and wanted(only, lsp.CodeActionKind.SourceFixAll):
        title = "Apply all safe fixes"
        found.append(lsp.CodeAction(title, lsp.CodeActionKind.SourceFixAll, edit=edit_of(analysis, uri, safe)))
    return found


def wanted(only: Sequence[lsp.CodeActionKind | str] | None, kind: lsp.CodeActionKind) -> bool:
    """Does the editor ask for this kind?"""
    if not only:
        return kind == lsp.CodeActionKind.QuickFix
    return any(kind.value == each or kind.value.startswith(f"{each}.") for each in map(str_of, only))


def str_of(kind: lsp.CodeActionKind | str) -> str:
    """A kind's word."""
    return kind.value if isinstance(kind, lsp.CodeActionKind) else kind


def edit_of(analysis: Analysis, uri: str, fixes: list[Fix]) -> lsp.WorkspaceEdit:
    """Fixes as edits of the text; of two that overlap the first stands."""
    edits: list[lsp.TextEdit] = []
    last = -1
    every = sorted((edit for fix in fixes for edit in fix.edits), key=lambda edit: (edit.span.start, edit.span.end))
    for edit in every:
        if edit.span.start < last:
            continue
        last = edit.span.end
        edits.append(lsp.TextEdit(range_of(analysis.positions, edit.span.start, edit.span.end), edit.text))
    return lsp.WorkspaceEdit(changes={uri: edits})
