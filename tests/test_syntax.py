"""Text to tree: what parses and to what, what doesn't and with which words, and that nothing makes the parser fall."""
# ruff: noqa: E501 (a tree stands on one line)

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapescript.source import Source
from shapescript.syntax import tables, tree
from shapescript.syntax.codes import CODES
from shapescript.syntax.parse import Parsed, parse, parse_devices

PROGRAM = """\
devices cuda[0..2 3]
    shard params
    split H

dim D  = 8
dim H  = 2          # heads
dim Dh = D / H
dim V  = words.vocabulary(D)
dim N
rate = 0.1

import python words
import python os.path as path
import nets

model Linear[I O]:
    param w: [I O] = normal(std=1 / sqrt(I))
    state n: [] i64 = zeros

model Net:
    first: Linear[D 3*D]
    blocks: [4] nets.Block
    param pos: [N+1 D] = zeros

data Example:
    img: [1 N D]
    label: [] Index[V]

extern fn crop(x: [b D]) -> [b D] = "words.crop"

fn attend(m: Net, x: [b n D], k: [.. D]) -> ([b n D], [b H n n]):
    q, k, v = x @ m.first.w |> split(b n (3 H Dh) -> b H n Dh)
    s = einsum(q, k: b H n Dh, b H m Dh -> b H n m) / sqrt(Dh)
    a = s
        |> masked_fill(!causal[n m], -inf)
        # the weights
        |> softmax(over=m)
    y = attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh, mask=causal[n m])
    return y |> rearrange(b H n Dh -> b n (H Dh)), a

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Example, lr: float = 3e-4) -> [] NonNeg:
    (l, more), g = value_and_grad(loss, mut m, batch)
    update(mut m, mut opt, clip(g, norm=1.0), lr=lr)
    m.first.n = m.first.n + 1
    x = batch.img[1=0][N=1..-1, D=..2]
    if not l < 1.0 and lr >= 2 ** -3 or false: return l
    elif lr == 0:
        pass
    else:
        while true:
            break
    assert l > 0, "why \\"so\\""
    return l + full[n](x)[0] as f64 |> relu

fn main(epochs: int = 3):
    train = words.load("train") as Dataset[Example]
    for epoch, i in reversed(0..epochs):
        for batch in train |> shuffle(seed=epoch) |> batches(64):
            print("loss", step(mut m, mut opt, batch))
            continue
"""


def read(text: str) -> Parsed:
    """Parses a text without a file."""
    return parse(Source("t.ss", text))


def value(text: str) -> str:
    """The tree of an expression in a function."""
    parsed = read(f"fn f():\n    y = {text}\n")
    assert parsed.diagnostics == [], text
    (function,) = parsed.items
    assert isinstance(function, tree.Function)
    (statement,) = function.body
    assert isinstance(statement, tree.Assign)
    return statement.value.show()


def errors(text: str) -> list[tuple[str, str]]:
    """The code and the marked text of each error."""
    return [(d.code, d.primary.span.text) for d in read(text).diagnostics]


def test_a_program_with_everything_parses() -> None:
    parsed = read(PROGRAM)
    assert parsed.diagnostics == []
    kinds = [type(item).__name__ for item in parsed.items]
    assert kinds == [
        *["Devices", "Dim", "Dim", "Dim", "Dim", "Dim", "Constant", "Import", "Import", "Import"],
        *["Model", "Model", "Data", "Extern", "Function", "Function", "Function"],
    ]
    assert parsed.items[0].show() == (
        "(Devices (DeviceSpec cuda [(DeviceNumber 0 2) (DeviceNumber 3)])"
        " [(DeviceOption shard params 31) (DeviceOption split H 48)])"
    )


def test_positions_are_of_the_text() -> None:
    for item in read(PROGRAM).items:
        for node in item.walk():
            assert 0 <= node.start <= node.end <= len(PROGRAM), node.show()
            for child in node.children():
                assert node.start <= child.start and child.end <= node.end, (node.show(), child.show())
            if isinstance(node, tree.Name):
                assert PROGRAM[node.start : node.end] == node.name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a + b as f32", "(As (Binary + (Name a) (Name b)) (NamedType f32))"),
        ("x as f32 |> f", "(Pipe (As (Name x) (NamedType f32)) (Name f))"),
        ("a or b as bool", "(As (Binary or (Name a) (Name b)) (NamedType bool))"),
        ("x as bf16 @ w", "(Binary @ (As (Name x) (NamedType bf16)) (Name w))"),
        ("-a ** 2", "(Unary - (Binary ** (Name a) (Number 2)))"),
        ("a ** -b ** c", "(Binary ** (Name a) (Unary - (Binary ** (Name b) (Name c))))"),
        ("-a * b", "(Binary * (Unary - (Name a)) (Name b))"),
        ("not a == b and c", "(Binary and (Unary not (Binary == (Name a) (Name b))) (Name c))"),
        ("0..n - 1 < m", "(Binary < (Range (Number 0) (Binary - (Name n) (Number 1))) (Name m))"),
        ("a @ b + c |> f(d)", "(Pipe (Binary + (Binary @ (Name a) (Name b)) (Name c)) (Call (Name f) [(Argument (Name d))]))"),
        ("a - b - c", "(Binary - (Binary - (Name a) (Name b)) (Name c))"),
        ("x[N+1=0]", "(Index (Name x) [(IndexItem (Binary + (Name N) (Number 1)) (Number 0))])"),
        ("x[1=0]", "(Index (Name x) [(IndexItem (Number 1) (Number 0))])"),
        ("x[n=1..]", "(Index (Name x) [(IndexItem (Name n) (Slice (Number 1)))])"),
        ("x[n=..-1, m=i]", "(Index (Name x) [(IndexItem (Name n) (Slice (Unary - (Number 1)))) (IndexItem (Name m) (Name i))])"),
        ("x[1..k]", "(Index (Name x) [(IndexItem (Slice (Number 1) (Name k)))])"),
        ("x[..]", "(Index (Name x) [(IndexItem (Slice))])"),
        ("x[n -1]", "(Index (Name x) [(IndexItem (Binary - (Name n) (Number 1)))])"),
        ("x[y as [b] Index[C]]", "(Index (Name x) [(IndexItem (As (Name y) (TensorType (Axes [(Name b)]) (NamedType Index [(Name C)]))))])"),
        ("zeros[]", "(Index (Name zeros) [])"),
        ("zeros[n (H Dh)]", "(WithAxes (Name zeros) [(Name n) (Merged [(Name H) (Name Dh)])])"),
        ("zeros[n (H + 1)]", "(WithAxes (Name zeros) [(Name n) (Group (Binary + (Name H) (Number 1)))])"),
        ("broadcast(x, [n m])", "(Call (Name broadcast) [(Argument (Name x)) (Argument (Axes [(Name n) (Name m)]))])"),
        ("x as [.. D]", "(As (Name x) (TensorType (Axes [(AnyAxes) (Name D)])))"),
        ("x as ([b C], [])", "(As (Name x) (TupleType [(TensorType (Axes [(Name b) (Name C)])) (TensorType (Axes []))]))"),
        ("x as Grads[nets.Mlp[D 2]]", "(As (Name x) (NamedType Grads [(NamedType nets Mlp [(Name D) (Number 2)])]))"),
        ("rearrange(b (h w) -> b h w, h=4)", "(Call (Name rearrange) [] (Pattern [(Axes [(Name b) (Merged [(Name h) (Name w)])])] (Axes [(Name b) (Name h) (Name w)]) [(Argument h (Number 4))]))"),
        ("einsum(a, b: n, n -> )", "(Call (Name einsum) [(Argument (Name a)) (Argument (Name b))] (Pattern [(Axes [(Name n)]) (Axes [(Name n)])] (Axes []) []))"),
        ("rearrange(.. h -> h ..)", "(Call (Name rearrange) [] (Pattern [(Axes [(AnyAxes) (Name h)])] (Axes [(Name h) (AnyAxes)]) []))"),
        ("f(mut m, s=mut m.bn)", "(Call (Name f) [(Argument True (Name m)) (Argument s True (Attribute (Name m) bn 33))])"),
        ("(x), (y,)", "(Tuple [(Group (Name x)) (Tuple [(Name y)])])"),
        ("data(state, shard, dim)", "(Call (Name data) [(Argument (Name state)) (Argument (Name shard)) (Argument (Name dim))])"),
        ("1_000 + 3e-4", "(Binary + (Number 1000) (Number 0.0003))"),
        ('"a\\n\\"\\\\"', '(String a\n"\\)'),
    ],
)  # fmt: skip
def test_expressions(text: str, shown: str) -> None:
    assert value(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\ufeffdim D = 1\r\n\r\nrate = -0.5", "(Dim D 5 (Number 1)) (Constant rate 14 (Unary - (Number 0.5)))"),
        ("", ""),
        ("# only a comment", ""),
        ("import a.b\nimport python c.d as e", "(Import a.b a.b 7) (Import True c.d e 32)"),
        ("model Empty:\n  pass\n", "(Model Empty 6 [] [])"),
        ("data D:\n  param: [D]\n  state: x.Y\n", None),
        ("fn f():\n  y = 1\n# at the margin\n        # deep\n\n  return", "(Function f 3 [] [(Assign (Name y) (Number 1)) (Return)])"),
        ("fn f(x: [b D],\n     y: [] NonNeg,) -> []: return x", None),
        ("fn f():\n  for a, b in c: g(a)\n", "(Function f 3 [] [(For [(Name a) (Name b)] (Name c) [(Do (Call (Name g) [(Argument (Name a))]))])])"),
        ("fn f():\n  if a: pass\n  elif b: pass\n  else: pass", "(Function f 3 [] [(If (Name a) [(Pass)] [(If (Name b) [(Pass)] [(Pass)])])])"),
        ("fn split(param: int, split: int):\n  return", None),
    ],
)  # fmt: skip
def test_files(text: str, shown: str | None) -> None:
    parsed = read(text)
    assert parsed.diagnostics == []
    if shown is not None:
        assert " ".join(item.show() for item in parsed.items) == shown


WRONG = [
    ("fn f(x: [b D]) -> [b]\n    return x\n", [("E0112", "")]),
    ("fn f(x: [b D) -> [b]:\n    return x\n", [("E0107", ")")]),
    ("fn f(x: [b, D]) -> [b]:\n    return x\n", [("E0116", ",")]),
    ("fn f(x: [b D]) [b]:\n    return x\n", [("E0110", "[")]),
    ("fn f(x):\n    return x\n", [("E0110", ")")]),
    ("fn in():\n    pass\n", [("E0111", "in")]),
    ("fn f(a: int -> int:\n    pass\n", [("E0106", "->")]),
    ("fn f():\n    if x = 3:\n        y = 1\n    return z z\n", [("E0110", "="), ("E0110", "z")]),
    ("fn f():\n    y = g(x\n    return y\nfn h():\n    pass\n", [("E0106", "(")]),
    ("fn f():\n    y = g(x, [b\n\nfn h():\n    pass\n", [("E0106", "[")]),
    ("fn f():\n    y = x)\n    z = 3 $ 4\n", [("E0107", ")"), ("E0101", "$")]),
    ('fn f():\n    y = g("abc)\n    z = 1\n', [("E0108", '"abc)')]),
    ("fn f():\n    y = 'abc'\n", [("E0108", "'abc'")]),
    ('fn f():\n    y = "a\\q"\n', [("E0108", "\\q")]),
    ("fn f():\n\ty = 1\n\tz = 2\n", [("E0102", "\t")]),
    ("fn f():\n    y = 1\n  z = 2\n", [("E0103", "z")]),
    ("fn f():\n    y = 1\n      z = 2\n", [("E0104", "z")]),
    ("  dim N = 3\n", [("E0104", "dim")]),
    ("fn f():\nfn g():\n    pass\n", [("E0105", ":")]),
    ("fn f():\n    y = a < b < c\n", [("E0113", "<")]),
    ("fn f():\n    y = a == not b\n", [("E0113", "not b")]),
    ("fn f():\n    y = x |> g + 1\n", [("E0114", "g + 1")]),
    ("fn f():\n    g(x) = 3\n    x[0] = 1\n", [("E0115", "g(x)"), ("E0115", "x[0]")]),
    ("fn f() -> [b n -1]:\n    pass\n", [("E0117", "-")]),
    ("print(x)\nx, y = 3, 4\ndim D = 2\n", [("E0118", "print(x)")]),
    ("def f(x: int):\n    return x x\n", [("E0118", "def"), ("E0110", "x")]),
    ("fn f():\n    fn g():\n        return 1 1\n    return 2\n", [("E0119", "fn"), ("E0110", "1")]),
    ("fn f():\n    x += 1\n", [("E0120", "+=")]),
    ("fn f():\n    x == 1\n    x\n", [("E0121", "x == 1"), ("E0121", "x")]),
    ("fn f():\n    y = rearrange(x, b n -> n b)\n", [("E0122", "x, b n -> n b")]),
    ("model M[3*N]:\n    pass\n", [("E0124", "3*N")]),
    ("fn f():\n    y = x[f(a)=0]\n", [("E0124", "f(a)")]),
    ("fn f():\n    y = g(a=1, 2)\n", [("E0125", "2")]),
    ("fn f():\n    y = a && b\n", [("E0101", "&&")]),
    ("fn f():\n    y = 3D + 1. + .5 + 1__0 + 1e999\n", [("E0109", t) for t in ("3D", "1.", ".5", "1__0", "1e999")]),
    ("fn f():\n    α = 1\n    y = “a”\n", [("E0101", "α"), ("E0101", "“"), ("E0101", "”")]),
    ("fn f():\n    y = a..b..c\n", [("E0110", "..")]),
    ("fn f():\n    y = [1, 2]\n", [("E0116", ",")]),
    ("fn f():\n    y = x[1:3]\n", [("E0110", ":")]),
    ("fn f():\n    y = zeros[1.5 D]\n", [("E0109", "1.5")]),
    ("fn f():\n    dim N = 3\n", [("E0110", "N")]),
    ("fn f():\n    a = b\rc = 1\n", [("E0101", "\r")]),
    ("devices cpu:\n    shard params\n", [("E0112", ":")]),
    ("devices cuda[0, 1]\n", [("E0116", ",")]),
    ("devices cuda:0\n", [("E0110", ":")]),
    ("devices cpu\n    shrad params\n", [("E0110", "shrad")]),
    ("devices cpu\n    split H 2\n", [("E0110", "2")]),
    ("devices cpu\n    split H V\n", [("E0110", "V")]),
    ("devices cpu\n    split H by\n", [("E0110", "by")]),
    ("devices cpu\n    split H of 2\n", [("E0110", "of")]),
    ("devices cpu\n    split H by 0\n", [("E0109", "0")]),
    ("model M:\n    w: [D] = = 3\n    x y\n    z: [D]\n", [("E0110", "="), ("E0110", "y")]),
    ("rate = 0.1 0.2\nother = 1\n", [("E0110", "0.2")]),
]


@pytest.mark.parametrize(("text", "wanted"), WRONG)
def test_mistakes(text: str, wanted: list[tuple[str, str]]) -> None:
    assert errors(text) == wanted


def test_every_code_is_shown() -> None:
    shown = {code for _, wanted in WRONG for code, _ in wanted} | {"E0123"}
    assert shown == set(CODES)


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("fn f():\n    y = x |> g + 1\n", "`|>` binds loosest: write `(x |> g) + 1`"),
        ("fn f():\n    y = a < b < c\n", "write `a < b and b < c`"),
        ("fn f() -> [b n -1]:\n    pass\n", "write `n - 1`: no axis has a negative size"),
        ("fn f():\n    x += 1\n", "write `x = x + 1`"),
        ("fn f():\n    if x = 3:\n        pass\n", "to compare, write `==`"),
        ("fn f():\n    if x:\n        pass\n    else if y:\n        pass\n", "write `elif`"),
        ("fn f(x: [b]) [b]:\n    pass\n", "write `->` before the type of the result"),
        ("fn f():\n    y = 1.\n", "write `1.0`"),
        ("fn f():\n    y = .5\n", "write `0.5`"),
        ("fn f():\n    y = 1__0\n", "write `1_0`"),
        ("fn f():\n    x: int = 3\n", "a value's type is written after it: `x = ... as TYPE`"),
        ("fn f():\n    y = rearrange(... h -> h)\n", "`...` isn't a sign of the language: any axes are written `..`"),
        ("fn f():\n    import python os\n", "an `import` stands at the left margin, outside functions"),
        ("extern fn f(x: [b]) -> [b]\n", 'an `extern fn` names the Python function: `= "module.function"`'),
        ("devices cuda:0\n", "write `cuda[0]`"),
    ],
)
def test_help(text: str, help: str) -> None:
    assert [line for d in read(text).diagnostics for line in d.helps] == [help]


def test_a_lost_line_keeps_the_names_around_it() -> None:
    parsed = read(
        "fn f():\n    a, b = 1 1\n    for c in d d:\n        e = 2\n\nfn g(x):\n    h = 3\n\nmodel M:\n    w w\n"
    )
    function, lost, model = parsed.items
    assert function.show() == "(Function f 3 [] [(Lost [] [a b]) (Lost [(Assign (Name e) (Number 2))] [c])])"
    assert lost.show() == "(LostDeclaration g [(Assign (Name h) (Number 3))])"
    assert model.show() == "(LostDeclaration M [])"


@pytest.mark.parametrize(
    "line",
    [
        "y = " + "(" * 200 + "x" + ")" * 200,
        "y = " + "(" * 20000,
        "y = x" + " + x" * 5000,
        "y = " + "-" * 5000 + "x",
        "y = x" + " ** x" * 300,
        "y = x" + " |> f" * 1100,
        "y = f" + "(1)" * 300,
        "y = x" + "[0]" * 300,
        "y = x as " + "(" * 200 + "int" + ")" * 200,
        "y = x as " + "AdamW[" * 150 + "M" + "]" * 150,
        "if a: pass" + "\n    elif a: pass" * 300,
    ],
)
def test_deep_nesting_is_one_error(line: str) -> None:
    parsed = read(f"fn f():\n    {line}\n")
    assert [d.code for d in parsed.diagnostics] == ["E0123"]
    assert parsed.items[0].show() == "(LostDeclaration f [])"


@pytest.mark.parametrize("link", [" + x", " |> f", " and x", " @ x"])
def test_a_long_chain_is_no_deep_nesting(link: str) -> None:
    parsed = read(f"fn f():\n    y = x{link * 1000}\n")
    assert parsed.diagnostics == []
    [found] = read(f"fn f():\n    y = x{link * 1100}\n").diagnostics
    assert (found.code, found.message) == ("E0123", "a chain of more than 1000 operators")


def test_deep_blocks_are_one_error() -> None:
    lines = ["fn f():", *(" " * n + "if a:" for n in range(1, 300)), " " * 300 + "pass"]
    assert [d.code for d in read("\n".join(lines)).diagnostics] == ["E0123"]


def test_what_is_not_deep_is_no_error() -> None:
    assert value("(" * 60 + "x" + ")" * 60).startswith("(Group")
    assert read("fn f():\n    y = f(" + ", ".join(["g(x)"] * 500) + ")\n").diagnostics == []


def test_devices_of_a_command_line() -> None:
    spec, found = parse_devices("cpu[0 1 2]")
    assert found == [] and spec is not None
    assert spec.show() == "(DeviceSpec cpu [(DeviceNumber 0) (DeviceNumber 1) (DeviceNumber 2)])"
    for wrong in ("", "cuda:0", "cpu\ndim D = 3", "cpu\n    split H", "cuda[x]", "cuda[1.5]", "\x00", "cpu[" * 200):
        spec, found = parse_devices(wrong)
        assert spec is None and found, wrong


def well_formed(text: str) -> None:
    """The parse of any text ends, and its nodes and errors lie in it."""
    parsed = read(text)
    for d in parsed.diagnostics:
        assert d.code in CODES
        assert 0 <= d.primary.span.start <= d.primary.span.end <= len(text), d
        assert d.message and not d.message.endswith(".")
    for item in parsed.items:
        for node in item.walk():
            assert 0 <= node.start <= node.end <= len(text)
        item.show()


def test_truncated_at_every_byte() -> None:
    data = PROGRAM.encode()
    for end in range(len(data)):
        well_formed(data[:end].decode("utf-8", "replace"))


def test_a_piece_left_out_or_put_in() -> None:
    pieces = ["(", ")", "[", "]", "->", "..", ":", "\n", "    ", "fn", "if", "=", "|>", ",", '"', "\t", "x", "1", "as"]
    chance = random.Random(0)
    for _ in range(400):
        at = chance.randrange(len(PROGRAM))
        cut = chance.randrange(4)
        well_formed(PROGRAM[:at] + chance.choice(["", *pieces]) + PROGRAM[at + cut :])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    well_formed(data.decode("utf-8", "replace"))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="fn ()[]:->=.,|\n\t\"'ab1+*dimels#@", max_size=120))
def test_any_signs(text: str) -> None:
    well_formed("fn f():\n    " + text)


def test_tables_come_out_equal() -> None:
    text = tables.written(tables.build())
    assert text == tables.written(tables.build())
    module: dict[str, object] = {}
    exec(text, module)
    table = tables.build()
    assert module["_lr_action"] == table.lr_action and module["_lr_goto"] == table.lr_goto


def test_torch_is_not_imported() -> None:
    code = "import sys, shapescript.syntax.parse; sys.exit(any(m in sys.modules for m in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
