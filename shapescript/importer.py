"""`import net` finds net.ss: what looks for programs where Python looks for modules.

Takes the name of a module; gives the loader of the first `.ss` file of that name on `sys.path`, or in the package that
the name is in. A module of Python of the same name goes before. Nothing heavy is loaded here: a program is checked
and started when it is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class ProgramFinder:
    """Finds programs."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The place of a program of this name, if there is one and no module of Python."""
        name = fullname.rpartition(".")[2]
        for entry in sys.path if path is None else path:
            file = os.path.join(entry or os.getcwd(), name + ".ss")
            if os.path.isfile(file):
                other = PathFinder.find_spec(fullname, path)
                if other is not None and other.origin is not None:
                    return None
                loader: Any = ProgramLoader(file)  # what a loader is, `importlib.abc` says, which is slow to load
                spec = ModuleSpec(fullname, loader, origin=file)
                spec.has_location = True
                return spec
        return None


class ProgramLoader:
    """Loads one program as a module."""

    def __init__(self, path: str) -> None:
        self.path = path

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The empty module."""
        module: ModuleType = import_module("shapescript.python.module").LoadedModule(spec.name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Checks the program and starts it."""
        import_module("shapescript.python.module").fill(module, self.path)


def install() -> None:
    """Puts the finder before the one that finds modules by path, once."""
    if any(isinstance(finder, ProgramFinder) for finder in sys.meta_path):
        return
    places = [at for at, finder in enumerate(sys.meta_path) if finder is PathFinder]
    sys.meta_path.insert(places[0] if places else len(sys.meta_path), ProgramFinder())
