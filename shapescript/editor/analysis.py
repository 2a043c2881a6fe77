"""One open file, kept checked through its edits.

Takes the texts that the file has one after another; gives the tree, the checked program, where its functions run and
all diagnostics: the same as those of `session.py` for the text as it stands. What an edit doesn't touch isn't done
again: a change of a function's body costs a parse of that function and a check of that body; a change of anything that
others depend on costs a check of the file. Imported files are read again where they changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.diagnostics.follow_ons import without_follow_ons
from shapescript.editor.text import Buffer, Positions
from shapescript.editor.units import Unit, move_nodes, moved, parsed_unit, spans_of, split
from shapescript.placement.place import Placed, place
from shapescript.source import Source, SourceError, read_source
from shapescript.syntax import tree
from shapescript.syntax.parse import Parsed, parse
from shapescript.types.checker import Checked, check_file
from shapescript.types.typed import TypedProgram

if TYPE_CHECKING:
    from shapescript.editor.lines import LineFacts
    from shapescript.editor.symbols import Kept

ReadText = Callable[[Path], str | None]


def text_on_disk(path: Path) -> str | None:
    """The text of a file, or None where it can't be read."""
    try:
        return read_source(path).text
    except SourceError:
        return None


class Analysis:
    """A file at `path`; `read` gives the text of the files that it imports, as they are now."""

    def __init__(self, path: Path, text: str, read: ReadText = text_on_disk, encoding: str = "utf-16") -> None:
        self.path = path
        self.read = read
        self.encoding = encoding
        self.source = Buffer(str(path), "")
        self.units: list[Unit] = []
        self.checked: Checked | None = None
        self.imported: dict[str, tuple[str | None, tuple[Source, Parsed] | None]] = {}
        self.placed_now: Placed | None = None
        self.placed_before: list[Diagnostic] = []
        self.facts: Mapping[int, LineFacts] = {}
        self.names: dict[int, Kept] = {}
        self.update(text)

    # --- what it gives

    @property
    def text(self) -> str:
        """The text as it stands."""
        return self.source.text

    @cached_property
    def positions(self) -> Positions:
        """Lines and columns of the text."""
        return Positions(self.text, self.encoding)

    @property
    def items(self) -> list[tree.Declaration]:
        """The declarations in the order of the text."""
        return [item for unit in self.units for item in unit.items]

    @property
    def typed(self) -> TypedProgram:
        """The checked program."""
        if self.checked is None:
            self.checked = check_file(self.source, Parsed(self.items, []), self.load_module)
        return self.checked.program

    @property
    def placed(self) -> Placed | None:
        """Where its functions run; None while it has errors."""
        if self.placed_now is None and not self.has_errors():
            self.placed_now = place(self.typed)
        return self.placed_now

    def has_errors(self) -> bool:
        """Is something wrong with its text or its types?"""
        return any(each.severity == "error" for each in (*self.syntax_diagnostics(), *self.typed.diagnostics))

    def syntax_diagnostics(self) -> list[Diagnostic]:
        """What is wrong with its text."""
        return [diagnostic for unit in self.units for diagnostic in unit.diagnostics]

    def diagnostics(self, quick: bool = False) -> list[Diagnostic]:
        """All that is wrong; `quick`: about where functions run, what was known before this edit."""
        found = list({*self.syntax_diagnostics(), *self.typed.diagnostics})
        if quick and self.placed_now is None and not self.has_errors():
            found += self.placed_before
        else:
            found += self.placed.diagnostics if self.placed is not None else []
        return sorted(without_follow_ons(found), key=lambda diagnostic: diagnostic.sort_key)

    # --- edits

    def update(self, text: str) -> None:
        """Takes the next text."""
        before = self.text
        if text == before and self.units:
            return
        parts = split(text)
        first = 0
        while first < min(len(parts), len(self.units)) and parts[first] == self.units[first].text:
            first += 1
        last = 0
        most = min(len(parts), len(self.units)) - first
        while last < most and parts[-1 - last] == self.units[-1 - last].text:
            last += 1
        old = self.units[first : len(self.units) - last]
        after = self.units[len(self.units) - last :]
        self.source.become(text)
        self.facts = {}
        self.__dict__.pop("positions", None)
        at = sum(unit_length for unit_length in map(len, parts[:first]))
        new: list[Unit] = []
        for part in parts[first : len(parts) - last]:
            new.append(parsed_unit(self.source, part, at))
            at += len(part)
        by = len(text) - len(before)
        start = self.units[first].start if first < len(self.units) else len(before)
        for unit in after if by else []:
            unit.move(by)
        self.units[first : len(self.units) - last] = new
        self.recheck(before, text, start, old, new)

    def recheck(self, before: str, text: str, start: int, old: Sequence[Unit], new: Sequence[Unit]) -> None:
        """Brings what is known about the program up to date after `old` units became `new` ones."""
        checked = self.checked
        self.placed_now, placed = None, self.placed_now
        known = placed.diagnostics if placed is not None else self.placed_before
        self.placed_before = []
        if checked is None:
            return
        self.checked = None
        if checked.program.source is not self.source or self.imports_changed():
            return
        earlier = [item for unit in old for item in unit.items]
        pairs = matched(earlier, [item for unit in new for item in unit.items])
        offset = OffsetMap(before, text, start)
        changed = {function.name for function, _ in pairs or ()}
        kept = [checked.of_declarations, *(of for name, of in checked.of_bodies.items() if name not in changed)]
        if pairs is None or any(offset.loses(each, self.source) for each in sum(kept, [])):
            return
        checked.of_declarations = [moved(each, offset) for each in checked.of_declarations]
        for name, diagnostics in checked.of_bodies.items():
            checked.of_bodies[name] = [moved(each, offset) for each in diagnostics]
        graft(earlier, new)
        for item in earlier:
            self.names.pop(id(item), None)
        for function, body in pairs:
            info = checked.program.functions.get(function.name)
            if info is None or info.node is not function or not checked.check_body_again(info, body):
                return
        checked.finish()
        self.checked = checked
        self.placed_before = [moved(each, offset) for each in known if not offset.loses(each, self.source)]

    # --- imports

    def load_module(self, module: str) -> tuple[Source, Parsed] | None:
        """The text and the tree of the file that `import module` means, as they are now."""
        text = self.read(self.path_of(module))
        known = self.imported.get(module)
        if known is None or known[0] != text:
            name = os.path.join(os.path.dirname(self.source.name), *module.split(".")) + ".ss"
            loaded = None if text is None else parsed_source(Source(name, text))
            known = self.imported[module] = (text, loaded)
        return known[1]

    def path_of(self, module: str) -> Path:
        """The file that `import module` means."""
        return self.path.parent / Path(*module.split(".")).with_suffix(".ss")

    def imports_changed(self) -> bool:
        """Is an imported file another one than when this one was checked?"""
        return any(self.read(self.path_of(module)) != known[0] for module, known in self.imported.items())

    def refresh(self) -> bool:
        """Checks anew if an imported file changed; whether it did."""
        if self.checked is None or not self.imports_changed():
            return False
        self.checked = self.placed_now = None
        self.placed_before = []
        return True


def parsed_source(source: Source) -> tuple[Source, Parsed]:
    """A source with its tree."""
    return source, parse(source)


class OffsetMap:
    """From the offsets of a text to those of the next one, which differs in one stretch."""

    def __init__(self, before: str, after: str, start: int) -> None:
        shorter = min(len(before), len(after))
        first = start
        while first < shorter and before[first] == after[first]:
            first += 1
        last = 0
        while last < shorter - first and before[-1 - last] == after[-1 - last]:
            last += 1
        self.first, self.last = first, len(before) - last
        self.by = len(after) - len(before)

    def __call__(self, offset: int) -> int:
        return offset if offset <= self.first else max(self.first, offset + self.by)

    def loses(self, diagnostic: Diagnostic, source: Source) -> bool:
        """Does the diagnostic point into the stretch that changed?"""
        return any(
            span.source is source and span.start <= self.last and span.end >= self.first
            for span in spans_of(diagnostic)
        )


Pairs = list[tuple[tree.Function, list[tree.Statement]]]


def matched(old: Sequence[tree.Declaration], new: Sequence[tree.Declaration]) -> Pairs | None:
    """The functions of which only the body changed, each with the body it had; None where more changed."""
    if len(old) != len(new):
        return None
    pairs: Pairs = []
    for one, two in zip(old, new, strict=True):
        if same_shape(one, two):
            continue
        if not (isinstance(one, tree.Function) and isinstance(two, tree.Function) and same_head(one, two)):
            return None
        pairs.append((one, one.body))
    return pairs


def same_head(one: tree.Function, two: tree.Function) -> bool:
    """Have two functions the same signature?"""
    if one.name != two.name or (one.result is None) != (two.result is None):
        return False
    if one.result is not None and two.result is not None and not same_shape(one.result, two.result):
        return False
    return len(one.parameters) == len(two.parameters) and all(map(same_shape, one.parameters, two.parameters))


def same_shape(one: tree.Node, two: tree.Node) -> bool:
    """Are two trees the same but for their places?"""
    pairs = [(one, two)]
    while pairs:
        ours, theirs = pairs.pop()
        if type(ours) is not type(theirs) or facts(ours) != facts(theirs):
            return False
        pairs.extend(zip(ours.children(), theirs.children(), strict=True))
    return True


def facts(node: tree.Node) -> tuple[object, ...]:
    """What a node says itself: its names, numbers and signs, and how many nodes each of its fields holds."""
    found: list[object] = []
    for name in type(node).__dataclass_fields__:
        value = getattr(node, name)
        if name in ("start", "end", "name_start"):
            continue
        if isinstance(value, list):
            found.append(len(value))
        elif isinstance(value, tree.Node):
            found.append(True)
        else:
            found.append((type(value), value))
    return tuple(found)


def graft(old: Sequence[tree.Declaration], units: Sequence[Unit]) -> None:
    """Gives the units the old declarations in the place of their own, with the places and the bodies of these.

    What other declarations found out about them, which is kept by the node, stays right.
    """
    rest = iter(old)
    for unit in units:
        for number, two in enumerate(unit.items):
            one = next(rest)
            if isinstance(one, tree.Function) and isinstance(two, tree.Function) and not same_shape(one, two):
                for ours, theirs in zip(one.parameters, two.parameters, strict=True):
                    copy_places(ours, theirs)
                if one.result is not None and two.result is not None:
                    copy_places(one.result, two.result)
                copy_place(one, two)
                one.body = two.body
            else:
                copy_places(one, two)
            unit.items[number] = one
        unit.nodes = [node for item in unit.items for node in item.walk()]


def copy_places(one: tree.Node, two: tree.Node) -> None:
    """Moves a tree to where another one of the same shape is."""
    for ours, theirs in zip(one.walk(), two.walk(), strict=True):
        copy_place(ours, theirs)


def copy_place(one: tree.Node, two: tree.Node) -> None:
    """Moves a node to where another one is."""
    move_nodes([one], two.start - one.start)
    one.end = two.end
    if isinstance(one, tree.Attribute) and isinstance(two, tree.Attribute):
        one.name_start = two.name_start
    elif hasattr(one, "name_start"):
        one.name_start = two.name_start  # type: ignore[attr-defined]
