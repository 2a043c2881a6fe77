"""Checkpoints and resuming, case by case: what others got wrong, and the right answer.

The numbers of the tests are those of a list of public reports. E1 (killed at any moment) and E9 (a rate that drops)
are in test_checkpoint_resume.py, whose program is killed at random moments by kill_training.py as well; E2 (leftovers)
and E8 (names that don't fit) have more there and in test_checkpoint.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import data_code
import pytest
import torch
from programs import Program
from safetensors import safe_open
from several import devices

import shapescript
from shapescript.controller import checkpoint_files

COUNTS = (1, 2, 3)
TRAINING = """
dim D = 3
import python data_code
model Net:
    param w: [D] f64 = constant(0.5)
data Row:
    x: [D]
    id: [] i64
fn loss(m: Net, batch: [b] Row) -> [] f64:
    y = dropout(batch.x as f64, 0.4) @ m.w - 1.0
    return mean(y * y, over=b)
fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row, lr: float) -> [] f64:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g, lr=lr)
    return l
fn train(path: str, resume: bool, stop: int, size: int) -> float:
    data = data_code.examples(60) as Dataset[Row]
    m = Net(seed=0)
    opt = adamw(m, lr=0.05, weight_decay=0.1)
    done = 0
    last = 0.0
    if resume:
        load_checkpoint(path, mut m, mut opt, mut done, mut last)
    for batch in data |> shuffle |> batches(size) |> skip(done):
        lr = 0.05
        if done >= 4:
            lr = 0.01
        last = float(step(mut m, mut opt, batch, lr))
        data_code.note(whole(batch.id))
        done = done + 1
        if done == stop:
            save_checkpoint(path, m, opt, done, last)
            return last
    return last
"""


def train(path: Path, count: int, resume: bool, stop: int, size: int = 12) -> tuple[float, list[int]]:
    """The last loss, and the examples that were used."""
    data_code.forget()
    found = Program(TRAINING, seed=3, place=devices(count)).call("train", str(path), resume, stop, size)
    checkpoint_files.finish()
    assert isinstance(found, float)
    return found, [number for batch in data_code.seen for number in batch]


@pytest.mark.parametrize(("first", "second"), [(3, 1), (3, 2), (1, 3), (2, 3)])
def test_e6_e7_another_set_of_devices_goes_on(tmp_path: Path, first: int, second: int) -> None:
    whole, order = train(tmp_path / "none", 1, False, 99)
    _, before = train(tmp_path / "c", first, False, 2)
    last, after = train(tmp_path / "c", second, True, 99)
    assert before + after == order and sorted(order) == list(range(60)), "each example exactly once"
    assert last == pytest.approx(whole, rel=1e-12), "dropout, the rate and Adam's counts go on"
    with safe_open(tmp_path / "c", "pt") as file:
        assert sorted(file.keys()) == ["m.w", "opt.first.w", "opt.second.w", "opt.steps.step"]
        assert {tensor.device.type for tensor in map(file.get_tensor, file.keys())} == {"cpu"}


def test_e4_draws_and_weights_are_of_one_step(tmp_path: Path) -> None:
    whole, _ = train(tmp_path / "none", 1, False, 99)
    for stop in (1, 3, 4):
        train(tmp_path / "c", 1, False, stop)
        last, _ = train(tmp_path / "c", 1, True, 99)
        assert last == whole, "an iterator made after loading reseeds nothing"


MODEL = """devices cpu

dim D = 4

model Part:
    param w: [D] = normal(std=1.0)

model Net:
    a: Part
    b: Part
    param v: [D D] = normal(std=1.0)

fn loss(m: Net, x: [b D]) -> []:
    return mean(square((x * m.a.w) @ m.v * m.b.w), over=[b D])

fn step(mut m: Net, mut opt: AdamW[Net], x: [b D]) -> []:
    l, g = value_and_grad(loss, m, x)
    update(mut m, mut opt, g)
    return l

fn tie(mut m: Net):
    m.b = m.a
    print("tied")

fn save_if_good(m: Net, x: [b D], path: str):
    l = loss(m, x)
    if l < 1e9:
        save(m, path)
    else:
        print("bad")

fn save_often(m: Net, path: str, count: int):
    for i in 0..count:
        save(m, path)
        if i == 0:
            print("saving")
"""


@pytest.fixture
def net(tmp_path: Path) -> Any:
    (tmp_path / "net.ss").write_text(MODEL)
    with shapescript.load(tmp_path / "net.ss") as module:
        yield module


def test_e2_the_next_save_removes_what_a_kill_left_and_nothing_else(net: Any, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    theirs = [tmp_path / name for name in (".m.tmp", f".other.{gone.pid}.shapescript-part", "notes")]
    ours = tmp_path / f".m.{gone.pid}.shapescript-part"
    for path in (*theirs, ours):
        path.write_text("")
    net.Net(seed=0).save(tmp_path / "m")
    assert not ours.exists() and all(path.exists() for path in theirs)


def test_e8_a_broadcast_is_not_a_fit(net: Any, tmp_path: Path) -> None:
    m = net.Net(seed=0)
    before = m.state_dict()
    with pytest.raises(shapescript.CheckpointError, match=r"`v` should be \[D D\], 4 x 4, and is 1 x 4"):
        m.load_state_dict({**before, "v": torch.zeros(1, 4), "a.w": torch.zeros(4)})
    assert all(torch.equal(value, before[name]) for name, value in m.state_dict().items())


def test_e10_an_optimizer_goes_on_with_its_count_rate_and_decay(net: Any, tmp_path: Path) -> None:
    m = net.Net(seed=0)
    opt = shapescript.adamw(m, lr=0.01, weight_decay=0.3)
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(30):
        net.step(m, opt, x)
    shapescript.save_checkpoint(tmp_path / "c", m=m, opt=opt)
    other = net.Net(seed=1)
    state = shapescript.adamw(other, lr=0.5, weight_decay=0.0)
    shapescript.load_checkpoint(tmp_path / "c", m=other, opt=state)
    assert (state.steps, state.lr, state.options["weight_decay"]) == (30, 0.01, 0.3)
    # the 31st step is PyTorch's, from the same weights and state
    own = [torch.nn.Parameter(tensor) for tensor in (other.a.w, other.b.w, other.v)]
    peer = torch.optim.AdamW(own, lr=0.01, weight_decay=0.3)
    kept = state.state_dict()
    for parameter, name in zip(own, ("a.w", "b.w", "v"), strict=True):
        peer.state[parameter] = {
            "step": torch.tensor(30.0),
            "exp_avg": kept[f"first.{name}"].clone(),
            "exp_avg_sq": kept[f"second.{name}"].clone(),
        }
    (((x * own[0]) @ own[2] * own[1]) ** 2).mean().backward()
    peer.step()
    net.step(other, state, x)
    for parameter, found in zip(own, (other.a.w, other.b.w, other.v), strict=True):
        torch.testing.assert_close(found, parameter.detach(), rtol=1e-5, atol=1e-7)


def test_e11_a_tied_part_is_stored_once_and_stays_one(net: Any, tmp_path: Path) -> None:
    m = net.Net(seed=0)
    net.tie(m)
    m.save(tmp_path / "m")
    with safe_open(tmp_path / "m", "pt") as file:
        assert sorted(file.keys()) == ["a.w", "v"]
    other = net.Net(seed=1)
    net.tie(other)
    other.load(tmp_path / "m")
    other.a.w = torch.ones(4)
    assert torch.equal(other.b.w, torch.ones(4)) and other.a == other.b


@pytest.mark.parametrize("count", COUNTS)
def test_e12_a_save_that_a_loss_decides_does_not_hang(tmp_path: Path, count: int) -> None:
    body = "fn run(path: str):\n    save_if_good(Net(seed=0), ones[7 D], path)\n"
    Program(MODEL + "\n" + body, place=devices(count)).call("run", str(tmp_path / "m"))
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_e13_ctrl_c_while_it_saves_leaves_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "net.ss").write_text(
        MODEL.replace("dim D = 4", "dim D = 400") + '\nfn main():\n    save_often(Net(seed=0), "m", 100000)\n'
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "shapescript", "net.ss"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert running.stdout is not None and running.stdout.readline() == "saving\n"
    os.kill(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130 and "Traceback" not in errors
    assert set(checkpoint_files.read(tmp_path / "m").tensors) == {"a.w", "b.w", "v"}
    assert not list(tmp_path.glob(".m.*"))
