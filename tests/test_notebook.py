"""Notebooks: cells run by nbclient in a real kernel, on one device and on three."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).resolve().parent.parent
LOAD = "%load_ext shapescript"
MODEL = """%%shapescript
devices cpu{devices}

dim D = 4
dim C = 3

model Net:
    param w: [D C] = normal(std=0.5)

data Point:
    x: [D]
    c: [] Index[C]

fn loss(m: Net, batch: [b] Point) -> [] NonNeg:
    return cross_entropy(batch.x @ m.w, batch.c, over=C)
"""
STEP = """%%shapescript
fn step(mut m: Net, mut opt: SGD[Net], batch: [b] Point) -> []:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l as f32

fn follow(mut m: Net, mut opt: SGD[Net], batch: [b] Point) -> float:
    l = float(step(mut m, mut opt, batch))
    log("loss", l)
    return l
"""
TRAIN = """import shapescript, torch
torch.manual_seed(0)
x = torch.randn(10, 4); c = torch.arange(10) % 3
m = Net(seed=0)
opt = shapescript.sgd(m, lr=0.1)
batch = Point(x=x, c=c)
for _ in range(3):
    print(f"{follow(m, opt, batch):.5f}")
"""
WORKERS = """import os
mine = str(os.getpid())
def parents(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]
    except OSError:
        return ""
print("workers", *[pid for pid in os.listdir("/proc") if pid.isdecimal() and parents(pid) == mine])
"""


def run(folder: Path, *cells: str) -> list[Any]:
    """The cells after they have run."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(
        book, timeout=180, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"})
    return list(book.cells)


def printed(cell: Any) -> str:
    """What a cell printed."""
    return "".join(out.text for out in cell.outputs if out.output_type == "stream" and out.name == "stdout")


def error(cell: Any) -> str:
    """What a cell shows where it failed."""
    return "\n".join(line for out in cell.outputs if out.output_type == "error" for line in out.traceback)


def test_definitions_stay_and_three_devices_give_one_devices_result(tmp_path: Path) -> None:
    one = run(tmp_path, LOAD, MODEL.format(devices=""), STEP, TRAIN, "%shapescript plot", TRAIN)
    assert [error(cell) for cell in one] == [""] * 6
    losses = [float(line) for line in printed(one[3]).split()]
    assert len(losses) == 3 and losses[2] < losses[0]
    assert printed(one[5]) == printed(one[3])
    assert any("image/png" in out.get("data", {}) for out in one[4].outputs)
    three = run(tmp_path, LOAD, MODEL.format(devices="[0 1 2]"), STEP, TRAIN, TRAIN, "%shapescript close", WORKERS)
    assert [error(cell) for cell in three] == [""] * 7
    assert [float(line) for line in printed(three[3]).split()] == pytest.approx(losses, abs=2e-5)
    assert printed(three[4]) == printed(three[3])
    for pid in printed(three[6]).split()[1:]:
        assert not alive(int(pid), tmp_path), f"worker {pid} was left"


def alive(pid: int, folder: Path) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return "shapescript" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")


def test_errors_are_the_checkers_words(tmp_path: Path) -> None:
    wrong = "%%shapescript\nfn f(m: Net, x: [b D]) -> [b D]:\n    return x @ m.w\n"
    right = "%%shapescript\nfn f(m: Net, x: [b D]) -> [b C]:\n    return x @ m.w\n"
    cells = run(
        tmp_path,
        LOAD,
        MODEL.format(devices=""),
        wrong,
        "f(Net(seed=0), 3)",
        right,
        "m = Net(seed=1); before = m.w.clone(); o = __import__('torch').optim.SGD(m.parameters(), lr=0.1)",
        right.replace("x @ m.w", "2 * (x @ m.w)"),
        "print(bool((m.w == before).all()), f(m, __import__('torch').ones(2, 4)).shape)\nf(m, 'x')",
        "%%shapescript --device cpu\ndim Q = 2\n",
        "%shapescript plto",
    )
    said = error(cells[2])
    assert said.startswith("error[E") and f"cell {cells[2].execution_count}:2:12" in said and "Traceback" not in said
    assert "NameError" in error(cells[3])
    assert not error(cells[4]) and not error(cells[6])
    assert printed(cells[6]) == "the program is another one now: make optimizers of PyTorch anew\n"
    assert printed(cells[7]) == "True torch.Size([2, 3])\n"
    assert error(cells[7]).startswith("error: ") and "Traceback" not in error(cells[7])
    assert "`--device`" in error(cells[8])
    assert "not `plto`" in error(cells[9])


TRAINING = """%%shapescript
fn forever(mut m: Net, mut opt: SGD[Net], batch: [b] Point):
    n = 0
    while n >= 0:
        if n < 1:
            print("training")
        l = step(mut m, mut opt, batch)
        n = n + 1
"""
PREPARE = """import os, shapescript, torch
m = Net(seed=0); opt = shapescript.sgd(m, lr=0.1)
batch = Point(x=torch.ones(10, 4), c=torch.arange(10) % 3)
step(m, opt, batch)
with open("pid", "w") as file:
    file.write(str(os.getpid()))
"""
BEGIN = "open('begun', 'w').close()\n"


def when_begun(folder: Path, act: Any) -> threading.Thread:
    """Does something a moment after a cell has begun, with the kernel's process."""

    def wait() -> None:
        for _ in range(600):
            if (folder / "begun").exists():
                time.sleep(1)
                act(int((folder / "pid").read_text()))
                return
            time.sleep(0.1)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_interrupt_on_several_devices(tmp_path: Path) -> None:
    """As a notebook interrupts: the kernel's whole group of processes gets the signal."""
    thread = when_begun(tmp_path, lambda pid: os.killpg(os.getpgid(pid), signal.SIGINT))
    cells = run(
        tmp_path,
        LOAD,
        MODEL.format(devices="[0 1]"),
        STEP + TRAINING.partition("\n")[2],
        PREPARE,
        f"{BEGIN}forever(m, opt, batch)",
        "before = opt.steps; step(m, opt, batch); print(before > 1, opt.steps == before + 1)",
        "def own():\n    raise KeyboardInterrupt\nown()",
    )
    thread.join()
    assert error(cells[4]) == "interrupted: `forever` was running; updates that it had finished stay"
    assert printed(cells[5]) == "True True\n", "the workers go on, and what was trained is there"
    assert "own()" in error(cells[6]), "Python's own code is shown as ever"


def test_a_kernel_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    thread = when_begun(tmp_path, lambda pid: os.kill(pid, signal.SIGKILL))
    listed = (
        f"{WORKERS}\nwith open('workers', 'w') as file:\n    for child in psutil.Process().children(recursive=True):\n"
    )
    listed = "import psutil\n" + listed + "        file.write(f'{child.pid}\\n')\n"
    with pytest.raises(nbclient.exceptions.DeadKernelError):
        run(
            tmp_path,
            LOAD,
            MODEL.format(devices="[0 1]"),
            STEP + TRAINING.partition("\n")[2],
            PREPARE,
            listed,
            f"{BEGIN}forever(m, opt, batch)",
        )
    thread.join()
    workers = [int(pid) for pid in (tmp_path / "workers").read_text().split()]
    assert len(workers) >= 2
    for _ in range(100):
        left = [pid for pid in workers if alive(pid, tmp_path)]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"workers {left} were left")


def test_interrupt(tmp_path: Path) -> None:
    endless = "%%shapescript\ndevices cpu\n\nfn forever(n: int):\n    while n > 0:\n        n = n + 1\n"
    prepare = "import os\nopen('pid', 'w').write(str(os.getpid()))"
    thread = when_begun(tmp_path, lambda pid: os.kill(pid, signal.SIGINT))
    cells = run(tmp_path, LOAD, prepare, endless, f"{BEGIN}forever(1)", "print('on')")
    thread.join()
    assert error(cells[3]) == "interrupted: `forever` was running; updates that it had finished stay"
    assert printed(cells[4]) == "on\n"
