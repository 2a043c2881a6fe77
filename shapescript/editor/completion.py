"""What could be written at an offset, and what the call around it takes.

Works on the text before the offset, as what is being written seldom parses; what the names there are is read from the
checked program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from shapescript.editor.analysis import Analysis
from shapescript.editor.find_names import TYPE_NAMES, item_at, occurrences
from shapescript.editor.hover import comments_above, head_of
from shapescript.editor.symbols import fields_owner
from shapescript.editor.vocabulary import DECLARATIONS, ROWS, STATEMENTS, TYPES, describe
from shapescript.syntax import tree
from shapescript.types.check_expressions import BUILTIN_NAMES
from shapescript.types.kinds import Type
from shapescript.types.operations import MAKERS
from shapescript.types.typed import DataInfo, FunctionInfo, ModelInfo, TypedProgram

DOTTED = re.compile(r"([A-Za-z_]\w*(?:(?:\[[^\[\]\n]*\])?\.[A-Za-z_]\w*)*)(?:\[[^\[\]\n]*\])?\.(\w*)$")
WORD = re.compile(r"\w*$")
SKIPPED = re.compile(r'"(?:[^"\\\n]|\\.)*"?|#[^\n]*')
TYPE_BEFORE = re.compile(r"(?:\b(?:mut\s+|param\s+|state\s+)?[a-z_]\w*\s*:|->|\bas|\])\s*$")
INITIALISERS = ("zeros", "ones", "constant", "normal", "uniform", "xavier", "kaiming", "orthogonal")


@dataclass(frozen=True)
class Offer:
    """Something that could be written: its kind is one of an editor's; `snippet` has places to fill in."""

    label: str
    kind: str
    detail: str = ""
    doc: str = ""
    snippet: str = ""
    order: str = "5"


def offers(analysis: Analysis, offset: int) -> list[Offer]:
    """What could be written at an offset."""
    before = analysis.text[:offset]
    line = before[before.rfind("\n") + 1 :]
    if in_comment_or_string(line):
        return []
    dotted = DOTTED.search(line)
    if dotted is not None and not line[: dotted.start()].endswith("."):
        return list(members(analysis, offset, dotted[1]))
    head = line[: len(line) - len(WORD.search(line)[0])]  # type: ignore[index]
    found: dict[str, Offer] = {}
    for offer in candidates(analysis, offset, head):
        found.setdefault(offer.label, offer)
    return list(found.values())


def in_comment_or_string(line: str) -> bool:
    """Does a line end within a comment or a string?"""
    last = next(reversed(list(SKIPPED.finditer(line))), None)
    if last is None or last.end() != len(line):
        return False
    return last[0].startswith("#") or len(last[0]) == 1 or not last[0].endswith('"')


def candidates(analysis: Analysis, offset: int, head: str) -> Iterator[Offer]:
    """What could follow `head`, the line without the word that is being written."""
    program = analysis.typed
    call = call_at(analysis, offset)
    opener = call.opener if call is not None else ""
    if not head and "\n" not in head and (call is None or not call.opener):
        yield from declarations()
        return
    if head.lstrip() in ("import ", "import python "):
        yield from modules(analysis, head)
        return
    if head.strip() == "devices":
        yield from (Offer(name, "value") for name in ("cpu", "cuda[0]", "cuda[0 1 2]", "mps", "cpu[0 1 2]"))
        return
    if opener == "[" or re.search(r"\b(?:over|keep)\s*=\s*$", head):
        yield from axes(analysis, offset)
        yield from (Offer(name, "enumMember", dim_detail(program, name)) for name in program.dims)
        if opener == "[" and call is not None and call.name in ("", *TYPE_NAMES):
            yield from (Offer(name, "class") for name in (*program.models, *program.datas))
        if opener == "[" and call is not None and call.name and call.name not in MAKERS:
            yield from values(analysis, offset)
        return
    if wants_type(head):
        yield from types(program)
        return
    if call is not None and call.opener == "(":
        yield from argument_names(program, call)
    item = item_at(analysis, offset)
    if isinstance(item, (tree.Model, tree.Data)) and head.startswith((" ", "\t")):
        if not head.strip():
            yield from (Offer(word, "keyword", order="1") for word in ("param", "state"))
            return
        yield from (Offer(name, "function", doc=doc_of(name), order="1") for name in INITIALISERS)
        return
    if head.startswith((" ", "\t")) and not head.strip():
        yield from (Offer(word, "keyword", snippet=text, order="6") for word, text in STATEMENTS.items())
    if not head.rstrip().endswith("|>"):
        yield from values(analysis, offset)
    yield from functions(analysis)


def wants_type(head: str) -> bool:
    """Does a type follow?"""
    if re.search(r"^\s*(?:for|while|if|elif|else)\b.*:\s*$", head):
        return False
    return TYPE_BEFORE.search(head) is not None and not re.search(r"\(\s*\w+\s*,[^()]*:\s*$|\]\s*$", head)


# --- each kind of thing ----------------------------------------------------------------------------------------------


def declarations() -> Iterator[Offer]:
    """The words that stand at the left margin."""
    for word, (snippet, doc) in DECLARATIONS.items():
        yield Offer(word, "keyword", doc, snippet=snippet, order="1")


def modules(analysis: Analysis, head: str) -> Iterator[Offer]:
    """The files beside this one."""
    suffix = ".py" if head.strip().endswith("python") else ".ss"
    for path in sorted(analysis.path.parent.glob(f"*{suffix}")):
        if path != analysis.path and path.stem.isidentifier():
            yield Offer(path.stem, "module")


def axes(analysis: Analysis, offset: int) -> Iterator[Offer]:
    """The axis variables of the function."""
    item = item_at(analysis, offset)
    names = {each.symbol.name for each in occurrences(analysis, item) if each.symbol.kind == "axis"} if item else set()
    for name in sorted(names):
        yield Offer(name, "typeParameter", "an axis", order="1")


def types(program: TypedProgram) -> Iterator[Offer]:
    """The types that there are."""
    yield from (Offer(name, "class", "a model", order="2") for name in program.models)
    yield from (Offer(name, "struct", "a data", order="2") for name in program.datas)
    yield from (Offer(name, "type", doc, order="4") for name, doc in TYPES.items())
    for info in program.imports.values():
        if info.program is not None:
            yield Offer(info.name, "module", order="4")


def values(analysis: Analysis, offset: int) -> Iterator[Offer]:
    """The names that mean a value here."""
    program = analysis.typed
    item = item_at(analysis, offset)
    for name, of in locals_at(analysis, item, offset).items():
        yield Offer(name, "variable", str(of) if of is not None else "", order="1")
    yield from (Offer(name, "constant", str(info.value), order="3") for name, info in program.constants.items())
    yield from (Offer(name, "enumMember", dim_detail(program, name), order="4") for name in program.dims)
    for word in ("true", "false", "not", "mut"):
        yield Offer(word, "keyword", order="8")


def functions(analysis: Analysis) -> Iterator[Offer]:
    """Everything that can be called."""
    program = analysis.typed
    for name, info in (*program.functions.items(), *program.externs.items()):
        doc = " ".join(comments_above(info.source, info.node.start))
        yield Offer(name, "function", head_of(info.source, info.node), doc, f"{name}($0)", "2")
    for name, model in program.models.items():
        snippet = f"{name}[$1](seed=${{2:0}})" if model.dims else f"{name}(seed=${{1:0}})"
        yield Offer(name, "class", "a model", snippet=snippet, order="3")
    for name, data in program.datas.items():
        fields = ", ".join(f"{field}=${{{number}}}" for number, field in enumerate(data.fields, 1))
        yield Offer(name, "struct", "a data", snippet=f"{name}({fields})", order="4")
    for name, imported in program.imports.items():
        yield Offer(name, "module", imported.module, order="4")
    for name in BUILTIN_NAMES:
        known = describe(name)
        if name not in program.functions and known is not None:
            snippet = f"{name}[$0]" if name in MAKERS else f"{name}($0)"
            yield Offer(name, "function", known.signature, known.doc, snippet, "5")
    yield from (Offer(name, "constant", doc=ROWS[name].doc, order="8") for name in ("inf", "nan", "pi"))


def doc_of(name: str) -> str:
    """What a built-in does."""
    known = describe(name)
    return known.doc if known is not None else ""


def dim_detail(program: TypedProgram, name: str) -> str:
    """A dim's size."""
    value = program.dims[name].value
    return f"dim {name} = {value}" if value is not None else f"dim {name}"


def argument_names(program: TypedProgram, call: CallAt) -> Iterator[Offer]:
    """The names of the parameters of the call around the offset."""
    info = program.functions.get(call.name) or program.externs.get(call.name)
    if info is not None:
        for parameter in info.parameters[call.position :]:
            yield Offer(f"{parameter.name}=", "property", str(parameter.type), order="0")
    elif call.name in program.datas:
        for name, field in program.datas[call.name].fields.items():
            yield Offer(f"{name}=", "property", str(field.type), order="0")
    elif call.name in program.models:
        yield Offer("seed=", "property", "int", order="0")
    else:
        known = describe(call.name)
        for name in re.findall(r"(\w+)=", known.signature) if known is not None else ():
            yield Offer(f"{name}=", "property", order="0")


# --- after a dot -----------------------------------------------------------------------------------------------------


def members(analysis: Analysis, offset: int, path: str) -> Iterator[Offer]:
    """What stands in something: the fields of a model or a batch, what another file declares."""
    program = analysis.typed
    root, *rest = re.sub(r"\[[^\]]*\]", "", path).split(".")
    names = locals_at(analysis, item_at(analysis, offset), offset)
    if root not in names and root in program.imports:
        info = program.imports[root]
        if info.program is not None and not rest:
            yield from declared_by(info.program)
        return
    owner = fields_owner(program, names.get(root))
    for name in rest:
        field = owner.fields.get(name) if owner is not None else None
        owner = fields_owner(program, field.type) if field is not None else None
    yield from fields_of(owner)


def fields_of(owner: ModelInfo | DataInfo | None) -> Iterator[Offer]:
    """The fields of a model or a data."""
    for name, field in owner.fields.items() if owner is not None else ():
        yield Offer(name, "property", str(field.type), order="1")


def declared_by(program: TypedProgram) -> Iterator[Offer]:
    """What an imported file declares."""
    for name, info in (*program.functions.items(), *program.externs.items()):
        yield Offer(name, "function", head_of(info.source, info.node), snippet=f"{name}($0)")
    tables: Iterable[tuple[Mapping[str, object], str]] = (
        (program.models, "class"),
        (program.datas, "struct"),
        (program.dims, "enumMember"),
        (program.constants, "constant"),
    )
    for table, kind in tables:
        yield from (Offer(name, kind) for name in table)


def locals_at(analysis: Analysis, item: tree.Declaration | None, offset: int) -> dict[str, Type | None]:
    """The parameters and the locals of the function, with the type that they had last before the offset."""
    found: dict[str, Type | None] = {}
    if item is None:
        return found
    program = analysis.typed
    info = program.functions.get(getattr(item, "name", None) or "")
    for parameter in info.parameters if info is not None else ():
        found[parameter.name] = parameter.type
    for each in occurrences(analysis, item):
        if each.symbol.kind == "local" and each.end < offset:
            of = program.types.get(each.node) if isinstance(each.node, tree.Expr) else None
            if of is not None and not isinstance(of, type(None)) or each.symbol.name not in found:
                found[each.symbol.name] = of
    return found


# --- the call around an offset ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallAt:
    """The innermost open bracket before an offset: what stands before it, and how many commas came since.

    `named` is the name of the argument that is being written, if it has one.
    """

    name: str
    opener: str
    position: int
    named: str = ""


@dataclass(frozen=True)
class Signature:
    """What a call takes: the parameters are parts of `label`; `active` is the one being written."""

    label: str
    parameters: tuple[str, ...]
    active: int
    doc: str = ""


def call_at(analysis: Analysis, offset: int) -> CallAt | None:
    """The bracket that is open at an offset."""
    item = item_at(analysis, offset)
    start = item.start if item is not None else 0
    text = SKIPPED.sub(lambda match: " " * len(match[0]), analysis.text[start:offset])
    depth = 0
    commas = 0
    for at in range(len(text) - 1, -1, -1):
        sign = text[at]
        if sign in ")]":
            depth += 1
        elif sign in "([":
            if depth == 0:
                name = re.search(r"([A-Za-z_][\w.]*)$", text[:at])
                inside = text[at + 1 :]
                named = re.search(r"(?:^|,)\s*(\w+)\s*=[^=,]*$", inside)
                return CallAt(name[1] if name else "", sign, commas, named[1] if named else "")
            depth -= 1
        elif sign == "," and depth == 0:
            commas += 1
        elif sign == "\n" and depth == 0 and text[at + 1 : at + 5] in ("fn g", "    ") and at and text[at - 1] == ":":
            return None
    return None


def signature(analysis: Analysis, offset: int) -> Signature | None:
    """What the call around an offset takes."""
    call = call_at(analysis, offset)
    if call is None or call.opener != "(" or not call.name:
        return None
    program = analysis.typed
    module, _, name = call.name.rpartition(".")
    if module:
        imported = program.imports.get(module)
        if imported is None or imported.program is None:
            return None
        program = imported.program
    info = program.functions.get(name) or program.externs.get(name)
    if info is not None:
        return of_function(info, call)
    if name in program.datas:
        parts = tuple(f"{each}: {field.type}" for each, field in program.datas[name].fields.items())
        return Signature(f"{name}({', '.join(parts)})", parts, active_of(parts, call))
    if name in program.models:
        return Signature(f"{name}(seed: int)", ("seed: int",), 0)
    known = describe(name)
    if known is None:
        return None
    parts = tuple(
        part.strip() for part in re.split(r",(?![^\[(]*[\])])", known.signature.partition("(")[2].rstrip(")"))
    )
    return Signature(known.signature, parts, active_of(parts, call), known.doc)


def of_function(info: FunctionInfo, call: CallAt) -> Signature:
    """A function of the program."""
    parts = tuple(" ".join(info.source.text[each.node.start : each.node.end].split()) for each in info.parameters)
    doc = " ".join(comments_above(info.source, info.node.start))
    return Signature(head_of(info.source, info.node), parts, active_of(parts, call), doc)


def active_of(parts: tuple[str, ...], call: CallAt) -> int:
    """Which parameter is being written."""
    if call.named:
        for number, part in enumerate(parts):
            if re.match(rf"(?:mut )?{call.named}\b", part):
                return number
    return min(call.position, max(len(parts) - 1, 0))


def worth_a_space(analysis: Analysis, offset: int) -> bool:
    """Is a space just written after which something particular follows?"""
    line = analysis.text[analysis.text.rfind("\n", 0, offset) + 1 : offset]
    return bool(re.search(r"(?:\|>|->|\bas|\bimport|\bpython|\bdevices|\bover=|\[[^\]]*|^\s*\w+:|[(,]\s*\w+:) $", line))
