"""Programs in a notebook: `%load_ext shapescript`, then cells that begin with `%%shapescript`.

What a cell declares stays: a later cell may use it, and a cell that declares a name again replaces what it was. After
each cell the whole program is checked and loaded, and its functions, models and data are names of the notebook, called
from Python. Errors are shown as the checker's words, without Python's stack. `%shapescript plot` draws what was logged.

A program's workers end when another cell takes its place, and with the kernel.
"""

from __future__ import annotations

import argparse
import io
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from shapescript.controller.errors import CheckError, Error
from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.diagnostics.render import render_all
from shapescript.python.handle import Handle
from shapescript.python.models import Model
from shapescript.python.module import declared
from shapescript.python.runtime import Runtime
from shapescript.session import OverrideError, Session
from shapescript.source import Source, Span
from shapescript.syntax import tree
from shapescript.syntax.parse import parse


@dataclass
class Cell:
    """A cell's text and what it declares: the parts of the text by the name of the declaration."""

    source: Source
    parts: dict[str, tuple[int, int]]


class Notebook:
    """The cells of one kernel and the program that they are."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.cells: list[Cell] = []
        self.runtime: Runtime | None = None
        self.names: set[str] = set()

    # --- a cell

    def run(self, text: str, options: argparse.Namespace) -> None:
        """Takes a cell's declarations into the program.

        Raises:
            CheckError: the program doesn't check with them; it stays as it was.
        """
        number = len(self.shell.user_ns["In"]) - 1  # the number that stands beside the cell
        cell = read(Source(f"cell {number}", text))
        cells = [*without(self.cells, set(cell.parts)), cell]
        pieces, whole = joined(cells)
        path = Path.cwd() / "notebook.ss"
        session = Session(path, "notebook", options.devices, dims_of(options.dim))
        session.source = Source("notebook", whole)
        try:
            found = [told(each, pieces) for each in session.diagnostics]
        except OverrideError as error:
            raise CheckError(str(error)) from None
        if any(each.severity == "error" for each in found):
            raise CheckError("\n" + render_all(found))
        if found:
            print(render_all(found))
        self.take(session)
        self.cells = cells

    def take(self, session: Session) -> None:
        """Puts a program in the place of the one before."""
        before = self.runtime
        runtime = Runtime(session)
        names = declared(runtime, session.typed)
        space = self.shell.user_ns
        self.runtime = runtime
        if before is not None:
            self.carry_over(before, runtime, names)
            before.close()
        for name in self.names - set(names):
            space.pop(name, None)
        space.update(names)
        self.names = set(names)

    def carry_over(self, before: Runtime, runtime: Runtime, names: dict[str, object]) -> None:
        """Gives the models that the notebook holds to the next program; says what has to be made anew."""
        space = self.shell.user_ns
        stale: list[str] = []
        for name, value in list(space.items()):
            if not isinstance(value, Handle) or value._runtime is not before or name.startswith("_"):
                continue
            made = self.remade(value, names) if isinstance(value, Model) else None
            if made is None:
                stale.append(f"`{name}`")
            else:
                space[name] = made
        if before.live.held():
            stale.append("optimizers of PyTorch")
        if stale:
            print(f"the program is another one now: make {', '.join(stale)} anew")

    def remade(self, value: Model, names: dict[str, object]) -> Model | None:
        """A model of the next program with the same values; None where it has another form there."""
        kind = names.get(type(value).__name__)
        if not isinstance(kind, type) or not issubclass(kind, Model):
            return None
        try:
            made = kind(seed=0)
            made.load_state_dict(value.state_dict())
        except Error:
            return None
        return made

    # --- line magics

    def plot(self) -> None:
        """Draws what the program logged, in the notebook."""
        from IPython.display import Image, display

        from shapescript.cli.watching import figure_of, needs_matplotlib, read

        needs_matplotlib()
        files = self.runtime.domain.output.log_files if self.runtime is not None else None
        curves = read(files.folder) if files is not None else {}
        if not curves:
            print('nothing is logged yet: `log("loss", l)` in a function keeps a value')
            return
        data = io.BytesIO()
        figure_of(curves).savefig(data, format="png", dpi=100)
        display(Image(data.getvalue()))  # type: ignore[no-untyped-call, unused-ignore]

    def close(self) -> None:
        """Ends the program's workers."""
        if self.runtime is not None:
            self.runtime.close()
            self.runtime = None


# --- cells -----------------------------------------------------------------------------------------------------------


def read(source: Source) -> Cell:
    """A cell's declarations; one whose text has errors keeps its whole text under its own name."""
    parsed = parse(source)
    parts: dict[str, tuple[int, int]] = {}
    starts = [item.start for item in parsed.items]
    for item, end in zip(parsed.items, [*starts[1:], len(source.text)], strict=True):
        name = "devices" if isinstance(item, tree.Devices) else getattr(item, "name", None)
        key = name if name and name not in parts and not parsed.diagnostics else f"{source.name}:{item.start}"
        parts[key] = (item.start, end)
    if not parts:
        parts[source.name] = (0, len(source.text))
    first = next(iter(parts))
    parts[first] = (0, parts[first][1])
    return Cell(source, parts)


def without(cells: Iterable[Cell], names: set[str]) -> list[Cell]:
    """The cells without what is declared anew."""
    left = [Cell(cell.source, {name: part for name, part in cell.parts.items() if name not in names}) for cell in cells]
    return [cell for cell in left if cell.parts]


Piece = tuple[int, int, Source, int]
"""From an offset of the whole text to another: the cell, and the offset there."""


def joined(cells: Iterable[Cell]) -> tuple[list[Piece], str]:
    """The text of the whole program, the `devices` line first, and where its parts come from."""
    parts = [(name, cell.source, start, end) for cell in cells for name, (start, end) in cell.parts.items()]
    parts.sort(key=lambda part: part[0] != "devices")
    pieces: list[Piece] = []
    whole = ""
    for _, source, start, end in parts:
        text = source.text[start:end]
        pieces.append((len(whole), len(whole) + len(text), source, start))
        whole += text if text.endswith("\n") else text + "\n"
    return pieces, whole


def told(diagnostic: Diagnostic, pieces: list[Piece]) -> Diagnostic:
    """A diagnostic of the whole program, told of the cells."""

    def label(of: Label) -> Label:
        span = of.span
        for start, end, source, at in pieces:
            if span.source.name == "notebook" and start <= span.start <= end:
                moved = Span(source, span.start - start + at, min(span.end, end) - start + at)
                return Label(moved, of.words)
        return of

    return replace(
        diagnostic, primary=label(diagnostic.primary), secondary=tuple(map(label, diagnostic.secondary)), fixes=()
    )


# --- the extension ---------------------------------------------------------------------------------------------------


def dims_of(words: list[str]) -> dict[str, int]:
    """The dims of `--dim D=128`."""
    dims: dict[str, int] = {}
    for word in words:
        name, _, value = word.partition("=")
        if not name or not value.isdecimal():
            raise CheckError(f"`--dim {word}` should be a name and a whole number, as in `--dim D=128`")
        dims[name] = int(value)
    return dims


def options_of(line: str) -> argparse.Namespace:
    """The words after `%%shapescript`."""
    parser = argparse.ArgumentParser(prog="%%shapescript", add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--devices")
    parser.add_argument("--dim", action="append", default=[])
    try:
        known, rest = parser.parse_known_args(shlex.split(line))
    except (argparse.ArgumentError, ValueError) as error:
        raise CheckError(f"%%shapescript: {error}") from None
    if rest:
        raise CheckError(f"%%shapescript takes `--devices 'cpu[0 1 2]'` and `--dim D=128`, and `{rest[0]}` is neither")
    return known


def called_function(trace: TracebackType | None) -> str | None:
    """The function of a program that was running, if one was."""
    while trace is not None:
        caller = trace.tb_frame
        if caller.f_code is Runtime.call.__code__:
            info = caller.f_locals.get("info")
            return info.name if info is not None else None
        trace = trace.tb_next
    return None


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext shapescript`."""
    import atexit

    notebook = Notebook(shell)

    def cell_magic(line: str, cell: str) -> None:
        """Declarations of a ShapeScript program, which stay."""
        notebook.run(cell, options_of(line))

    def line_magic(line: str) -> None:
        """`%shapescript plot`: draws what was logged; `%shapescript close`: ends the program's workers."""
        word = line.strip()
        if word == "plot":
            notebook.plot()
        elif word == "close":
            notebook.close()
        else:
            raise CheckError(f"there are `%shapescript plot` and `%shapescript close`, not `{word}`")

    def words_alone(
        shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType, tb_offset: int | None = None
    ) -> list[str]:
        """An error of a program as its words, and an interrupt of one as the place where Python called it."""
        if isinstance(error, KeyboardInterrupt):
            name = called_function(trace)
            if name is None:  # it was Python's own code that was interrupted
                lines: list[str] = shell.InteractiveTB.structured_traceback(kind, error, trace, tb_offset=tb_offset)
            else:
                lines = [f"interrupted: `{name}` was running; updates that it had finished stay"]
        else:
            text = str(error).strip("\n")
            lines = [text if text.startswith("error") else f"error: {text}"]
        shell._showtraceback(kind, error, lines)
        return lines

    shell.register_magic_function(cell_magic, "cell", "shapescript")
    shell.register_magic_function(line_magic, "line", "shapescript")
    shell.set_custom_exc((Error, KeyboardInterrupt), words_alone)
    shell.user_ns_hidden["_shapescript"] = notebook
    atexit.register(notebook.close)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext shapescript`."""
    notebook = shell.user_ns_hidden.pop("_shapescript", None)
    if notebook is not None:
        notebook.close()
    shell.set_custom_exc((), None)
