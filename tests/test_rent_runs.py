"""Whole runs on a rented machine: the real client against the stand-in, which really runs the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rented import ROOT, StandIn, ended, environment, interrupt, wait_for
from test_rent_modal import looks_right, write_program

pytest.importorskip("modal", reason="the package `modal` isn't installed here: `pip install shapescript[modal]`")

GPU = "--modal", "T4"

EVERYTHING = """\
import os
import sys
from pathlib import Path

import helper
import hypothesis
from parts.inside import NAME

data = Path("data/large.bin").read_bytes()
print("arguments", sys.argv[1:])
print("folder", helper.WORD, NAME, len(data), sum(data[:1000]), os.path.isdir("empty"))
print("variables", os.environ["GIVEN"] == "from here", os.environ["KEPT"] == "at Modal's")
print("on the other stream", file=sys.stderr)
Path("data/large.bin").write_bytes(data[::-1])
Path("out/deep").mkdir(parents=True)
Path("out/deep/checkpoint.bin").write_bytes(bytes(range(256)) * 100)
sys.exit(5)
"""

STEPS = """\
import sys, time
from pathlib import Path

for step in range(int(sys.argv[1])):
    print("step", step, flush=True)
    new = Path("checkpoint.new")
    new.write_text(str(step) * 1000)
    new.replace("checkpoint.txt")
    time.sleep(0.5)
"""

SAVES = """\
import signal, sys, time
from pathlib import Path

print("started", flush=True)
Path("started.txt").write_text("now")
try:
    time.sleep(60)
except KeyboardInterrupt:
    Path("saved.txt").write_text("all of it")
    print("saved", flush=True)
    sys.exit(3)
"""

STUBBORN = """\
import signal, time
from pathlib import Path

signal.signal(signal.SIGINT, lambda *_: print("no", flush=True))
Path("started.txt").write_text("now")
time.sleep(60)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def running() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.close()


@pytest.fixture(scope="module", autouse=True)
def unreachable(running: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """A client whose server isn't there: it gives up after a minute, in which the other tests run."""
    folder = program(tmp_path_factory.mktemp("unreachable"), "print('never')\n")
    client = running.start(folder, *GPU, "program.py", server="http://127.0.0.1:9")
    yield client
    client.kill()
    client.communicate()


@pytest.fixture
def modal(running: StandIn) -> Iterator[StandIn]:
    running.reset()
    yield running
    report = running.report()
    assert report["unknown"] == [], "the client made calls that the stand-in doesn't have"


def program(folder: Path, text: str) -> Path:
    (folder / "program.py").write_text(text)
    return folder


def nothing_runs(report: dict[str, Any]) -> bool:
    """No machine is left, no process on it, and each app has ended: nothing costs anything any more."""
    machines, apps = report["machines"], report["apps"]
    return all(m["ended"] and not m["processes"] for m in machines) and all(app["ended"] for app in apps)


def until_nothing_runs(modal: StandIn, seconds: float) -> dict[str, Any]:
    until = time.monotonic() + seconds
    while not nothing_runs(report := modal.report()):
        assert time.monotonic() < until, report
        time.sleep(0.1)
    return report


# --- a run that goes well --------------------------------------------------------------------------------------------


def test_a_program_runs_there_as_here(modal: StandIn, tmp_path: Path) -> None:
    modal.reset(secrets={"mine": {"KEPT": "at Modal's"}})
    program(tmp_path, EVERYTHING)
    (tmp_path / "helper.py").write_text("WORD = 'helped'")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "inside.py").write_text("NAME = 'inside'")
    (tmp_path / "data").mkdir()
    large = os.urandom(6 << 20)
    (tmp_path / "data" / "large.bin").write_bytes(large)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".env").write_text("PASSWORD=never")
    options = ("--env", "GIVEN", "--secret", "mine", "--timeout", "10m")
    done = modal.run(
        tmp_path, "--modal", "H100:3", *options, "program.py", "a b", "--x=1", "", variables={"GIVEN": "from here"}
    )
    assert done.status == 5, done.words
    assert done.output.splitlines() == [
        "arguments ['a b', '--x=1', '']",
        f"folder helped inside {6 << 20} {sum(large[:1000])} True",
        "variables True True",
    ]
    assert "on the other stream" in done.words.splitlines()
    assert (tmp_path / "out" / "deep" / "checkpoint.bin").read_bytes() == bytes(range(256)) * 100
    assert (tmp_path / "data" / "large.bin").read_bytes() == large[::-1]
    assert "modal: 2 files back: `out/deep/checkpoint.bin`, `data/large.bin`, 6.3 MB\n" in done.words
    for secret in ("from here", "at Modal's", "never", "as-stand-in"):
        assert secret not in done.words + done.output
    report = modal.report()
    (machine,) = report["machines"]
    assert machine["gpu"] == "H100:3"
    assert machine["timeout"] == 600 + 600
    steps = machine["steps"]
    assert steps[0] == f"FROM python:{'.'.join(map(str, sys.version_info[:3]))}-slim-bookworm"
    assert any(f"torch=={version('torch').partition('+')[0]}" in step for step in steps)
    assert any(step.endswith("/opt/shapescript") for step in steps)
    assert f"hypothesis=={version('hypothesis')}" in steps[-1], "what the program imports, in the version that is here"
    assert nothing_runs(report)


def test_a_shapescript_program_with_its_modules(modal: StandIn, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    folder = tmp_path / "sub"
    (folder / "train.ss").write_text(
        "devices cuda[0]\n\nimport python numbers_here\nimport net\n\ndim D = 3\n\n"
        "fn main(n: int):\n    x = numbers_here.values() as [D]\n    print(n, net.twice(x))\n"
    )
    (folder / "net.ss").write_text("fn twice(x: [d]) -> [d]:\n    return x * 2.0\n")
    (folder / "numbers_here.py").write_text(
        "import numpy\n\ndef values():\n    return numpy.arange(3, dtype='float32')\n"
    )
    words = ("--devices", "cpu", "sub/train.ss", "7")
    there = modal.run(tmp_path, *GPU, *words)
    here = subprocess.run(
        [sys.executable, "-m", "shapescript", "run", *words],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert here.returncode == 0, here.stderr
    assert (there.status, there.output) == (0, here.stdout), there.words
    assert "numpy==" not in " ".join(modal.report()["machines"][0]["steps"]), "ShapeScript itself brings numpy"


def test_the_program_of_the_test_on_the_real_service(modal: StandIn, tmp_path: Path) -> None:
    write_program(tmp_path)
    done = modal.run(tmp_path, *GPU, "--devices", "cpu", "train.ss", "50")
    assert done.status == 0, done.words
    looks_right(done.output, tmp_path, "none")


def test_a_mistake_met_there_is_told_here(modal: StandIn, tmp_path: Path) -> None:
    (tmp_path / "train.ss").write_text(
        'devices cpu\n\nfn main(n: int):\n    for i in 0..n:\n        print(i)\n        assert i < 2, "too many"\n'
    )
    done = modal.run(tmp_path, *GPU, "train.ss", "9")
    assert done.status == 1
    assert done.output.split() == ["0", "1", "2"]
    assert "too many" in done.words and "train.ss:6:" in done.words
    assert nothing_runs(modal.report())


def test_output_comes_as_it_is_printed(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, "import sys, time\nprint('one')\nprint('two', file=sys.stderr)\ntime.sleep(3)\nprint('three')\n")
    client = modal.start(tmp_path, *GPU, "program.py")
    assert client.stdout is not None
    assert client.stdout.readline() == b"one\n"
    since = time.monotonic()
    assert client.stdout.readline() == b"three\n"
    assert time.monotonic() - since > 2
    assert ended(client).status == 0


def test_an_image_is_built_once_and_changed_files_travel_again(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, "import words\nprint(words.WORD)\n")
    (tmp_path / "words.py").write_text("WORD = 'before'\n")
    assert modal.run(tmp_path, *GPU, "program.py").output == "before\n"
    modal.reset()
    (tmp_path / "words.py").write_text("WORD = 'after'\n")
    assert modal.run(tmp_path, *GPU, "program.py").output == "after\n"
    report = modal.report()
    assert report["builds"] == 0
    assert len(report["put"]) == 1, "only what changed is sent"


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_come_while_the_program_runs_and_a_lost_machine_leaves_them(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, STEPS)
    client = modal.start(tmp_path, *GPU, "program.py", "200")
    wait_for(tmp_path / "checkpoint.txt")
    first = (tmp_path / "checkpoint.txt").read_text()
    wait_for(tmp_path / "checkpoint.txt", but=first)
    modal.ask("lose", {})
    done = ended(client)
    assert done.status == 75, done.words
    assert "the machine was lost" in done.words and "checkpoint.txt" in done.words
    assert "step 1" in done.output
    text = (tmp_path / "checkpoint.txt").read_text()
    assert len(set(text)) == 1 and len(text) == 1000, "whole, of one step"
    assert not list(tmp_path.glob("*part"))
    assert nothing_runs(modal.report())


def test_the_same_command_goes_on_from_the_checkpoint(modal: StandIn, tmp_path: Path) -> None:
    text = (
        "import time\nfrom pathlib import Path\n"
        "place = Path('total.txt')\n"
        "first, total = map(int, place.read_text().split()) if place.exists() else (0, 0)\n"
        "for step in range(first, 30):\n"
        "    print('step', step)\n    total += step * step\n"
        "    new = Path('total.new')\n    new.write_text(f'{step + 1} {total}')\n    new.replace(place)\n"
        "    time.sleep(0.1 if first else 0.7)\n"
        "print('total', total)\n"
    )
    program(tmp_path, text)
    client = modal.start(tmp_path, *GPU, "program.py")
    wait_for(tmp_path / "total.txt")
    modal.ask("lose", {})
    assert ended(client).status == 75
    reached = int((tmp_path / "total.txt").read_text().split()[0])
    assert 0 < reached < 30
    modal.reset()
    second = modal.run(tmp_path, *GPU, "program.py")
    assert second.status == 0
    assert second.output.splitlines()[0] == f"step {reached}"
    assert second.output.splitlines()[-1] == f"total {sum(step * step for step in range(30))}"


def test_a_file_that_was_changed_here_is_not_overwritten(modal: StandIn, tmp_path: Path) -> None:
    program(
        tmp_path,
        "import time\nopen('started.txt', 'w').close()\ntime.sleep(2)\nopen('notes.md', 'w').write('theirs')\n",
    )
    (tmp_path / "notes.md").write_text("first")
    client = modal.start(tmp_path, *GPU, "program.py")
    wait_for(tmp_path / "started.txt")
    (tmp_path / "notes.md").write_text("mine, meanwhile")
    done = ended(client)
    assert done.status == 0
    assert (tmp_path / "notes.md").read_text() == "mine, meanwhile"
    assert (tmp_path / "notes.md.modal").read_text() == "theirs"
    assert "`notes.md` was changed here meanwhile" in done.words


def test_a_file_that_cannot_be_written_here_is_said(modal: StandIn, tmp_path: Path) -> None:
    text = "import os, time\nopen('started.txt', 'w').close()\ntime.sleep(2)\nos.makedirs('out')\n"
    program(tmp_path, text + "open('out/x', 'w').write('x')\nopen('y', 'w').write('y')\n")
    client = modal.start(tmp_path, *GPU, "program.py")
    wait_for(tmp_path / "started.txt")
    (tmp_path / "out").write_text("a file, where a folder should be")
    done = ended(client)
    assert (tmp_path / "y").read_text() == "y"
    assert done.status == 74
    assert "`out/x` couldn't be written here" in done.words


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_program_and_ends_the_machine(modal: StandIn, tmp_path: Path, number: int) -> None:
    program(tmp_path, SAVES)
    client = modal.start(tmp_path, *GPU, "program.py", pace={"grace": 10})
    wait_for(tmp_path / "started.txt")
    interrupt(client, number)
    done = ended(client)
    assert done.status == 130, done.words
    assert (tmp_path / "saved.txt").read_text() == "all of it"
    assert done.output.splitlines() == ["started", "saved"]
    assert "machine ended" in done.words
    assert nothing_runs(modal.report())


def test_a_program_that_does_not_stop_is_killed(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, STUBBORN)
    client = modal.start(tmp_path, *GPU, "program.py", pace={"grace": 1})
    wait_for(tmp_path / "started.txt")
    interrupt(client)
    done = ended(client)
    assert done.status == 130
    assert "no" in done.output
    assert nothing_runs(modal.report())


def test_a_second_signal_ends_the_machine_at_once(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, STUBBORN)
    client = modal.start(tmp_path, *GPU, "program.py", pace={"grace": 60})
    wait_for(tmp_path / "started.txt")
    interrupt(client)
    time.sleep(1)
    interrupt(client)
    done = ended(client)
    assert done.status == 130
    assert done.seconds < 20
    assert nothing_runs(modal.report())


@pytest.mark.parametrize("settings", [{"machine_after": 30}, {"build_takes": 30}], ids=["waiting", "building"])
def test_a_signal_before_the_program_starts(modal: StandIn, tmp_path: Path, settings: dict[str, float]) -> None:
    modal.reset(**settings)
    program(tmp_path, f"print('never', {time.time()})\n")
    (tmp_path / "requirements.txt").write_text(f"# another image: {time.time()}\n")
    client = modal.start(tmp_path, *GPU, "program.py")
    wanted = "SandboxGetTaskId" if "machine_after" in settings else "ImageJoinStreaming"
    until = time.monotonic() + 60
    while wanted not in modal.report()["calls"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(0.5)
    interrupt(client)
    done = ended(client)
    assert done.status == 130, done.words
    assert done.seconds < 15 and done.output == ""
    assert nothing_runs(until_nothing_runs(modal, 20))


def test_a_client_that_is_killed_bills_nothing_on(modal: StandIn, tmp_path: Path) -> None:
    modal.reset(heartbeat_grace=3)
    program(tmp_path, STUBBORN)
    client = modal.start(tmp_path, *GPU, "program.py")
    wait_for(tmp_path / "started.txt")
    client.kill()
    client.communicate()
    report = until_nothing_runs(modal, 40)
    assert report["apps"][0]["ended"] == "no heartbeat"


def test_a_machine_ends_itself_when_nobody_is_heard_of(modal: StandIn, tmp_path: Path) -> None:
    """Even if Modal didn't notice that the client is gone."""
    program(tmp_path, STUBBORN)
    client = modal.start(tmp_path, *GPU, "program.py", pace={"unheard": 3})
    wait_for(tmp_path / "started.txt")
    time.sleep(4)
    assert client.poll() is None, "as long as the client asks for files, it stays"
    client.kill()
    client.communicate()
    until = time.monotonic() + 40
    while not (machine := modal.report()["machines"][0])["ended"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert machine["ended"] == "GENERIC_STATUS_SUCCESS" and not machine["processes"]


def test_a_program_that_takes_too_long(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, SAVES)
    done = modal.run(tmp_path, *GPU, "--timeout", "2s", "program.py", pace={"shortest": 1})
    assert done.status == 124, done.words
    assert "2s, which is its --timeout" in done.words
    assert (tmp_path / "saved.txt").read_text() == "all of it", "it was asked to stop first"
    assert nothing_runs(modal.report())


def test_a_line_that_goes_dead(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, STEPS)
    client = modal.start(tmp_path, *GPU, "program.py", "200")
    wait_for(tmp_path / "checkpoint.txt")
    modal.ask("silence", {})
    done = ended(client)
    assert done.status == 75, done.words
    assert "no answer from Modal" in done.words
    assert "modal app stop ap-" in done.words
    assert (tmp_path / "checkpoint.txt").exists()


def test_a_third_signal_waits_for_nobody(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, STUBBORN)
    client = modal.start(tmp_path, *GPU, "program.py", pace={"grace": 60, "silence": 300})
    wait_for(tmp_path / "started.txt")
    modal.ask("silence", {})
    for _ in range(3):
        interrupt(client)
        time.sleep(0.5)
    done = ended(client)
    assert done.status == 130 and done.seconds < 10
    assert "modal app stop ap-" in done.words.splitlines()[-1]


def test_a_reader_that_has_seen_enough(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, STEPS)
    client = modal.start(tmp_path, *GPU, "program.py", "100")
    assert client.stdout is not None
    client.stdout.readline()
    client.stdout.close()
    assert client.stderr is not None
    words = client.stderr.read().decode()
    assert client.wait(30) == 1, words
    assert "Traceback" not in words
    assert nothing_runs(modal.report())


def test_a_program_that_is_killed_says_so(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, "import os\nos.kill(os.getpid(), 9)\n")
    done = modal.run(tmp_path, *GPU, "program.py")
    assert done.status == 137
    assert "killed (SIGKILL)" in done.words


# --- what Modal refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "options", "status", "words"),
    [
        ({}, ["--secret", "none"], 2, "Modal keeps no secret `none`"),
        ({"refuses_token": True}, [], 2, "`modal setup` signs in anew"),
        ({"no_room": True}, [], 75, "Modal has no room for T4 now"),
        ({"build_fails": True}, [], 2, "the image couldn't be built"),
    ],
    ids=["secret", "token", "room", "build"],
)
def test_what_modal_refuses_is_one_line(
    modal: StandIn, tmp_path: Path, settings: dict[str, Any], options: list[str], status: int, words: str
) -> None:
    modal.reset(**settings)
    program(tmp_path, "print('never')\n")
    (tmp_path / "requirements.txt").write_text(f"# another image: {time.time()}\n")
    done = modal.run(tmp_path, *GPU, *options, "program.py")
    assert done.status == status, done.words
    lines = [line for line in done.words.splitlines() if line.startswith("error")]
    assert len(lines) == 1 and words in lines[0], done.words
    assert "Traceback" not in done.words and done.output == ""
    if "build_fails" in settings:
        assert "No matching distribution" in done.words, "the log is shown"
    assert nothing_runs(modal.report())


def test_a_dry_run_asks_modal_nothing(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, "print('never')\n")
    options = ("--env", "GIVEN=hidden", "--secret", "mine", "--dry-run")
    done = modal.run(tmp_path, "--modal", "a100-80gb:2", *options, "program.py", "1")
    assert done.status == 0 and done.output == ""
    assert "A100-80GB:2" in done.words and "variables: GIVEN" in done.words and "secrets: mine" in done.words
    assert "hidden" not in done.words
    assert modal.report()["calls"] == {}


def test_no_token(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, "print('never')\n")
    done = modal.run(tmp_path, *GPU, "program.py", variables={"MODAL_TOKEN_ID": "", "MODAL_TOKEN_SECRET": ""})
    assert done.status == 2
    assert done.words == "error: there is no token for Modal here: `modal setup` signs in, once\n"
    assert modal.report()["calls"] == {}


def test_a_configuration_that_cannot_be_read_is_one_line(modal: StandIn, tmp_path: Path) -> None:
    program(tmp_path, "print('never')\n")
    (tmp_path / "modal.toml").write_text("[default\ntoken_id = 'hidden'\n")
    done = modal.run(tmp_path, *GPU, "program.py", variables={"MODAL_CONFIG_PATH": "modal.toml"})
    assert done.status == 2
    assert done.words.startswith("error: ") and done.words.count("\n") == 1 and "modal.toml" in done.words
    assert "hidden" not in done.words


def test_the_versions_that_are_tested_are_those_that_are_declared() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["modal"] == ["modal>=1.5,<2"]
    assert (1, 5) <= tuple(map(int, version("modal").split(".")[:2])) < (2, 0)


def test_no_server(unreachable: subprocess.Popen[bytes]) -> None:
    done = ended(unreachable)
    assert done.status == 75
    assert "modal: still waiting for Modal to answer, 15s by now; Ctrl-C gives up\n" in done.words
    assert done.words.splitlines()[-1].startswith("error: Modal can't be reached")
    assert "Traceback" not in done.words
