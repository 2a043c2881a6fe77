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
        "m = Net(seed=1); before = m.w.clone()",
        right.replace("x @ m.w", "2 * (x @ m.w)"),
        "print(bool((m.w == before).all()), f(m, __import__('torch').ones(2, 4)).shape)\nf(m, 'x')",
        "%%shapescript --device cpu\ndim Q = 2\n",
        "%shapescript plto",
    )
    said = error(cells[2])
    assert said.startswith("error[E") and f"cell {cells[2].execution_count}:2:12" in said and "Traceback" not in said
    assert "NameError" in error(cells[3])
    assert not error(cells[4]) and not error(cells[6])
    assert printed(cells[7]) == "True torch.Size([2, 3])\n"
    assert error(cells[7]).startswith("error: ") and "Traceback" not in error(cells[7])
    assert "`--device`" in error(cells[8])
    assert "not `plto`" in error(cells[9])


def test_interrupt(tmp_path: Path) -> None:
    endless = "%%shapescript\ndevices cpu\n\nfn forever(n: int):\n    while n > 0:\n        n = n + 1\n"
    timer = "import os\nopen('pid', 'w').write(str(os.getpid()))"

    def interrupt() -> None:
        for _ in range(600):
            if (tmp_path / "pid").exists() and (tmp_path / "begun").exists():
                time.sleep(1)
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGINT)
                return
            time.sleep(0.1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    cells = run(tmp_path, LOAD, timer, endless, "open('begun', 'w').close()\nforever(1)", "print('on')")
    thread.join()
    assert "KeyboardInterrupt" in "".join(out.get("ename", "") for out in cells[3].outputs)
    assert printed(cells[4]) == "on\n"
