"""Statements: their rules and actions, and what becomes of a line that can't be parsed."""

from __future__ import annotations

from shapescript.diagnostics.fixes import replaced
from shapescript.syntax import tree
from shapescript.syntax.rules import Production, lost_names, problem, rule, several, text_of
from shapescript.syntax.tokens import Line, Token


@rule("stmts : stmt ; names : name")
def p_first_of_statements(p: Production) -> None:
    """A list begins."""
    p[0] = [p[1]]


@rule("stmts : stmts stmt")
def p_next_of_statements(p: Production) -> None:
    """A list goes on."""
    p[1].append(p[2])
    p[0] = p[1]


@rule("names : names COMMA name")
def p_comma_of_names(p: Production) -> None:
    """A list goes on after a comma."""
    p[1].append(p[3])
    p[0] = p[1]


@rule("name : NAME")
def p_bound_name(p: Production) -> None:
    """A name that a loop binds."""
    p[0] = tree.Name(p[1].start, p[1].end, p[1].text)


@rule("block : COLON NEWLINE INDENT stmts DEDENT")
def p_block(p: Production) -> None:
    """Indented lines."""
    p[0] = p[4]


@rule("block : COLON simple NEWLINE")
def p_short_block(p: Production) -> None:
    """A statement on the line of its `:`."""
    p[0] = [checked(p, p[2], p[3].line)]


@rule("stmt : simple NEWLINE")
def p_simple(p: Production) -> None:
    """A statement on a line."""
    p[0] = checked(p, p[1], p[2].line)


def checked(p: Production, statement: tree.Statement, line: Line) -> tree.Statement:
    """The statement, or a `Lost` one where it can't be what it is."""
    if isinstance(statement, tree.Do):
        check_used(p, statement.value, line)
    elif isinstance(statement, tree.Assign):
        check_target(p, statement.target, line)
    if line.lost:
        return tree.Lost(statement.start, statement.end, [], lost_names(line))
    return statement


def check_used(p: Production, value: tree.Expr, line: Line) -> None:
    """Only a call stands by itself."""
    if isinstance(value, (tree.Call, tree.Pipe)):
        return
    equal = isinstance(value, tree.Binary) and value.op == "=="
    help = "to give a name a value, write `=`" if equal else "a statement is a call, or gives the value a name"
    problem(p, line, "E0121", value, "this value isn't used", help)
    line.lost = True


def check_target(p: Production, target: tree.Expr, line: Line) -> None:
    """A target is a name, a field or a tuple of targets."""
    if isinstance(target, tree.Tuple):
        for item in target.items:
            check_target(p, item, line)
    elif not isinstance(target, (tree.Name, tree.Attribute)):
        help = None
        if isinstance(target, (tree.Index, tree.WithAxes)):
            help = "a tensor isn't changed in place: `where` or `scatter_add` gives a new one"
        elif isinstance(target, (tree.Number, tree.Binary)):
            help = "to compare, write `==`"
        problem(p, line, "E0115", target, "a value can't be given to this", help)
        line.lost = True


@rule("simple : exprs")
def p_do(p: Production) -> None:
    """A call by itself."""
    value = several(p[1])
    p[0] = tree.Do(value.start, value.end, value)


@rule("simple : exprs ASSIGN exprs | exprs AUGASSIGN exprs")
def p_assign(p: Production) -> None:
    """`target = value`; `x += e` is read as `x = x + e`."""
    target, value, sign = several(p[1]), several(p[3]), p[2]
    if sign.type == "AUGASSIGN":
        name, op = text_of(p, target), sign.text[:-1]
        simple = isinstance(value, (tree.Name, tree.Number, tree.Attribute, tree.Call, tree.Group, tree.Index))
        shown = text_of(p, value) if simple else f"({text_of(p, value)})"
        meant = f"{name} = {name} {op} {shown}"
        fix = replaced(p.lexer.reporter.source.span(target.start, value.end), meant, safe=True)
        problem(p, sign.line, "E0120", sign, f"`{sign.text}` isn't a sign of the language", f"write `{meant}`", fix=fix)
        value = tree.Binary(value.start, value.end, op, target, value)
    p[0] = tree.Assign(target.start, value.end, ungrouped(target), value)


def ungrouped(target: tree.Expr) -> tree.Expr:
    """`(a) = e` gives `a` its value."""
    while isinstance(target, tree.Group):
        target = target.inner
    if isinstance(target, tree.Tuple):
        return tree.Tuple(target.start, target.end, [ungrouped(item) for item in target.items])
    return target


@rule("simple : RETURN | RETURN exprs")
def p_return(p: Production) -> None:
    """`return` or `return value`."""
    value = several(p[2]) if len(p) > 2 else None
    p[0] = tree.Return(p[1].start, (value or p[1]).end, value)


@rule("simple : BREAK | CONTINUE | PASS")
def p_word(p: Production) -> None:
    """A statement of one word."""
    kinds: dict[str, type[tree.Statement]] = {"BREAK": tree.Break, "CONTINUE": tree.Continue, "PASS": tree.Pass}
    p[0] = kinds[p[1].type](p[1].start, p[1].end)


@rule("simple : ASSERT expr | ASSERT expr COMMA expr")
def p_assert(p: Production) -> None:
    """`assert test, message`."""
    message = p[4] if len(p) > 3 else None
    p[0] = tree.Assert(p[1].start, (message or p[2]).end, p[2], message)


# --- statements with blocks ------------------------------------------------------------------------------------------


@rule("stmt : FOR names IN expr block")
def p_for(p: Production) -> None:
    """`for names in over:`."""
    start, end = p[1].start, p[5][-1].end
    p[0] = tree.For(start, end, p[2], p[4], p[5])
    if p[1].line.lost:
        p[0] = tree.Lost(start, end, p[5], [name.name for name in p[2]])


@rule("stmt : WHILE expr block")
def p_while(p: Production) -> None:
    """`while test:`."""
    start, end = p[1].start, p[3][-1].end
    p[0] = tree.Lost(start, end, p[3], []) if p[1].line.lost else tree.While(start, end, p[2], p[3])


@rule("stmt : IF expr block orelse ; orelse : ELIF expr block orelse")
def p_if(p: Production) -> None:
    """`if test:` or `elif test:`, with what follows it."""
    body, otherwise = p[3], p[4]
    start, end = p[1].start, (otherwise or body)[-1].end
    node: tree.Statement = tree.If(start, end, p[2], body, otherwise)
    if p[1].line.lost:
        node = tree.Lost(start, end, [*body, *otherwise], [])
    p[0] = node if p[1].type == "IF" else [node]


@rule("orelse : ELSE block")
def p_else(p: Production) -> None:
    """`else:`."""
    p[0] = p[2]


@rule("orelse : ")
def p_no_else(p: Production) -> None:
    """No `else:`."""
    p[0] = []


@rule("stmt : fn ; field : fn")
def p_inner_function(p: Production) -> None:
    """A function inside another declaration."""
    at = p[1].start
    word = next(token for token in p.lexer.tokens if token.start == at and token.type == "FN")
    help = "move it out; what it needs from here becomes a parameter"
    problem(p, word.line, "E0119", word, "a function stands at the left margin, not inside another declaration", help)
    p[0] = tree.Lost(p[1].start, p[1].end, [], [p[1].name] if p[1].name else [])


# --- recovery: an error costs its line, never the lines of its block -------------------------------------------------


@rule("stmt : error NEWLINE ; field : error NEWLINE ; option : error NEWLINE")
def p_lost_line(p: Production) -> None:
    """A line that can't be parsed."""
    p[0] = lost(p, p[2], [])


@rule("stmt : error NEWLINE INDENT stmts DEDENT ; field : error NEWLINE INDENT stmts DEDENT")
def p_lost_header(p: Production) -> None:
    """A header that can't be parsed; the lines under it are."""
    p[0] = lost(p, p[2], p[4])


def lost(p: Production, newline: Token, body: list[tree.Statement]) -> tree.Lost:
    """What stands for the lines of an error, after which the parser reports errors again."""
    p.parser.errok()
    line = newline.line
    end = body[-1].end if body else line.tokens[-1].end
    return tree.Lost(line.tokens[0].start, end, body, lost_names(line))
