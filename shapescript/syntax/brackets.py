"""Brackets: which closes which, and what kind an opening one is.

Called with each token of a line in turn. An opener's type is changed when its content shows what it holds: `->` makes
a callee's `(` a pattern's, two operands side by side make a `[` a list of axes. Reports brackets that don't match, and
nesting that is too deep.
"""

from __future__ import annotations

from shapescript.diagnostics.fixes import put_in
from shapescript.syntax.tokens import MOST_NESTING, Line, Reporter, Token

PAIRS = {"LPAREN": ")", "PATPAREN": ")", "ARGPAREN": ")", "LBRACK": "]", "LAXES": "]"}
OPERAND_BEGINS = frozenset(("NAME", "NUMBER", "LPAREN"))
OPERAND_ENDS = frozenset(("NAME", "NUMBER", "RPAREN", "RBRACK"))
INTERESTING = frozenset(("LPAREN", "LBRACK", "RPAREN", "RBRACK", "COLON", "ARROW"))


def take_bracket(token: Token, line: Line, opened: list[Token], reporter: Reporter) -> None:
    """Keeps the stack of open brackets up to date with the next token of a line."""
    kind = token.type
    if kind in OPERAND_BEGINS and line.tokens:
        before = line.tokens[-1]
        if before.type in OPERAND_ENDS:
            beside(token, before, line, opened)
    if kind not in INTERESTING:
        return
    if kind in ("LPAREN", "LBRACK"):
        if len(opened) == MOST_NESTING and not line.lost:
            message = f"brackets nested deeper than {MOST_NESTING}"
            reporter.report("E0123", token.start, token.end, message, "give an inner part a name on a line of its own")
            line.lose()
        opened.append(token)
    elif kind in ("RPAREN", "RBRACK"):
        close(token, line, opened, reporter)
    elif kind == "COLON":
        if opened:
            opened[-1].colon = True
        else:
            line.colon = True
    elif opened:
        arrow(token, line, opened, reporter)


def beside(token: Token, before: Token, line: Line, opened: list[Token]) -> None:
    """Two operands side by side: axes in the nearest `[`, unless the second is a call's `(`."""
    token.tight = before.end == token.start
    called = token.type == "LPAREN" and token.tight
    if not called and before.type != "RBRACK":  # `[b] Example` is a type
        for opener in reversed(opened):
            if opener.type == "LBRACK":
                opener.type = "LAXES"
            if opener.type != "LPAREN" or opener.tight:
                break
    token.callee = not (len(line.tokens) > 1 and line.tokens[-2].type == "FN")


def close(token: Token, line: Line, opened: list[Token], reporter: Reporter) -> None:
    """A closing bracket."""
    if opened and PAIRS[opened[-1].type] == token.text:
        opened.pop()
        return
    if not line.damaged:
        if opened:
            wrong = opened[-1]
            message, help = f"`{wrong.text}` is closed by `{token.text}`", f"write `{PAIRS[wrong.type]}`"
            reporter.report("E0107", token.start, token.end, message, help, "", ((wrong, "opened here"),))
        else:
            reporter.report("E0107", token.start, token.end, f"`{token.text}` closes nothing", "leave it out")
    line.lose()
    if any(PAIRS[opener.type] == token.text for opener in opened):
        while PAIRS[opened.pop().type] != token.text:
            pass


def arrow(token: Token, line: Line, opened: list[Token], reporter: Reporter) -> None:
    """`->` inside a bracket: a pattern's, or a function's whose parameters aren't closed."""
    opener = opened[-1]
    if opener.type != "LPAREN":
        return
    if opener.callee:
        opener.type = "ARGPAREN" if opener.colon else "PATPAREN"
    elif len(opened) == 1 and line.tokens[0].text in ("fn", "extern"):
        opened.pop()
        others = ((opener, "opened here"),)
        at = line.tokens[-1].end
        message, fix = "a `)` is missing before this", put_in(reporter.source, at, ")", safe=True)
        reporter.report("E0106", token.start, token.end, message, "add `)`", "", others, fix=fix)
        line.damaged = True
        line.tokens.append(Token("RPAREN", ")", at, at, line))
