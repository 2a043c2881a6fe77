"""One mistake gives one error, in words that help: no follow-ons, and what stands here for another language's names."""

from __future__ import annotations

import pytest
from programs import Program, codes, diagnose

from shapescript.cli.main import main
from shapescript.diagnostics.diagnostic import ProgramError

LIST = "dim L = 3\nmodel Block:\n    param w: [2] = zeros\nmodel Net:\n    blocks: [L] Block\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("dim D = 7\ndim E = D / 2\nfn f(x: [b D]) -> [b E]:\n    return rearrange(x: b (2 E) -> b E)\n", "E0371"),
        ("data Ex:\n    x: [4]\nfn f(batch: Ex) -> [b 4]:\n    return batch.x\n", "E0802"),
        ("data Ex:\n    x: [4]\nfn f(batch: [n b] Ex) -> [b 4]:\n    return batch.x\n", "E0216"),
    ],
)
def test_no_follow_on(text: str, code: str) -> None:
    assert codes(text) == [code]


@pytest.mark.parametrize(("index", "right"), [("3", False), ("-4", False), ("2", True), ("-3", True)])
def test_an_index_into_a_list_of_models(index: str, right: bool) -> None:
    assert codes(f"{LIST}fn f(m: Net) -> [2]:\n    return m.blocks[{index}].w\n") == ([] if right else ["E0617"])


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("fn main():\n    x = True\n", "write `true`"),
        ("fn main():\n    for i in range(3):\n        print(i)\n", "write `0..n`"),
        ("fn f(x: [b] float64) -> [b]:\n    return x\n", "write `f64`"),
        ("fn f(x: Tensor):\n    pass\n", "a tensor's type is its axes: `[b D]`"),
        ("fn f(x: [b n]) -> []:\n    return sum(x, over=(b, n))\n", "several axes are written `[b n]`"),
    ],
)
def test_names_of_other_languages(text: str, help: str) -> None:
    (found,) = diagnose(text)
    assert found.helps == (help,)


EXAMPLE = "data Ex:\n    x: [2]\n"


@pytest.mark.parametrize(
    ("text", "code", "help"),
    [
        ("fn main():\n    x = [1, 2, 3]\n", "E0617", "write the tuple `(1, 2, 3)`"),
        ("fn main():\n    for x in [1]:\n        print(x)\n", "E0617", "write the tuple `(1,)`"),
        ("fn main():\n    losses = []\n", "E0617", "there are no lists: `log"),
        ("dim D = 4\nfn f(x: [b D]) -> [b]:\n    return sum(x, dim=1)\n", "E0602", "the axis is named: `over=D`"),
        ("dim D = 4\nfn f(x: [b D]) -> [b]:\n    return mean(x, axis=-2)\n", "E0602", "the axis is named: `over=b`"),
        ("dim D = 4\nfn f(x: [b D], k: int) -> [b]:\n    return sum(x, dim=k)\n", "E0602", "named: `over=b`, `over=D`"),
        ("dim D = 4\nfn f(x: [b D]) -> [b]:\n    return sum(x, 1)\n", "E0601", "the axis is named: `over=D`"),
        ("fn f(x: [b]) -> []:\n    return mean(x, over=b, keepdim=true)\n", "E0602", "leave it out"),
        (
            "fn f(x: [5 5]) -> [5]:\n    return sum(x, over=5)\n",
            "E0303",
            "`rearrange(x: 5 i -> 5 i)`, and then `over=i`",
        ),
        (
            f"{EXAMPLE}fn f(d: Dataset[Ex]):\n    for b in d |> batches(2) |> shuffle:\n        pass\n",
            "E0607",
            "before",
        ),
        (
            f"{EXAMPLE}fn f(d: Dataset[Ex]):\n    for b in d |> batches(2) |> batches(2):\n        pass\n",
            "E0607",
            "second",
        ),
        ("fn f(x: [b] i64, y: [b] i64) -> [b] i64:\n    return x / y\n", "E0551", "`x // y`"),
        (
            "dim D = 4\nmodel Lin[I O]:\n    param w: [I O] = zeros\nmodel Net:\n    a: Lin[D]\n",
            "E0702",
            "write `Lin[I O]` with a size for each",
        ),
    ],
)
def test_habits_of_pytorch_get_one_error_that_helps(text: str, code: str, help: str) -> None:
    [found] = diagnose(text)
    assert found.code == code and any(help in each for each in found.helps), found


def test_sizes_are_counted_in_grammar() -> None:
    model = "dim D = 4\nmodel Lin[I O]:\n    param w: [I O] = zeros\nmodel Net:\n"
    for field, words in (("Lin[D]", "2 sizes, and one is given"), ("Lin[D D D]", "2 sizes, and 3 are given")):
        [found] = diagnose(f"{model}    a: {field}\n")
        assert found.message == f"`Lin` takes {words}"


def test_the_help_for_an_axis_that_stands_twice_is_right() -> None:
    text = "dim D = 5\nfn f(x: [D D]) -> [D]:\n    return sum(rearrange(x: D i -> D i), over=i)\n"
    assert codes(text) == []


def test_a_parameter_of_the_wrong_kind_is_one_error() -> None:
    """The call that gives the right optimizer isn't wrong too."""
    text = """model M:
    param w: [2] = zeros
model N:
    param w: [2] = zeros
fn step(mut m: M, mut opt: AdamW[N], g: Grads[M]):
    update(mut m, mut opt, g)
fn main(g: Grads[M]):
    m = M(seed=0)
    opt = adamw(m, lr=0.1)
    step(mut m, mut opt, g)
"""
    [found] = diagnose(text)
    assert (found.code, found.message) == ("E0709", "`update` changes M here, and this is AdamW[N]")
    assert [label.span.text for label in found.secondary] == ["mut opt: AdamW[N]"]


@pytest.mark.parametrize("pattern", ["s, x: , D E -> D E", "x, s: D E, -> D E", "s, s, x: , , D E -> D E"])
def test_a_scalar_in_a_pattern_has_no_axes(pattern: str) -> None:
    assert codes(f"dim D = 4\ndim E = 3\nfn f(s: [], x: [D E]) -> [D E]:\n    return einsum({pattern})\n") == []


def test_an_axis_that_became_longer_is_given_a_name() -> None:
    (found,) = diagnose("fn f(x: [b t]) -> [b]:\n    y = pad(x, t=(1, 0))\n    return sum(y, over=t)\n")
    assert found.code == "E0305"
    assert "`rearrange(y: b m -> b m)`, and then `m`" in found.helps[0]
    assert (
        codes("fn f(x: [b t]) -> [b t]:\n    y = pad(x, t=(1, 0))\n    return rearrange(y: b m -> b m)[m=0..t]\n") == []
    )


def test_an_unknown_dim_is_said_once() -> None:
    """A name of one letter is like any other of one letter, so none is suggested."""
    (found,) = diagnose("dim D = 4\nfn f(x: [b I], y: [b I]) -> [b I]:\n    return x + y\n")
    assert "a name that stands for any axis is small, `i`" in found.helps[0]


def test_a_comma_between_devices() -> None:
    (found,) = diagnose("devices cpu[0, 1]\n")
    assert found.message == "the numbers of devices are separated by spaces, not by commas"


def test_devices_that_are_never_closed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--devices", "cpu[0", "1", "train.ss"]) == 2
    assert "`[` is never closed in `cpu[0 1 train.ss`" in capsys.readouterr().err


def test_a_draw_too_large_to_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names its line."""
    monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", "reference")
    program = Program("fn f() -> [] i64:\n    x = randint[100000 50000](7)\n    return sum(x, over=[100000 50000])\n")
    with pytest.raises(ProgramError, match="at most 2\\*\\*32 elements") as caught:
        program.call("f")
    assert caught.value.diagnostic.primary.span.line == 3


# --- habits of PyTorch -----------------------------------------------------------------------------------------------

DIMS = "dim D = 4\ndim T = 8\ndim C = 3\n"
NET = f"""{DIMS}model Net:
    param w: [D C] = xavier
data Ex:
    x: [D]
"""


@pytest.mark.parametrize(
    ("text", "code", "help"),
    [
        ("fn f(x: [b D]) -> [b]:\n    return x.sum(1)\n", "E0616", "write `sum(x, over=D)`"),
        ("fn f(x: [b D]) -> [b D]:\n    return x.relu()\n", "E0616", "write `relu(x)` or `x |> relu`"),
        ("fn f(x: [b D]) -> [D b]:\n    return x.T\n", "E0616", "a pattern names the axes"),
        ("fn f(x: [b D]) -> [b D]:\n    return x.view(3, 4)\n", "E0616", "a pattern names the axes"),
        ("fn f(x: [b D]) -> int:\n    return x.shape[0]\n", "E0616", "a dim's name is its size"),
        ("fn f(x: [b D]) -> [b D]:\n    return x.detach()\n", "E0616", "write `stop_gradient(x)`"),
        ("fn f(x: [b D]) -> [b D]:\n    return x.foo()\n", "E0616", "a tensor has no methods"),
        ("fn f(x: [b D]) -> [b D]:\n    return torch.relu(x)\n", "E0201", "without a module's name"),
        ("fn f(x: [b D]) -> [b 2*D]:\n    return cat(x, x)\n", "E0201", "write `concat(a, b, over=D)`"),
        ("fn f(x: [b D]) -> []:\n    return mse_loss(x, x)\n", "E0201", "write `mse(x, y)`"),
        ("fn f(x: [b D]) -> [b D]:\n    return dropout(x, p=0.5)\n", "E0602", "did you mean `rate`?"),
        ("fn f(x: [b D]) -> [b D]:\n    return clamp(x, min=0)\n", "E0602", "did you mean `low`?"),
        ("fn f(d: Dataset[Ex]):\n    for e in batches(d, batch_size=4):\n        pass\n", "E0602", "mean `n`?"),
        ("fn f(d: Dataset[Ex]):\n    for x, y in d |> batches(4):\n        pass\n", "E0608", "`batch.x`"),
        ("fn f(m: Net):\n    m.parameters()\n", "E0616", "a model is handed over whole"),
        ("fn f(mut opt: Adam[Net]):\n    opt.step()\n", "E0616", "write `update(mut m, mut opt, g)`"),
        ("fn f(q: [b T D], k: [b T D]) -> [b T T]:\n    return q @ k\n", "E0302", "b T D, b m D -> b T m)`"),
        ("fn f(self, x: [b D]) -> [b D]:\n    return x\n", "E0110", "leave `self` out"),
        ("fn f(lr=0.1):\n    pass\n", "E0110", "`lr: float = 0.1`"),
        ('fn f(name="x"):\n    pass\n', "E0110", '`name: str = "x"`'),
        ("fn f():\n    x = zeros(3, D)\n", "E0615", "write `zeros[3 D]`"),
        ("fn f():\n    x = zeros[3, 4]\n", "E0116", "leave the comma out"),
        ("fn f(x: [b T D]) -> [b D]:\n    return mean(x, over=t)\n", "E0305", "did you mean `T`?"),
        ("fn f(x: [b D]) -> []:\n    return sum(x)\n", "E0304", "or over all of them, `over=[b D]`"),
        ("fn f(x: [b T D]) -> [b D]:\n    return x[:, -1, :]\n", "E0110", "an index names its axis: `x[n=-1]`"),
        ("fn f(x: [b D]) -> [b D]:\n    return x |> fn(y) y\n", "E0110", "there are no lambdas"),
        ("fn f(x: [b D]) -> [b b]:\n    return einsum(x, x: b D, b D -> b b)\n", "E0405", "another name"),
        ("fn f(path: string):\n    pass\n", "E0205", "write `str`"),
        ("model M:\n    layers: ModuleList\n", "E0205", "a list of models is `blocks: [L] Block`"),
        ("fn f(mut m: Net, g: Grads[Net]):\n    m.w = m.w - g\n", "E0610", "`update(mut m, mut opt, g)`"),
        (
            "fn two(x: [b D]) -> ([b D], [b D]):\n    return x, x\nfn f(x: [b D]) -> [b D]:\n    return two(x)\n",
            "E0607",
            "take it apart first, `a, b = ...`",
        ),
    ],
)
def test_a_habit_of_pytorch_is_told_what_stands_here(text: str, code: str, help: str) -> None:
    [found] = diagnose(NET + text)
    assert found.code == code and any(help in each for each in found.helps), found


def test_what_the_helps_write_is_right() -> None:
    text = f"""{DIMS}dim V = 10
fn f(x: [b D], y: [b D]) -> []:
    return mse(x, y) + mean(abs(x - y), over=[b D])
fn bce(logits: [b], label: [b]) -> [] NonNeg:
    return binary_cross_entropy(logits, label)
fn outer(a: [n], b: [m]) -> [n m]:
    return einsum(a, b: n, m -> n m)
fn masked(s: [n m]) -> [n m]:
    return masked_fill(s, !causal[n m], -inf)
fn drawn(x: [b D]) -> [b D]:
    return x + normal[b D](std=1) + uniform[b D](0, 1) + full[b D](2.0)
fn halves(x: [b 2*D]) -> [b D]:
    p, q = x |> split(b (2 D) -> b D)
    return p * sigmoid(q)
fn tiled(x: [n D], k: int) -> [n D k]:
    return repeat(x: n D -> n D k)
fn kept(x: [b D]) -> [b D]:
    y = rearrange(x: b D -> b 1 D)
    return rearrange(y: b 1 D -> b D)
fn one(logits: [b V]) -> [b] Index[V]:
    return categorical(logits, over=V)
fn whole(x: [b D]) -> [b 2*D]:
    return concat(x, stop_gradient(x) ** 2, over=D)
fn scores(q: [b T D], k: [b m D]) -> [b T m]:
    return einsum(q, k: b T D, b m D -> b T m)
"""
    assert codes(text) == []


def test_a_comma_in_a_maker_is_mended() -> None:
    [found] = diagnose("fn f():\n    x = zeros[3,4]\n")
    [fix] = found.fixes
    assert fix.safe and [(edit.span.text, edit.text) for edit in fix.edits] == [(",", " ")]
