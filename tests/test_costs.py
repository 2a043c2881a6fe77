"""What `plan` says that a step sends is what the transports count as it runs."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from programs import Program, session
from several import devices, pool
from test_split import GPT

from shapescript.cli import main
from shapescript.controller.costs import costs
from shapescript.devices.several import SeveralRunner

CHAPTER = """devices cuda[0 1 2]

dim D = 784
dim Hd = 256
dim C = 10

model Mlp:
    param w1: [D Hd] = normal(std=0.02)
    param w2: [Hd C] = normal(std=0.02)

data Digit:
    img: [D]
    label: [] Index[C]

fn loss(m: Mlp, batch: [b] Digit) -> [] NonNeg:
    return cross_entropy(batch.img @ m.w1 |> gelu |> matmul(m.w2), batch.label, over=C)

fn step(mut m: Mlp, mut opt: AdamW[Mlp], batch: [b] Digit) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn make() -> Mlp:
    return Mlp(seed=0)

fn optimizer(m: Mlp) -> AdamW[Mlp]:
    return adamw(m, lr=3e-4)
"""

NORMS = """devices cuda[0 1 2]

dim D = 12
dim C = 5

model Net:
    bn: BatchNorm[D]
    param w: [D C] = normal(std=0.1)

data Row:
    x: [D]
    label: [] Index[C]

fn loss(mut m: Net, batch: [b] Row) -> [] NonNeg:
    return cross_entropy(batch_norm(batch.x, mut m.bn, over=b) @ m.w, batch.label, over=C)

fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Row) -> ([] NonNeg, [] f32):
    l, g = value_and_grad(loss, mut m, batch)
    size = norm(g)
    update(mut m, mut opt, clip(g, norm=1.0))
    return l, size

fn make() -> Net:
    return Net(seed=0)

fn optimizer(m: Net) -> SGD[Net]:
    return sgd(m, lr=0.1)
"""


def batch(text: str, count: int) -> dict[str, torch.Tensor]:
    width, classes = (784, 10) if text is CHAPTER else (12, 5)
    random = torch.Generator().manual_seed(0)
    name = "img" if text is CHAPTER else "x"
    label = torch.randint(classes, (count,), generator=random)
    return {name: torch.randn(count, width, generator=random), "label": label}


@pytest.mark.parametrize("shard", [False, True], ids=["whole", "sharded"])
@pytest.mark.parametrize("text", [CHAPTER, NORMS], ids=["chapter", "norms"])
def test_the_figures_are_those_that_are_counted(text: str, shard: bool) -> None:
    if shard:
        text = text.replace("devices cuda[0 1 2]", "devices cuda[0 1 2]\n    shard params")
    seen = session(text)
    assert not seen.diagnostics
    report = costs(seen.typed, seen.placed.kinds, seen.path, ["step"])["step"]
    assert not isinstance(report, str)
    program = Program(text.replace("cuda", "cpu"), place=devices(3, shard=shard))
    m = program.call("make")
    opt = program.call("optimizer", m)
    rows = batch(CHAPTER if "Mlp" in text else NORMS, 64)
    steps = 3
    for _ in range(steps):
        program.call("step", m, opt, rows)
    (runner,) = (plan.runner for plan in program.domain.plans if plan.function.name == "step")
    assert isinstance(runner, SeveralRunner)
    for sent in pool(3).sent(runner.plan):
        assert sent.bytes == steps * report.total.bytes
        assert sent.values == steps * sum(report.total.values.values())
        assert sent.launches == steps * report.total.launches


def test_the_chapters_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.ss").write_text(CHAPTER)
    assert main(["plan", str(tmp_path / "train.ss"), "step"]) == 0
    out = capsys.readouterr().out
    assert "value_and_grad: 203,264 f32 values, 813,056 bytes per step" in out
    assert "sends g.m.w1  [D Hd]  partial sum -> whole  all-reduce  200,704 f32      802,816 B" in out
    assert "sends g.m.w2  [Hd C]  partial sum -> whole  all-reduce  2,560 f32       10,240 B" in out
    assert "b split 22/21/21" in out


def test_memory_of_sharded_parameters_is_a_third() -> None:
    figures = []
    for text in (CHAPTER, CHAPTER.replace("devices cuda[0 1 2]", "devices cuda[0 1 2]\n    shard params")):
        seen = session(text)
        report = costs(seen.typed, seen.placed.kinds, seen.path, ["step"])["step"]
        assert not isinstance(report, str)
        figures.append([each.resting["param"] + each.resting["state"] for each in report.memory])
    whole, sharded = figures
    for one, share in zip(whole, sharded, strict=True):
        assert share == pytest.approx(one / 3, rel=0.05)


def test_workers_hold_a_third_of_sharded_parameters() -> None:
    """As counted by the workers themselves, in what they keep between steps."""

    class Trained:
        def __init__(self, shard: bool) -> None:
            self.program = Program(CHAPTER.replace("cuda", "cpu"), place=devices(3, shard=shard))
            self.m = self.program.call("make")
            self.optimizer = self.program.call("optimizer", self.m)
            self.program.call("step", self.m, self.optimizer, batch(CHAPTER, 64))

        def held(self) -> torch.Tensor:
            """The bytes of each worker's values, once it has let go of those that nobody uses."""
            gc.collect()
            self.program.call("loss", self.m, batch(CHAPTER, 64))
            return torch.tensor([values for values, _ in pool(3).ask("memory")])  # type: ignore[misc]

    first = Trained(shard=False)
    alone = first.held()
    second = Trained(shard=True)
    together = second.held()
    del first
    whole, sharded = together - second.held(), together - alone
    size = torch.full((3,), 203_264.0 * 4, dtype=torch.float64)
    # the parameters whole; of the two numbers that AdamW keeps of each every worker has its part
    torch.testing.assert_close(whole.double(), size + 2 * size / 3, rtol=0.05, atol=0.0)
    torch.testing.assert_close(sharded.double(), size, rtol=0.05, atol=0.0)


def test_an_operation_that_needs_a_split_dim_whole_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "devices cpu[0 1]\n    split V\n\ndim V = 8\n\n"
    text += "fn f(x: [V]) -> [V]:\n    y = x * 2\n    return cumsum(y, over=V)\n"
    (tmp_path / "v.ss").write_text(text)
    assert main(["plan", str(tmp_path / "v.ss")]) == 0
    out = capsys.readouterr().out
    assert "v.ss:8  return cumsum(y, over=V)\n" in out
    assert "V split -> whole  all-gather" in out
    assert "(`cumsum` needs `V` whole)" in out.split("v.ss:8")[1]


KERNELS = """devices {devices}

dim K = 6
dim D = 12

model Net:
    param w: [D D] = normal(std=0.1)

fn sorted(m: Net, x: [K D]) -> [K D]:
    y = sort(x @ m.w, over=D)
    return sort(tanh(y), over=K)

fn plain(m: Net, x: [K D]) -> [K D]:
    return softmax(gelu(x @ m.w), over=D)
"""


@pytest.mark.parametrize("where", ["cpu", "cpu[0 1]"])
def test_what_has_no_kernel_is_said(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHAPESCRIPT_EXECUTOR", raising=False)
    (tmp_path / "k.ss").write_text(KERNELS.format(devices=where))
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "k.ss"]) == 0
    sorted_, plain = capsys.readouterr().out.split("\n\n")[1:]
    assert "  run by torch, without a native kernel: sort (k.ss:10, 11)\n" in sorted_
    assert "kernel" not in plain
    assert main(["plan", "--html", "k.html", "k.ss"]) == 0
    assert (tmp_path / "k.html").read_text().count("without a native kernel: sort (k.ss:10, 11)") == 1
    monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", "reference")
    capsys.readouterr()
    assert main(["plan", "k.ss"]) == 0
    assert "kernel" not in capsys.readouterr().out


def test_one_device_sends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.ss").write_text(CHAPTER.replace("cuda[0 1 2]", "cpu"))
    assert main(["plan", "train.ss", "step"]) == 0
    out = capsys.readouterr().out
    assert "fn step    b = 64\n" in out and "[b Hd] f32\n" in out
    assert not any(word in out for word in ("sends", "split", "whole", "partial", "device 0"))
    assert "  param 813,056 B, state 1,626,120 B" in out


def test_what_depends_on_a_number_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.ss").write_text("devices cpu\nfn f(k: int) -> [k] f32:\n    return zeros[k]\n")
    assert main(["plan", str(tmp_path / "k.ss")]) == 0
    assert "isn't known before it runs: it depends on the value of `k`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("head", "count", "by"),
    [
        ("devices cpu[0 1]\n    shard params\n", 2, 1),
        ("devices cpu[0 1]\n    split H\n    split Hd\n    split V\n", 2, 1),
        ("devices cpu[0 1 2 3]\n    shard params\n    split H by 2\n    split V by 2\n", 4, 2),
    ],
    ids=["sharded", "split", "grid"],
)
def test_the_figures_of_a_gpt_are_those_that_are_counted(head: str, count: int, by: int) -> None:
    seen = session(head + GPT)
    report = costs(seen.typed, seen.placed.kinds, seen.path, ["step"])["step"]
    assert not isinstance(report, str)
    options = seen.typed.devices
    assert options is not None
    program = Program(GPT, place=devices(count, options.split, options.shard_params, by, GPT))
    m = program.call("make")
    opt = program.call("optimizer", m)
    tokens = torch.zeros(64, 4, dtype=torch.int64)
    program.call("step", m, opt, {"tokens": tokens, "next": tokens})
    (runner,) = (plan.runner for plan in program.domain.plans if plan.function.name == "step")
    assert isinstance(runner, SeveralRunner)
    for sent in pool(count, by).sent(runner.plan):
        assert sent.bytes == report.total.bytes
        assert sent.values == sum(report.total.values.values())
        assert sent.launches == report.total.launches


def test_clip_sends_all_greatest_values_at_once() -> None:
    seen = session("devices cpu[0 1 2]\n    shard params\n" + GPT)
    report = costs(seen.typed, seen.placed.kinds, seen.path, ["step"])["step"]
    assert not isinstance(report, str)
    greatest = [each.communication for each in report.sendings if each.communication.before == "partial max"]
    assert len(greatest) == 16  # each parameter that is used
    assert len({each.launch for each in greatest}) == 1
    assert not [each for each in report.sendings if each.communication.label == "abs"]


BLOCKS = """
dim D = 96
dim L = 12

data Row:
    x: [D]

model Block:
    param w: [D D] = normal(std=0.1)

model Net:
    blocks: [L] Block

fn loss(m: Net, batch: [b] Row) -> [] f32:
    x = batch.x
    for block in m.blocks:
        x = x + relu(x @ block.w)
    return mean(square(x), over=[b D])

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row) -> [] f32:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn make() -> Net:
    return Net(seed=0)

fn optimizer(m: Net) -> AdamW[Net]:
    return adamw(m, lr=1e-3)
"""


def test_the_memory_of_twelve_equal_blocks_falls_to_a_third_and_two_blocks() -> None:
    """Parameters, gradients and state: on three devices a third of each, and of whole ones the few that are in use."""
    block = 96 * 96 * 4
    peaks = []
    for options in ("", "    shard params\n"):
        seen = session(f"devices cpu[0 1 2]\n{options}{BLOCKS}")
        report = costs(seen.typed, seen.placed.kinds, seen.path, ["step"])["step"]
        assert not isinstance(report, str)
        for memory in report.memory:
            share = 1 / 3 if options else 1.0
            rests = memory.resting["param"] + memory.resting["state"]
            assert rests == pytest.approx(3 * 12 * block * share, rel=0.05)
        peaks.append(max(memory.peak for memory in report.memory))
    whole, sharded = peaks
    rows = 64 / 3 * 96 * 4
    # whole: three of each number, and the gradients of all until they are reduced
    assert whole >= 4 * 12 * block
    # sharded: a third of four, the whole block in use and the next, its whole gradient, and the batch's values
    assert sharded <= 4 * 12 * block / 3 + 4 * block + 12 * 4 * rows


EXTERN = """devices {devices}

dim D = 4

data Digit:
    img: [D] f32

extern fn turned(img: [b D] f32) -> [b D] f32 = "torch.neg"

fn crop(batch: [b] Digit) -> [b D] f32:
    return exp(turned(exp(batch.img)))

fn plain(batch: [b] Digit) -> [] f32:
    return sum(exp(batch.img), over=[b D])
"""


@pytest.mark.parametrize("where", ["cuda[0]", "cuda[0 1 2]"])
def test_what_is_recorded_on_a_gpu_is_said_without_one(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("shapescript._cuda", reason="built without nvcc")
    monkeypatch.delenv("SHAPESCRIPT_EXECUTOR", raising=False)
    (tmp_path / "k.ss").write_text(EXTERN.format(devices=where))
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "k.ss"]) == 0
    crop, plain = capsys.readouterr().out.split("\n\n")[1:]
    assert "  on the GPU: recorded in parts, around extern (k.ss:11), anew for each size of a batch: Python" in crop
    assert "  on the GPU: recorded whole\n" in plain
    assert main(["plan", "--html", "k.html", "k.ss"]) == 0
    assert (tmp_path / "k.html").read_text().count("on the GPU: recorded in parts, around extern (k.ss:11)") == 1
    monkeypatch.setenv("SHAPESCRIPT_EXECUTOR", "reference")
    capsys.readouterr()
    assert main(["plan", "k.ss"]) == 0
    assert "recorded" not in capsys.readouterr().out
