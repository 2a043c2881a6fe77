"""Types, sizes and patterns: their rules and actions."""

from __future__ import annotations

from shapescript.diagnostics.fixes import replaced
from shapescript.syntax import tree
from shapescript.syntax.lexer import number_value
from shapescript.syntax.rules import Production, ends, problem, rule, text_of
from shapescript.syntax.tokens import Token


@rule("axes : axis ; listed : axis ; targlist : targ ; sides : axes ; types : type")
def p_first_of_types(p: Production) -> None:
    """A list begins."""
    p[0] = [p[1]]


@rule("axes : axes axis ; listed : listed axis ; targlist : targlist targ")
def p_next_of_types(p: Production) -> None:
    """A list goes on after a space."""
    p[1].append(p[2])
    p[0] = p[1]


@rule("types : types COMMA type")
def p_comma_of_types(p: Production) -> None:
    """A list goes on after a comma."""
    p[1].append(p[3])
    p[0] = p[1]


@rule("listed : listed COMMA axis ; targlist : targlist COMMA targ ; devnums : devnums COMMA devnum")
def p_wrong_comma(p: Production) -> None:
    """`[b, n]`, read as `[b n]`."""
    what = "the numbers of devices" if p.slice[0].type == "devnums" else "axes"
    message, help = f"{what} are separated by spaces, not by commas", "leave the comma out"
    blank = "" if p[3].start > p[2].end else " "
    problem(p, p[2].line, "E0116", p[2], message, help, instead=blank)
    p[1].append(p[3])
    p[0] = p[1]


@rule("targ : size | generic ; type : named ; named : generic ; axis : size")
def p_same_of_types(p: Production) -> None:
    """Passed on."""
    p[0] = p[1]


# --- types -----------------------------------------------------------------------------------------------------------


@rule("type : brackets | brackets named")
def p_tensor_type(p: Production) -> None:
    """`[b n]` or `[b n] element`."""
    p[0] = tree.TensorType(*ends(p), p[1], p[2] if len(p) > 2 else None)


@rule("type : LPAREN types RPAREN | LPAREN types COMMA RPAREN")
def p_tuple_type(p: Production) -> None:
    """`([b], [])`; one type in brackets is that type."""
    p[0] = tree.TupleType(*ends(p), p[2]) if len(p) > 4 or len(p[2]) > 1 else p[2][0]


@rule("named : NAME")
def p_named_type(p: Production) -> None:
    """`int`, `Example`."""
    p[0] = tree.NamedType(*ends(p), None, p[1].text, None)


@rule("named : NAME DOT NAME")
def p_dotted_type(p: Production) -> None:
    """`nets.Mlp`; among a type's arguments it is read as a size, and the checker knows which it is."""
    p[0] = tree.NamedType(*ends(p), p[1].text, p[3].text, None)


@rule("generic : NAME targs | NAME DOT NAME targs")
def p_generic_type(p: Production) -> None:
    """`Index[V]`, `nets.Linear[D 2]`."""
    dotted = len(p) > 3
    arguments, end = p[len(p) - 1]
    name = p[3 if dotted else 1].text
    p[0] = tree.NamedType(p[1].start, end, p[1].text if dotted else None, name, arguments)


@rule("targs : LBRACK brackets named RBRACK | LAXES brackets named RBRACK")
def p_list_argument(p: Production) -> None:
    """`AdamW[[L] Block]`: of a list of models."""
    models = tree.TensorType(p[2].start, p[3].end, p[2], p[3])
    p[0] = ([models], p[4].end)


@rule("targs : LBRACK targlist RBRACK | LAXES targlist RBRACK")
def p_type_arguments(p: Production) -> None:
    """The arguments of a type, with where they end."""
    p[0] = (p[2], p[3].end)


# --- sizes -----------------------------------------------------------------------------------------------------------


@rule("brackets : LBRACK RBRACK | LBRACK listed RBRACK | LAXES listed RBRACK")
def p_brackets(p: Production) -> None:
    """`[b n D]`."""
    p[0] = tree.Axes(*ends(p), p[2] if len(p) > 3 else [])


@rule("axis : DOTDOT")
def p_any_axes(p: Production) -> None:
    """`..`: any axes."""
    p[0] = tree.AnyAxes(*ends(p))


@rule("size : NAME")
def p_size_name(p: Production) -> None:
    """An axis or a dim."""
    token = p[1]
    p[0] = tree.Name(token.start, token.end, token.text)


@rule("size : NAME DOT NAME")
def p_size_dotted(p: Production) -> None:
    """A dim of another file."""
    module, name = p[1], p[3]
    p[0] = tree.Attribute(*ends(p), tree.Name(module.start, module.end, module.text), name.text, name.start)


@rule("size : NUMBER")
def p_size_number(p: Production) -> None:
    """A number of places."""
    value = number_value(p[1].text)
    if isinstance(value, float):
        problem(p, p[1].line, "E0109", p[1], f"a size is a whole number, and `{p[1].text}` isn't one")
        value = 1
    p[0] = tree.Number(*ends(p), value)


@rule("size : size PLUS size | size MINUS size | size STAR size | size SLASH size")
def p_size_arithmetic(p: Production) -> None:
    """`3*D`, `n - 1`; `n -1` is an error, as it looks like two axes."""
    left, sign, right = p[1], p[2], p[3]
    if left.end < sign.start and sign.end == right.start:
        shown = text_of(p, right)
        message = f"`{sign.text}{shown}` looks like an axis of its own, but it is read with `{text_of(p, left)}`"
        never = ": no axis has a negative size" if sign.text == "-" else ""
        help = f"write `{text_of(p, left)} {sign.text} {shown}`{never}"
        fix = replaced(p.lexer.reporter.source.span(sign.start, sign.end), f"{sign.text} ")
        problem(p, sign.line, "E0117", sign, message, help, fix=fix)
    p[0] = tree.Binary(*ends(p), sign.text, left, right)


@rule("size : LPAREN axes RPAREN")
def p_merged(p: Production) -> None:
    """`(n + 1)` groups, `(H Dh)` merges."""
    for axis in p[2]:
        if isinstance(axis, tree.AnyAxes):
            problem(p, p[1].line, "E0110", axis, "`..` can't be a part of a merged axis", "name the axes")
            p[1].line.lost = True
    p[0] = tree.Group(*ends(p), p[2][0]) if len(p[2]) == 1 else tree.Merged(*ends(p), p[2])


# --- patterns --------------------------------------------------------------------------------------------------------


@rule("sides : sides COMMA side")
def p_sides(p: Production) -> None:
    """The axes of one more operand; without axes, a comma's place."""
    p[0] = [*(p[1] or [p[2]]), p[3] or p[2]]


@rule("side : axes")
def p_side(p: Production) -> None:
    """The axes of an operand or of the result."""
    p[0] = p[1]


@rule("sides :  ; side :  ; kwargs : ")
def p_no_side(p: Production) -> None:
    """A first operand without axes, no axes, or no sizes."""
    p[0] = []


@rule("pattern : sides ARROW side kwargs")
def p_pattern(p: Production) -> None:
    """`b n (H Dh) -> b H n Dh, h=4`."""
    operands = [side_axes(side) for side in p[1] or [p[2]]]
    result = side_axes(p[3] or p[2])
    p[0] = tree.Pattern(operands[0].start, p[4][-1].end if p[4] else result.end, operands, result, p[4])


def side_axes(side: list[tree.Expr] | Token) -> tree.Axes:
    """One side of a pattern; a token says where a side without axes is."""
    if isinstance(side, Token):
        return tree.Axes(side.end, side.end, [])
    return tree.Axes(side[0].start, side[-1].end, side)


@rule("kwargs : kwargs COMMA NAME ASSIGN expr")
def p_pattern_size(p: Production) -> None:
    """A size given by name after a pattern."""
    p[0] = [*p[1], tree.Argument(p[3].start, p[5].end, p[3].text, False, p[5])]
