"""Declarations: their rules and actions, and what becomes of one whose head can't be parsed."""

from __future__ import annotations

from shapescript.syntax import tree
from shapescript.syntax.rules import Production, ends, problem, rule
from shapescript.syntax.tokens import Line, Token


@rule("item : devices | dim | constant | model | data | fn | extern | import")
def p_item(p: Production) -> None:
    """A declaration."""
    p[0] = p[1]


@rule("fields : field ; options : option ; devnums : devnum ; paramlist : param")
def p_first_of_declarations(p: Production) -> None:
    """A list begins."""
    p[0] = [p[1]]


@rule("fields : fields field ; options : options option ; devnums : devnums devnum")
def p_next_of_declarations(p: Production) -> None:
    """A list goes on."""
    p[1].append(p[2])
    p[0] = p[1]


@rule("paramlist : paramlist COMMA param")
def p_comma_of_declarations(p: Production) -> None:
    """A list goes on after a comma."""
    p[1].append(p[3])
    p[0] = p[1]


# --- devices ---------------------------------------------------------------------------------------------------------


@rule("devices : DEVICES spec NEWLINE | DEVICES spec NEWLINE INDENT options DEDENT")
def p_devices(p: Production) -> None:
    """The `devices` line and its options."""
    options = [option for option in p[5] if isinstance(option, tree.DeviceOption)] if len(p) > 4 else []
    p[0] = tree.Devices(p[1].start, options[-1].end if options else p[2].end, p[2], options)


@rule("spec : NAME | NAME LBRACK devnums RBRACK | NAME LAXES devnums RBRACK")
def p_spec(p: Production) -> None:
    """`cpu`, `cuda[0 1 2]`."""
    p[0] = tree.DeviceSpec(*ends(p), p[1].text, p[3] if len(p) > 2 else [])


@rule("devnum : NUMBER | NUMBER DOTDOT NUMBER")
def p_device_number(p: Production) -> None:
    """`2`, or `0..8`."""
    p[0] = tree.DeviceNumber(*ends(p), device_number(p, p[1]), device_number(p, p[3]) if len(p) > 2 else None)


def device_number(p: Production, token: Token) -> int:
    """The number of a device."""
    if token.text.isascii() and token.text.isdecimal() and len(token.text) < 10:
        return int(token.text)
    message = f"`{token.text}` isn't the number of a device"
    problem(p, token.line, "E0109", token, message, "devices are counted from 0: `cuda[0 1 2]`")
    token.line.lost = True
    return 0


@rule("option : SHARD NAME NEWLINE | SPLIT NAME NEWLINE")
def p_option(p: Production) -> None:
    """`shard params` or `split H`."""
    p[0] = tree.DeviceOption(p[1].start, p[2].end, p[1].text, p[2].text, p[2].start, None)


@rule("option : SPLIT NAME NAME NUMBER NEWLINE")
def p_option_by(p: Production) -> None:
    """`split H by 2`."""
    if p[3].text != "by":
        wrong_split(p, p[3], p[2].text)
        return
    number = p[4]
    if not (number.text.isascii() and number.text.isdecimal() and len(number.text) < 10 and int(number.text)):
        message = f"`{number.text}` isn't a number of parts"
        problem(p, number.line, "E0109", number, message, f"`split {p[2].text} by 2` makes two parts of it")
        return
    p[0] = tree.DeviceOption(p[1].start, number.end, p[1].text, p[2].text, p[2].start, int(number.text))


@rule("option : SPLIT NAME NAME NEWLINE | SPLIT NAME NUMBER NEWLINE")
def p_option_without_by(p: Production) -> None:
    """`split H 2`, `split H V`, `split H by`: no option."""
    wrong_split(p, p[3], p[2].text)


def wrong_split(p: Production, token: Token, dim: str) -> None:
    """What stands behind `split H` and isn't `by 2`."""
    if token.text == "by":
        message, help = "a number of parts is missing after `by`", f"write `split {dim} by 2`"
    elif token.type == "NUMBER":
        message, help = f"`by` is missing before `{token.text}`", f"write `split {dim} by {token.text}`"
    else:
        message = f"unexpected `{token.text}`; expected `by` or the end of the line"
        help = f"one dim stands on a line: `split {dim}`, and `split {token.text}` under it"
    problem(p, token.line, "E0110", token, message, help)


# --- dims, constants and imports -------------------------------------------------------------------------------------


@rule("dim : DIM NAME NEWLINE | DIM NAME ASSIGN expr NEWLINE")
def p_dim(p: Production) -> None:
    """`dim NAME = value`."""
    value = p[4] if len(p) > 4 else None
    node = tree.Dim(p[1].start, (value or p[2]).end, p[2].text, p[2].start, value)
    p[0] = kept(node, p[1].line)


@rule("constant : NAME ASSIGN expr NEWLINE")
def p_constant(p: Production) -> None:
    """`name = value`."""
    p[0] = kept(tree.Constant(p[1].start, p[3].end, p[1].text, p[1].start, p[3]), p[1].line)


@rule("""import : IMPORT module NEWLINE | IMPORT module AS NAME NEWLINE | IMPORT PYTHON module NEWLINE | IMPORT PYTHON
         module AS NAME NEWLINE""")
def p_import(p: Production) -> None:
    """`import python module as name`; a module is its tokens' text with where they begin and end."""
    python = isinstance(p[2], Token)
    module: tuple[str, int, int] = p[3] if python else p[2]
    alias = p[len(p) - 2] if len(p) > 5 else None
    name, at, end = (alias.text, alias.start, alias.end) if alias else module
    p[0] = kept(tree.Import(p[1].start, end, python, module[0], name, at), p[1].line)


@rule("module : NAME | module DOT NAME")
def p_module(p: Production) -> None:
    """`a` or `a.b`."""
    if len(p) == 2:
        p[0] = (p[1].text, p[1].start, p[1].end)
    else:
        p[0] = (f"{p[1][0]}.{p[3].text}", p[1][1], p[3].end)


def kept(node: tree.Dim | tree.Constant | tree.Import, line: Line) -> tree.Declaration:
    """The declaration, or a lost one where its line isn't what the user meant."""
    return tree.LostDeclaration(node.start, node.end, node.name, []) if line.lost else node


# --- models and data -------------------------------------------------------------------------------------------------


@rule("model : MODEL NAME COLON NEWLINE INDENT fields DEDENT | MODEL NAME brackets COLON NEWLINE INDENT fields DEDENT")
def p_model(p: Production) -> None:
    """`model NAME[dims]:`."""
    dims: list[tree.Name] = []
    for size in p[3].sizes if len(p) > 8 else []:
        if isinstance(size, tree.Name):
            dims.append(size)
        else:
            message = "between the brackets of a model stand the names of its dims"
            help = "write a name, such as `N`; a use of the model gives it a size"
            problem(p, p[1].line, "E0124", size, message, help)
            p[1].line.lost = True
    members, whole = members_of(p[len(p) - 2])
    start, end = p[1].start, p[len(p) - 1].start
    if whole and not p[1].line.lost:
        p[0] = tree.Model(start, end, p[2].text, p[2].start, dims, members)
    else:
        p[0] = tree.LostDeclaration(start, end, p[2].text, [])


@rule("data : DATA NAME COLON NEWLINE INDENT fields DEDENT")
def p_data(p: Production) -> None:
    """`data NAME:`."""
    members, whole = members_of(p[6])
    start, end = p[1].start, p[7].start
    if whole and not p[1].line.lost:
        p[0] = tree.Data(start, end, p[2].text, p[2].start, members)
    else:
        p[0] = tree.LostDeclaration(start, end, p[2].text, [])


def members_of(found: list[tree.Node]) -> tuple[list[tree.Field], bool]:
    """The fields, and whether no line of them was lost."""
    fields = [node for node in found if isinstance(node, tree.Field)]
    return fields, not any(isinstance(node, tree.Lost) for node in found)


@rule("""field : PARAM NAME COLON type NEWLINE | PARAM NAME COLON type ASSIGN expr NEWLINE | STATE NAME COLON type
         NEWLINE | STATE NAME COLON type ASSIGN expr NEWLINE""")
def p_kept_field(p: Production) -> None:
    """`param name: type = initialiser`."""
    p[0] = field(p[1], p[2], p[4], p[6] if len(p) > 6 else None)


@rule("field : NAME COLON type NEWLINE | NAME COLON type ASSIGN expr NEWLINE")
def p_field(p: Production) -> None:
    """`name: type`."""
    p[0] = field(None, p[1], p[3], p[5] if len(p) > 5 else None)


@rule("field : PASS NEWLINE")
def p_no_field(p: Production) -> None:
    """`pass`, in a model or a data without fields."""
    p[0] = tree.Pass(p[1].start, p[1].end)


def field(word: Token | None, name: Token, type: tree.TypeExpr, value: tree.Expr | None) -> tree.Node:
    """A field, or a lost line."""
    start, end = (word or name).start, (value or type).end
    if name.line.lost:
        return tree.Lost(start, end, [], [name.text])
    return tree.Field(start, end, word.text if word else None, name.text, name.start, type, value)


# --- functions -------------------------------------------------------------------------------------------------------


@rule("fn : FN NAME LPAREN params RPAREN result block")
def p_function(p: Production) -> None:
    """`fn name(parameters) -> result:`."""
    start, end, body = p[1].start, p[7][-1].end, p[7]
    if p[1].line.lost:
        p[0] = tree.LostDeclaration(start, end, p[2].text, body)
    else:
        p[0] = tree.Function(start, end, p[2].text, p[2].start, p[4], p[6], body)


@rule("extern : EXTERN FN NAME LPAREN params RPAREN result ASSIGN string NEWLINE")
def p_extern(p: Production) -> None:
    """`extern fn name(parameters) -> result = "module.attr"`."""
    node = tree.Extern(p[1].start, p[9].end, p[3].text, p[3].start, p[5], p[7], p[9])
    p[0] = tree.LostDeclaration(node.start, node.end, node.name, []) if p[1].line.lost else node


@rule("params : paramlist | paramlist COMMA")
def p_parameters(p: Production) -> None:
    """A function's parameters."""
    p[0] = p[1]


@rule("params : ")
def p_no_parameters(p: Production) -> None:
    """A function without parameters."""
    p[0] = []


@rule("result : ")
def p_no_result(p: Production) -> None:
    """A function that gives nothing."""
    p[0] = None


@rule("result : ARROW type")
def p_result(p: Production) -> None:
    """`-> type`."""
    p[0] = p[2]


@rule("""param : NAME COLON type | NAME COLON type ASSIGN expr | MUT NAME COLON type | MUT NAME COLON type ASSIGN
         expr""")
def p_parameter(p: Production) -> None:
    """`mut name: type = default`."""
    mut = int(p[1].type == "MUT")
    name, default = p[1 + mut], p[5 + mut] if len(p) > 5 + mut else None
    p[0] = tree.Parameter(*ends(p), bool(mut), name.text, name.start, p[3 + mut], default)


# --- recovery: a head that can't be parsed costs the declaration, not the lines under it -----------------------------


@rule("""devices : DEVICES error NEWLINE ; model : MODEL error NEWLINE ; data : DATA error NEWLINE ; dim : DIM error
         NEWLINE ; constant : NAME error NEWLINE ; import : IMPORT error NEWLINE ; extern : EXTERN error NEWLINE ; fn
         : FN error NEWLINE""")
def p_lost_declaration(p: Production) -> None:
    """A declaration on one line."""
    p[0] = lost_declaration(p, p[3].line, [])


@rule("""devices : DEVICES error NEWLINE INDENT options DEDENT ; model : MODEL error NEWLINE INDENT fields DEDENT ;
         data : DATA error NEWLINE INDENT fields DEDENT ; dim : DIM error NEWLINE INDENT stmts DEDENT ; constant :
         NAME error NEWLINE INDENT stmts DEDENT ; import : IMPORT error NEWLINE INDENT stmts DEDENT ; extern : EXTERN
         error NEWLINE INDENT stmts DEDENT ; fn : FN error NEWLINE INDENT stmts DEDENT""")
def p_lost_declaration_with_lines(p: Production) -> None:
    """A declaration's head, with the lines under it."""
    p[0] = lost_declaration(p, p[3].line, [node for node in p[5] if isinstance(node, tree.Statement)])


def lost_declaration(p: Production, line: Line, body: list[tree.Statement]) -> tree.LostDeclaration:
    """What stands for a declaration whose head can't be parsed, after which the parser reports errors again."""
    p.parser.errok()
    end = body[-1].end if body else line.tokens[-1].end
    return tree.LostDeclaration(line.tokens[0].start, end, declared_name(line), body)


def declared_name(line: Line) -> str | None:
    """The name that a line seems to declare."""
    tokens = line.tokens
    if tokens[0].type == "DEVICES":
        return None
    if tokens[0].type == "NAME":
        return tokens[0].text
    at = 2 if len(tokens) > 1 and tokens[1].type == "FN" else 1
    return tokens[at].text if len(tokens) > at and tokens[at].type == "NAME" else None
