"""The language server: the protocol's questions, put to the analysis of the open files.

Takes messages on the standard input, gives answers on the standard output. Every answer is about the text as it stands
when the question comes. What the checker says is sent as it is asked for, or, to an editor that doesn't ask, a moment
after each edit. An error in an answer is reported to the editor and ends nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlparse
from urllib.request import url2pathname

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from shapescript import __version__
from shapescript.editor import completion, hints, hover, lines, structure
from shapescript.editor.actions import actions
from shapescript.editor.analysis import Analysis, text_on_disk
from shapescript.editor.find_names import all_occurrences, definition, item_at, occurrence_at, occurrences, references
from shapescript.editor.protocol import (
    COMPLETION_KINDS,
    LEGEND,
    SYMBOL_KINDS,
    encoded,
    notice,
    place_of,
    range_of,
    spot,
    uri_of,
)
from shapescript.editor.rename import CannotRename, may_rename, renamed
from shapescript.editor.text import Positions, edited
from shapescript.room import room
from shapescript.source import Span
from shapescript.syntax.formatter import CannotFormat, format_source

PAUSE = 0.05
"""Seconds without an edit after which an editor that doesn't ask is told what the checker says."""
LEFT_ALONE = 0.6
"""Seconds without an edit after which it is found out what the lines send."""
SETTLED = 0.25
"""Seconds without an edit after which it is also worked out anew where functions run."""


class Server(LanguageServer):
    """The server with its open files."""

    def __init__(self) -> None:
        super().__init__("shapescript", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Incremental)
        self.open: dict[str, Analysis] = {}
        self.versions: dict[str, int] = {}
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.learning: dict[str, asyncio.Task[None]] = {}

    @property
    def encoding(self) -> str:
        """The units in which columns are counted."""
        return str(getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding) or "utf-16")

    @property
    def asks(self) -> bool:
        """Does the editor ask for diagnostics, so that none need be sent?"""
        document = self.client_capabilities.text_document
        return document is not None and document.diagnostic is not None

    def text_of(self, path: Path) -> str | None:
        """The text of a file: what an editor has open, or what is on the disk."""
        for analysis in self.open.values():
            if analysis.path == path:
                return analysis.text
        return text_on_disk(path)

    def analysis(self, uri: str) -> Analysis | None:
        """A file as it stands; one that isn't open is read, and not kept."""
        found = self.open.get(uri)
        if found is not None:
            found.refresh()
            return found
        path = path_of(uri)
        text = text_on_disk(path)
        return None if text is None else Analysis(path, text, self.text_of, self.encoding)

    # --- diagnostics

    def changed(self, uri: str) -> None:
        """A file has another text: it, and those that import it, are checked soon."""
        self.learn(uri)
        if self.asks:
            return
        path = path_of(uri)
        for other, analysis in self.open.items():
            if other == uri or any(analysis.path_of(module) == path for module in analysis.imported):
                self.soon(other, PAUSE, quick=True)

    def learn(self, uri: str) -> None:
        """Finds out what the lines of a file send, once it has been left alone for a while."""
        task = self.learning.pop(uri, None)
        if task is not None:
            task.cancel()
        if uri in self.open:
            self.learning[uri] = asyncio.get_running_loop().create_task(self.learned(uri))

    async def learned(self, uri: str) -> None:
        """Waits, finds out, and has the editor ask for hints again."""
        await asyncio.sleep(LEFT_ALONE)
        analysis = self.open.get(uri)
        if analysis is None or not lines.worth_asking(analysis) or not await lines.find_out(analysis):
            return
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
            await self.workspace_inlay_hint_refresh_async(None)

    def soon(self, uri: str, seconds: float, quick: bool) -> None:
        """Sends what the checker says about a file after some seconds without an edit."""
        timer = self.timers.pop(uri, None)
        if timer is not None:
            timer.cancel()
        self.timers[uri] = asyncio.get_running_loop().call_later(seconds, self.publish, uri, quick)

    def publish(self, uri: str, quick: bool) -> None:
        """Sends what the checker says about a file."""
        self.timers.pop(uri, None)
        analysis = self.open.get(uri)
        if analysis is None:
            return
        analysis.refresh()
        found = [notice(analysis, each) for each in analysis.diagnostics(quick)]
        version = self.versions.get(uri)
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))
        if quick and analysis.placed_now is None and not analysis.has_errors():
            self.soon(uri, SETTLED, quick=False)


def path_of(uri: str) -> Path:
    """The file of a URI; what isn't a file gets a name of its own."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("file", ""):
        return Path(unquote(parsed.path.lstrip("/")) or "untitled.ss")
    return Path(url2pathname(unquote(parsed.path)))


server = Server()


# --- open files ------------------------------------------------------------------------------------------------------


@server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
async def did_open(ls: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    """A file is opened."""
    document = params.text_document
    ls.open[document.uri] = Analysis(path_of(document.uri), document.text, ls.text_of, ls.encoding)
    ls.versions[document.uri] = document.version
    ls.changed(document.uri)


@server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
async def did_change(ls: Server, params: lsp.DidChangeTextDocumentParams) -> None:
    """A file is edited."""
    uri = params.text_document.uri
    analysis = ls.open.get(uri)
    if analysis is None:
        return
    text = analysis.text
    for change in params.content_changes:
        if isinstance(change, lsp.TextDocumentContentChangePartial):
            text = edited(text, spot(change.range.start), spot(change.range.end), change.text, ls.encoding)
        else:
            text = change.text
    ls.versions[uri] = params.text_document.version
    analysis.update(text)
    ls.changed(uri)


@server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
async def did_save(ls: Server, params: lsp.DidSaveTextDocumentParams) -> None:
    """A file is saved: those that import it may see another text."""
    ls.changed(params.text_document.uri)


@server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
async def did_close(ls: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    """A file is closed: nothing more is said about it."""
    uri = params.text_document.uri
    timer = ls.timers.pop(uri, None)
    if timer is not None:
        timer.cancel()
    ls.open.pop(uri, None)
    ls.versions.pop(uri, None)
    ls.learn(uri)
    if not ls.asks:
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))
    ls.changed(uri)


@server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
async def did_change_files(ls: Server, params: lsp.DidChangeWatchedFilesParams) -> None:
    """Files changed on the disk."""
    for change in params.changes:
        ls.changed(change.uri)
        if change.type == lsp.FileChangeType.Deleted and change.uri not in ls.open and not ls.asks:
            ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(change.uri, []))


@server.feature(
    lsp.TEXT_DOCUMENT_DIAGNOSTIC,
    lsp.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=False, identifier="shapescript"),
)
async def diagnostic(ls: Server, params: lsp.DocumentDiagnosticParams) -> lsp.RelatedFullDocumentDiagnosticReport:
    """What the checker says about a file."""
    analysis = ls.analysis(params.text_document.uri)
    found = [notice(analysis, each) for each in analysis.diagnostics()] if analysis is not None else []
    return lsp.RelatedFullDocumentDiagnosticReport(items=found)


# --- questions about a place -----------------------------------------------------------------------------------------


@server.feature(lsp.TEXT_DOCUMENT_HOVER)
async def on_hover(ls: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    """What stands under the pointer."""
    analysis = ls.analysis(params.text_document.uri)
    if analysis is None:
        return None
    found = hover.hover(analysis, analysis.positions.offset(spot(params.position)))
    if found is None:
        return None
    content = lsp.MarkupContent(lsp.MarkupKind.Markdown, found.text)
    return lsp.Hover(content, range_of(analysis.positions, found.start, found.end))


def location(ls: Server, analysis: Analysis, span: Span) -> lsp.Location:
    """A place in this file or in another one."""
    if span.source is analysis.source:
        return lsp.Location(uri_of(analysis.path), range_of(analysis.positions, span.start, span.end))
    positions = Positions(span.source.text, ls.encoding)
    return lsp.Location(uri_of(Path(span.source.name)), range_of(positions, span.start, span.end))


@server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
async def on_definition(ls: Server, params: lsp.DefinitionParams) -> lsp.Location | None:
    """Where a name gets its meaning."""
    analysis = ls.analysis(params.text_document.uri)
    found = occurrence_at(analysis, analysis.positions.offset(spot(params.position))) if analysis else None
    span = definition(analysis, found.symbol) if analysis is not None and found is not None else None
    return location(ls, analysis, span) if analysis is not None and span is not None else None


@server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
async def on_references(ls: Server, params: lsp.ReferenceParams) -> list[lsp.Location]:
    """Everywhere that a name stands."""
    analysis = ls.analysis(params.text_document.uri)
    found = occurrence_at(analysis, analysis.positions.offset(spot(params.position))) if analysis else None
    if analysis is None or found is None:
        return []
    uri = params.text_document.uri
    return [
        lsp.Location(uri, range_of(analysis.positions, each.start, each.end))
        for each in references(analysis, found.symbol)
        if params.context.include_declaration or not each.binds
    ]


@server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
async def on_highlight(ls: Server, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
    """The other places of a name."""
    analysis = ls.analysis(params.text_document.uri)
    found = occurrence_at(analysis, analysis.positions.offset(spot(params.position))) if analysis else None
    if analysis is None or found is None:
        return []
    item = item_at(analysis, found.start)
    local = found.symbol.kind in ("local", "axis") and item is not None
    places = occurrences(analysis, item) if local and item is not None else all_occurrences(analysis)
    return [
        lsp.DocumentHighlight(
            range_of(analysis.positions, each.start, each.end),
            lsp.DocumentHighlightKind.Write if each.binds else lsp.DocumentHighlightKind.Read,
        )
        for each in places
        if each.symbol == found.symbol
    ]


@server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
async def on_prepare_rename(ls: Server, params: lsp.PrepareRenameParams) -> lsp.PrepareRenamePlaceholder | None:
    """Whether a name can be changed."""
    analysis = ls.analysis(params.text_document.uri)
    found = occurrence_at(analysis, analysis.positions.offset(spot(params.position))) if analysis else None
    if analysis is None or found is None or not may_rename(found.symbol):
        return None
    return lsp.PrepareRenamePlaceholder(range_of(analysis.positions, found.start, found.end), found.symbol.name)


@server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
async def on_rename(ls: Server, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    """Changes a name everywhere."""
    analysis = ls.analysis(params.text_document.uri)
    if analysis is None:
        return None
    try:
        places = renamed(analysis, analysis.positions.offset(spot(params.position)), params.new_name)
    except CannotRename as error:
        ls.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, str(error)))
        return None
    edits = [lsp.TextEdit(range_of(analysis.positions, start, end), params.new_name) for start, end in places]
    return lsp.WorkspaceEdit(changes={params.text_document.uri: edits})


@server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "[", " ", "="]))
async def on_completion(ls: Server, params: lsp.CompletionParams) -> lsp.CompletionList:
    """What could be written."""
    analysis = ls.analysis(params.text_document.uri)
    if analysis is None:
        return lsp.CompletionList(False, [])
    offset = analysis.positions.offset(spot(params.position))
    context = params.context
    if context is not None and context.trigger_character == " " and not completion.worth_a_space(analysis, offset):
        return lsp.CompletionList(False, [])
    document = ls.client_capabilities.text_document
    item = document.completion.completion_item if document and document.completion else None
    snippets = bool(item and item.snippet_support)
    found = []
    for offer in completion.offers(analysis, offset):
        given = lsp.CompletionItem(
            offer.label,
            kind=COMPLETION_KINDS[offer.kind],
            detail=offer.detail or None,
            sort_text=offer.order + offer.label,
        )
        if offer.doc:
            given.documentation = lsp.MarkupContent(lsp.MarkupKind.Markdown, offer.doc)
        if offer.snippet and snippets:
            given.insert_text, given.insert_text_format = offer.snippet, lsp.InsertTextFormat.Snippet
        found.append(given)
    return lsp.CompletionList(False, found)


@server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
async def on_signature(ls: Server, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    """What the call around takes."""
    analysis = ls.analysis(params.text_document.uri)
    if analysis is None:
        return None
    found = completion.signature(analysis, analysis.positions.offset(spot(params.position)))
    if found is None:
        return None
    parts = [lsp.ParameterInformation(part) for part in found.parameters]
    doc = lsp.MarkupContent(lsp.MarkupKind.Markdown, found.doc) if found.doc else None
    given = lsp.SignatureInformation(found.label, doc, parts, found.active)
    return lsp.SignatureHelp([given], 0, found.active)


# --- questions about a file ------------------------------------------------------------------------------------------


@server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
async def on_hints(ls: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    """The types that the text doesn't write."""
    analysis = ls.analysis(params.text_document.uri)
    if analysis is None:
        return []
    start = analysis.positions.offset(spot(params.range.start))
    end = analysis.positions.offset(spot(params.range.end))
    return [
        lsp.InlayHint(
            place_of(analysis.positions, hint.offset), hint.text, lsp.InlayHintKind.Type, tooltip=hint.tip or None
        )
        for hint in hints.hints(analysis, start, end)
    ]


@server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
async def on_symbols(ls: Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    """The outline."""
    analysis = ls.analysis(params.text_document.uri)
    return [symbol_of(analysis, each) for each in structure.outline(analysis)] if analysis is not None else []


def symbol_of(analysis: Analysis, each: structure.Outline) -> lsp.DocumentSymbol:
    """A part of the outline."""
    positions = analysis.positions
    return lsp.DocumentSymbol(
        each.name,
        SYMBOL_KINDS[each.kind],
        range_of(positions, each.start, max(each.end, each.name_start + len(each.name))),
        range_of(positions, each.name_start, each.name_start + len(each.name)),
        each.detail or None,
        children=[symbol_of(analysis, inner) for inner in each.inner],
    )


@server.feature(lsp.WORKSPACE_SYMBOL)
async def on_workspace_symbols(ls: Server, params: lsp.WorkspaceSymbolParams) -> list[lsp.WorkspaceSymbol]:
    """The declarations of the open files."""
    found = []
    for uri, analysis in ls.open.items():
        for each in structure.outline(analysis):
            if params.query.lower() in each.name.lower():
                place = range_of(analysis.positions, each.name_start, each.name_start + len(each.name))
                found.append(lsp.WorkspaceSymbol(lsp.Location(uri, place), each.name, SYMBOL_KINDS[each.kind]))
    return found


@server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
async def on_folds(ls: Server, params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
    """What can be folded."""
    analysis = ls.analysis(params.text_document.uri)
    if analysis is None:
        return []
    return [
        lsp.FoldingRange(
            analysis.positions.place(start).line,
            analysis.positions.place(end).line,
            kind=lsp.FoldingRangeKind.Comment if comment else lsp.FoldingRangeKind.Region,
        )
        for start, end, comment in structure.folds(analysis)
    ]


@server.feature(lsp.TEXT_DOCUMENT_SELECTION_RANGE)
async def on_selection(ls: Server, params: lsp.SelectionRangeParams) -> list[lsp.SelectionRange]:
    """What selections grow to."""
    analysis = ls.analysis(params.text_document.uri)
    found = []
    for position in params.positions if analysis is not None else ():
        assert analysis is not None
        grown: lsp.SelectionRange | None = None
        for start, end in reversed(structure.around(analysis, analysis.positions.offset(spot(position)))):
            grown = lsp.SelectionRange(range_of(analysis.positions, start, end), grown)
        assert grown is not None
        found.append(grown)
    return found


@server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, LEGEND)
async def on_colours(ls: Server, params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
    """The kinds of all names."""
    analysis = ls.analysis(params.text_document.uri)
    return lsp.SemanticTokens(encoded(analysis, 0, len(analysis.text)) if analysis is not None else [])


@server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, LEGEND)
async def on_colours_of_range(ls: Server, params: lsp.SemanticTokensRangeParams) -> lsp.SemanticTokens:
    """The kinds of the names in a part."""
    analysis = ls.analysis(params.text_document.uri)
    if analysis is None:
        return lsp.SemanticTokens([])
    positions = analysis.positions
    start, end = positions.offset(spot(params.range.start)), positions.offset(spot(params.range.end))
    return lsp.SemanticTokens(encoded(analysis, start, end))


@server.feature(
    lsp.TEXT_DOCUMENT_CODE_ACTION,
    lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.SourceFixAll]),
)
async def on_actions(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """What mends the errors of a part."""
    analysis = ls.analysis(params.text_document.uri)
    return actions(analysis, params) if analysis is not None else []


@server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
async def on_format(ls: Server, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
    """The text in the one style."""
    analysis = ls.analysis(params.text_document.uri)
    if analysis is None:
        return None
    try:
        text = format_source(analysis.source)
    except CannotFormat:
        return None
    if text == analysis.text:
        return []
    return [lsp.TextEdit(range_of(analysis.positions, 0, len(analysis.text)), text)]


@server.feature(lsp.SHUTDOWN)
async def on_shutdown(ls: Server, params: None) -> None:
    """The editor is about to end: nothing goes on."""
    for task in ls.learning.values():
        task.cancel()
    await asyncio.gather(*ls.learning.values(), return_exceptions=True)


def serve() -> None:
    """Answers on the standard input and output until the editor ends it."""
    with room():
        server.start_io()
