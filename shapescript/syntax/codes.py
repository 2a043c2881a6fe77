"""The error codes of text and syntax, each with a short title; `diagnostics/codes.py` collects them."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E0101": "a character or sign that the language doesn't have",
    "E0102": "a tab in an indent",
    "E0103": "an indent that matches no open block",
    "E0104": "an indented line that no block opens",
    "E0105": "a block without lines",
    "E0106": "a bracket that is never closed",
    "E0107": "a closing bracket that doesn't match",
    "E0108": "a string that isn't one",
    "E0109": "a number that isn't one",
    "E0110": "something unexpected",
    "E0111": "a reserved word as a name",
    "E0112": "a `:` that is missing or too many",
    "E0113": "operators that don't go together without brackets",
    "E0114": "no function on the right of `|>`",
    "E0115": "a target that can't be given a value",
    "E0116": "a comma between axes",
    "E0117": "a sign that looks like an axis of its own",
    "E0118": "a line at the left margin that declares nothing",
    "E0119": "a function inside another declaration",
    "E0120": "an assignment with an operator",
    "E0121": "a value that isn't used",
    "E0122": "a pattern with too many operands",
    "E0123": "nesting deeper than 100",
    "E0124": "a name where only a plain name may stand",
    "E0125": "a positional argument after a named one",
}
