"""What a user of PyTorch tries next: live parameters, modules, state_dicts, copies; and words for what isn't there."""

from __future__ import annotations

import copy
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import shapescript

NET = """devices cpu

dim D  = 6
dim Hd = 5
dim C  = 3
dim L  = 2

model Block[N]:
    param w: [N N] = normal(std=0.2)

model Net:
    param w1: [D Hd] = normal(std=0.3)
    param b1: [Hd]   = zeros
    blocks: [L] Block[Hd]
    param w2: [Hd C] = normal(std=0.3)
    state calls: [] i64 = zeros

data Example:
    pixels: [D]
    digit:  [] Index[C]

fn logits(m: Net, pixels: [b D]) -> [b C]:
    h = pixels @ m.w1 + m.b1 |> relu
    for block in m.blocks:
        h = h + relu(h @ block.w)
    return h @ m.w2

fn loss(m: Net, batch: [b] Example) -> [] NonNeg:
    return cross_entropy(logits(m, batch.pixels), batch.digit, over=C)

fn gradient(m: Net, batch: [b] Example) -> ([] NonNeg, Grads[Net]):
    l, g = value_and_grad(loss, m, batch)
    return l, g

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Example) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn best(by: float, m: Net, pixels: [b D], k: int, rate: float = 0.5, flip: bool = false) -> [b k]:
    s = logits(m, pixels) * by + rate
    if flip:
        s = -s
    values, places = topk(s, k, over=C)
    return values

fn means(m: Net, x: [b D], y: [n D]) -> []:
    return mean(x @ m.w1, over=[b Hd]) + sum(y @ m.w1, over=[n Hd]) / n

fn pairs(m: Net, x: [b D], z: [n b]) -> [n C]:
    return z @ logits(m, x)

fn turned(m: Net, x: [D b]) -> [b Hd]:
    return einsum(x, m.w1: D b, D Hd -> b Hd)

fn doubled(mut x: [b D]):
    x = x * 2.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("programs")
    (place / "net.ss").write_text(NET)
    return place


@pytest.fixture(scope="module")
def net(folder: Path) -> Iterator[Any]:
    with shapescript.load(folder / "net.ss") as module:
        yield module


def examples(count: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    return torch.rand(count, 6, generator=drawn), torch.randint(0, 3, (count,), generator=drawn)


# --- live parameters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", ["cpu", "cpu[0 1]"])
def test_an_optimizer_of_pytorch_trains_the_model(folder: Path, devices: str) -> None:
    """The same 12 steps by torch's AdamW over `m.parameters()` and by the program's own."""
    x, y = examples()
    with shapescript.load(folder / "net.ss", devices=devices) as net:
        batch = net.Example(pixels=x, digit=y)
        m, twin = net.Net(seed=0), net.Net(seed=0)
        theirs = torch.optim.AdamW(m.parameters(), lr=1e-2)
        own = shapescript.adamw(twin, lr=1e-2)
        for _ in range(12):
            loss, g = net.gradient(m, batch)
            for name, parameter in m.named_parameters():
                parameter.grad = g[name]
            theirs.step()
            torch.testing.assert_close(loss, net.step(twin, own, batch))
        for name, value in twin.state_dict().items():
            torch.testing.assert_close(m[name], value, rtol=1e-4, atol=1e-5)


def test_live_parameters_follow_the_program(net: Any) -> None:
    m = net.Net(seed=0)
    parameters = dict(m.named_parameters())
    assert list(parameters) == ["w1", "b1", "blocks.0.w", "blocks.1.w", "w2"]
    assert all(one is two for one, two in zip(m.parameters(), parameters.values(), strict=True))
    assert next(m.blocks[0].parameters()) is parameters["blocks.0.w"]
    x, y = examples()
    net.step(m, shapescript.adamw(m, lr=1e-2), net.Example(pixels=x, digit=y))
    assert all(torch.equal(parameter, m[name]) for name, parameter in parameters.items())
    m.b1 = torch.ones(5)
    assert torch.equal(parameters["b1"], torch.ones(5))


def test_an_interrupted_call_leaves_its_updates_in_the_live_parameters(net: Any) -> None:
    m, (x, y) = net.Net(seed=0), examples()
    w1 = dict(m.named_parameters())["w1"]
    batch, opt = net.Example(pixels=x, digit=y), shapescript.adamw(m, lr=1e-2)
    before = w1.detach().clone()
    with pytest.raises(KeyboardInterrupt), net._runtime.running():
        net.step(m, opt, batch)
        raise KeyboardInterrupt
    assert not torch.equal(w1, before) and torch.equal(w1, m.w1)


def test_every_way_of_writing_into_a_live_parameter(net: Any) -> None:
    m = net.Net(seed=0)
    b1 = dict(m.named_parameters())["b1"]
    with torch.no_grad():
        b1.fill_(1.0)
    assert m.b1.unique().tolist() == [1.0]
    b1.data.fill_(2.0)
    assert m.b1.unique().tolist() == [2.0]
    b1.detach().numpy()[:] = 3.0
    assert m.state_dict()["b1"].unique().tolist() == [3.0]
    twin = copy.deepcopy(m)
    b1.data = torch.full((5,), 4.0)
    assert (m.b1.unique().tolist(), twin.b1.unique().tolist()) == ([4.0], [3.0])
    b1.data = torch.zeros(2)
    with pytest.raises(
        shapescript.ShapeError, match="the parameter `b1` was 5 float32 on cpu, and has become 2 float32"
    ):
        m.state_dict()
    b1.data = torch.zeros(5)
    assert not m.b1.any()


def test_parameters_that_nobody_has_cost_nothing(net: Any) -> None:
    m = net.Net(seed=0)
    assert sum(parameter.numel() for parameter in m.parameters()) == 6 * 5 + 5 + 2 * 25 + 15
    assert not net.logits(m, torch.ones(2, 6)).requires_grad
    assert not net._runtime.live.known


def test_backward_says_where_gradients_come_from(net: Any) -> None:
    m, (x, y) = net.Net(seed=0), examples()
    kept = list(m.parameters())
    loss = net.loss(m, net.Example(pixels=x, digit=y))
    with pytest.raises(shapescript.Error, match=r"through `loss`.*`value_and_grad`.*m\.to_torch\(\"loss\"\)"):
        loss.backward()
    with torch.no_grad():
        assert not net.logits(m, x).requires_grad
    kept.clear()
    with pytest.raises(shapescript.Error, match="through `logits`"):
        net.logits(m, x.clone().requires_grad_()).sum().backward()


# --- modules ---------------------------------------------------------------------------------------------------------


def test_a_function_of_a_batch_is_a_module(net: Any, tmp_path: Path) -> None:
    m, (x, y) = net.Net(seed=0), examples()
    module = m.to_torch("loss")
    batch = net.Example(pixels=x, digit=y)
    torch.testing.assert_close(module({"digit": y, "pixels": x}), net.loss(m, batch))
    torch.testing.assert_close(module(batch=batch), net.loss(m, batch))
    module({"pixels": x.double(), "digit": y.int()}).backward()
    _, g = net.gradient(m, batch)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad, g[name])
    shapescript.export(m, "loss", tmp_path / "loss.pt2", batch={"pixels": x, "digit": y})
    found = torch.export.load(tmp_path / "loss.pt2").module()({"pixels": x[:7], "digit": y[:7]})
    torch.testing.assert_close(found, net.loss(m, batch[:7]))


def test_numbers_are_fixed_when_a_module_is_made(net: Any, tmp_path: Path) -> None:
    m, (x, _) = net.Net(seed=0), examples()
    for fixed in ({"by": 2.0, "k": 2}, {"by": 3, "k": 1, "rate": 0.0, "flip": True}):
        module = m.to_torch("best", **fixed)
        torch.testing.assert_close(module(x).detach(), net.best(m=m, pixels=x, **fixed))
        torch.testing.assert_close(module(x[:5]).detach(), net.best(m=m, pixels=x[:5], **fixed))
    shapescript.export(m, "best", tmp_path / "best.pt2", pixels=x, by=2.0, k=2)
    found = torch.export.load(tmp_path / "best.pt2").module()(x[:7])
    torch.testing.assert_close(found.detach(), net.best(2.0, m, x[:7], 2))
    for wrong, words in (
        ({"k": 2}, r"`by` of `best` is float: give it when the module is made, `m.to_torch\(\"best\", by=...\)`"),
        ({"by": 1, "k": "2"}, "`k` of `best` is int, and this is str"),
        ({"by": 1, "k": 2, "pixels": x}, "`pixels` isn't a number that `best` takes; it takes by, k, rate, flip"),
    ):
        with pytest.raises(shapescript.ArgumentError, match=words):
            m.to_torch("best", **wrong)


def test_each_axis_of_a_modules_tensors_has_its_own_length(net: Any) -> None:
    """Only the rows' axis may change without new operations; none is taken for another."""
    m = net.Net(seed=0)
    module, pairs, turned = m.to_torch("means"), m.to_torch("pairs"), m.to_torch("turned")
    for rows, others in ((5, 7), (3, 7), (3, 9), (9, 3), (4, 4)):
        x, y = torch.rand(rows, 6), torch.rand(others, 6)
        torch.testing.assert_close(module(x, y).detach(), net.means(m, x, y))
        z = torch.rand(others, rows)
        torch.testing.assert_close(pairs(x, z).detach(), net.pairs(m, x, z))
        torch.testing.assert_close(turned(x.mT).detach(), net.turned(m, x.mT))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (lambda x, y: x, "ArgumentError", 'a mapping of its fields, {"pixels": ..., "digit": ...}, and this is Tensor'),
        (lambda x, y: {"pixels": x}, "ArgumentError", "and this is dict with pixels"),
        (lambda x, y: {"pixels": x, "digit": [1]}, "ArgumentError", "`digit` of `batch` of `loss` is a torch tensor"),
        (lambda x, y: {"pixels": x, "digit": y[:3]}, "ShapeError", "has 3 rows, and `pixels` has 24"),
        (lambda x, y: {"pixels": x.half(), "digit": y}, "ShapeError", "elements f32, and holds f16"),
        (lambda x, y: {"pixels": x, "digit": y + 9}, "Error", "is out of range for `C`, which holds 0..3"),
    ],
)
def test_a_modules_arguments_are_checked_each_time(net: Any, given: Any, error: str, words: str) -> None:
    x, y = examples()
    module = net.Net(seed=0).to_torch("loss")
    module({"pixels": x, "digit": y})
    with pytest.raises(shapescript.Error) as caught:
        module(given(x, y))
    assert type(caught.value).__name__ == error and words in str(caught.value)


def test_a_module_is_one_of_pytorchs(net: Any) -> None:
    m, (x, _) = net.Net(seed=0), examples()
    module = m.to_torch("logits")
    twin = copy.deepcopy(module)
    with torch.no_grad():
        twin.w2.zero_()
    assert not twin(x).any() and module(x).any()
    tensors = {name: torch.zeros_like(value) for name, value in module.state_dict().items()}
    assert not torch.func.functional_call(module, tensors, (x,)).any()
    torch.testing.assert_close(torch.func.vmap(module)(x[:, None])[:, 0], module(x))
    with pytest.raises(
        shapescript.ArgumentError, match=r"`w1` is torch.float64 now, and the program says torch.float32"
    ):
        copy.deepcopy(module).double()(x)


def test_compiling_a_function_of_a_program_calls_it_as_it_is(net: Any) -> None:
    m, (x, _) = net.Net(seed=0), examples()
    assert torch.equal(torch.compile(net.logits, backend="eager")(m, x), net.logits(m, x))


def test_a_worker_that_fails_is_told_of_by_to_torch_too(folder: Path) -> None:
    with shapescript.load(folder / "net.ss", devices="cpu[0 1]") as net:
        m, (x, y) = net.Net(seed=0), examples()
        net.step(m, shapescript.adamw(m, lr=0.1), net.Example(pixels=x, digit=y))
        worker = net._runtime.domain.place.pool.processes[-1]
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(shapescript.WorkerError, match=r"`cpu\[1\]`.*SIGKILL"):
            net.logits(m, x)
        for call in (lambda: m.to_torch("logits"), m.state_dict, lambda: m.w1, lambda: list(m.parameters())):
            with pytest.raises(shapescript.WorkerError, match="SIGKILL"):
                call()


# --- state_dicts and copies ------------------------------------------------------------------------------------------


def test_a_state_dict_that_is_not_whole(net: Any) -> None:
    m = net.Net(seed=0)
    written = io.BytesIO()
    torch.save(m.state_dict(), written)
    written.seek(0)
    other = net.Net(seed=1)
    assert other.load_state_dict(torch.load(written), strict=True) == ([], [])
    assert torch.equal(other.w1, m.w1)
    found = other.load_state_dict({"b1": torch.ones(5), "extra": torch.ones(1)}, strict=False)
    assert found.missing_keys == ["w1", "blocks.0.w", "blocks.1.w", "w2", "calls"]
    assert found.unexpected_keys == ["extra"] and other.b1.all() and torch.equal(other.w1, m.w1)
    with pytest.raises(shapescript.CheckpointError, match="`b1` should be .*, 5, and is 4 there"):
        other.load_state_dict({"b1": torch.ones(4)}, strict=False)
    with pytest.raises(shapescript.CheckpointError, match="all begin with `module.`: without it they may fit"):
        other.load_state_dict({f"module.{name}": value for name, value in m.state_dict().items()})


def test_optimizers_gradients_and_batches_are_copied(net: Any) -> None:
    m, (x, y) = net.Net(seed=0), examples()
    batch = net.Example(pixels=x, digit=y)
    opt = shapescript.adamw(m, lr=1e-2)
    before = copy.deepcopy(opt)
    net.step(m, opt, batch)
    assert (opt.steps, before.steps) == (1, 0)
    assert torch.equal(copy.copy(batch).digit, y) and list(batch) == ["pixels", "digit"]
    part = batch[2:5]
    assert len(part) == 3 and torch.equal(part["pixels"], x[2:5])
    _, g = net.gradient(m, batch)
    torch.testing.assert_close((-g * torch.tensor(2.0)).w1, copy.deepcopy(g).w1 * -2)
    torch.testing.assert_close(g["blocks.1.w"], g.blocks[1].w)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda n, m: m.modules(), AttributeError, "its parts are its fields"),
        (lambda n, m: m.requires_grad_(False), AttributeError, "`stop_gradient` in the program"),
        (lambda n, m: m["w9"], KeyError, "has no `w9`; did you mean `w1`"),
        (lambda n, m: delattr(m, "w1"), AttributeError, "can't be deleted"),
        (lambda n, m: n.Net(hidden=3), shapescript.ArgumentError, "takes `seed` alone, and not `hidden`"),
        (lambda n, m: setattr(n, "D", 3), AttributeError, "`D` is what the program declares"),
        (lambda n, m: shapescript.adamw(m, lr=0.1).step(), AttributeError, "`update(mut m, mut opt, g)`"),
        (lambda n, m: shapescript.adamw(m.parameters(), lr=0.1), shapescript.ArgumentError, "write `adamw(m, lr=...)`"),
        (lambda n, m: shapescript.adamw(m, lr=-0.1), shapescript.ArgumentError, "should be 0 or more, and is -0.1"),
        (lambda n, m: shapescript.adamw(m, lr=1, betas=(0.9, 1.0)), shapescript.ArgumentError, "0 or more below 1"),
        (lambda n, m: n.logits(m, torch.ones(2, 6).to_sparse()), shapescript.ArgumentError, "hand over `x.to_dense()`"),
        (lambda n, m: n.logits(m, [[1.0], [1.0, 2.0]]), shapescript.ArgumentError, "its rows aren't of one length"),
        (lambda n, m: n.doubled(torch.ones(1, 6).expand(3, 6)), shapescript.ArgumentError, "hand over `x.clone()`"),
        (lambda n, m: n.loss(m, (1, 2)), shapescript.ArgumentError, "make one: `Example(pixels=..., digit=...)`"),
    ],
)
def test_habits_of_pytorch_get_an_answer(net: Any, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        call(net, net.Net(seed=0))
    assert words in str(caught.value)


def test_a_module_that_is_loaded_again_has_what_the_file_has_now(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    (folder / "edited.ss").write_text("devices cpu\n\nold = 1\nsize = 2\n")
    edited = importlib.import_module("edited")
    (folder / "edited.ss").write_text("devices cpu\n\nsize = 3\n")
    assert importlib.reload(edited) is edited and edited.size == 3 and not hasattr(edited, "old")
    (folder / "edited.ss").write_text("devices cpu\n\nsize = \n")
    with pytest.raises(shapescript.CheckError):
        importlib.reload(edited)
    assert edited.size == 3
    del sys.modules["edited"]
