"""What people ran into with shapes and types, as programs: area A of the cases, one test or more a row.

A21 needs a table of 2^31 elements, and a GPU that holds it.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from programs import Program, codes, diagnose, f64

LN3 = math.log(3)


def call(text: str, *arguments: object) -> object:
    return Program(text).call("f", *arguments)


def test_a1_a_prediction_against_a_target_with_an_axis_of_one() -> None:
    head = "dim B = 3\n"
    wrong = head + "fn f(pred: [B], target: [B 1]) -> [] NonNeg:\n    return mse(pred, target)\n"
    found = diagnose(wrong)
    assert [each.code for each in found] == ["E0301"]
    assert found[0].primary.span.text == "target"
    right = head + "fn f(pred: [B], target: [B 1]) -> [] NonNeg:\n    return mse(pred, rearrange(target: B 1 -> B))\n"
    assert call(right, torch.tensor([1.0, 2, 3]), torch.tensor([[1.0], [2], [3]])) == 0


def test_a1_difference_of_the_two() -> None:
    wrong = "fn f(pred: [b], target: [b 1]) -> [b 1]:\n    return pred - target\n"
    assert codes(wrong) == ["E0301"]


def test_a2_an_axis_of_eighty_against_a_one() -> None:
    head = "dim N = 64\ndim K = 80\ndim P = 8\n"
    shape = "fn f(x: [N K P 3], y: [N 1 P 3]) -> [] NonNeg:\n    return "
    found = diagnose(head + shape + "mse(x, y)\n")
    assert [each.code for each in found] == ["E0301"]
    said = found[0].message + str(found[0].primary.words) + " ".join(label.words for label in found[0].secondary)
    assert "K" in said and "1" in said
    spread = "mse(x, broadcast(rearrange(y: N 1 P 3 -> N P 3), [N K P 3]))\n"
    assert codes(head + shape + spread) == []


def test_a4_axes_in_another_order_are_never_added_by_place() -> None:
    head = "dim A = 2\ndim B = 2\nfn f(a: [A B] f64, b: [B A] f64) -> "
    assert codes(head + "[A B] f64:\n    return a + b\n") == ["E0301"]
    a, b = f64([1, 2], [3, 4]), f64([10, 20], [30, 40])
    added = call(head + "[A B] f64:\n    return a + rearrange(b: B A -> A B)\n", a, b)
    assert torch.equal(added, f64([11, 32], [23, 44]))
    assert call(head + "[] f64:\n    return einsum(a, b: A B, B A -> )\n", a, b) == 290


def test_a5_one_name_twice_in_a_type() -> None:
    wrong = "fn f(x: [pos pos]) -> [pos]:\n    return sum(x, over=pos)\n"
    found = diagnose(wrong)
    assert found and found[0].code == "E0303"
    text = "fn f(q: [pos D]) -> [pos]:\n    s = einsum(q, q: pos D, kpos D -> pos kpos)\n    return sum(s, over=kpos)\n"
    x = torch.randn(4, 3)
    got = call("dim D = 3\n" + text, x)
    assert torch.allclose(got, (x @ x.T).sum(1), atol=1e-6)


@pytest.mark.parametrize(("pattern", "at"), [("i -> i j", "j"), ("i -> i i", "i")])
def test_a7_the_result_of_an_einsum(pattern: str, at: str) -> None:
    found = diagnose(f"fn f(x: [i]) -> [i i]:\n    return einsum(x: {pattern})\n")
    assert len(found) == 1 and found[0].code.startswith("E04")
    assert found[0].primary.span.text == at


def test_a8_heads_are_merged_by_name() -> None:
    head = "dim H = 2\ndim Dh = 2\nfn f(v: [H t Dh] f64) -> [t (H Dh)] f64:\n    return "
    v = f64([[1, 2], [3, 4]], [[5, 6], [7, 8]])
    merged = call(head + "rearrange(v: H t Dh -> t (H Dh))\n", v)
    assert torch.equal(merged, f64([1, 2, 5, 6], [3, 4, 7, 8]))
    assert codes(head + "v as [t (H Dh)] f64\n") != []
    assert codes(head + "rearrange(v: H t Dh -> (H t) Dh)\n") != []
    assert codes(head + "rearrange(v: t H Dh -> t (H Dh))\n") == ["E0408"]


def test_a9_a_transpose_is_no_view() -> None:
    head = "fn f(x: [512 8 3]) -> [8 512 3]:\n    return "
    assert codes(head + "x\n") != []
    assert codes(head + "x as [8 512 3]\n") != []
    assert codes("dim P = 512\nfn f(x: [P 8 3]) -> [8 P 3]:\n    return rearrange(x: P k 3 -> k P 3)\n") == []
    x = torch.randn(512, 8, 3)
    got = call("dim P = 512\nfn f(x: [P 8 3]) -> [8 P 3]:\n    return rearrange(x: P k 3 -> k P 3)\n", x)
    assert torch.equal(got, x.transpose(0, 1))


def test_a10_a_mask_lines_up_by_name() -> None:
    text = (
        "fn f(s: [b h q k] f64, mask: [b k] bool) -> [b h q k] f64:\n"
        "    return masked_fill(s, broadcast(mask, [b h q k]), -1)\n"
    )
    mask = torch.zeros(2, 3, dtype=torch.bool)
    mask[0, 0] = True
    got = call(text, torch.zeros(2, 2, 4, 3, dtype=torch.float64), mask)
    wanted = torch.zeros(2, 2, 4, 3, dtype=torch.float64)
    wanted[0, :, :, 0] = -1
    assert torch.equal(got, wanted)
    assert codes(text.replace("broadcast(mask, [b h q k])", "mask")) == []


def test_a11_softmax_needs_its_axis() -> None:
    text = "dim C = 3\nfn f(x: [b C] f64) -> [b C] f64:\n    return softmax(x{})\n"
    found = diagnose(text.format(""))
    assert [each.code for each in found] == ["E0304"]
    got = call(text.format(", over=C"), f64([1, 2, 3], [1, 2, 3]))
    row = [0.090030573, 0.244728471, 0.665240956]
    assert got.tolist() == [pytest.approx(row, abs=1e-9)] * 2


def test_a12_a_last_batch_of_one_row(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(
        "import shapescript, torch\n"
        "def load():\n    return shapescript.TensorDataset(x=torch.arange(18.).reshape(9, 2))\n"
    )
    (tmp_path / "p.ss").write_text(
        "devices cpu\ndim D = 2\nimport python rows\ndata Row:\n    x: [D]\n"
        "fn loss(batch: [b] Row) -> [b]:\n    return mean(batch.x, over=D)\n"
        "fn main():\n    for batch in rows.load() as Dataset[Row] |> batches(4):\n        print(loss(batch))\n"
    )
    done = subprocess.run([sys.executable, "-m", "shapescript", str(tmp_path / "p.ss")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].strip() == "[16.5]", "the last batch keeps its axis"


def test_a13_pieces_of_an_axis_that_does_not_divide() -> None:
    text = "fn f(x: [b N]) -> ({}):\n    return split(x: b ({} k) -> b k)\n"
    for whole, count in ((11, 5), (4, 3), (224, 20)):
        shapes = ", ".join(["[b k]"] * count)
        found = codes(f"dim N = {whole}\n" + text.format(shapes, count))
        assert found and all(code.startswith("E0") for code in found)


def test_a14_a_split_that_does_not_divide() -> None:
    text = "devices cpu[0 1 2]\n    split H\ndim H = 10\nfn f(x: [b H]) -> [b]:\n    return sum(x, over=H)\n"
    found = diagnose(text)
    assert [each.code for each in found] == ["E1903"]
    assert "10" in found[0].message and "3" in found[0].message


def test_a15_axes_without_a_place() -> None:
    empty = torch.zeros(0, dtype=torch.float64)
    assert call("fn f(x: [n] f64) -> [] f64:\n    return sum(x, over=n)\n", empty) == 0
    mean = call("fn f(x: [n] f64) -> [] f64:\n    return mean(x, over=n)\n", empty)
    assert math.isnan(float(mean))
    for name in ("max", "argmax"):
        result = "[] f64" if name == "max" else "[] i64"
        with pytest.raises(Exception, match="`n`") as error:
            call(f"fn f(x: [n] f64) -> {result}:\n    return {name}(x, over=n) as {result}\n", empty)
        assert "Traceback" not in str(error.value)
    other = call("fn f(x: [n 4] f64) -> [n] f64:\n    return max(x, over=4)\n", torch.zeros(0, 4, dtype=torch.float64))
    assert tuple(other.shape) == (0,)


LINEAR = """
dim D = 3
dim C = 2
model Net:
    param w: [D C] f64 = ones
data Row:
    x: [D] f64
    y: [] Index[C]
fn out(m: Net, batch: [b] Row) -> [b C] f64:
    return batch.x @ m.w
fn loss(m: Net, batch: [b] Row) -> [] f64:
    return sum(cross_entropy(out(m, batch), batch.y, over=C, keep=b), over=b)
fn slope(m: Net, batch: [b] Row) -> ([] f64, [D C] f64):
    l, g = value_and_grad(loss, m, batch)
    return l, g.w
fn start() -> Net:
    return Net(seed=0)
"""


def test_a15_a_linear_layer_on_no_rows() -> None:
    program = Program(LINEAR)
    rows = {"x": torch.zeros(0, 3, dtype=torch.float64), "y": torch.zeros(0, dtype=torch.int64)}
    model = program.call("start")
    assert tuple(program.call("out", model, rows).shape) == (0, 2)
    loss, slope = program.call("slope", model, rows)
    assert loss == 0 and not slope.any() and slope.shape == (3, 2)


def test_a16_axes_swapped_at_a_call() -> None:
    text = (
        "dim B = 4\ndim H = 4\n"
        "fn g(x: [B H]) -> [B H]:\n    return softmax(x, over=H)\n"
        "fn f(x: [H B]) -> [B H]:\n    return g(x)\n"
    )
    found = diagnose(text)
    assert [each.code for each in found] == ["E0351"] and found[0].primary.span.text == "x"
    scores = f64([0, LN3], [0, 0])
    over_k = call("fn f(s: [q k] f64) -> [q k] f64:\n    return softmax(s, over=k)\n", scores)
    assert torch.allclose(over_k, f64([0.25, 0.75], [0.5, 0.5]))
    over_q = call("fn f(s: [q k] f64) -> [q k] f64:\n    return softmax(s, over=q)\n", scores)
    assert torch.allclose(over_q, f64([0.5, 0.75], [0.5, 0.25]))


def test_a17_a_causal_mask() -> None:
    allowed = call(
        "fn f(x: [n]) -> [n m] bool:\n    return causal[n m]\ndim M = 3\n".replace("m]", "M]"), torch.zeros(3)
    )
    assert allowed.nonzero().tolist() == [[0, 0], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]
    text = (
        "dim D = 2\nmodel V:\n    param x: [3 D] f64 = normal(std=1)\n"
        "fn attend(x: [n D] f64) -> [n D] f64:\n"
        "    s = einsum(x, x: n D, m D -> n m) |> masked_fill(!causal[n m], -inf) |> softmax(over=m)\n"
        "    return einsum(s, x: n m, m D -> n D)\n"
        "fn loss(v: V, i: int) -> [] f64:\n    return sum(attend(v.x)[3=i], over=D)\n"
        "fn f(i: int) -> ([3 D] f64, [3 D] f64, [3 D] f64):\n"
        "    v = V(seed=1)\n    g = slopes(v, i)\n    return g, attend(v.x), v.x\n"
        "fn slopes(v: V, i: int) -> [3 D] f64:\n    g = grad(loss, v, i)\n    return g.x\n"
    )
    program = Program(text)
    for i in range(3):
        slope, out, values = program.call("f", i)
        assert not slope[i + 1 :].any()
        assert torch.allclose(out[0], values[0])


def test_a18_a_product_of_axes_that_differ_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "p.ss").write_text(
        "devices cuda[7]\ndim A = 2304\ndim B = 2816\ndim O = 8\nmodel M:\n    param w: [B O] = zeros\n"
        "fn f(m: M, x: [b A]) -> [b O]:\n    return x @ m.w\nfn main():\n    print(1)\n"
    )
    command = [sys.executable, "-m", "shapescript", "p.ss"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "p.ss:8:" in done.stderr and "error[E0302]" in done.stderr
    for word in ("`A`", "`B`", "2304", "2816"):
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("a", "b", "quotient", "rest"), [(-7, 2, -4, 1), (7, -2, -4, -1), (7, 2, 3, 1), (-7, -2, 3, -1)]
)
def test_a19_division_of_whole_numbers_goes_down(a: int, b: int, quotient: int, rest: int) -> None:
    text = "fn f(x: [n] i64, y: [n] i64) -> ([n] i64, [n] i64):\n    return x // y, x % y\n"
    got = call(text, torch.tensor([a]), torch.tensor([b]))
    assert [int(each) for each in got] == [quotient, rest]
    known = call(f"fn f(x: int) -> (int, int):\n    return ({a}) // ({b}), ({a}) % ({b})\n", 0)
    assert known == (quotient, rest)


def test_a20_sums_of_small_whole_numbers() -> None:
    text = "fn f(x: [n] {0}) -> [] i64:\n    return sum(x, over=n)\n"
    assert call(text.format("u8"), torch.ones(300, dtype=torch.uint8)) == 300
    assert call(text.format("bool"), torch.ones(70000, dtype=torch.bool)) == 70000
    assert call("dim A = 50000\ndim B = 2000\nfn f() -> int:\n    return A * B * 6\n") == 600_000_000
    sizes = "dim A = 50000\ndim B = 2000\nfn f() -> [] i64:\n    return (A * B * 6) as [] i64\n"
    assert call(sizes) == 600_000_000


LABELS = "dim C = 3\nfn f(x: [b C] f64, y: [b] i64) -> {0}:\n    return cross_entropy(x, y, over=C{1})\n"


@pytest.mark.parametrize("label", [-4, -1, 3, 255])
def test_a23_a_label_that_is_no_class(label: int) -> None:
    with pytest.raises(Exception, match=f"{label}") as error:
        call(LABELS.format("[] f64", ""), torch.randn(2, 3).double(), torch.tensor([0, label]))
    assert "E21" in str(error.value) or "3" in str(error.value)


@pytest.mark.parametrize("label", [-4, 3])
def test_a23_another_label_than_the_ignored_one(label: int) -> None:
    with pytest.raises(Exception, match=f"{label}"):
        call(LABELS.format("[] f64", ", ignore=255"), torch.randn(2, 3).double(), torch.tensor([255, label]))


def test_a23_any_number_may_be_the_ignored_one() -> None:
    x, y = torch.randn(4, 3).double(), torch.tensor([0, 255, 2, 255])
    got = call(LABELS.format("[] f64", ", ignore=255"), x, y)
    assert torch.allclose(got, torch.nn.functional.cross_entropy(x, y, ignore_index=255))
    each = call(LABELS.format("[b] f64", ", ignore=255, keep=b"), x, y)
    assert torch.allclose(each, torch.nn.functional.cross_entropy(x, y, ignore_index=255, reduction="none"))
