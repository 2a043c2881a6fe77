"""A program's way through the stages, and what the package gives to Python.

Takes a path and what takes the place of the file's own `devices` and dims; gives the result of any stage, made when
first asked for and kept: `source`, `parsed`, `typed`, `placed`, `diagnostics`. `open_session` gives the same session
again as long as the file is the same. Importing this, or checking a program, doesn't load torch: what runs programs
is imported when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.diagnostics.suggest import nearest
from shapescript.placement.place import Placed, place
from shapescript.source import Source, SourceError, read_source
from shapescript.syntax import tree
from shapescript.syntax.parse import Parsed, parse, parse_devices
from shapescript.types.checker import check_program
from shapescript.types.typed import TypedProgram

if TYPE_CHECKING:
    from shapescript.controller.errors import CheckError

PUBLIC: Mapping[str, str] = {
    "ArgumentError": "shapescript.controller.errors",
    "CheckpointError": "shapescript.controller.errors",
    "RunError": "shapescript.controller.errors",
    "load": "shapescript.python.module",
    "adam": "shapescript.python.training",
    "adamw": "shapescript.python.training",
    "export": "shapescript.python.torch_modules",
    "lion": "shapescript.python.training",
    "load_checkpoint": "shapescript.python.training",
    "save": "shapescript.python.training",
    "save_checkpoint": "shapescript.python.training",
    "sgd": "shapescript.python.training",
    "CheckError": "shapescript.controller.errors",
    "DataError": "shapescript.controller.errors",
    "DeviceError": "shapescript.controller.errors",
    "Error": "shapescript.controller.errors",
    "ShapeError": "shapescript.controller.errors",
    "WorkerError": "shapescript.controller.errors",
    "TensorDataset": "shapescript.controller.datasets",
    "open_data": "shapescript.controller.data_files",
    "Windows": "shapescript.controller.datasets",
}
"""What Python finds here by name, and the module that has it."""


LIBRARY = Path(__file__).with_name("library")
"""Where `import nn` finds what no file beside the program has."""


class OverrideError(Exception):
    """What was given in the place of the program's own `devices` or dims can't be; a line for the user."""

    def __init__(self, message: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics


@dataclass
class Session:
    """One program: the file at `path`, called `name` in messages; `devices` and `dims` go before the file's own."""

    path: Path
    name: str
    devices: str | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0

    @cached_property
    def source(self) -> Source:
        """The text; raises `SourceError` if it can't be read."""
        return read_source(self.path, self.name)

    @cached_property
    def parsed(self) -> Parsed:
        """The tree."""
        return parse(self.source)

    @cached_property
    def typed(self) -> TypedProgram:
        """The checked program; raises `OverrideError` if `devices` or `dims` don't fit it."""
        declared = [item.name for item in self.parsed.items if isinstance(item, tree.Dim)]
        for name in self.dims:
            if name not in declared:
                close = nearest(name, declared)
                known = f"; its dims are {', '.join(declared)}" if declared else ""
                hint = f"; did you mean `{close}`?" if close else known
                raise OverrideError(f"`{self.name}` has no dim `{name}`{hint}")
        return check_program(self.source, self.parsed, self.load_module, self.dims, self.device_spec)

    @property
    def device_spec(self) -> tree.DeviceSpec | None:
        """The devices given from outside."""
        if self.devices is None:
            return None
        spec, problems = parse_devices(self.devices)
        if spec is None or problems:
            message = problems[0].message if problems else f"`{self.devices}` doesn't say which devices to use"
            raise OverrideError(message, tuple(problems))
        line = Source("--devices", f"devices {self.devices}\n")  # it is held to what a line of a program is
        wrong = check_program(line, parse(line), lambda module: None).errors
        if wrong:
            raise OverrideError("; ".join((f"`--devices {self.devices}`: {wrong[0].message}", *wrong[0].helps)))
        return spec

    @cached_property
    def placed(self) -> Placed:
        """Where each function runs."""
        return place(self.typed)

    @cached_property
    def diagnostics(self) -> list[Diagnostic]:
        """All that is wrong; where a function runs is worked out only for a program whose types are right."""
        found = list(self.typed.diagnostics)
        if not self.typed.errors:
            found += self.placed.diagnostics
        return sorted(found, key=lambda diagnostic: diagnostic.sort_key)

    @property
    def errors(self) -> list[Diagnostic]:
        """Those that keep it from running."""
        return [diagnostic for diagnostic in self.diagnostics if diagnostic.severity == "error"]

    def load_module(self, module: str) -> tuple[Source, Parsed] | None:
        """The text and the tree of the file that `import module` means; None if there is none.

        It stands beside this one, or in the library that the package has.
        """
        relative = Path(*module.split(".")).with_suffix(".ss")
        beside = self.path.parent / relative, os.path.join(os.path.dirname(self.name), relative)
        for path, name in (beside, (LIBRARY / relative, f"<library>/{relative.as_posix()}")):
            try:
                source = read_source(path, name)
            except SourceError:
                continue
            return source, parse(source)
        return None

    def require(self) -> None:
        """Raises `CheckError`, whose text is the checker's words, if the program has errors."""
        if self.errors:
            raise check_error(self.diagnostics)


def check_error(diagnostics: list[Diagnostic]) -> CheckError:
    """The error of a program that doesn't check."""
    from shapescript.controller.errors import CheckError
    from shapescript.diagnostics.render import render_all

    return CheckError("\n" + render_all(diagnostics))


_opened: dict[tuple[object, ...], Session] = {}


def open_session(
    path: str | Path, devices: str | None = None, dims: Mapping[str, int] | None = None, seed: int = 0
) -> Session:
    """The session of a file: the one that was made before, if neither the file nor what goes before it changed.

    Raises:
        SourceError: the file can't be read.
    """
    place = Path(path)
    given = dict(dims or {})
    session = Session(place, str(path), devices, given, seed)
    _ = session.source  # raises where the file can't be read
    key = (place.resolve(), str(path), devices, tuple(sorted(given.items())), seed)
    known = _opened.get(key)
    if known is not None and known.source.text == session.source.text and not known.typed.imports:
        return known
    _opened[key] = session
    return session


def check(path: str | Path, devices: str | None = None, dims: Mapping[str, int] | None = None) -> list[Diagnostic]:
    """What the checker says about a file, in the order of the text."""
    return open_session(path, devices, dims).diagnostics


def __getattr__(name: str) -> object:
    if name in PUBLIC:
        return getattr(import_module(PUBLIC[name]), name)
    raise AttributeError(f"module `shapescript.session` has no attribute `{name}`")
