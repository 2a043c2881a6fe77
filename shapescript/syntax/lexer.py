"""Text to raw tokens, with PLY.

Takes a text; gives its tokens, the start of the physical line of each, and the places where text had to be skipped.
Slips that have one plain reading (`&&`, `'text'`) are reported and then read as they were meant. Leaves lines, blocks
and the kinds of brackets to layout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ply import lex  # type: ignore[import-untyped]

from shapescript.syntax.tokens import NO_LINE, RESERVED, SIGNS, Reporter, Token

tokens = [*(word.upper() for word in RESERVED), "NAME", "NUMBER", "STRING", *SIGNS]

KEYWORDS = {word: word.upper() for word in RESERVED}
NUMBER = re.compile(r"[0-9]+(_[0-9]+)*(\.[0-9]+(_[0-9]+)*)?([eE][+-]?[0-9]+)?")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
NUMBER_AND_NAME = re.compile(r"([0-9]+)([A-Za-z]\w*)")
ESCAPE = re.compile(r"\\(.)")
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
WRITTEN = re.compile(r"write `([^`\"']+)`")
MOST_DIGITS = 300
MEANT = {
    "&&": ("AND", "and"),
    "||": ("OR", "or"),
    "&": ("AND", "and"),
    "|": ("OR", "or"),
    "~": ("BANG", "!"),
    "===": ("EQ", "=="),
    "!==": ("NE", "!="),
    "<>": ("NE", "!="),
    "=>": ("ARROW", "->"),
    ":=": ("ASSIGN", "="),
}
INSTEAD = {
    "{": "blocks are made by indents, and dictionaries stay in Python",
    "}": "blocks are made by indents, and dictionaries stay in Python",
    ";": "put one statement on a line",
    "\\": "a line goes on inside brackets, or where the next one begins with `|>`",
    "?": "for a choice between tensors, write `where(c, a, b)`",
    "“": 'write `"`',
    "”": 'write `"`',
    "‘": 'write `"`',
    "’": 'write `"`',
    "'": 'a string stands in double quotes: write `"`',
    "–": "write `-`",
    "—": "write `-`",
    "−": "write `-`",
    "×": "write `*`",
    "÷": "write `/`",
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "→": "write `->`",
    "\xa0": "this is a no-break space: write a plain one",
    "\r": "a line ends with LF or CRLF",
    "（": "write `(`",
    "）": "write `)`",
    "，": "write `,`",
    "：": "write `:`",
}

t_ignore = " \t"
t_ignore_COMMENT = r"\#[^\n\r]*(?:\r(?!\n)[^\n\r]*)*"
t_PIPE, t_ARROW, t_DOTDOT, t_POW, t_FLOORDIV = r"\|>", r"->", r"\.\.", r"\*\*", r"//"
t_EQ, t_NE, t_LE, t_GE, t_LT, t_GT, t_ASSIGN = r"==", r"!=", r"<=", r">=", r"<", r">", r"="
t_PLUS, t_MINUS, t_STAR, t_SLASH, t_PERCENT, t_AT, t_BANG = r"\+", r"-", r"\*", r"/", r"%", r"@", r"!"
t_COLON, t_COMMA, t_DOT = r":", r",", r"\."
t_LPAREN, t_RPAREN, t_LBRACK, t_RBRACK = r"\(", r"\)", r"\[", r"\]"


@lex.TOKEN(r"\r?\n")  # type: ignore[untyped-decorator]
def t_newline(t: Any) -> None:
    """The end of a physical line."""
    t.lexer.line_start = t.lexer.lexpos


@lex.TOKEN(r"[^\W\d]\w*")  # type: ignore[untyped-decorator]
def t_NAME(t: Any) -> Any:
    """A name, or a reserved word."""
    if not t.value.isascii():
        problem(t, "E0101", f"`{t.value}` isn't a name", "names are made of the letters a-z and A-Z, digits and `_`")
    t.type = KEYWORDS.get(t.value, "NAME")
    return t


@lex.TOKEN(r"\d\w*(?:\.(?!\.)(?:\d\w*)?)?(?:(?<=[eE])[+-]\d\w*)?|\.\d\w*")  # type: ignore[untyped-decorator]
def t_NUMBER(t: Any) -> Any:
    """A number, or something that begins as one."""
    text: str = t.value
    if not NUMBER.fullmatch(text):
        product = NUMBER_AND_NAME.fullmatch(text)
        help = meant = None
        if text.endswith(".") and text[:-1].isdecimal():
            meant = f"{text}0"
        elif text[0] == "." and NUMBER.fullmatch(f"0{text}"):
            meant = f"0{text}"
        elif product:
            help = f"for a product, write `{product[1]}*{product[2]}`"
        elif "_" in text and NUMBER.fullmatch(joined := re.sub("_+", "_", text).strip("_")):
            meant = joined
        problem(t, "E0109", f"`{text}` isn't a number", f"write `{meant}`" if meant else help, meant)
    elif len(text) > MOST_DIGITS or float(text) == float("inf"):
        shown = text if len(text) <= 20 else text[:17] + "..."
        problem(t, "E0109", f"`{shown}` is too large a number", "write `inf` for infinity")
    return t


@lex.TOKEN(r'"(?:[^"\\\n\r]|\\[^\n\r])*(?:"|\\?)|\'[^\'\n\r]*\'')  # type: ignore[untyped-decorator]
def t_STRING(t: Any) -> Any:
    """A string in double quotes; one in single quotes is reported."""
    text: str = t.value
    if text[0] == "'":
        meant = f'"{text[1:-1]}"'
        problem(
            t,
            "E0108",
            "a string stands in double quotes",
            f"write `{meant}`",
            meant if STRING.fullmatch(meant) else None,
        )
    elif not STRING.fullmatch(text):
        help = 'end it with `"`; a line break inside a string is written `\\n`'
        problem(t, "E0108", 'this string has no closing `"` on its line', help)
        t.lexer.breaks.append(t.lexpos)
    else:
        for escape in ESCAPE.finditer(text):
            if escape[1] not in ESCAPES:
                at = t.lexpos + escape.start()
                message = f"`{escape[0]}` means nothing in a string"
                t.lexer.reporter.report("E0108", at, at + 2, message, 'there are `\\n`, `\\t`, `\\"` and `\\\\`')
    return t


@lex.TOKEN(r"(?:\+|-(?!>)|\*\*?|//?|%|@)=(?!=)")  # type: ignore[untyped-decorator]
def t_AUGASSIGN(t: Any) -> Any:
    """`+=` and its like, which the grammar reports."""
    return t


@lex.TOKEN(r"&&|\|\||===|!==|<>|=>|:=(?!=)|&|\|(?!>)|~")  # type: ignore[untyped-decorator]
def t_meant(t: Any) -> Any:
    """A sign of another language that means one of this one's."""
    t.type, sign = MEANT[t.value]
    problem(t, "E0101", f"`{t.value}` isn't a sign of the language", f"write `{sign}`", sign)
    return t


def t_error(t: Any) -> None:
    """What can't stand anywhere is reported and skipped."""
    found = re.match(r"[^\x00-\x7f\xa0“”‘’]+|.", t.value, re.S)
    text = found[0] if found else t.value[0]
    shown = text if text.isprintable() and text != " " else ascii(text)[1:-1]
    help = INSTEAD.get(text[0])
    sign = WRITTEN.fullmatch(help or "")
    meant = " " if text == "\xa0" else sign[1] if sign and len(text) == 1 else None
    end = t.lexpos + len(text)
    t.lexer.reporter.report("E0101", t.lexpos, end, f"`{shown}` can't stand here", help, instead=meant)
    t.lexer.breaks.append(t.lexpos)
    t.lexer.skip(len(text))


def problem(t: Any, code: str, message: str, help: str | None, instead: str | None = None) -> None:
    """Reports the whole token; `instead` is what was surely meant by it."""
    t.lexer.reporter.report(code, t.lexpos, t.lexpos + len(t.value), message, help, instead=instead)


# `lextab=False`, because None would write a file beside the module, or read a stale one.
LEXER = lex.lex(optimize=True, lextab=False)


@dataclass(frozen=True, slots=True)
class Scanned:
    """Raw tokens, the start of the physical line of each, and the offsets where text was skipped."""

    tokens: list[Token]
    line_starts: list[int]
    breaks: list[int]


def scan(text: str, reporter: Reporter) -> Scanned:
    """All tokens of a text."""
    lexer = LEXER.clone()
    lexer.reporter, lexer.line_start, lexer.breaks = reporter, 0, []
    lexer.input(text)
    if text.startswith("\ufeff"):
        lexer.skip(1)
        lexer.line_start = 1
    found: list[Token] = []
    starts: list[int] = []
    next_token = lexer.token
    while (raw := next_token()) is not None:
        found.append(Token(raw.type, raw.value, raw.lexpos, raw.lexpos + len(raw.value), NO_LINE))
        starts.append(lexer.line_start)
    return Scanned(found, starts, lexer.breaks)


def string_value(text: str) -> str:
    """What a string's text means; a wrong escape, already reported, means itself."""
    inner = text[1:-1] if len(text) > 1 and text[-1] == text[0] else text[1:]
    return ESCAPE.sub(lambda m: ESCAPES.get(m[1], m[0]), inner) if text[0] == '"' else inner


def number_value(text: str) -> int | float:
    """What a number's text means; 0 where it isn't one, which is already reported."""
    if not NUMBER.fullmatch(text) or len(text) > MOST_DIGITS:
        return 0
    return int(text) if text.replace("_", "").isdecimal() else float(text)
