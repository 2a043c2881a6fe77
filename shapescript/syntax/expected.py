"""Words for an unexpected token: what stands there, what could stand there, and what was probably meant.

Takes the parser in the state of its error and the token; reports one error a logical line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shapescript.syntax.rules import TokenStream
from shapescript.syntax.tokens import RESERVED, Token

WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "NEWLINE": "the end of the line",
    "COLON": "`:`",
    "COMMA": "`,`",
    "RPAREN": "`)`",
    "RBRACK": "`]`",
    "LPAREN": "`(`",
    "LBRACK": "`[`",
    "ARROW": "`->`",
    "ASSIGN": "`=`",
    "DOT": "`.`",
    "DOTDOT": "`..`",
    "IN": "`in`",
    "FN": "`fn`",
    "AS": "`as`",
    "SHARD": "`shard`",
    "SPLIT": "`split`",
    "PASS": "`pass`",
}
KEYWORDS = frozenset(word.upper() for word in RESERVED)
VALUES = frozenset(("NAME", "NUMBER", "STRING"))
PUT_IN = ("COLON", "COMMA", "ASSIGN", "ARROW", "RPAREN", "RBRACK")
RARELY_MEANT = frozenset(("LPAREN", "LBRACK", "DOT", "DOTDOT", "AS"))
BINARY_SIGNS = frozenset("PLUS MINUS STAR SLASH FLOORDIV PERCENT AT POW AND OR PIPE ASSIGN".split())
OTHER_LANGUAGES = {
    "lambda": "there are no lambdas: write a `fn` at the left margin",
    "def": "write `fn`, at the left margin",
    "class": "write `model` or `data`, at the left margin",
    "try": "there are no exceptions: what may fail is Python's, one call away",
    "with": "there is no `with`: what needs one is Python's, one call away",
    "yield": "there are no generators: a loop over data is written `for batch in data |> batches(64):`",
    "del": "there is no `del`: a value ends with its function",
    "global": "there are no globals: pass the value as a parameter",
    "raise": 'to stop, write `assert false, "why"`',
}
PATTERN_FUNCTIONS = frozenset(("rearrange", "split", "repeat", "einsum", "attention"))


def after(parser: Any, states: list[int], kind: str) -> list[int] | None:
    """The stack of states once `kind` is shifted, or None; the reductions are played through on a copy."""
    states = list(states)
    while True:
        action = parser.action[states[-1]].get(kind)
        if action is None or action == 0:
            return None
        if action > 0:
            return [*states, action]
        rule = parser.productions[-action]
        if rule.len:
            del states[-rule.len :]
        states.append(parser.goto[states[-1]][rule.name])


@dataclass(frozen=True, slots=True)
class Around:
    """An unexpected token and what stands around it on its line."""

    token: Token
    tokens: list[Token]
    at: int
    able: frozenset[str]

    @property
    def first(self) -> Token:
        """The line's first token."""
        return self.tokens[0]

    @property
    def before(self) -> Token | None:
        """The token before it."""
        return self.tokens[self.at - 1] if self.at else None

    @property
    def then(self) -> Token | None:
        """The token after it."""
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None

    @property
    def opener(self) -> Token | None:
        """The innermost bracket open before it."""
        stack: list[Token] = []
        for token in self.tokens[: self.at]:
            if token.text in ("(", "["):
                stack.append(token)
            elif token.text in (")", "]") and stack:
                stack.pop()
        return stack[-1] if stack else None


def unexpected(parser: Any, token: Token | None, stream: TokenStream) -> None:
    """Reports the token at which the parser can't go on."""
    if token is None:
        return
    line = token.line
    if line.damaged:
        line.lost = True
        return
    line.lose()
    states = parser.statestack
    able = frozenset(kind for kind in WORDS if after(parser, states, kind))
    at = line.tokens.index(token) if token in line.tokens else len(line.tokens)
    around = Around(token, line.tokens, at, able)
    help = hint(around)
    if token.type == "NEWLINE":
        message = "the line ends here"
    else:
        message = f"unexpected `{token.text}`" if token.text else "unexpected indent"
    if help is None and token.type == "FN" and around.at:
        help = OTHER_LANGUAGES["lambda"]
    if help is None and token.type in KEYWORDS and "NAME" in able:
        message = f"`{token.text}` is a reserved word"
        help = f"choose another name, such as `{token.text}_`"
        stream.reporter.report("E0111", token.start, token.end, message, help)
        return
    if help is None:
        missing = [kind for kind in PUT_IN if kind in able and could_follow(parser, states, kind, token.type)]
        if len(missing) == 1:
            help = f"is {article(WORDS[missing[0]])} missing before this?"
    wanted = expected(able)
    opener = around.opener
    shown = opener if help is None and opener and able & {"RPAREN", "RBRACK"} else None
    others = ((shown, "opened here"),) if shown else ()
    message += f"; expected {wanted}" if wanted else ""
    stream.reporter.report("E0110", token.start, token.end, message, help, "", others)


def could_follow(parser: Any, states: list[int], put_in: str, kind: str) -> bool:
    """Would the token fit if `put_in` stood before it?"""
    then = after(parser, states, put_in)
    return then is not None and after(parser, then, kind) is not None


def article(sign: str) -> str:
    """`a` before a sign in backticks."""
    return sign if sign.startswith("a ") else f"a {sign}"


def expected(able: frozenset[str]) -> str:
    """The few words that help: a value, or the signs that would end or go on with what stands before."""
    if able >= VALUES:
        return "a value"
    if {"NAME", "LPAREN"} <= able:
        return "an axis" if "NUMBER" in able else "a type"
    signs = [WORDS[kind] for kind in WORDS if kind in (able - RARELY_MEANT or able)]
    return " or ".join([part for part in (", ".join(signs[:-1]), *signs[-1:]) if part])


def parameter_type(name: Token, default: Token | None) -> str:
    """The words for a parameter without a type; its default tells which it may have."""
    if name.text == "self":
        return "there are no methods: leave `self` out, or name the model, `m: Net`"
    if default is None:
        return f"a parameter has a type: `{name.text}: [b D]`"
    kinds = {"STRING": "str", "TRUE": "bool", "FALSE": "bool"}
    number = "float" if any(sign in default.text for sign in ".e") else "int"
    return f"a parameter has a type: `{name.text}: {kinds.get(default.type, number)} = {default.text}`"


def hint(around: Around) -> str | None:
    """What was probably meant, or None."""
    return hint_of_first(around) or hint_of_kind(around) or hint_of_neighbours(around)


def hint_of_first(around: Around) -> str | None:
    """What the line's first word shows."""
    token, first, before, then = around.token, around.first, around.before, around.then
    kind, opener = token.type, around.opener
    if kind == "ASSIGN" and first.type in ("IF", "ELIF", "WHILE", "ASSERT", "RETURN"):
        return "to compare, write `==`"
    if kind == "IF" and first.type == "ELSE":
        return "write `elif`"
    if kind in ("ELSE", "ELIF") and token is first:
        return f"no `if` stands before this `{token.text}` at the same indent"
    if first.type == "FN":
        if before and before.type == "RPAREN" and kind in ("LBRACK", "LAXES", "NAME", "LPAREN") and opener is None:
            return "write `->` before the type of the result"
        if before and before.type == "NAME" and kind in ("COMMA", "RPAREN", "ASSIGN") and opener:
            return parameter_type(before, around.then if kind == "ASSIGN" else None)
        if kind == "ARROW" and opener:
            return "close the parameters with `)` before `->`"
    if first.type == "EXTERN" and kind in ("COLON", "NEWLINE") and "ASSIGN" in around.able:
        return 'an `extern fn` names the Python function: `= "module.function"`'
    if first.type == "DEVICES":
        if kind == "STRING":
            return f"write `devices {token.text[1:-1]}`"
        if kind == "COLON" and before:
            return f"write `{before.text}[{then.text if then else 0}]`"
        if kind == "COMMA":
            return "a program runs on one kind of device: `cpu`, `mps`, `cuda[0 1 2]`"
    if before is first and first.type == "NAME":
        if first.text in ("dim", "model", "data", "devices", "extern", "import"):
            article_of_word = "an" if first.text in ("extern", "import") else "a"
            return f"{article_of_word} `{first.text}` stands at the left margin, outside functions"
        if first.text in ("let", "var", "const"):
            return f"leave `{first.text}` out: `{token.text} = ...`"
        if first.text in ("print", "log"):
            return f"write `{first.text}(...)`"
    return None


def hint_of_kind(around: Around) -> str | None:
    """What the token itself shows."""
    token, first, before, then = around.token, around.first, around.before, around.then
    kind, opener = token.type, around.opener
    if kind == "IF" and token is not first:
        return "there is no `a if c else b`: for tensors write `where(c, a, b)`, else an `if` statement"
    if kind == "IN" and VALUES.isdisjoint(around.able):
        return "there is no test with `in`"
    if kind == "FOR" and opener:
        return "there are no comprehensions: write a loop, or leave the list to Python"
    if kind == "COLON" and opener and opener.text == "[":
        return "an index names its axis: `x[n=-1]`, or a range, `x[n=1..3]`"
    if kind == "COLON" and len(around.tokens) > 2 and around.tokens[1] is token:
        return f"a value's type is written after it: `{first.text} = ... as TYPE`"
    if kind == "DOTDOT" and then and then.type in ("DOT", "DOTDOT"):
        return "`...` isn't a sign of the language: any axes are written `..`"
    if kind == "DOT" and before and before.type == "DOTDOT":
        return "`...` isn't a sign of the language: any axes are written `..`"
    if kind == "DOTDOT" and "DOTDOT" not in around.able and not VALUES & around.able:
        return "`..` doesn't chain, and `a..` and `..b` stand only in an index"
    if kind == "MUT" and not opener:
        return "leave `mut` out: only parameters and arguments have it"
    if kind == "PLUS" and around.able >= VALUES:
        return "leave the `+` out"
    if kind == "NEWLINE" and before and before.type in BINARY_SIGNS:
        return "a line goes on inside brackets, or where the next one begins with `|>`"
    return None


def hint_of_neighbours(around: Around) -> str | None:
    """What the token before it shows."""
    token, before, kind = around.token, around.before, around.token.type
    if before is None:
        return None
    if kind == "STRING" and before.type == "NAME" and before.text in "fFrRbB":
        return f"there are no {before.text}-strings: give `print` several values"
    if before.text in OTHER_LANGUAGES:
        return OTHER_LANGUAGES[before.text]
    if kind == "NAME" and token.text == "is":
        return "to compare, write `==`"
    if kind == "STRING" and before.type == "STRING":
        return "a comment begins with `#`" if '""' in (before.text, token.text) else "join strings with `+`"
    opener = around.opener
    if opener and opener.text == "(" and kind in ("NAME", "NUMBER", "LPAREN"):
        if before.type in ("NAME", "NUMBER", "RPAREN"):
            place = around.tokens.index(opener)
            callee = around.tokens[place - 1].text if place else ""
            pattern = "a pattern has `->`: `b n D -> b D n`"
            return pattern if callee in PATTERN_FUNCTIONS else "is a comma missing?"
    return None
