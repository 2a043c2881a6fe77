"""Faults of worker processes, done to real ones: each ends the run soon, is told once, and leaves nothing.

Each test has a pool of its own, because a fault ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from worker_graphs import HERE, SPAN, B, calls, graph_of, pool_of, runner_of

from shapescript.devices.random_key import RandomKey
from shapescript.devices.workers.failure import PoolClosed, WorkerFailure, words_for_exit
from shapescript.devices.workers.pool import WorkerPool
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.ir.builder import Builder
from shapescript.ir.graph import Node
from shapescript.types.element import F32

ROOT = HERE.parent
LONGEST = 10.0
HARMLESS, HARMFUL = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 5.0])
"""The last row is on the second of two devices."""


def begun(**options: object) -> WorkerPool:
    """A pool of two whose workers are ready."""
    pool = pool_of(2, **options)
    pool.ask("threads")
    return pool


@contextmanager
def within(seconds: float = LONGEST) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def gone(process: int) -> bool:
    """Whether a process is no more, not even as a zombie."""
    return not Path(f"/proc/{process}").exists()


def run_steps(pool: WorkerPool, function: str) -> None:
    """Two steps that do no harm, of which the values are looked at, and then one that does."""
    runner = runner_of(pool, calls(function), ["rows"])
    for step in (1, 2):
        runner.run([HARMLESS], {"b": 3}, RandomKey(0, step))[0].fetch()
    with within():
        runner.run([HARMFUL], {"b": 3}, RandomKey(0, 3))[0].fetch()


def expect_all_gone(pool: WorkerPool, processes: list[int]) -> None:
    pool.close()
    assert processes and all(gone(process) for process in processes)


def test_an_exception_of_python_has_its_type_its_message_and_the_line() -> None:
    pool = pool_of(2)
    with pytest.raises(ProgramError, match="`worker_code.raises` raised LookupError: no such picture") as caught:
        run_steps(pool, "raises")
    processes = pool.processes
    assert caught.value.diagnostic.primary.span.line == 4
    assert caught.value.diagnostic.notes == ("on `cpu[1]`, at step 3",)
    with pytest.raises(ProgramError, match="no such picture"):  # the cause stays the cause
        pool.finish()
    expect_all_gone(pool, processes)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("kills_itself", "it was killed by SIGKILL (maybe by the system, when its memory was full)"),
        ("exits", "it ended by itself, with exit status 3"),
        ("leaves", "SystemExit: 3"),
        ("stops_itself", "it was stopped (by SIGSTOP or a debugger), and didn't go on for 1."),
    ],
)
def test_a_worker_that_goes_is_named_with_step_line_and_cause(function: str, words: str) -> None:
    pool = pool_of(2, deadline=1.5)
    with pytest.raises(WorkerFailure) as caught:
        run_steps(pool, function)
    assert str(caught.value).startswith(f"the worker of `cpu[1]`, at step 3, program.ss:4: {words}")
    expect_all_gone(pool, pool.processes)


def test_a_worker_out_of_memory_says_so() -> None:
    pool = pool_of(2)
    with pytest.raises(ProgramError, match="memory") as caught:
        run_steps(pool, "takes_all_memory")
    assert caught.value.diagnostic.primary.span.line == 4 and "cpu[1]" in str(caught.value.diagnostic.notes)
    expect_all_gone(pool, pool.processes)


def test_what_came_before_the_fault_can_still_be_looked_at() -> None:
    """The steps run ahead; those before the one that fails are finished, on both devices."""
    pool = begun()
    runner = runner_of(pool, calls("raises"), ["rows"])
    values = [runner.run([torch.tensor([1.0, 1.0, 1.0 + step])], {"b": 3}, RandomKey(0, step))[0] for step in range(4)]
    with pytest.raises(ProgramError, match="no such picture") as caught:
        runner.run([HARMFUL], {"b": 3}, RandomKey(0, 4))[0].fetch()
    assert caught.value.diagnostic.notes == ("on `cpu[1]`, at step 4",)
    assert [float(value.fetch()) for value in values] == [3.0, 4.0, 5.0, 6.0]
    pool.close()


def test_a_long_step_is_no_fault() -> None:
    """Longer than the deadline, in code that never lets another thread of Python run."""
    with begun(deadline=0.5) as pool:
        runner = runner_of(pool, calls("holds_python"), ["rows"])
        value = runner.run([torch.tensor([0.1, 0.1, 2.5])], {"b": 3}, None)[0]
        assert float(value.fetch()) == pytest.approx(2.7)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP", "SIGSEGV"])
def test_an_idle_worker_that_goes_is_noticed(name: str) -> None:
    pool = begun(deadline=1.5)
    os.kill(pool.processes[0], getattr(signal, name))
    with within(), pytest.raises(WorkerFailure, match=r"the worker of `cpu\[0\]`.*" + name):
        while True:
            pool.finish()
            pool.put(torch.zeros(3))
            time.sleep(0.01)
    expect_all_gone(pool, pool.processes)


def test_a_worker_that_does_not_run_is_noticed_without_being_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a container is frozen: no state of the process says so, but its heart doesn't beat."""
    pool = begun(deadline=1.0)
    beats = pool._supervisor._beats
    monkeypatch.setattr(pool._supervisor, "_beats", lambda rank: 7 if rank else beats(rank))
    runner = runner_of(pool, calls("sleeps"), ["rows"])
    value = runner.run([torch.full((3,), 100.0)], {"b": 3}, RandomKey(0, 1))[0]
    with (
        within(),
        pytest.raises(WorkerFailure, match=r"`cpu\[1\]`, at step 1, program.ss:4: it hasn't run for 1\.") as caught,
    ):
        value.fetch()
    assert str(caught.value).count("\n") == 0
    expect_all_gone(pool, pool.processes)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("waits_for_ever", "it hasn't finished the step for 1 s"),
        ("holds_python_for_ever", "it doesn't finish the step, and the others wait for it"),
    ],
)
def test_a_worker_that_hangs_is_named(function: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step has a mean over the devices, for which the first waits there."""
    monkeypatch.setenv("SHAPESCRIPT_STEP_DEADLINE", "1")

    def make(b: Builder, x: Node) -> list[Node]:
        y = b.emit("extern", x, span=SPAN, target=f"worker_code.{function}", place=0, axes=(B,), element=F32)
        return [b.multiply(y, b.sum(y, over=(B,)))]

    pool = pool_of(2)
    runner = runner_of(pool, graph_of([((B,), "f32")], make), ["rows"])
    assert float(runner.run([HARMLESS], {"b": 3}, RandomKey(0, 1))[0].fetch().sum()) == 0.0
    with within(), pytest.raises(WorkerFailure) as caught:
        runner.run([HARMFUL], {"b": 3}, RandomKey(0, 2))[0].fetch()
    assert str(caught.value) == f"the worker of `cpu[1]`, at step 2, program.ss:4: {words}"
    if function == "waits_for_ever":  # code that lets no other thread run can't be looked at
        assert any("worker_code.py:" in line and f"in {function}" in line for line in caught.value.lines)
    expect_all_gone(pool, pool.processes)


def test_a_worker_that_never_starts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from shapescript.devices.workers import launching

    monkeypatch.setattr(launching, "SERVE", "raise SystemExit(7)")
    pool = pool_of(2)
    with (
        within(),
        pytest.raises(WorkerFailure, match="`, before its first step: it ended by itself, with exit status 7"),
    ):
        pool.ask("threads")
    expect_all_gone(pool, pool.processes)


def test_words_for_an_exit() -> None:
    assert words_for_exit(-11) == "it was killed by SIGSEGV"
    assert words_for_exit(-250) == "it was killed by signal 250"


def test_closing_is_at_once_whatever_the_workers_do() -> None:
    pool = begun()
    runner = runner_of(pool, calls("sleeps"), ["rows"])
    value = runner.run([torch.full((3,), 100.0)], {"b": 3}, None)[0]
    files = len(os.listdir("/proc/self/fd"))
    processes = pool.processes
    with within(2):
        pool.close()
    assert all(gone(process) for process in processes)
    assert len(os.listdir("/proc/self/fd")) < files
    pool.close()
    with pytest.raises(PoolClosed):
        value.fetch()


# --- the controller as a process of its own

SCRIPT = """
import sys, time, torch
from worker_graphs import calls, pool_of, runner_of
pool = pool_of(2)
runner = runner_of(pool, calls("sleeps"), ["rows"])
pool.ask("threads")
print(*pool.processes, flush=True)
"""


def script(rest: str, **options: object) -> subprocess.Popen[str]:
    """A plain program without a main guard, in a process group of its own, as a terminal has it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(rest)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def started(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(number) for number in process.stdout.readline().split()]


def expect_gone_soon(processes: list[int]) -> None:
    until = time.monotonic() + 5
    while time.monotonic() < until and not all(gone(process) for process in processes):
        time.sleep(0.02)
    assert processes and all(gone(process) for process in processes)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_workers_go_with_their_controller(name: str) -> None:
    process = script("runner.run([torch.full((3,), 100.0)], {'b': 3}, None)[0].fetch()")
    workers = started(process)
    os.kill(workers[1], signal.SIGSTOP)  # even one that is stopped
    process.send_signal(getattr(signal, name))
    process.wait(5)
    expect_gone_soon(workers)


def test_ctrl_c_ends_all_at_once_with_one_traceback_at_most() -> None:
    process = script("runner.run([torch.full((3,), 100.0)], {'b': 3}, None)[0].fetch()")
    workers = started(process)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    with within(3):
        _, errors = process.communicate(timeout=10)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.count("Traceback") == 1 and errors.strip().endswith("KeyboardInterrupt")
    expect_gone_soon(workers)


def test_a_program_that_ends_leaves_nothing_and_two_at_once_never_meet() -> None:
    before = set(os.listdir("/dev/shm"))
    rest = """
        for step in range(20):
            value = runner.run([torch.full((3,), 0.001)], {"b": 3}, None)[0]
        print(round(float(value.fetch()), 6), file=sys.stderr)
        """
    both = [script(rest), script(rest)]
    workers = [number for process in both for number in started(process)]
    assert set(os.listdir("/dev/shm")) == before
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "0.003\n")
    expect_gone_soon(workers)
    assert set(os.listdir("/dev/shm")) == before


# --- the process that workers are copies of

LONG = """devices cpu[0 1]

dim D = 8

model Net:
    param w: [D D] = zeros

fn step(m: Net, x: [D]) -> [D]:
    return x @ m.w

fn main():
    m = Net()
    x = ones[D]
    for i in 0..1_000_000_000:
        x = step(m, x)
"""


def family(process: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == process:
                found += [int(folder.name), *family(int(folder.name))]
        except OSError:
            continue  # it has gone meanwhile
    return found


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("seconds", [0.0, 0.5, 4.0])
def test_a_command_that_is_ended_while_it_starts_leaves_nothing(name: str, seconds: float, tmp_path: Path) -> None:
    (tmp_path / "long.ss").write_text(LONG)
    command = [sys.executable, "-m", "shapescript", "long.ss"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not family(process.pid):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(seconds)
    started = family(process.pid)
    if name == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.kill()
    with within():
        _, errors = process.communicate(timeout=30)
    # Python ends by the signal itself where it came within `exec`, as imports have it; a shell says 130 for both
    assert process.returncode in ((130, -signal.SIGINT) if name == "SIGINT" else (-signal.SIGKILL,)), errors
    assert b"Traceback" not in errors
    expect_gone_soon(started)


def test_the_fork_server_is_named_where_it_goes() -> None:
    pool = begun()
    (server,) = [child for child in family(os.getpid()) if set(family(child)) == set(pool.processes)]
    processes = pool.processes
    os.kill(server, signal.SIGKILL)
    with within(), pytest.raises(WorkerFailure, match=r"the worker of `cpu\[0\]`.*SIGKILL"):
        while True:
            pool.finish()
            pool.put(torch.zeros(3))
            time.sleep(0.01)
    pool.close()
    assert gone(server)
    expect_gone_soon(processes)  # whom the system inherited


def test_where_an_import_started_threads_each_worker_is_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a process has one thread, and locks that the others held for ever."""
    for threads, boot in (("1", b"workers.fork_server"), ("2", b"workers.worker")):
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", threads)
        with begun() as pool:
            assert float(runner_of(pool, calls("sleeps"), ["rows"]).run([HARMLESS], {"b": 3}, None)[0].fetch()) == 0.0
            assert all(boot in Path(f"/proc/{each}/cmdline").read_bytes() for each in pool.processes)
            assert [Path(f"/proc/{each}/comm").read_text() for each in pool.processes] == ["cpu[0]\n", "cpu[1]\n"]
