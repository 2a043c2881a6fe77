"""`import python digits`: modules of Python for a program.

Takes the program's folder and a module's name; gives the module, imported once. A module beside the program comes
before one of the same name elsewhere, as with `python program.py`. An error in Python code, whether at import or in a
call, becomes a `ProgramError` at the line of the program, with the line of Python that raised it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType

from shapescript.controller.errors import Error
from shapescript.diagnostics.diagnostic import Diagnostic, Label, ProgramError
from shapescript.source import Span

PYTHON_ERROR = "E2114"
PACKAGE = Path(__file__).resolve().parent.parent


def import_python(module: str, folder: str | Path, span: Span) -> ModuleType:
    """The module that `import python` names; `span` is where the program says so.

    Raises:
        ProgramError: there is none, or it fails while it is imported.
    """
    place = Path(folder).resolve()
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
        invalidate_caches()
    forget_other(module, place)
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise python_error(error, span, f"`import python {module}`") from error
        helps = (f"put `{module.replace('.', '/')}.py` beside the program, or install the package that has it",)
        raise ProgramError(
            Diagnostic(PYTHON_ERROR, f"there is no Python module `{module}`", Label(span), helps=helps)
        ) from error
    except Exception as error:
        raise python_error(error, span, f"`import python {module}`") from error


def forget_other(module: str, folder: Path) -> None:
    """Forgets a module of this name that was imported from elsewhere, where the program has its own beside it."""
    top = module.partition(".")[0]
    own = [folder / f"{top}.py", folder / top / "__init__.py"]
    loaded = getattr(sys.modules.get(top), "__file__", None)
    if loaded is None or Path(loaded).resolve() in own or not any(path.is_file() for path in own):
        return
    for name in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
        del sys.modules[name]
    sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    invalidate_caches()


def attribute(module: ModuleType, name: str, span: Span) -> object:
    """What `digits.load` means.

    Raises:
        ProgramError: the module hasn't got it.
    """
    try:
        return getattr(module, name)
    except AttributeError as error:
        from shapescript.diagnostics.suggest import nearest

        names = [other for other in vars(module) if not other.startswith("_")]
        close = nearest(name, names) if len(names) > 1 else None
        helps = (f"did you mean `{module.__name__}.{close}`?",) if close else ()
        message = f"the Python module `{module.__name__}` has no `{name}`"
        raise ProgramError(Diagnostic(PYTHON_ERROR, message, Label(span), helps=helps)) from error


def call_python(function: Callable[..., object], span: Span, name: str, *values: object, **named: object) -> object:
    """Calls Python for the program's line `span`.

    Raises:
        ProgramError: it raised an error.
    """
    try:
        return function(*values, **named)
    except (Error, ProgramError):
        raise
    except Exception as error:
        raise python_error(error, span, f"`{name}`") from error


def python_error(error: BaseException, span: Span, what: str) -> ProgramError:
    """The error that Python raised, at the program's line, with the lines of Python that led to it."""
    words = str(error) or "without a message"
    notes = [f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}" for frame in python_frames(error)[-3:]]
    notes += [str(note) for note in getattr(error, "__notes__", [])]
    message = f"{what} raised {type(error).__name__}: {words}"
    return ProgramError(Diagnostic(PYTHON_ERROR, " ".join(message.split()), Label(span), notes=tuple(notes)))


def python_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of an error that are the user's: neither ShapeScript's nor the import machinery's."""
    frames = traceback.extract_tb(error.__traceback__)
    return [
        frame
        for frame in frames
        if not frame.filename.startswith("<")
        and PACKAGE not in Path(frame.filename).resolve().parents
        and "importlib" not in frame.filename
    ]
