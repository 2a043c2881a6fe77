"""Where functions run, and what can't run or be split there."""

from __future__ import annotations

import pytest

from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.diagnostics.render import render_all
from shapescript.placement.codes import CODES
from shapescript.placement.compiled import compiled_for
from shapescript.placement.place import Placed, place
from shapescript.source import Source
from shapescript.syntax.parse import parse
from shapescript.types.checker import check_program

HEAD = """\
devices DEVICES

dim D = 8
dim V = 4
dim N = 100
most = 3

import python words

model Net:
    param w: [D D] = zeros
    param s: [] = zeros

data Example:
    img: [D]
    label: [] Index[V]

"""

TRAINING = """\
fn loss(m: Net, batch: [b] Example) -> []:
    return mean(batch.img @ m.w, over=[b D])

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Example) -> []:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

"""

SPLIT_PYTHON = """\
devices cuda[0 1 2]

dim D = 784

data Digit:
    img: [D]

import python augment

fn augmented(batch: [b] Digit) -> [b D]:
    return augment.random_crop(batch.img) as [b D]
"""

SPLIT_PYTHON_SAID = """\
error[E1901]: `batch.img` is split across the 3 devices, but `augment.random_crop` is Python, which runs in the controller
  --> split_python.ss:11:32
   |
11 |     return augment.random_crop(batch.img) as [b D]
   |            ------------------- ^^^^^^^^^ split along its batch axis `b`
   |            |
   |            a Python function
   |
   = note: with 3 devices each one holds part of every batch, and Python calls run once, in the controller; this one would gather the batch through the controller's CPU at every step
   = help: move `random_crop` into the dataset, so it runs on each example as it's loaded, or declare it per example with `extern fn random_crop(...) = "augment.random_crop"`, so each device runs it on its own examples

For more information about E1901, run `shapescript explain E1901`.
"""  # noqa: E501


def placed(text: str, name: str = "t.ss") -> Placed:
    """The placement of a program that checks."""
    source = Source(name, text)
    typed = check_program(source, parse(source))
    assert typed.errors == [], render_all(typed.errors)
    return place(typed)


def program(body: str, devices: str = "cpu") -> Placed:
    """The placement of functions under a common head."""
    return placed(HEAD.replace("DEVICES", devices) + body)


def kinds(body: str) -> dict[str, str]:
    """Where each function runs, by name."""
    return {node.name: placement.kind.value for node, placement in program(body).kinds.items()}


def only(body: str, devices: str = "cpu") -> Diagnostic:
    """The one error of a program."""
    (found,) = program(body, devices).diagnostics
    return found


def test_functions_run_where_their_values_are() -> None:
    body = """\
fn main(epochs: int = 3):
    train = words.load("train") as Dataset[Example]
    m = Net(seed=0)
    opt = adamw(m, lr=rate(0))
    for batch in train |> batches(64):
        step(mut m, mut opt, batch)

fn rate(step: int) -> float:
    return 0.1 / (step + 1)

fn outer(data: Dataset[Example]) -> int:
    return inner(data) + 1

fn inner(data: Dataset[Example]) -> int:
    return len(data)

fn table() -> [D]:
    return zeros[D]

fn asked(m: Net) -> bool:
    return bool(m.s > 0)
"""
    assert kinds(TRAINING + body) == {
        "loss": "device",
        "step": "device",
        "main": "controller",
        "rate": "host",
        "outer": "controller",
        "inner": "controller",
        "table": "device",
        "asked": "controller",
    }


def test_the_line_that_made_it_so() -> None:
    found = program(TRAINING + 'fn main(m: Net):\n    x = m.s\n    print("s", x)\n')
    places = {node.name: placement for node, placement in found.kinds.items()}
    assert places["main"].words == "prints"
    assert places["main"].span is not None and places["main"].span.text == 'print("s", x)'
    assert places["loss"].span is not None and places["loss"].span.text == "m: Net"


def test_training_in_the_controller() -> None:
    body = """\
fn train(mut m: Net, data: Dataset[Example], epochs: int):
    opt = adamw(m, lr=3e-4)
    for epoch in 0..epochs:
        for batch in data |> shuffle(seed=epoch) |> batches(64):
            l, g = value_and_grad(loss, m, batch)
            update(mut m, mut opt, g)
            print("loss", l)
"""
    found = only(TRAINING + body)
    assert found.code == "E1803"
    assert found.message == "`value_and_grad` runs on the devices, but `train` is a controller function"
    (help,) = found.helps
    assert help.splitlines() == [
        "write a function of its own, and call it here:",
        "    fn train_step(mut m: Net, mut opt: AdamW[Net], batch: [b] Example) -> []:",
        "        l, g = value_and_grad(loss, m, batch)",
        "        update(mut m, mut opt, g)",
        "        return l",
        "and here: `l = train_step(mut m, mut opt, batch)`",
    ]


def test_the_function_to_write_checks() -> None:
    body = """\
fn train_step(mut m: Net, mut opt: AdamW[Net], batch: [b] Example) -> []:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn train(mut m: Net, data: Dataset[Example]):
    opt = adamw(m, lr=3e-4)
    for batch in data |> batches(64):
        l = train_step(mut m, mut opt, batch)
        print("loss", l)
"""
    assert program(TRAINING + body).diagnostics == []


def test_update_alone_in_the_controller() -> None:
    found = only("fn f(mut m: Net, mut opt: AdamW[Net], g: Grads[Net]):\n    update(mut m, mut opt, g)\n    print(1)\n")
    assert (found.code, found.primary.span.text) == ("E1803", "update(mut m, mut opt, g)")


def test_printing_in_what_is_differentiated() -> None:
    body = """\
fn inner(m: Net) -> []:
    h = m.s * 2
    print("h", h)
    return h

fn loss(m: Net, batch: [b] Example) -> []:
    return inner(m)

fn step(m: Net, batch: [b] Example) -> Grads[Net]:
    return grad(loss, m, batch)
"""
    found = only(body)
    assert found.code == "E1804"
    assert found.primary.span.text == 'print("h", h)'
    assert found.message == "`inner`, which `loss` calls, is differentiated, so it can't print"
    assert found.helps == ('to print a value from a device function, write `show("h", h)`',)
    assert [label.words for label in found.secondary] == ["differentiated here"]


def test_python_in_what_is_differentiated() -> None:
    body = """\
fn loss(m: Net) -> []:
    return m.s * (words.weight() as [])

fn step(m: Net) -> Grads[Net]:
    return grad(loss, m)
"""
    found = only(body)
    assert (found.code, found.message) == ("E1804", "`words.weight` is Python, and `loss` is differentiated")


@pytest.mark.parametrize(
    ("rounds", "count"),
    [("0..N", 100), ("0..65", 65), ("reversed(0..N)", 100), ("1..N - 1", 98), ("0..64", None), ("0..most", None)],
)
def test_long_loops_in_what_is_differentiated(rounds: str, count: int | None) -> None:
    body = f"""\
fn loss(m: Net) -> []:
    x = m.s
    for i in {rounds}:
        x = x * 2
    return x

fn step(m: Net) -> Grads[Net]:
    return grad(loss, m)
"""
    found = program(body).diagnostics
    if count is None:
        assert found == []
    else:
        assert [(d.code, d.primary.words) for d in found] == [("E1805", f"{count} rounds")]
        assert "scan" in found[0].helps[0]


def test_a_long_loop_elsewhere_is_no_error() -> None:
    assert (
        program("fn f(m: Net) -> []:\n    x = m.s\n    for i in 0..N:\n        x = x * 2\n    return x\n").diagnostics
        == []
    )


def test_a_choice_by_a_tensor() -> None:
    body = "fn f(x: []) -> []:\n    if x > 0:\n        return x\n    return x * 2\n"
    found = only(body)
    assert (found.code, found.primary.span.text) == ("E1801", "x > 0")
    assert "where" in found.helps[0]
    assert program(body.replace("fn f(x: []) -> []:", "fn f(x: []) -> []:\n    print(x)")).diagnostics == []


def test_python_on_split_data_to_the_letter() -> None:
    assert render_all(placed(SPLIT_PYTHON, "split_python.ss").diagnostics) == SPLIT_PYTHON_SAID


def test_python_on_data_of_one_device_is_no_error() -> None:
    assert placed(SPLIT_PYTHON.replace("cuda[0 1 2]", "cuda[0]")).diagnostics == []


def test_python_on_a_value_made_of_a_split_one() -> None:
    body = """\
fn made(batch: [b] Example) -> ([b D], []):
    return batch.img * 2, mean(batch.img, over=[b D])

fn f(batch: [b] Example):
    x, y = made(batch)
    z = whole(x)
    words.take(y, z, whole(batch.img))
    seen = words.Seen()
    seen.add(VALUE)
"""
    assert program(body.replace("VALUE", "z"), "cpu[0 1]").diagnostics == []
    found = only(body.replace("VALUE", "x"), "cpu[0 1]")
    assert (found.code, found.primary.span.text) == ("E1901", "x")
    assert found.helps == ("write `whole(x)`, which gathers it to the controller, in the order of the rows",)


def test_python_on_a_split_parameter() -> None:
    body = """\
fn f(x: [n D]):
    words.take(x)

fn g(batch: [b] Example):
    f(CALL)
"""
    assert [d.code for d in program(body.replace("CALL", "batch.img"), "cpu[0 1]").diagnostics] == ["E1901"]
    assert program(body.replace("CALL", "whole(batch.img)"), "cpu[0 1]").diagnostics == []


@pytest.mark.parametrize(
    "expression",
    [
        "softmax(x, over=b)",
        "sort(x, over=b)",
        "cumsum(x, over=b)",
        "argmax(x, over=b)",
        "flip(x, over=b)",
        "roll(x, b=1)",
        "x[b=0]",
        "softmax(x * 2 + 1, over=b)",
        "einsum(x, x: b D, c D -> b c)",
        "softmax(rearrange(x: b D -> D b), over=b)",
    ],
)
def test_what_cannot_be_split(expression: str) -> None:
    body = f"fn f(batch: [b] Example):\n    x = batch.img\n    print({expression})\n"
    found = program(body, "cpu[0 1]").diagnostics
    assert [d.code for d in found] == ["E1902"]
    assert "whole(" in found[0].helps[0]
    assert program(body).diagnostics == []
    assert program(body.replace("x = batch.img", "x = whole(batch.img)"), "cpu[0 1]").diagnostics == []


@pytest.mark.parametrize(
    "expression",
    [
        "softmax(x, over=D)",
        "mean(x, over=b)",
        "max(x, over=b)",
        "x @ m.w",
        "x[D=0]",
        "m.w[batch.label as i64 as Index[D]]",
        "einsum(x, whole(x): b D, c D -> b c) |> softmax(over=c)",
        "x * mean(x, over=b)",
    ],
)
def test_what_can_be_split(expression: str) -> None:
    body = f"fn f(m: Net, batch: [b] Example):\n    x = batch.img\n    print({expression})\n"
    assert program(body, "cpu[0 1]").diagnostics == []


def test_every_code_has_a_title() -> None:
    assert all(title and not title.endswith(".") for title in CODES.values())


def test_what_a_function_is_compiled_for() -> None:
    text = """devices cpu
data Row:
    x: [3]
fn one(batch: [b] Row, rate: float) -> []:
    return rate * mean(batch.x, over=[b 3])
fn two(x: [n 3], k: int, flag: bool) -> [n 3]:
    return x * k
"""
    source = Source("program.ss", text)
    program = check_program(source, parse(source))
    assert compiled_for(program.functions["one"]) == "compiled once"
    wanted = "compiled for each value of `k` and `flag`, each size of `n` but a batch's"
    assert compiled_for(program.functions["two"]) == wanted
