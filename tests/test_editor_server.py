"""The language server, spoken to by a real client over its standard input and output."""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

ROOT = Path(__file__).resolve().parent.parent
DIGITS = (ROOT / "examples" / "digits" / "train.ss").read_text(encoding="utf-8")
COMMAND = [sys.executable, "-m", "shapescript", "lsp"]


@pytest_lsp.fixture(  # type: ignore[untyped-decorator]
    config=ClientServerConfig(server_command=COMMAND), scope="module"
)
async def client(lsp_client: LanguageClient) -> AsyncGenerator[None]:
    capabilities = client_capabilities("visual-studio-code")
    assert capabilities.text_document is not None
    capabilities.text_document.diagnostic = None  # an editor that doesn't ask is told
    await lsp_client.initialize_session(lsp.InitializeParams(capabilities=capabilities, root_uri=ROOT.as_uri()))
    yield
    await lsp_client.shutdown_session()


class File:
    """An open file, as an editor has it."""

    count = 0

    def __init__(self, client: LanguageClient, text: str, name: str | None = None) -> None:
        File.count += 1
        self.client = client
        self.text = text
        self.version = 1
        self.uri = (ROOT / "examples" / "digits" / (name or f"open_{File.count}.ss")).as_uri()
        document = lsp.TextDocumentItem(self.uri, "shapescript", 1, text)
        client.text_document_did_open(lsp.DidOpenTextDocumentParams(document))

    @property
    def id(self) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier(self.uri)

    def write(self, text: str) -> None:
        """The whole text anew."""
        self.version += 1
        self.text = text
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        document = lsp.VersionedTextDocumentIdentifier(self.version, self.uri)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))

    def close(self) -> None:
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(self.id))

    def at(self, words: str, inside: int = 0, number: int = 0) -> lsp.Position:
        """The place of the words in the text, columns in UTF-16."""
        offset = -1
        for _ in range(number + 1):
            offset = self.text.index(words, offset + 1)
        offset += inside
        before = self.text[:offset]
        column = len(before[before.rfind("\n") + 1 :].encode("utf-16-le")) // 2
        return lsp.Position(before.count("\n"), column)


def content(found: lsp.Hover) -> str:
    """The Markdown of a hover."""
    assert isinstance(found.contents, lsp.MarkupContent)
    return found.contents.value


async def diagnostics(file: File) -> list[lsp.Diagnostic]:
    """What the server says about a file when it is asked."""
    report = await file.client.text_document_diagnostic_async(lsp.DocumentDiagnosticParams(file.id))
    assert isinstance(report, lsp.RelatedFullDocumentDiagnosticReport)
    return list(report.items)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_mistake_is_told_and_taken_back(client: LanguageClient) -> None:
    file = File(client, DIGITS.replace("over=C) ==", "over=Q) =="))
    await client.wait_for_notification("textDocument/publishDiagnostics")
    [found] = client.diagnostics[file.uri]
    assert found.code == "E0305" and found.severity == lsp.DiagnosticSeverity.Error and "`Q`" in found.message
    assert found.range.start == file.at("over=Q", 5)
    file.write(DIGITS)
    await client.wait_for_notification("textDocument/publishDiagnostics")
    assert list(client.diagnostics[file.uri]) == []
    file.write(DIGITS.replace("over=C) ==", "over=Q) =="))
    await client.wait_for_notification("textDocument/publishDiagnostics")
    file.close()
    await asyncio.sleep(0.1)
    assert list(client.diagnostics[file.uri]) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_hover(client: LanguageClient) -> None:
    file = File(client, DIGITS)

    async def says(words: str, inside: int = 0) -> str:
        found = await client.text_document_hover_async(lsp.HoverParams(file.id, file.at(words, inside)))
        assert found is not None and isinstance(found.contents, lsp.MarkupContent)
        return found.contents.value

    assert "features: [b H]" in await says("features, rate)")
    assert "[Y*X H]" in await says("m.into", 2)
    assert "controller" in await says("accuracy(m: Reader")
    assert "device" in await says("step(mut m")
    assert "dim C = 10" in await says("over=C", 5)
    assert "softmax" in await says("cross_entropy(")
    assert "param into" in await says("Reader(seed=0)")
    assert "7,200 parameters" in await says("Reader(seed=0)")


@pytest.mark.asyncio(loop_scope="module")
async def test_definition_references_and_rename(client: LanguageClient) -> None:
    file = File(client, DIGITS)
    place = file.at("scores(m, batch.picture)")
    found = await client.text_document_definition_async(lsp.DefinitionParams(file.id, place))
    assert isinstance(found, lsp.Location) and found.range.start == file.at("scores(m: Reader")
    context = lsp.ReferenceContext(include_declaration=True)
    every = await client.text_document_references_async(lsp.ReferenceParams(context, file.id, place))
    assert every is not None and len(every) == 3
    edit = await client.text_document_rename_async(lsp.RenameParams(file.id, file.at("into:"), "first"))
    assert edit is not None and edit.changes is not None
    assert len(edit.changes[file.uri]) == 2
    prepared = await client.text_document_prepare_rename_async(lsp.PrepareRenameParams(file.id, file.at("relu")))
    assert prepared is None


@pytest.mark.asyncio(loop_scope="module")
async def test_completion(client: LanguageClient) -> None:
    text = DIGITS.replace("    return l\n", "    m.\n    return l\n")
    file = File(client, text)

    async def labels(place: lsp.Position) -> set[str]:
        found = await client.text_document_completion_async(lsp.CompletionParams(file.id, place))
        assert isinstance(found, lsp.CompletionList)
        return {item.label for item in found.items}

    assert await labels(file.at("    m.\n", 6)) == {"into", "shift", "out"}
    assert {"scores", "relu", "m", "batch"} <= await labels(file.at("cross_entropy(sc", 14))
    assert {"b", "C", "Y"} <= await labels(file.at("over=C", 5))
    assert {"fn", "model", "devices"} <= await labels(file.at("fn main", 0))
    assert {"Reader", "Index", "AdamW"} <= await labels(file.at("opt: AdamW", 5))


@pytest.mark.asyncio(loop_scope="module")
async def test_signature_help(client: LanguageClient) -> None:
    file = File(client, DIGITS)
    place = file.at("scores(m, batch.picture, rate", 9)
    found = await client.text_document_signature_help_async(lsp.SignatureHelpParams(file.id, place))
    assert found is not None and found.signatures[0].label.startswith("fn scores(m: Reader")
    assert found.active_parameter == 1
    place = file.at("picture, rate=0.1", 15)
    found = await client.text_document_signature_help_async(lsp.SignatureHelpParams(file.id, place))
    assert found is not None and found.active_parameter == 2


@pytest.mark.asyncio(loop_scope="module")
async def test_the_outline_folds_hints_and_colours(client: LanguageClient) -> None:
    file = File(client, DIGITS)
    symbols = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(file.id))
    assert symbols is not None
    names = [symbol.name for symbol in symbols]
    assert names[:4] == ["Y", "X", "H", "C"] and names[-1] == "main"
    folds = await client.text_document_folding_range_async(lsp.FoldingRangeParams(file.id))
    assert folds and any(fold.start_line == file.at("fn main").line for fold in folds)
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(999, 0))
    hints = await client.text_document_inlay_hint_async(lsp.InlayHintParams(file.id, whole))
    assert hints is not None and ": [b H] NonNeg" in [hint.label for hint in hints]
    colours = await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(file.id))
    assert colours is not None and len(colours.data) > 500 and len(colours.data) % 5 == 0
    place = file.at("features, rate")
    grown = await client.text_document_selection_range_async(lsp.SelectionRangeParams(file.id, [place]))
    assert grown is not None and grown[0].parent is not None


@pytest.mark.asyncio(loop_scope="module")
async def test_formatting(client: LanguageClient) -> None:
    file = File(client, "dim   D=4\n")
    options = lsp.FormattingOptions(tab_size=4, insert_spaces=True)
    edits = await client.text_document_formatting_async(lsp.DocumentFormattingParams(file.id, options))
    assert edits is not None and [edit.new_text for edit in edits] == ["dim D = 4\n"]
    file.write("dim (\n")
    assert await client.text_document_formatting_async(lsp.DocumentFormattingParams(file.id, options)) is None


@pytest.mark.asyncio(loop_scope="module")
async def test_crlf_and_wide_characters(client: LanguageClient) -> None:
    plain = DIGITS.replace("rows of", "r😀ws of").replace("total = 0\n", 'total = 0  # 😀\n    print("😀", nope)\n')
    one, other = File(client, plain), File(client, plain.replace("\n", "\r\n"))
    first, second = await diagnostics(one), await diagnostics(other)
    assert first and [each.range for each in first] == [each.range for each in second]
    assert [each.message for each in first] == [each.message for each in second]
    assert first[0].range.start == one.at("nope")
    place = one.at("nope", 1)
    for file in (one, other):
        assert await client.text_document_completion_async(lsp.CompletionParams(file.id, place)) is not None


@pytest.mark.asyncio(loop_scope="module")
async def test_torch_is_never_loaded(client: LanguageClient) -> None:
    code = "import sys, shapescript.editor.server; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT)
    assert await process.wait() == 0


SMALL = """\
devices cpu[0 1]
    split H

dim H = 2
dim D = 2 * H

import python digits

model M[I]:
    param w: [I 2*D] = normal(std=0.5)

data E:
    x: [D]

extern fn f(x: [b D]) -> [b D] = "m.f"

fn g(mut m: M[D], e: [b] E, k: int = 3) -> ([b D], []):
    y = e.x |> f |> relu  # é😀
    for i in 0..k:
        if i == 1: y = -y[b=..]
        else:
            z = rearrange(y: b (H a) -> b (a H), a=2)
    return y, sum(e.x @ m.w, over=[b 2*D]) as f32
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_every_prefix_of_a_program(client: LanguageClient) -> None:
    file = File(client, "")
    for length in range(len(SMALL) + 1):
        file.write(SMALL[:length])
        end = file.at(SMALL[:length], length) if length else lsp.Position(0, 0)
        answers = (
            client.text_document_completion_async(lsp.CompletionParams(file.id, end)),
            client.text_document_hover_async(lsp.HoverParams(file.id, end)),
            client.text_document_signature_help_async(lsp.SignatureHelpParams(file.id, end)),
            client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(file.id)),
            client.text_document_document_symbol_async(lsp.DocumentSymbolParams(file.id)),
            client.text_document_folding_range_async(lsp.FoldingRangeParams(file.id)),
            diagnostics(file),
        )
        await asyncio.wait_for(asyncio.gather(*answers), timeout=20)
    assert await diagnostics(file) == []
    assert not client.error and not client.messages


@pytest.mark.asyncio(loop_scope="module")
async def test_random_edits_leave_nothing_stale(client: LanguageClient) -> None:
    random_of = random.Random(1)
    file = File(client, SMALL.replace("\n", "\r\n"))
    for number in range(200):
        lines = re.split(r"\r\n|\n|\r", file.text)
        changes: list[lsp.TextDocumentContentChangeEvent] = []
        line = random_of.randrange(len(lines))
        columns = len(lines[line].encode("utf-16-le")) // 2
        column = random_of.randrange(columns + 1)
        column -= lines[line].encode("utf-16-le")[: 2 * column].decode("utf-16-le", "ignore") != (
            lines[line].encode("utf-16-le")[: 2 * column].decode("utf-16-le", "replace")
        )
        new = random_of.choice(["", "x", "😀", "\r\n", "\n", "(", "]", "fn h():\n    pass\n", "b ", '"', "#", "D"])
        start = lsp.Position(line, column)
        end = lsp.Position(line, columns) if number % 5 == 0 else start
        changes.append(lsp.TextDocumentContentChangePartial(range=lsp.Range(start, end), text=new))
        file.version += 1
        document = lsp.VersionedTextDocumentIdentifier(file.version, file.uri)
        client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, changes))
        units = lines[line].encode("utf-16-le")
        tail = units[2 * columns :] if number % 5 == 0 else units[2 * column :]
        whole = re.split(r"(\r\n|\n|\r)", file.text)
        whole[2 * line] = units[: 2 * column].decode("utf-16-le") + new + tail.decode("utf-16-le")
        file.text = "".join(whole)
        if number % 10 == 0:
            again = File(client, file.text)
            assert [(each.range, each.code, each.message) for each in await diagnostics(file)] == [
                (each.range, each.code, each.message) for each in await diagnostics(again)
            ]
            again.close()
    assert not client.error and not client.messages


@pytest.mark.asyncio(loop_scope="module")
async def test_an_imported_file_changes(client: LanguageClient, tmp_path: Path) -> None:
    nets = tmp_path / "nets.ss"
    nets.write_text("dim D = 4\n\nfn twice(x: [b D]) -> [b D]:\n    return x + x\n")
    text = "devices cpu\n\nimport nets\n\nfn f(x: [b nets.D]) -> [b nets.D]:\n    return nets.twice(x)\n"
    uri = (tmp_path / "main.ss").as_uri()
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "shapescript", 1, text)))
    place = lsp.HoverParams(lsp.TextDocumentIdentifier(uri), lsp.Position(5, 18))
    found = await client.text_document_hover_async(place)
    assert found is not None and "twice(x: [b D])" in content(found)
    target = await client.text_document_definition_async(lsp.DefinitionParams(place.text_document, place.position))
    assert isinstance(target, lsp.Location) and target.uri == nets.as_uri()
    nets.write_text("dim D = 4\n\nfn twice(y: [b D]) -> [b D]:\n    return y + y\n")
    found = await client.text_document_hover_async(place)
    assert found is not None and "twice(y: [b D])" in content(found)
    nets.unlink()
    await client.text_document_hover_async(place)
    params = lsp.DocumentDiagnosticParams(lsp.TextDocumentIdentifier(uri))
    report = await client.text_document_diagnostic_async(params)
    assert isinstance(report, lsp.RelatedFullDocumentDiagnosticReport)
    assert "E0902" in [each.code for each in report.items]


CHAPTER = """\
devices cuda[0 1 2]

dim D  = 784
dim Hd = 256
dim C  = 10

model Mlp:
    param w1: [D Hd] = normal(std=0.02)
    param w2: [Hd C] = normal(std=0.02)

data Digit:
    img:   [D]
    label: [] Index[C]

fn loss(m: Mlp, batch: [b] Digit) -> [] NonNeg:
    h = batch.img @ m.w1 |> gelu
    return cross_entropy(h @ m.w2, batch.label, over=C)

fn step(mut m: Mlp, mut opt: AdamW[Mlp], batch: [b] Digit) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn train(mut m: Mlp, data: Dataset[Digit], epochs: int):
    opt = adamw(m, lr=3e-4)
    for epoch in 0..epochs:
        for batch in data |> shuffle(seed=epoch) |> batches(64):
            print("loss", step(mut m, mut opt, batch))
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_the_bytes_of_the_chapters_example(client: LanguageClient) -> None:
    file = File(client, CHAPTER)
    said = ""
    for _ in range(300):
        found = await client.text_document_hover_async(lsp.HoverParams(file.id, file.at("value_and_grad", 2)))
        assert found is not None
        said = content(found)
        if "bytes per step" in said:
            break
        await asyncio.sleep(0.2)
    assert "sends 813,056 bytes per step" in said and "200,704 f32" in said
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(999, 0))
    hints = await client.text_document_inlay_hint_async(lsp.InlayHintParams(file.id, whole))
    assert hints is not None
    labels = [hint.label for hint in hints]
    assert "  813,056 B per step" in labels and ": [b Hd] · b split" in labels
    file.write(CHAPTER.replace("epochs: int", "epochs: int = 3"))
    found = await client.text_document_hover_async(lsp.HoverParams(file.id, file.at("value_and_grad", 2)))
    assert found is not None and "bytes per step" not in content(found)
    file.close()
