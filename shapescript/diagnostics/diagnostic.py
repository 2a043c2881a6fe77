"""What the checker says about a program, as data.

Gives `Diagnostic`, `Label` and `Fix`; `render.py` and `formats.py` turn them into text. A diagnostic is made where the
mistake is understood, with every place that explains it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shapescript.source import Span


@dataclass(frozen=True)
class Label:
    """A place that explains a diagnostic, and a few words on it (they may be empty)."""

    span: Span
    words: str = ""


@dataclass(frozen=True)
class Edit:
    """Text that takes the place of a span; of an empty one, it is put in there."""

    span: Span
    text: str


@dataclass(frozen=True)
class Fix:
    """What would mend a mistake: `safe` if it can't be but what was meant, so that a tool may do it unasked."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool = False


@dataclass(frozen=True)
class Diagnostic:
    """An error or a warning: `code` is in `codes.CODES`, `primary` is where the mistake stands.

    `message` is one sentence without a full stop, names in backticks. `notes` say what is so, `helps` what to write;
    `fixes` write it.
    """

    code: str
    message: str
    primary: Label
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()

    @property
    def severity(self) -> str:
        """`error` or `warning`: a code that begins with W is a warning."""
        return "warning" if self.code.startswith("W") else "error"

    @property
    def sort_key(self) -> tuple[str, int, int, str]:
        """Diagnostics are shown by file, then by place."""
        return self.primary.span.source.name, self.primary.span.start, self.primary.span.end, self.code


class ProgramError(Exception):
    """A mistake of the program found when a line is compiled or run; carries the diagnostic to print."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
