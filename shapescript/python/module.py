"""A program as a module of Python: its functions, models, data and dims by their names.

`load` checks a `.ss` file, starts it and gives a `LoadedModule`; the import hook of `importer.py` does the same for
`import net`. The module is closed by `close`, by `with`, and when the interpreter ends.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn, SupportsIndex

import torch

from shapescript.controller.errors import CheckError, Error
from shapescript.controller.python_modules import import_python
from shapescript.python.handles import data_class
from shapescript.python.runtime import Runtime
from shapescript.session import OverrideError, Session
from shapescript.source import SourceError
from shapescript.syntax import tree
from shapescript.types.typed import FunctionInfo, ParameterInfo, TypedProgram


class Function:
    """A function of a program; calling it runs it."""

    def __init__(self, runtime: Runtime, info: FunctionInfo) -> None:
        self._runtime = runtime
        self._info = info
        self._untraced: Callable[..., Any] | None = None
        self.__name__ = self.__qualname__ = info.name
        self.__module__ = runtime.name
        self.__doc__ = signature_text(info)
        self.__signature__ = signature_of(info)

    def __call__(self, *arguments: object, **named: object) -> Any:
        if "torch._dynamo" in sys.modules:  # `torch.compile` is not to look into the controller
            self._untraced = self._untraced or torch.compiler.disable(self._runtime.call)  # type: ignore[no-untyped-call]
            return self._untraced(self._info, arguments, named)
        return self._runtime.call(self._info, arguments, named)

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"`{self.__name__}` belongs to the running program `{self._runtime.name}`, so it can't be pickled: "
            "load the program in the other process"
        )


def signature_text(info: FunctionInfo) -> str:
    """The line of a function as the program has it: `fn step(mut m: M) -> []`."""
    text = info.source.text[info.node.start : info.node.end]
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if (character == ":" and depth == 0) or (character == "\n" and depth == 0):
            return " ".join(text[:at].split())
    return " ".join(text.split())


def signature_of(info: FunctionInfo) -> inspect.Signature:
    """The parameters, for `help` and completion."""
    parameters = [
        inspect.Parameter(
            parameter.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=default_of(parameter),
            annotation=("mut " if parameter.mut else "") + str(parameter.type),
        )
        for parameter in info.parameters
    ]
    try:
        return inspect.Signature(parameters, return_annotation=str(info.result))
    except ValueError:  # one without a default after one that has it: the language allows that
        return inspect.Signature([each.replace(default=inspect.Parameter.empty) for each in parameters])


def default_of(parameter: ParameterInfo) -> object:
    """A default as Python shows it: a number, a string or a bool; `...` for one that is worked out at the call."""
    node = parameter.default
    if node is None:
        return inspect.Parameter.empty
    minus = isinstance(node, tree.Unary) and node.op == "-"
    inner = node.operand if isinstance(node, tree.Unary) and minus else node
    if isinstance(inner, tree.Number):
        return -inner.value if minus else inner.value
    return node.value if isinstance(node, (tree.String, tree.Bool)) else ...


class LoadedModule(ModuleType):
    """A program that Python loaded."""

    _runtime: Runtime

    def close(self) -> None:
        """Ends what runs for the program; its functions can't be called any more."""
        self._runtime.close()

    def __enter__(self) -> LoadedModule:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__.get("_declared", ()):
            kind = "dims={...}" if isinstance(self.__dict__[name], int) else "the file"
            where = f"`shapescript.load(path, {kind})`" if kind != "the file" else "the file"
            raise AttributeError(f"`{name}` is what the program declares; {where} gives another", name=name, obj=self)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> NoReturn:
        from shapescript.diagnostics.suggest import nearest

        close = nearest(name, [other for other in vars(self) if not other.startswith("_")])
        hint = f"; did you mean `{close}`?" if close else ""
        raise AttributeError(f"the program `{self.__name__}` has no `{name}`{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        runtime = self.__dict__.get("_runtime")
        if runtime is None:
            return f"<program {self.__name__!r}>"
        closed = ", closed" if runtime.closed else ""
        return f"<program {self.__name__!r} from {runtime.session.name!r} on {runtime.program.devices}{closed}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"`{self.__name__}` is a running program and can't be pickled; load it in the other process")


class Namespace:
    """What another `.ss` file declares that a program imports: `net.nets.Linear`."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<imported program {self.__name__!r}>"


def load(
    path: str | os.PathLike[str],
    devices: str | None = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
) -> LoadedModule:
    """Loads a program; `devices` and `dims` take the place of the file's own lines, `seed` is that of its draws.

    Raises:
        CheckError: the program doesn't check, or what takes its lines' place doesn't fit; the text says why.
        Error: a device isn't there, a dim has no value, or there is no such file.
    """
    where = os.fspath(path)
    module = LoadedModule(Path(where).stem)
    fill(module, where, devices, dims, seed)
    return module


def fill(
    module: LoadedModule,
    path: str,
    devices: str | None = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
) -> None:
    """Puts a program's declarations into a module."""
    try:
        session = Session(Path(path), path, devices, given_dims(dims), seed)
        _ = session.source
        session.require()
    except SourceError as error:
        raise Error(str(error)) from None
    except OverrideError as error:
        raise CheckError(str(error)) from None
    runtime = Runtime(session)
    module.__dict__["_runtime"] = runtime
    module.__file__ = str(Path(path).resolve())
    module.__doc__ = f"The ShapeScript program {path}."
    found = declared(runtime, session.typed)
    for name in module.__dict__.get("_declared", ()):  # of the program before `importlib.reload`
        del module.__dict__[name]
    module.__dict__.update(found, _declared=frozenset(found))


def given_dims(dims: Mapping[str, int] | None) -> dict[str, int]:
    """The dims that were handed over, each a whole number of 1 or more."""
    for name, value in (dims or {}).items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise Error(f"dim `{name}` should be a whole number of 1 or more, and is {value!r}")
    return dict(dims or {})


def declared(runtime: Runtime, program: TypedProgram) -> dict[str, object]:
    """What a file declares, by name, as Python has it."""
    found: dict[str, object] = {}
    sizes = runtime.domain.dims
    folder = runtime.domain.folder
    for info in program.imports.values():
        if info.program is not None:
            space = Namespace(info.name)
            vars(space).update(declared(runtime, info.program))
            found[info.name] = space
    for dim in program.dims.values():
        found[dim.name] = dim.axis.size.evaluate(sizes)
    for constant in program.constants.values():
        found[constant.name] = constant.value
    for model in program.models.values():
        found[model.name] = runtime.model_class(model.node)
    for data in program.datas.values():
        found[data.name] = data_class(runtime, data)
    for name, function in program.functions.items():
        found[name] = Function(runtime, function)
    for name, extern in program.externs.items():
        assert isinstance(extern.node, tree.Extern)
        target = extern.node.target.value
        module, _, attribute = target.rpartition(".")
        span = extern.source.span(extern.node.start, extern.node.end)
        found[name] = getattr(import_python(module, folder, span), attribute)
    return found
