"""Expressions: their rules and actions. Slips with one plain reading are taken, reported, and read as meant."""

from __future__ import annotations

from shapescript.diagnostics.fixes import replaced
from shapescript.syntax import tree
from shapescript.syntax.lexer import number_value, string_value
from shapescript.syntax.rules import Production, ends, problem, rule, text_of

COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
SIZE_SIGNS = frozenset("+-*/")
ONE_OPERAND = frozenset(("rearrange", "split", "repeat"))
MEANT = {"AND": "and", "OR": "or", "EQ": "==", "NE": "!="}  # whatever sign was written for it
BINARY = "OR AND EQ NE LT LE GT GE PLUS MINUS STAR SLASH FLOORDIV PERCENT AT POW".split()


@rule("exprs : expr ; elements : expr ; args : arg ; indices : index")
def p_first_of_expressions(p: Production) -> None:
    """A list begins."""
    p[0] = [p[1]]


@rule("""exprs : exprs COMMA expr ; elements : elements COMMA expr ; args : args COMMA arg ; indices : indices COMMA
         index""")
def p_comma_of_expressions(p: Production) -> None:
    """A list goes on."""
    p[1].append(p[3])
    p[0] = p[1]


@rule("expr : postfix ; args_ : args | args COMMA ; postfix : brackets")
def p_same_of_expressions(p: Production) -> None:
    """Passed on."""
    p[0] = p[1]


@rule("args_ : ")
def p_no_arguments(p: Production) -> None:
    """A call without arguments."""
    p[0] = []


# --- operators -------------------------------------------------------------------------------------------------------


@rule("expr : " + " | ".join(f"expr {sign} expr" for sign in BINARY))
def p_binary(p: Production) -> None:
    """`left op right`."""
    left, op, right, line = p[1], p[2].text, p[3], p[2].line
    op = MEANT.get(p[2].type, op)
    if op not in ("and", "or") and isinstance(right, tree.Unary) and right.op == "not":
        problem(p, line, "E0113", right, f"`not` binds looser than `{op}`", f"write `({text_of(p, right)})`")
    if op in COMPARISONS and isinstance(left, tree.Binary) and left.op in COMPARISONS:
        meant = f"{text_of(p, left)} and {text_of(p, left.right)} {op} {text_of(p, right)}"
        fix = replaced(p.lexer.reporter.source.span(left.start, right.end), meant, safe=True)
        problem(p, line, "E0113", p[2], "comparisons don't chain", f"write `{meant}`", fix=fix)
        right = tree.Binary(left.right.start, right.end, op, left.right, right)
        op = "and"
    p[0] = tree.Binary(*ends(p), op, left, right)


@rule("expr : expr DOTDOT expr")
def p_range(p: Production) -> None:
    """`first..last`."""
    p[0] = tree.Range(*ends(p), p[1], p[3])


@rule("expr : expr PIPE expr")
def p_pipe(p: Production) -> None:
    """`value |> target`."""
    value, target, line = p[1], p[3], p[2].line
    p[0] = tree.Pipe(*ends(p), value, target)
    if isinstance(target, (tree.Name, tree.Attribute, tree.Call, tree.Index, tree.WithAxes)):
        return
    inner = target.left if isinstance(target, tree.Binary) else target.value if isinstance(target, tree.As) else None
    help = None
    if inner is not None:
        text = p.lexer.reporter.source.text
        help = f"`|>` binds loosest: write `({text[value.start : inner.end]}){text[inner.end : target.end]}`"
    problem(p, line, "E0114", target, "on the right of `|>` stands a function or a call", help)
    line.lost = True


@rule("expr : NOT expr | MINUS expr %prec UNARY | BANG expr %prec UNARY")
def p_unary(p: Production) -> None:
    """`not a`, `-a`, `!a`."""
    p[0] = tree.Unary(*ends(p), {"NOT": "not", "MINUS": "-", "BANG": "!"}[p[1].type], p[2])


@rule("expr : expr AS type")
def p_as(p: Production) -> None:
    """`value as type`."""
    p[0] = tree.As(*ends(p), p[1], p[3])


# --- operands --------------------------------------------------------------------------------------------------------


@rule("postfix : NAME")
def p_name(p: Production) -> None:
    """A name."""
    token = p[1]
    p[0] = tree.Name(token.start, token.end, token.text)


@rule("postfix : NUMBER")
def p_number(p: Production) -> None:
    """A number."""
    p[0] = tree.Number(*ends(p), number_value(p[1].text))


@rule("postfix : string ; string : STRING")
def p_string(p: Production) -> None:
    """A string."""
    p[0] = p[1] if isinstance(p[1], tree.Node) else tree.String(*ends(p), string_value(p[1].text))


@rule("postfix : TRUE | FALSE")
def p_bool(p: Production) -> None:
    """`true` or `false`."""
    p[0] = tree.Bool(*ends(p), p[1].type == "TRUE")


@rule("postfix : LPAREN elements RPAREN | LPAREN elements COMMA RPAREN")
def p_group(p: Production) -> None:
    """`(a)`, `(a, b)` or `(a,)`."""
    one = len(p) == 4 and len(p[2]) == 1
    p[0] = tree.Group(*ends(p), p[2][0]) if one else tree.Tuple(*ends(p), p[2])


@rule("postfix : postfix DOT NAME")
def p_attribute(p: Production) -> None:
    """`of.name`."""
    p[0] = tree.Attribute(*ends(p), p[1], p[3].text, p[3].start)


# --- calls -----------------------------------------------------------------------------------------------------------


@rule("postfix : postfix LPAREN args_ RPAREN")
def p_call(p: Production) -> None:
    """`f(a, b=c)`."""
    in_order(p, p[3])
    p[0] = tree.Call(*ends(p), p[1], p[3], None)


@rule("postfix : postfix PATPAREN pattern RPAREN | postfix ARGPAREN args COLON pattern RPAREN")
def p_pattern_call(p: Production) -> None:
    """`f(pattern)` or `f(a, b: pattern)`."""
    pattern, name, line = p[len(p) - 2], text_of(p, p[1]), p[2].line
    if name in ONE_OPERAND and len(pattern.operands) > 1:
        value = text_of(p, pattern.operands[0])
        rest = p.lexer.reporter.source.text[pattern.operands[1].start : pattern.end]
        help = f"write `{name}({value}: {rest})`" if " " not in value and len(p) == 5 else None
        problem(p, line, "E0122", pattern, f"`{name}` takes one value", help)
        line.lost = True
    arguments = p[3] if len(p) > 5 else []
    in_order(p, arguments)
    p[0] = tree.Call(*ends(p), p[1], arguments, pattern)


def in_order(p: Production, arguments: list[tree.Argument]) -> None:
    """Reports an argument by position after one by name."""
    named = False
    for argument in arguments:
        if named and argument.name is None:
            message = "an argument by position stands after one by name"
            problem(p, p[2].line, "E0125", argument, message, "give it its name, or put it first")
            p[2].line.lost = True
        named = named or argument.name is not None


@rule("arg : expr | MUT expr | NAME ASSIGN expr | NAME ASSIGN MUT expr")
def p_argument(p: Production) -> None:
    """`e`, `mut x`, `name=e` or `name=mut x`."""
    name = p[1].text if len(p) > 3 else None
    p[0] = tree.Argument(*ends(p), name, len(p) in (3, 5), p[len(p) - 1])


# --- indexing --------------------------------------------------------------------------------------------------------


@rule("postfix : postfix LBRACK RBRACK | postfix LBRACK indices RBRACK | postfix LBRACK indices COMMA RBRACK")
def p_index(p: Production) -> None:
    """`of[items]`."""
    p[0] = tree.Index(*ends(p), p[1], p[3] if len(p) > 4 else [])


@rule("index : expr | slice")
def p_index_item(p: Production) -> None:
    """A value in an index."""
    p[0] = tree.IndexItem(*ends(p), None, as_slice(p[1]))


@rule("index : expr ASSIGN expr | expr ASSIGN slice")
def p_index_by_axis(p: Production) -> None:
    """`axis=value` in an index; the axis is a size."""
    if not is_size(p[1]):
        message = "before `=` in an index stands an axis"
        problem(p, p[2].line, "E0124", p[1], message, "write the axis's name or its size: `x[n=0]`, `x[N+1=0]`")
        p[2].line.lost = True
    p[0] = tree.IndexItem(*ends(p), p[1], as_slice(p[3]))


def is_size(node: tree.Expr) -> bool:
    """Could this expression be a size? Sizes have no calls, signs or fractions."""
    if isinstance(node, tree.Binary):
        return node.op in SIZE_SIGNS and is_size(node.left) and is_size(node.right)
    if isinstance(node, tree.Group):
        return is_size(node.inner)
    return isinstance(node, tree.Name) or isinstance(node, tree.Number) and isinstance(node.value, int)


def as_slice(value: tree.Expr) -> tree.Expr:
    """A range in an index is a slice."""
    return tree.Slice(value.start, value.end, value.first, value.last) if isinstance(value, tree.Range) else value


@rule("slice : expr DOTDOT | DOTDOT expr | DOTDOT")
def p_slice(p: Production) -> None:
    """`a..`, `..b` or `..`."""
    first = p[1] if isinstance(p[1], tree.Expr) else None
    last = p[2] if len(p) > 2 and first is None else None
    p[0] = tree.Slice(*ends(p), first, last)


@rule("postfix : postfix LAXES listed RBRACK")
def p_with_axes(p: Production) -> None:
    """`of[b n D]`."""
    p[0] = tree.WithAxes(*ends(p), p[1], p[3])
