"""The checker's core: what each mistake is called, that nothing follows from it, and that right programs pass."""

from __future__ import annotations

import pytest
from count_calls import calls_of

from shapescript.source import Source
from shapescript.syntax import tree
from shapescript.syntax.parse import Parsed, parse
from shapescript.types.axes import Axis
from shapescript.types.checker import check_program
from shapescript.types.kinds import Host, Tensor
from shapescript.types.typed import TypedProgram
from shapescript.types.uses import BuiltinUse, CallUse, LocalUse

HEAD = """devices cpu

dim D = 64
dim H = 32
dim C = 10

import python digits

model Net:
    param w1: [D H] = normal(std=0.05)
    param b1: [H]   = zeros
    param w2: [H C] = xavier

data Example:
    pixels: [D]
    digit:  [] Index[C]

"""

TRAINING = (
    HEAD
    + """
fn logits(m: Net, pixels: [b D]) -> [b C]:
    return pixels @ m.w1 + m.b1 |> relu |> matmul(m.w2)

fn loss(m: Net, batch: [b] Example) -> [] NonNeg:
    return cross_entropy(logits(m, batch.pixels), batch.digit, over=C)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Example) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, clip(g, norm=1.0))
    return l

fn correct(m: Net, batch: [b] Example) -> [] i64:
    guess = argmax(logits(m, batch.pixels), over=C)
    return sum(guess == batch.digit, over=b)

fn main(epochs: int = 3):
    train = digits.load("train") as Dataset[Example]
    test  = digits.load("test") as Dataset[Example]
    m   = Net(seed=0)
    opt = adamw(m, lr=1e-3)
    for epoch in 0..epochs:
        for batch in train |> shuffle(seed=epoch) |> batches(64):
            log("loss", step(mut m, mut opt, batch))
        hits = 0
        for batch in test |> batches(256):
            hits = hits + correct(m, batch)
        print("epoch", epoch, "accuracy", hits / len(test))
    save(m, "classifier.safetensors")
"""
)


def check(text: str, **options: object) -> TypedProgram:
    source = Source("a.ss", text)
    return check_program(source, parse(source), **options)  # type: ignore[arg-type]


def codes(text: str) -> list[str]:
    return [each.code for each in check(text).diagnostics]


def body(text: str, head: str = "fn f(n: int, x: float, t: str, mut m: Net):") -> str:
    return HEAD + head + "\n" + "".join(f"    {line}\n" for line in text.splitlines())


def test_a_training_program_checks() -> None:
    assert check(TRAINING).diagnostics == []


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("E1001", "dim D = 3\n"),
        ("E1002", "devices cpu\ndevices cpu\n"),
        ("E1003", "dim D = 3\ndevices cpu\n"),
        ("E1004", "devices gpu\n"),
        ("E1005", "devices cpu\n    shard state\n"),
        ("E1006", "devices cpu[0 0]\n"),
        ("E1007", "devices cpu[0 1 2 3 4 5]\n    split H by 4\n\ndim H = 8\n"),
        ("E1007", "devices cpu[0 1]\n    split H by 2\n    split V\n\ndim H = 8\ndim V = 2\n"),
        ("E1903", "devices cpu[0 1 2]\n    split H\n\ndim H = 8\n"),
        ("E1903", "devices cpu[0 1 2]\n    split H by 3\n\ndim H = 8\n"),
        ("E1904", "devices cpu[0 1 2]\n    split H\n\ndim D = 8\n"),
        ("E0202", "devices cpu\ndim D = 3\ndim D = 3\n"),
        ("E0203", "devices cpu\ndim d = 3\n"),
        ("E0212", "devices cpu\ndim A = B\ndim B = A\n"),
        ("E0371", "devices cpu\ndim A = 7\ndim B = A / 2\n"),
        ("E0371", "devices cpu\ndim A = 7 / 2\n"),
        ("E0372", "devices cpu\ndim A = 2 - 2\n"),
        ("E0201", "devices cpu\ndim A = Bc + 1\n"),
        ("E0903", "devices cpu\ndim A = f(3)\n"),
        ("E0215", HEAD + "rate = digits.rate\n"),
        ("E0705", "devices cpu\nmodel A:\n    b: B\nmodel B:\n    a: A\n"),
        ("E0701", HEAD + "model A:\n    w: [D]\n"),
        ("E0703", HEAD + "model A:\n    param w: [D] = zeross\n"),
        ("E0703", HEAD + "model A:\n    param w: [D]\n"),
        ("E0704", HEAD + "model A:\n    param w: [D] i64 = zeros\n"),
        ("E0702", HEAD + "model L[I O]:\n    param w: [I O] = zeros\nmodel A:\n    l: L[D]\n"),
        ("E0205", HEAD + "fn f(x: [D] f23):\n    pass\n"),
        ("E0205", HEAD + "fn f(x: Nett):\n    pass\n"),
        ("E0802", HEAD + "fn f(x: Example):\n    pass\n"),
        ("E0216", HEAD + "fn f(x: AdamW):\n    pass\n"),
        ("E0201", HEAD + "fn f(x: [D]) -> [q]:\n    return x\n"),
        ("E0904", HEAD + 'extern fn f(x: [b D]) -> [D] = "a.f"\n'),
        ("E0904", HEAD + 'extern fn f(x: [b D]) -> [b D] = "af"\n'),
        ("E0902", "devices cpu\nimport nets\n"),
    ],
)
def test_a_mistake_in_a_declaration(code: str, text: str) -> None:
    assert codes(text) == [code]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("E0201", "y = nn"),
        ("E0201", "printt(n)"),
        ("E0201", "y = nn\nz = y + 1\nprint(z, y)"),
        ("E0203", "Y = 3"),
        ("E0204", "if n > 3:\n    y = 1\nprint(y)"),
        ("E0204", "for i in 0..n:\n    y = 1\nprint(y)"),
        ("E0206", "break"),
        ("E0207", 'if n > 3:\n    y = 1\nelse:\n    y = "a"\nprint(y)'),
        ("E0207", 'y = 1\nfor i in 0..n:\n    y = "a"'),
        ("E0601", "y = copy()"),
        ("E0602", "opt = sgd(m, 0.1, momentun=0.9)"),
        ("E0603", "return 3"),
        ("E0606", 'load(m, "a")'),
        ("E0606", 'save(mut m, "a")'),
        ("E0607", "opt = sgd(3, lr=0.1)"),
        ("E0608", "a, b, c = (1, 2)"),
        ("E0608", "a, b = 1"),
        ("E0609", "y = print(n)"),
        ("E0610", 'y = n + "a"'),
        ("E0610", "y = n and true"),
        ("E0611", "if n:\n    pass"),
        ("E0613", "for i in n:\n    pass"),
        ("E0613", "for i in digits.load() as Dataset[Example]:\n    pass"),
        ("E0615", "y = f"),
        ("E0615", "y = relu"),
        ("E0616", "y = m.w3"),
        ("E0617", "y = [1 2]"),
        ("E0708", "q = Net(1, 2)"),
        ("E0805", "y = digits.load() |> batches(3)"),
        ("E0804", "y = Example(pixels=digits.x() as [b D])"),
    ],
)
def test_a_mistake_in_a_body(code: str, text: str) -> None:
    assert codes(body(text)) == [code]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("E0601", "fn g(n: int) -> int:\n    return f(n, 1, 2)\n"),
        ("E0601", "fn g(n: int) -> int:\n    return f()\n"),
        ("E0602", "fn g(n: int) -> int:\n    return f(n=1, q=2)\n"),
        ("E0603", "fn g(n: int) -> int:\n    if n > 3:\n        return 1\n"),
        ("E0603", "fn g(n: int) -> int:\n    return\n"),
        ("E0604", "fn g(n: int) -> int:\n    return g(n - 1)\n"),
        ("E0604", "fn g(n: int) -> int:\n    return h(n)\nfn h(n: int) -> int:\n    return g(n)\n"),
        ("E0605", "fn g(m: Net):\n    c(mut m)\nfn c(mut m: Net):\n    pass\n"),
        ("E0606", "fn g(mut m: Net):\n    c(m)\nfn c(mut m: Net):\n    pass\n"),
        ("E0606", "fn g(mut m: Net):\n    c(mut m)\nfn c(m: Net):\n    pass\n"),
        ("E0607", 'fn g() -> int:\n    return f("a")\n'),
        ("E0607", "fn g(n: int = 0.5):\n    pass\n"),
        (
            "E0707",
            "fn l(m: Net, x: []) -> []:\n    return x\nfn g(m: Net, x: []):\n    l, g = value_and_grad(l, m, x)\n",
        ),
        ("E0614", "fn g(m: Net):\n    g = grad(3, m)\n"),
    ],
)
def test_a_mistake_between_functions(code: str, text: str) -> None:
    assert codes(HEAD + "fn f(n: int, k: int = 2) -> int:\n    return n + k\n\n" + text) == [code]


def test_all_mistakes_of_a_file_in_one_run() -> None:
    text = HEAD + "fn f(n: int):\n    a = b\n    c = d\n\nfn g(n: int):\n    e = h\n"
    assert codes(text) == ["E0201", "E0201", "E0201"]


@pytest.mark.parametrize(
    "text",
    [
        "total = 0\nfor i in 0..n:\n    total = total + i * 0.5\nprint(total)",
        "y = 1\ny = t\nprint(y + t)",
        "for i in 0..n:\n    if i == 0:\n        s = 1\n    else:\n        s = s + 1",
        "while n > 0:\n    n = n - 1",
        "for word in digits.words():\n    print(word, digits.look(word)[0])",
        "a, (b, c) = 1, (2, t)\nprint(a, b, c + t)",
        'print("a" + str(n), min(n, 3), max(x, 1.0), exp(x), floor(x))',
        "lr = warmup_cosine(n, peak=x, warmup=100, total=1000, floor=x / 10)\nprint(lr)",
        'm.b1 = digits.b() as [H]\nsave(m, "m")\nload(mut m, t)',
        "best = inf\nif x < best:\n    best = x\nprint(best, D, pi)",
        "a, b = (digits.load() as Dataset[Example]) |> split(0.9, seed=1)\nprint(len(a), len(b))",
        "for i in reversed(0..n):\n    if i > 3:\n        continue\n    print(i)",
        'assert n > 3, "why"\nprint(not (n > 3), -n, n ** 2, n // 2, n % 3)',
        "data = 3\nstate = data + 1\nsplit = state\nprint(split)",
        "d = digits.load() as Dataset[Example]\n"
        "for b in d |> map(digits.flip) |> batches(3) |> take(2):\n    print(len(b), b.digit)",
        "step = 0\nload_checkpoint(t, mut m, mut step)\nsave_checkpoint(t, m, step, best=x)",
        "ema = copy(m)\naverage(mut ema, m, keep=0.999)",
    ],
)
def test_what_is_right(text: str) -> None:
    program = check(body(text))
    assert [each.message for each in program.diagnostics] == []


def test_dims_in_normal_form() -> None:
    program = check("devices cpu\ndim D = 64\ndim H = 4\ndim Dh = D / H\ndim F = 4*D\ndim G = D\ndim N\ndim K = 2*3\n")
    dims = program.dims
    assert program.diagnostics == []
    assert dims["Dh"].axis.size * dims["H"].axis.size == dims["D"].axis.size
    assert (dims["Dh"].value, dims["F"].value, dims["N"].value, dims["K"].value) == (16, 256, None, 6)
    assert dims["G"].axis == dims["D"].axis
    assert dims["K"].axis == Axis.named("K")
    assert program.known_sizes() == {"D": 64, "H": 4, "K": 6}


def test_dims_from_outside() -> None:
    text = "devices cpu\nimport python chars\ndim D = 64\ndim V = chars.vocabulary(D, 3)\ndim W = V + 1\n"
    program = check(text, dims={"D": 128})
    assert program.diagnostics == []
    assert program.dims["D"].value == 128
    python = program.dims["V"].python
    assert python is not None and (python.module, python.attribute) == ("chars", "vocabulary")
    assert program.dims["W"].axis.size == program.dims["V"].axis.size + 1


def test_other_devices_take_the_place_of_the_line() -> None:
    spec = tree.DeviceSpec(0, 0, "cpu", [tree.DeviceNumber(0, 0, 0, 3)])
    program = check("devices cuda[0]\n    shard params\n", devices=spec)
    assert program.devices is not None
    assert (program.devices.kind, program.devices.numbers, program.devices.shard_params) == ("cpu", (0, 1, 2), True)
    assert codes("dim D = 3\n") == ["E1001"]
    assert check("dim D = 3\n", devices=spec).diagnostics == []


def test_devices_stand_in_a_grid_where_the_split_says_by() -> None:
    split = "    split F by 2\n    shard params\n    split H by 2\n\ndim D = 4\ndim F = 2*D\ndim H = 2\n"
    devices = check(f"devices cpu[0..6]\n{split}").devices
    assert devices is not None
    assert (devices.mesh, devices.split, devices.shard_params) == ((3, 2), ("F", "H"), True)
    assert {name: str(size) for name, size in devices.dims.items()} == {"F": "2*D", "H": "H"}
    one = check(f"devices cpu\n{split}")  # options change nothing where there is one device
    assert one.devices is not None and one.devices.mesh == (1,) and one.diagnostics == []


def test_a_split_that_cannot_be_says_which_numbers_would_do() -> None:
    def words(head: str) -> str:
        (found,) = check(head + "\ndim H = 8\n").diagnostics
        return " / ".join((found.message, *found.helps))

    assert words("devices cuda[0 1 2]\n    split H\n") == (
        "`H` is 8, which 3 devices don't divide / use 1, 2, 4 or 8 devices, or make `H` a multiple of 3, such as 9"
    )
    assert words("devices cuda[0..12]\n    split H by 3\n").endswith(
        "/ write `by 1, 2 or 4`, or make `H` a multiple of 3, such as 9"
    )
    assert "write `by 2, 3 or 6`" in words("devices cuda[0..6]\n    split H by 4\n")


def test_uses_say_what_a_call_means() -> None:
    program = check(
        HEAD + "fn f(n: int, k: int = 2) -> int:\n    return n + k\n\nfn g(n: int) -> int:\n    return f(k=n, n=3)\n"
    )
    calls = [use for use in program.uses.values() if isinstance(use, CallUse)]
    assert [type(each).__name__ for each in calls[0].arguments] == ["Number", "Name"]
    assert LocalUse("n") in program.uses.values()


def test_an_imported_file() -> None:
    inner = Source(
        "nets.ss",
        "dim D = 8\nrate = 0.5\n\nmodel Mlp:\n    param w: [D] = zeros\n\nfn f(m: Mlp) -> [D]:\n    return m.w\n",
    )
    files: dict[str, tuple[Source, Parsed]] = {"nets": (inner, parse(inner))}
    text = "devices cpu\nimport nets\ndim D = nets.D\n\nfn g(m: nets.Mlp) -> [D]:\n"
    text += "    print(nets.rate, nets.D)\n    return nets.f(m)\n"
    program = check(text + "\nfn main():\n    m = nets.Mlp(seed=0)\n    print(g(m))\n", load_module=files.get)
    assert [each.message for each in program.diagnostics] == []
    assert program.functions["g"].result == Tensor((Axis.named("nets.D"),))
    wrong = check(text.replace("nets.f(m)", "nets.ff(m)"), load_module=files.get)
    assert [each.code for each in wrong.diagnostics] == ["E0201"]


def test_a_pattern_of_an_imported_file_names_the_files_own_dims() -> None:
    inner = "dim H = 2\ndim Dh = 3\ndim D = H * Dh\n\nfn f(x: [b D], w: [(H Dh) D]) -> [b D]:\n"
    inner += "    y = rearrange(x: b (H Dh) -> b H Dh)\n    return rearrange(y: b H Dh -> b (H Dh)) @ w\n"
    source = Source("nets.ss", inner)
    files: dict[str, tuple[Source, Parsed]] = {"nets": (source, parse(source))}
    assert check("devices cpu\nimport nets\n", load_module=files.get).diagnostics == []


def test_an_int_parameter_is_an_axis() -> None:
    text = (
        HEAD
        + "fn top(k: int) -> [k D]:\n    return digits.x(k) as [k D]\n\nfn g(n: int) -> [n D]:\n    return top(n)\n\n"
    )
    assert (
        check(text + "fn h() -> [6 D]:\n    return top(6)\n\nfn i() -> [H D]:\n    return top(H)\n").diagnostics == []
    )
    assert codes(text + "fn h() -> [5 D]:\n    return top(6)\n") == ["E0351"]


def test_a_name_that_becomes_a_tensor_in_a_loop() -> None:
    program = check(TRAINING)
    kinds = {
        str(program.types[node])
        for node in program.types
        if isinstance(node, tree.Name) and node.name == "hits" and isinstance(program.types[node], (Host, Tensor))
    }
    assert "[] i64" in kinds
    assert any(isinstance(use, BuiltinUse) and use.name == "value_and_grad" for use in program.uses.values())


def test_the_work_grows_with_the_text() -> None:
    def work(count: int) -> int:
        lines = "".join(f"    y{i} = y{i - 1} + {i} * n\n" if i else "    y0 = n\n" for i in range(count))
        source = Source("a.ss", body("").rstrip() + "\n" + lines)
        parsed = parse(source)
        checked: list[TypedProgram] = []
        calls = calls_of(lambda: checked.append(check_program(source, parsed)))
        assert checked[0].diagnostics == []
        return calls

    assert work(2000) < 2.2 * work(1000)


def test_long_chains_and_deep_brackets() -> None:
    long = " + ".join(["n"] * 90)
    assert codes(body(f"y = {long}")) == []
    assert codes(body("y = " + "(" * 90 + "n" + ")" * 90)) == []
    assert codes(body("if n == 0:\n    pass\n" + "".join(f"elif n == {i}:\n    pass\n" for i in range(1, 90)))) == []


BATCH_NORM = """devices cpu

dim D = 8
dim C = 3

model Net:
    param w: [D C] = xavier
    bn: BatchNorm[C]

data Example:
    x: [D]
    y: [] Index[C]

"""


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("E0302", "pixels @ m.w1 + m.b1", "pixels @ m.w2"),
        ("E0351", " |> matmul(m.w2)", ""),
        ("E0607", "logits(m, batch.pixels), batch.digit", "logits(m, batch), batch.digit"),
        ("E0351", "logits(m, batch.pixels), batch.digit", "logits(m, m.w1), batch.digit"),
        ("E0551", "return l\n", "return l - 1\n"),
        ("E0606", "value_and_grad(loss, m, batch)", "value_and_grad(loss, mut m, batch)"),
        ("E0606", "step(mut m, mut opt, batch)", "step(m, mut opt, batch)"),
        ("E0711", "value_and_grad(loss, m, batch)", "value_and_grad(logits, m, batch.pixels)"),
        ("E0607", "opt = adamw(m, lr=1e-3)", "opt = sgd(m, lr=1e-3)"),
        ("E0616", "batch.digit, over=b)", "batch.digits, over=b)"),
        ("E0611", "        hits = 0\n", "        hits = 0\n        if m.b1 > 0:\n            pass\n"),
        ("E0905", "hits = hits + correct(m, batch)", "hits = correct(m, batch) + digits.load()"),
        ("E0607", 'log("loss", step(mut m, mut opt, batch))', 'log("loss", m)'),
    ],
)
def test_one_mistake_in_a_training_program(code: str, old: str, new: str) -> None:
    assert old in TRAINING
    assert codes(TRAINING.replace(old, new, 1)) == [code]


def test_an_axis_variable_is_one_axis() -> None:
    text = HEAD + "fn f(x: [b D], y: [b D]) -> [b D]:\n    return x + y\n\n"
    assert codes(text + "fn g(x: [b D], y: [c D]) -> [b D]:\n    return f(x, y)\n") == ["E0352"]


def test_batch_norm_says_mut_where_it_is_differentiated() -> None:
    text = BATCH_NORM + (
        "fn loss(m: Net, batch: [b] Example) -> [] NonNeg:\n"
        "    z = batch_norm(batch.x @ m.w, m.bn, over=b)\n"
        "    return cross_entropy(z, batch.y, over=C)\n\n"
        "fn g(mut m: Net, batch: [b] Example) -> [] NonNeg:\n"
        "    l, g = value_and_grad(loss, m, batch)\n    return l\n"
    )
    assert codes(text) == ["E0706"]
    mended = (
        text.replace("loss(m: Net", "loss(mut m: Net").replace("m.bn", "mut m.bn").replace("loss, m,", "loss, mut m,")
    )
    assert codes(mended) == []
    assert codes(mended.replace("over=b)", "over=C)")) == ["E0305"]


def test_fields_change_outside_what_is_differentiated() -> None:
    text = BATCH_NORM + (
        "fn loss(mut m: Net, x: [b D]) -> []:\n    m.w = m.w * 2\n    return mean(x @ m.w, over=[b C])\n\n"
        "fn g(mut m: Net, x: [b D]) -> []:\n    l, g = value_and_grad(loss, mut m, x)\n    return l\n"
    )
    assert codes(text) == ["E0712"]


def test_a_name_assigned_later_in_an_outer_loop() -> None:
    text = "for i in 0..n:\n    for j in 0..n:\n        if i > 0:\n            print(prev)\n    prev = i"
    assert codes(body(text)) == []


def test_nothing_follows_from_a_line_that_does_not_parse() -> None:
    assert [each[:3] for each in codes(body("y = = 3\nprint(y)\nz = y + 1\nprint(z)"))] == ["E01"]


def test_a_scan() -> None:
    text = HEAD + (
        "fn cell(m: Net, h: [b D], x: [b D]) -> ([b D], [b D]):\n    return h + x, h\n\n"
        "fn run(m: Net, x: [b n D]) -> ([b D], [b n D]):\n    h, ys = scan(cell, m, zeros[b D], x, over=n)\n"
        "    return h, ys\n"
    )
    assert codes(text) == []
    assert codes(text.replace("zeros[b D], x", "zeros[b H], x")) != []


def test_a_dim_that_nothing_declares_is_said_once() -> None:
    assert codes("devices cpu\n\nfn f(x: [Rows], y: [Rows]) -> [Rows]:\n    return x + y\n") == ["E0201"]
