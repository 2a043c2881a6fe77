"""A program from Python, as docs/python.md and language.md's section 10 have it."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import shapescript

NET = """devices cpu

dim D  = 12
dim Hd = 8
dim C  = 4
dim L  = 2

rate = 0.5

import layers

model Block[N]:
    param w: [N N] = normal(std=0.2)

model Classifier:
    param w1: [D Hd] = normal(std=0.3)
    param b1: [Hd]   = zeros
    blocks: [L] Block[Hd]
    param w2: [Hd C] = normal(std=0.3)
    state calls: [] i64 = zeros
    bn: BatchNorm[Hd]

data Example:
    pixels: [D]
    digit:  [] Index[C]

fn logits(m: Classifier, pixels: [b D]) -> [b C]:
    h = pixels @ m.w1 + m.b1 |> relu
    for block in m.blocks:
        h = h + relu(h @ block.w)
    return h @ m.w2

fn loss(m: Classifier, batch: [b] Example) -> [] NonNeg:
    return cross_entropy(logits(m, batch.pixels), batch.digit, over=C)

fn step(mut m: Classifier, mut opt: AdamW[Classifier], batch: [b] Example) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn gradient(m: Classifier, batch: [b] Example) -> ([] NonNeg, Grads[Classifier]):
    l, g = value_and_grad(loss, m, batch)
    return l, g

fn apply(mut m: Classifier, mut opt: AdamW[Classifier], g: Grads[Classifier], lr: float):
    update(mut m, mut opt, g, lr=lr)

fn scaled(x: [.. D], by: float = 2.0, twice: bool = false) -> [.. D]:
    if twice:
        return x * by * by
    return x * by

fn best(x: [b D], k: int) -> ([b k], [b k] Index[D]):
    return topk(x, k, over=D)

fn grow(mut x: [b D]) -> [b D]:
    before = x
    x = x * 2.0
    return before

fn inside(x: [b D] NonNeg) -> [b D]:
    return sqrt(x)

fn add(x: [b n], y: [n b]) -> [b n]:
    return x + rearrange(y: n b -> b n)

fn train(mut m: Classifier, data: Dataset[Example], epochs: int = 1, name: str = "run") -> float:
    opt = adamw(m, lr=1e-2)
    last = 0.0
    for epoch in 0..epochs:
        for batch in data |> shuffle(seed=epoch) |> batches(16):
            last = float(step(mut m, mut opt, batch))
    print(name, "trained")
    return last

fn duplicate(m: Classifier) -> Classifier:
    return copy(m)

fn count(x: [b D]) -> int:
    print("one")
    return 3 // 0

fn twice(x: [b D]) -> [b D]:
    return layers.double(x)
"""
LAYERS = """model Pair:
    param a: [] = ones

fn double(x: [b n]) -> [b n]:
    return x + x
"""


def examples(count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    return torch.rand(count, 12, generator=drawn), torch.randint(0, 4, (count,), generator=drawn)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("programs")
    (place / "net.ss").write_text(NET)
    (place / "layers.ss").write_text(LAYERS)
    return place


@pytest.fixture(scope="module")
def net(folder: Path) -> Iterator[Any]:
    with shapescript.load(folder / "net.ss") as module:
        yield module


# --- loading ---------------------------------------------------------------------------------------------------------


def test_the_import_hook_finds_a_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    (folder / "hooked.ss").write_text(NET)
    (folder / "package").mkdir(exist_ok=True)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "inner.ss").write_text("devices cpu\n\nrate = 3\n")
    (folder / "both.ss").write_text("devices cpu\n")
    (folder / "both.py").write_text("here = 1\n")
    hooked = importlib.import_module("hooked")
    assert sys.modules["hooked"] is hooked
    assert (hooked.D, hooked.rate) == (12, 0.5)
    assert hooked.__file__ == str(folder / "hooked.ss")
    assert importlib.import_module("package.inner").rate == 3
    assert importlib.import_module("both").here == 1
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_program")
    for name in ("hooked", "package.inner", "package", "both"):
        del sys.modules[name]


def test_a_program_that_does_not_check_says_so_in_the_checkers_words(folder: Path) -> None:
    (folder / "wrong.ss").write_text("devices cpu\n\ndim D = 3\n\nfn f(x: [b D]) -> [b D]:\n    return x @ x\n")
    with pytest.raises(shapescript.CheckError) as caught:
        shapescript.load(folder / "wrong.ss")
    assert "error[E0" in str(caught.value) and "wrong.ss:6:" in str(caught.value)
    assert isinstance(caught.value, shapescript.Error)
    with pytest.raises(shapescript.Error, match="no_such.ss"):
        shapescript.load(folder / "no_such.ss")
    with pytest.raises(shapescript.CheckError, match="no dim `Dd`; did you mean `D`"):
        shapescript.load(folder / "net.ss", dims={"Dd": 3})
    with pytest.raises(shapescript.CheckError):
        shapescript.load(folder / "net.ss", devices="gpu")
    with pytest.raises(shapescript.DeviceError, match="cuda"):
        if not torch.cuda.is_available():
            shapescript.load(folder / "net.ss", devices="cuda[0]")
        raise shapescript.DeviceError("cuda is here")


def test_dims_take_the_place_of_the_files_own(folder: Path) -> None:
    with shapescript.load(folder / "net.ss", dims={"Hd": 5}) as small:
        assert small.Classifier(seed=0).w1.shape == (12, 5)
        assert small.Hd == 5


def test_a_closed_program_says_so(folder: Path) -> None:
    with shapescript.load(str(folder / "net.ss")) as net:
        m = net.Classifier(seed=0)
    with pytest.raises(shapescript.Error, match="`net` was closed"):
        net.logits(m, torch.zeros(1, 12))
    net.close()
    assert "closed" in repr(net)


def test_what_a_program_declares_is_there(net: Any) -> None:
    assert (net.C, net.rate, net.layers.Pair(seed=0).a.item()) == (4, 0.5, 1.0)
    assert {"Classifier", "Example", "logits", "train", "D"} <= set(dir(net))
    with pytest.raises(AttributeError, match="has no `logit`; did you mean `logits`"):
        _ = net.logit
    assert str(inspect.signature(net.scaled)) == "(x: '[.. D]', by: 'float' = 2.0, twice: 'bool' = False) -> '[.. D]'"
    assert repr(net.step).startswith("<fn step(mut m: Classifier, mut opt: AdamW[Classifier]")
    assert torch.equal(net.twice(torch.ones(2, 12)), torch.full((2, 12), 2.0))


# --- models ----------------------------------------------------------------------------------------------------------


def test_a_model_is_an_object(net: Any) -> None:
    m = net.Classifier(seed=0)
    assert isinstance(m, net.Classifier) and m.w1.shape == (12, 8)
    assert list(m.state_dict()) == ["w1", "b1", "blocks.0.w", "blocks.1.w", "w2", "calls", "bn.mean", "bn.var"]
    assert [name for name, _ in m.named_parameters()] == ["w1", "b1", "blocks.0.w", "blocks.1.w", "w2"]
    assert [name for name, _ in m.named_states()] == ["calls", "bn.mean", "bn.var"]
    assert torch.equal(m["blocks.1.w"], m.blocks[1].w)
    assert m.blocks[0] is m.blocks[0] and m.blocks[0] != m.blocks[1]
    assert torch.equal(net.Classifier(seed=0).w1, m.w1)
    assert not torch.equal(net.Classifier(seed=1).w1, m.w1)
    lines = repr(m).splitlines()
    assert lines[0] == "Classifier("
    assert lines[1].split() == ["w1:", "[D", "Hd]", "12", "x", "8", "f32", "param", "whole"]
    assert lines[3].strip() == "blocks: 2 times Block[Hd], each"
    assert lines[-1] == ") on cpu: 281 values"
    assert net.Block["Hd"](seed=0).w.shape == (8, 8)
    assert net.Block[3](seed=0).w.shape == (3, 3)
    with pytest.raises(shapescript.ArgumentError, match=r"`Block` takes the dims N: write `Block\[\"N\"\]"):
        net.Block(seed=0)


def test_fields_are_checked_when_they_are_given(net: Any) -> None:
    m = net.Classifier(seed=0)
    given = torch.randn(12, 8)
    m.w1 = given
    m.blocks[1].w = np.zeros((8, 8))
    assert torch.equal(m.w1, given) and not m["blocks.1.w"].any()
    given.zero_()
    read = m.w1
    read.zero_()
    assert m.w1.abs().sum() > 0, "what is given and what is read are copies"
    with pytest.raises(shapescript.ShapeError, match=r"`w1` of `Classifier` should be \[D Hd\], 12 x 8, and is 8 x 12"):
        m.w1 = torch.zeros(8, 12)
    with pytest.raises(shapescript.ShapeError, match="elements f32, and holds f16; hand over `x.to"):
        m.w1 = torch.zeros(12, 8, dtype=torch.float16)
    with pytest.raises(AttributeError, match="has no field `w3`; did you mean"):
        m.w3 = given
    with pytest.raises(AttributeError, match="a model has no `cuda`: it lies on the program's devices"):
        m.cuda()
    with pytest.raises(TypeError, match="the program's functions take it"):
        m(given)


def test_a_state_dict_comes_back(net: Any) -> None:
    m, other = net.Classifier(seed=0), net.Classifier(seed=1)
    other.load_state_dict(m.state_dict())
    assert all(torch.equal(other.state_dict()[name], value) for name, value in m.state_dict().items())
    twin = copy.deepcopy(m)
    twin.b1 = torch.ones(8)
    assert not m.b1.any() and isinstance(twin, net.Classifier)
    copied = net.duplicate(m)
    copied.b1 = torch.ones(8)
    assert not m.b1.any()


def test_pickling_is_refused_with_a_reason(net: Any) -> None:
    m = net.Classifier(seed=0)
    for thing, words in (
        (m, "can't be pickled; `state_dict"),
        (net, "load it in the other"),
        (net.step, "load the program"),
    ):
        with pytest.raises(TypeError, match=words):
            pickle.dumps(thing)


# --- calls -----------------------------------------------------------------------------------------------------------


def test_training_from_python(net: Any) -> None:
    x, y = examples()
    m = net.Classifier(seed=0)
    opt = shapescript.adamw(m, lr=1e-2)
    batch = net.Example(pixels=x[:16], digit=y[:16])
    assert len(batch) == 16 and torch.equal(batch.digit, y[:16])
    losses = [net.step(m, opt, batch) for _ in range(10)]
    assert len({loss.item() for loss in losses}) == 10 and losses[-1] < losses[0]
    assert opt.steps == 10
    with torch.no_grad():
        expected = functional.cross_entropy(net.logits(m, x[:16]), y[:16])
    torch.testing.assert_close(net.loss(m, batch), expected)
    data = shapescript.TensorDataset(pixels=x, digit=y)
    assert net.train(m, data, epochs=3, name="columns") > 0
    assert net.loss(m, batch) < losses[-1]
    assert net.train(m, [(a, b) for a, b in zip(x, y, strict=True)]) > 0
    assert net.train(m, torch.utils.data.TensorDataset(x, y)) > 0


def test_results_stay_valid(net: Any) -> None:
    m = net.Classifier(seed=0)
    first = net.logits(m, torch.ones(2, 12))
    kept = first.clone()
    net.logits(m, torch.zeros(2, 12))
    first_again = net.logits(m, torch.ones(2, 12))
    assert torch.equal(first, kept)
    first.zero_()
    assert torch.equal(first_again, kept)


def test_gradients_add_and_scale(net: Any) -> None:
    x, y = examples(16)
    m = net.Classifier(seed=0)
    _, g = net.gradient(m, {"pixels": x, "digit": y})
    torch.testing.assert_close((0.5 * (g + g) - g / 2).w1, g.w1 / 2)
    torch.testing.assert_close(sum([g, g]).blocks[0].w, 2 * g.blocks[0].w)
    assert "calls" not in g.state_dict()
    opt = shapescript.adamw(m, lr=0.0)
    net.apply(m, opt, g, 0.1)
    assert opt.steps == 1


def test_arrays_numbers_and_defaults(net: Any) -> None:
    x = np.arange(24.0).reshape(2, 12)
    assert torch.equal(net.scaled(x), torch.tensor(x * 2, dtype=torch.float32))
    assert torch.equal(net.scaled(x, by=3), torch.tensor(x * 3, dtype=torch.float32))
    assert torch.equal(net.scaled(x[0], np.float64(3), np.bool_(True)), torch.tensor(x[0] * 9, dtype=torch.float32))
    values, places = net.best(x, k=np.int32(3))
    assert places.tolist() == [[11, 10, 9]] * 2 and values.shape == (2, 3)
    assert net.add([[1.0, 2.0]], [[10.0], [20.0]]).tolist() == [[11.0, 22.0]]
    changed = torch.ones(2, 12)
    before = net.grow(changed)
    assert changed.unique().tolist() == [2.0] and before.unique().tolist() == [1.0]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda n, m, x: n.logits(m), "ArgumentError", "`logits` also needs `pixels`, [b D]"),
        (lambda n, m, x: n.logits(m, x, x), "ArgumentError", "takes 2 arguments: m, pixels; 3 are given"),
        (lambda n, m, x: n.logits(m, pixel=x), "ArgumentError", "no parameter `pixel`; did you mean `pixels`"),
        (lambda n, m, x: n.logits(m, x, pixels=x), "ArgumentError", "`pixels` of `logits` is given twice"),
        (lambda n, m, x: n.logits(x, x), "ArgumentError", "`m` of `logits` is Classifier, and this is Tensor"),
        (lambda n, m, x: n.logits(torch.nn.Linear(2, 2), x), "ArgumentError", "takes a `state_dict`"),
        (lambda n, m, x: n.step(m, torch.optim.SGD([x]), {}), "ArgumentError", "make one with `shapescript.adamw"),
        (
            lambda n, m, x: n.step(m, shapescript.sgd(m, lr=1), {}),
            "ArgumentError",
            "AdamW[Classifier], and this is SGD",
        ),
        (lambda n, m, x: n.logits(m, x[:, :5]), "ShapeError", "2 x 12, and is 2 x 5: axis `D` should be 12, and is 5"),
        (lambda n, m, x: n.logits(m, x[0]), "ShapeError", "should be [b D], b x 12, and is 12"),
        (lambda n, m, x: n.logits(m, x.int()), "ShapeError", "elements f32, and holds i32"),
        (lambda n, m, x: n.logits(m, "x"), "ArgumentError", "`pixels` of `logits` is [b D], and this is str"),
        (lambda n, m, x: n.scaled(1.0), "ShapeError", "should be [.. D]"),
        (
            lambda n, m, x: n.add(torch.ones(2, 3), torch.ones(4, 2)),
            "ShapeError",
            "`n` should be 3 by `x` of `add`, and is 4",
        ),
        (lambda n, m, x: n.best(x, 2.5), "ArgumentError", "`k` of `best` is int, and this is float, 2.5"),
        (lambda n, m, x: n.best(x, True), "ArgumentError", "`k` of `best` is int, and this is bool"),
        (lambda n, m, x: n.train(m, [], epochs="3"), "ArgumentError", "`epochs` of `train` is int, and this is str"),
        (lambda n, m, x: n.train(m, 3), "DataError", "`data` of `train` is Dataset[Example]: int isn't a dataset"),
        (lambda n, m, x: n.train(m, []), "DataError", "the dataset of `Example` has no examples"),
        (lambda n, m, x: n.train(m, [(x[0], 7)]), "DataError", "whole numbers in 0..4, and holds 7"),
        (lambda n, m, x: n.inside(-x), "DataError", "should be [b D] NonNeg, 0.0 or more, and holds -1.0"),
        (lambda n, m, x: n.Example(pixels=x), "ArgumentError", "also needs the field `digit`, [] Index[C]"),
        (lambda n, m, x: n.Example(pixels=x, digit=[0, 9]), "DataError", "whole numbers in 0..4, and holds 9"),
        (lambda n, m, x: n.Example(pixels=x, digit=[0]), "ShapeError", "has 1 rows, and `pixels` has 2"),
        (lambda n, m, x: n.Example(x, [0, 1]), "ArgumentError", "given by name: `Example(pixels=..., digit=...)`"),
        (lambda n, m, x: n.grow(x.numpy()), "ArgumentError", "is `mut`, and ndarray can't be changed by a call"),
        (lambda n, m, x: n.count(x), "RunError", "net.ss:81"),
        (lambda n, m, x: shapescript.adamw(m), "TypeError", "lr"),
        (lambda n, m, x: shapescript.adamw(m, lr="1"), "ArgumentError", "`lr` of `adamw` is a number, and this is str"),
        (lambda n, m, x: shapescript.adamw(m, lr=1, beta=1), "ArgumentError", "no `beta`; did you mean `betas`"),
        (lambda n, m, x: shapescript.adamw(x, lr=1), "ArgumentError", "takes a model of a loaded program"),
        (lambda n, m, x: shapescript.save_checkpoint("x", step=3), "ArgumentError", "none of these belongs to one"),
    ],
)
def test_a_wrong_argument_is_named_with_both_sides(net: Any, call: Any, error: str, words: str) -> None:
    m = net.Classifier(seed=0)
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011  (its class is compared below)
        call(net, m, torch.ones(2, 12))
    assert type(caught.value).__name__ == error and words in str(caught.value)
    assert error == "TypeError" or isinstance(caught.value, shapescript.Error)


def test_a_tensor_on_another_device_is_refused(net: Any) -> None:
    with pytest.raises(shapescript.DeviceError) as caught:
        net.logits(net.Classifier(seed=0), torch.ones(2, 12, device="meta"))
    assert str(caught.value) == (
        '`pixels` of `logits` is on `meta`, and the program runs on `cpu`: hand over `x.to("cpu")`'
    )


def test_models_of_two_loads_are_apart(net: Any, folder: Path) -> None:
    with shapescript.load(folder / "net.ss") as other:
        with pytest.raises(shapescript.ArgumentError, match="belongs to another loaded program, `net`"):
            other.logits(net.Classifier(seed=0), torch.ones(2, 12))


def test_threads_call_one_after_another(net: Any) -> None:
    m = net.Classifier(seed=0)
    x, y = examples(16)
    batch = net.Example(pixels=x, digit=y)
    opt = shapescript.adamw(m, lr=1e-3)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                net.step(m, opt, batch)
                net.logits(m, x)
        except BaseException as error:  # noqa: BLE001  (shown below)
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert opt.steps == 20


def test_an_interpreter_that_ends_closes_its_programs(folder: Path) -> None:
    code = (
        "import shapescript, torch\nimport net\n"
        "m = net.Classifier(seed=0)\n"
        "net.train(m, [(torch.zeros(12), 0)])\n"
        "shapescript.save_checkpoint('at_exit.ckpt', m=m)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "run trained\n")
    assert (folder / "at_exit.ckpt").is_file()
    assert not list(folder.glob(".at_exit*"))


# --- PyTorch ---------------------------------------------------------------------------------------------------------


def test_a_function_is_a_module_of_pytorch(net: Any) -> None:
    x, y = examples(16)
    m = net.Classifier(seed=0)
    module = m.to_torch("logits")
    assert torch.equal(module(x), net.logits(m, x)) and torch.equal(module(pixels=x[:1]), net.logits(m, x[:1]))
    assert set(module.state_dict()) == set(m.state_dict())
    functional.cross_entropy(module(x), y).backward()
    _, g = net.gradient(m, net.Example(pixels=x, digit=y))
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad, g.state_dict()[name])
    with torch.no_grad():
        module.w2.zero_()
    assert not module(x).any() and net.logits(m, x).any(), "it has copies"
    m.load_state_dict(module.state_dict())
    assert not net.logits(m, x).any()
    with pytest.raises(TypeError, match="export"):
        pickle.dumps(module)
    for name, words in (("logit", "did you mean `logits`"), ("step", "takes `opt`"), ("train", "loops over a dataset")):
        with pytest.raises(shapescript.ArgumentError, match=words):
            m.to_torch(name)


def test_exported_files_give_the_same_numbers(net: Any, tmp_path: Path) -> None:
    x, _ = examples(5)
    m = net.Classifier(seed=0)
    shapescript.export(m, "logits", tmp_path / "m.pt2", pixels=x[:1])
    torch.testing.assert_close(torch.export.load(tmp_path / "m.pt2").module()(x), net.logits(m, x))
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    shapescript.export(m, "logits", tmp_path / "m.onnx", pixels=x)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert [given.name for given in session.get_inputs()] == ["pixels"]
    [found] = session.run(None, {"pixels": x[:3].numpy()})
    torch.testing.assert_close(torch.from_numpy(found), net.logits(m, x[:3]), rtol=1e-5, atol=1e-6)
