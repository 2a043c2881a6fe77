"""What a program imports, followed from file to file without running anything.

Takes the program and its folder; gives `Imported`: the `.ss` files that it reaches (in Python by `import net`, which
finds net.ss, and by `shapescript.load("net.ss")`), the packages to install where it runs, in the versions that are
installed here, and what can't be there. An import inside a function or a `try` may fail and is left to the run, and
so is a name that is made while the program runs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata, util
from pathlib import Path

from shapescript.source import SourceError, read_source
from shapescript.syntax import tree
from shapescript.syntax.parse import parse

ALREADY_THERE = ("shapescript", "torch")
"""Installed there in any case, in the version that is here."""


@dataclass(frozen=True)
class Loaded:
    """A `.ss` file that Python loads, with what is written there in the place of its own lines, as far as it is known.

    `complete` says whether all of that is known: `devices=choice()` isn't.
    """

    path: Path
    place: str
    devices: str | None = None
    dims: tuple[tuple[str, int], ...] = ()
    complete: bool = True


@dataclass(frozen=True)
class Wanted:
    """A module named by an import, and the place; `certain` if the program can't go on without it."""

    module: str
    place: str
    certain: bool


@dataclass
class Imported:
    """What was found."""

    loaded: list[Loaded] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def follow_imports(program: Path, name: str) -> Imported:
    """All that a program imports; `name` is what the user called it."""
    follower = Follower(program.parent, name[: len(name) - len(program.name)])
    follower.file(program)
    return follower.found


class Follower:
    """The files seen so far; messages name a file by `prefix` and its place in the folder."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder = folder
        self.prefix = prefix
        self.found = Imported()
        self.seen: set[Path] = set()
        self.modules: set[str] = set()

    def name(self, path: Path) -> str:
        """A file as the user would name it."""
        return self.prefix + str(path.relative_to(self.folder))

    def file(self, path: Path) -> None:
        """Follows the imports of one file, once."""
        if path in self.seen:
            return
        self.seen.add(path)
        for wanted in self.of_program(path) if path.suffix == ".ss" else self.of_python(path):
            self.module(wanted)

    def of_program(self, path: Path) -> Iterator[Wanted]:
        """The imports of a `.ss`; its faults are the checker's to report."""
        try:
            source = read_source(path, self.name(path))
        except SourceError:
            return
        for item in parse(source).items:
            place = source.span(item.start, item.end).place
            if isinstance(item, tree.Import) and item.python:
                yield Wanted(item.module, place, True)
            elif isinstance(item, tree.Import):
                inside = path.parent.joinpath(*item.module.split(".")).with_suffix(".ss")
                if inside.is_file():
                    self.file(inside)
            elif isinstance(item, tree.Extern):
                yield Wanted(item.target.value.rpartition(".")[0], place, True)

    def of_python(self, path: Path) -> Iterator[Wanted]:
        """The imports of a `.py`, and the programs that it loads by a name written out."""
        try:
            parsed = ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            self.found.problems.append(f"{self.name(path)}:{line}: {getattr(error, 'msg', error)}")
            return
        for node, certain in statements(parsed.body, True):
            place = f"{self.name(path)}:{getattr(node, 'lineno', 1)}"
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Wanted(alias.name, place, certain)
            elif isinstance(node, ast.ImportFrom):
                module = self.absolute(path, node)
                if module:
                    yield Wanted(module, place, certain)
                for alias in node.names:  # it may be a module of a package, which only a folder here can tell
                    inside = f"{module}.{alias.name}" if module else alias.name
                    if self.inside(inside) is not None:
                        yield Wanted(inside, place, certain)
            elif isinstance(node, ast.Call) and (loaded := loaded_program(node, self.folder, place)) is not None:
                self.found.loaded.append(loaded)
                self.file(loaded.path)

    def absolute(self, path: Path, node: ast.ImportFrom) -> str:
        """The whole name of what `from x import` or `from .x import` names; empty where that lies outside."""
        if not node.level:
            return node.module or ""
        package = list(path.parent.relative_to(self.folder).parts)
        kept = package[: len(package) - (node.level - 1)]
        return ".".join([*kept, *(node.module or "").split(".")]).strip(".")

    def inside(self, module: str) -> Path | None:
        """The file, or the folder of a package without one, that a module's name means in the program's folder."""
        base = self.folder.joinpath(*module.split("."))
        for path in (base / "__init__.py", base.with_suffix(".py"), base.with_suffix(".ss")):
            if path.is_file():
                return path
        return base if base.is_dir() else None

    def module(self, wanted: Wanted) -> None:
        """Follows a module into the folder, or finds the package that has it."""
        parts = wanted.module.split(".")
        if self.inside(parts[0]) is not None:
            for end in range(1, len(parts) + 1):
                path = self.inside(".".join(parts[:end]))
                if path is None or path.is_dir():
                    continue
                if path.suffix == ".ss" and path not in self.seen:
                    self.found.loaded.append(Loaded(path, wanted.place))
                self.file(path)
            return
        top = parts[0]
        if not top or top in self.modules or top in sys.stdlib_module_names or top in ALREADY_THERE:
            return
        self.modules.add(top)
        self.outside(top, wanted)

    @cached_property
    def packages(self) -> dict[str, list[str]]:
        """Which installed packages have a module."""
        return dict(metadata.packages_distributions())

    def outside(self, top: str, wanted: Wanted) -> None:
        """A module that isn't in the folder: its package, or why it can't be there."""
        for package in dict.fromkeys(self.packages.get(top, ())):
            requirement, problem = pinned(package)
            if problem is None:
                self.found.packages[package] = requirement
            elif wanted.certain:
                self.found.problems.append(f"{wanted.place}: `{top}` {problem}")
        if top in self.packages or not wanted.certain:
            return
        place = found_here(top)
        if place is None:
            self.found.problems.append(
                f"{wanted.place}: there is no module `{top}` in the program's folder, and none is installed here; "
                "install it here too, so that the same version is installed there, or name its package in "
                "requirements.txt beside the program"
            )
        elif place:
            self.found.problems.append(
                f"{wanted.place}: `{top}` is {place}, outside the program's folder, which alone is uploaded; "
                "move it into the folder"
            )


def statements(body: Sequence[ast.stmt], certain: bool) -> Iterator[tuple[ast.AST, bool]]:
    """The imports and calls in statements, each with whether it is certain to run when the file is imported."""
    for statement in body:
        blocks = [
            (block, certain and isinstance(statement, (ast.With, ast.ClassDef)))
            for name in ("body", "orelse", "finalbody", "handlers", "cases")
            if isinstance(block := getattr(statement, name, None), list)
        ]
        if not blocks:
            yield statement, certain
        for node in expressions(statement):
            yield node, certain
        for block, sure in blocks:
            for part in block:
                if isinstance(part, ast.stmt):
                    yield from statements([part], sure)
                elif isinstance(part, (ast.ExceptHandler, ast.match_case)):
                    yield from statements(part.body, False)


def expressions(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls in a statement that stand in no statement below it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        inside = ast.iter_child_nodes(node)
        waiting += [child for child in inside if isinstance(child, ast.expr | ast.keyword | ast.withitem)]


def loaded_program(call: ast.Call, folder: Path, place: str) -> Loaded | None:
    """What `shapescript.load("net.ss", devices=..., dims=...)` loads, if its name is written out.

    It is the folder that a program runs in there, so a name is taken from it.
    """
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    first = call.args[0] if call.args else None
    if named != "load" or not isinstance(first, ast.Constant) or not str(first.value).endswith(".ss"):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    devices, dims, complete = None, (), None not in given
    try:
        if "devices" in given:
            devices = ast.literal_eval(given["devices"])
        if "dims" in given:
            dims = tuple(ast.literal_eval(given["dims"]).items())
    except (ValueError, AttributeError):
        complete = False
    return Loaded(folder / str(first.value), place, devices, dims, complete)


def pinned(package: str) -> tuple[str, str | None]:
    """What pip is to install for the same package, or why there is nothing to be said for it."""
    distribution = metadata.distribution(package)
    origin = distribution.read_text("direct_url.json") or ""
    if '"file:' in origin:
        return (
            "",
            "was installed from files here, which pip can't find there; move its source into the program's folder",
        )
    return f"{package}=={distribution.version.partition('+')[0]}", None


def found_here(top: str) -> str | None:
    """Where Python finds a module that belongs to no package: empty if it is built in; None if it finds none."""
    try:
        spec = util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.origin in ("built-in", "frozen"):
        return ""
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "")
