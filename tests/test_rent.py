"""What is asked of a rented machine, and every mistake that is found before one is rented."""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path

import pytest

from shapescript.cli import main
from shapescript.rent import ask
from shapescript.rent.ask import Machine, Request
from shapescript.rent.errors import RentError
from shapescript.rent.prices import GPUS, cost, dollars
from shapescript.rent.run import estimate

HELLO = "devices cuda[0]\n\nfn main(n: int = 3):\n    print(n)\n"
THREE = "devices cuda[0 1 2]\n\nfn main():\n    print(1)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("MODAL_CONFIG_PATH", os.devnull)
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "hello.ss").write_text(HELLO)
    (tmp_path / "three.ss").write_text(THREE)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The status of a command that isn't carried out, and what it says."""
    status = main(["run", *words])
    out, err = capsys.readouterr()
    assert status != 0 and out == ""
    return status, err


def one_line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a wrong command line gets: one line and status 2."""
    status, err = refused(capsys, *words)
    assert status == 2 and err.startswith("error: ") and err.count("\n") == 1, err
    return err.removeprefix("error: ").strip()


# --- words of the command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_by_its_name(name: str) -> None:
    assert ask.machine(name) == ask.machine(name.lower()) == ask.machine(f"{name}:1") == Machine(name)
    assert ask.machine(f"{name}:{GPUS[name].most}") == Machine(name, GPUS[name].most)
    with pytest.raises(RentError, match=f"one machine has 1 to {GPUS[name].most} {re.escape(name)}"):
        ask.machine(f"{name}:{GPUS[name].most + 1}")


@pytest.mark.parametrize("word", ["T4:0", "T4:-1", "T4:x", "T4:", "T4:1.5", "T4:³"])
def test_a_number_that_is_none(word: str) -> None:
    with pytest.raises(RentError, match="one machine has 1 to 8 T4, as in `--modal T4:3`"):
        ask.machine(word)


@pytest.mark.parametrize(("word", "meant"), [("H10", "H100"), ("a100-80", "A100-80GB"), ("L40", "L40S"), ("TA", "T4")])
def test_a_gpu_spelled_almost_right(word: str, meant: str) -> None:
    with pytest.raises(RentError, match=f"did you mean `{meant}`"):
        ask.machine(word)


def test_a_gpu_that_modal_has_not() -> None:
    with pytest.raises(RentError, match="Modal has no GPU `GTX1080`; there are T4, L4, A10"):
        ask.machine("GTX1080")


@pytest.mark.parametrize(
    ("word", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1h30m", 5400), ("1h1m1s", 3661), ("23h", 82800)]
)
def test_times(word: str, seconds: int) -> None:
    assert ask.seconds(word) == seconds
    assert ask.seconds(ask.duration(seconds)) == seconds


@pytest.mark.parametrize("word", ["", "10", "10 m", "1m1h", "m", "-1m", "1.5h", "1d"])
def test_a_time_that_is_none(word: str) -> None:
    with pytest.raises(RentError, match="should be a time with its unit"):
        ask.seconds(word)


@pytest.mark.parametrize("word", ["9s", "0s", "24h", "23h1s"])
def test_a_time_out_of_bounds(word: str) -> None:
    with pytest.raises(RentError, match="from 10s to 23h"):
        ask.seconds(word)


def test_variables() -> None:
    here = {"KEY": "from here", "OTHER": "x"}
    assert ask.variables(["KEY", "NEW=a=b", "EMPTY="], here) == {"KEY": "from here", "NEW": "a=b", "EMPTY": ""}
    with pytest.raises(RentError, match="no such variable is set here; did you mean `KEY`"):
        ask.variables(["KEZ"], here)
    for word in ("=hidden", "a b=hidden", "1A=hidden"):
        with pytest.raises(RentError) as error:
            ask.variables([word], here)
        assert "hidden" not in str(error.value)
    with pytest.raises(RentError) as error:
        ask.secret_names(["KEY=hidden"])
    assert "hidden" not in str(error.value)
    request = Request(Machine("T4"), Path("x.py"), variables={"KEY": "hidden"})
    assert "hidden" not in repr(request)


def test_the_estimate_is_the_most_it_can_cost() -> None:
    assert cost("H100", 3, 3600) == pytest.approx(3 * 3600 * 0.001097)
    words = estimate(Request(Machine("H100", 3), Path("x.py"), timeout=3600))
    assert 3 * 4200 * 0.001097 < 13.83
    assert "at most about $13.83 for 1h10m" in words and "estimate" in words and "July 2026" in words
    assert dollars(0.00012) == "$0.0001"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--modal", "V4", "hello.ss"], "Modal has no GPU `V4`; did you mean `T4`?"),
        (["--modal", "T4:9", "hello.ss"], "one machine has 1 to 8 T4"),
        (["--modal", "A10:5", "hello.ss"], "one machine has 1 to 4 A10"),
        (["--modal", "T4", "--timeout", "10", "hello.ss"], "should be a time with its unit"),
        (["--modal", "T4", "--env", "NO_SUCH_ONE", "hello.ss"], "no such variable is set here"),
        (["--modal", "T4", "none.ss"], "there is no file `none.ss`"),
        (["--modal", "T4", "none.py"], "there is no file `none.py`"),
        (["--modal", "T4", "hello.ss", "x"], "isn't"),
        (["--modal", "T4", "hello.ss"], "there is no token for Modal here: `modal setup` signs in, once"),
        (["--timeout", "10m", "hello.ss"], "`--timeout` is for a rented GPU"),
        (["--env", "HOME", "hello.ss"], "`--env` is for a rented GPU"),
        (["--secret", "x", "hello.ss"], "`--secret` is for a rented GPU"),
        (["--dry-run", "hello.ss"], "`--dry-run` is for a rented GPU"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    pytest.importorskip("modal")
    assert said in one_line(capsys, *words)


def test_a_gpu_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, err = refused(capsys, "--modal", "hello.ss")
    assert status == 2 and "a GPU stands before the program: `--modal T4 hello.ss`" in err


@pytest.mark.parametrize("version", [None, "1.4.3", "0.77.0"])
def test_the_package_that_is_missing_or_old(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    real = metadata.version

    def other(name: str) -> str:
        if name != "modal":
            return real(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", other)
    line = one_line(capsys, "--modal", "T4", "hello.ss")
    assert ("`pip install modal`, then `modal setup`" if version is None else "`pip install -U modal`") in line
    assert main(["check", "hello.ss"]) == 0, "nothing else needs it"


def test_help_and_modules_rent_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--modal", "T4", "hello.ss", "--help"]) == 0
    assert "--n int (default 3)" in capsys.readouterr().out
    (folder / "module.ss").write_text("devices cuda[0]\n\nfn twice(x: [b]) -> [b]:\n    return x * 2.0\n")
    assert main(["run", "--modal", "T4", "module.ss"]) == 0
    assert "no `main` to run" in capsys.readouterr().err


# --- devices ---------------------------------------------------------------------------------------------------------


def test_more_devices_than_are_rented(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, err = refused(capsys, "--modal", "T4", "three.ss")
    assert status == 1
    assert err.splitlines()[:4] == [
        "error[E1906]: `devices cuda[0 1 2]` needs 3 GPUs, and `--modal T4` rents 1",
        " --> three.ss:1:9",
        "  |",
        "1 | devices cuda[0 1 2]",
    ]
    assert "= help: rent 3: `--modal T4:3`" in err
    assert "run `shapescript explain E1906`" in err


@pytest.mark.parametrize(
    ("machine", "devices", "found"),
    [
        ("T4:3", "cuda[0 1 2]", False),
        ("T4:2", "cuda[0 1 2]", True),
        ("T4", "cuda[0]", False),
        ("T4", "cuda", False),
        ("T4", "cuda[1]", True),
        ("T4:2", "cuda[1]", False),
        ("T4:8", "cuda[0..8]", False),
        ("A10:4", "cuda[0..8]", True),
        ("T4", "cpu[0 1 2]", False),
    ],
)
def test_devices_are_counted_by_their_numbers(
    folder: Path, capsys: pytest.CaptureFixture[str], machine: str, devices: str, found: bool
) -> None:
    main(["run", "--modal", machine, "--devices", devices, "three.ss"])
    err = capsys.readouterr().err
    assert ("E1906" in err) == found, err
    if machine == "A10:4":
        assert "one machine has at most 4 A10" in err


def test_an_apple_gpu_and_idle_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, err = refused(capsys, "--modal", "T4", "--devices", "mps", "hello.ss")
    assert status == 1 and "Modal's are NVIDIA's" in err and "`--devices cuda[0]`" in err
    _, err = refused(capsys, "--modal", "T4", "--devices", "cpu", "hello.ss")
    assert "warning: `hello.ss` says `devices cpu`, so the T4 will do nothing" in err
    _, err = refused(capsys, "--modal", "T4:3", "hello.ss")
    assert "so 1 of the 3 GPUs will work" in err


# --- programs and what they import -----------------------------------------------------------------------------------


def test_errors_of_a_program_and_of_what_it_imports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "net.ss").write_text("fn twice(x: [b]) -> [b]:\n    return y\n")
    (folder / "train.ss").write_text("devices cuda[0]\n\nimport net\n\nfn main():\n    print(1)\n")
    status, err = refused(capsys, "--modal", "T4", "train.ss")
    assert status == 1 and "net.ss:2:12" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import net\n", "net.ss:3:"),
        ("from net import twice\n", "net.ss:3:"),
        ("def later():\n    import net\n", "net.ss:3:"),
        ("import helper\n", "net.ss:3:"),
        ("from deep import inner\n", "net.ss:3:"),
        ("from deep.inner import run\n", "net.ss:3:"),
        ("import shapescript\nnet = shapescript.load('net.ss')\n", "net.ss:3:"),
        ("from shapescript import load\nwith load('net.ss') as net:\n    pass\n", "net.ss:3:"),
        ("import shapescript\nnet = shapescript.load('three.ss')\n", "E1906"),
        ("import shapescript\nnet = shapescript.load('hello.ss', devices='cuda[0 1]')\n", "E1906"),
        ("import three\n", "E1906"),
        ("import shapescript\nnet = shapescript.load('nowhere.ss')\n", "program.py:2: there is no file `nowhere.ss`"),
        ("print('a'\n", "program.py:1: '(' was never closed"),
        ("import nosuchmodule\n", "program.py:1: there is no module `nosuchmodule`"),
        ("import helper2\n", "helper2.py:1: there is no module `nosuchmodule`"),
    ],
)
def test_a_python_program_with_what_it_imports(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (folder / "net.ss").write_text("devices cuda[0]\nfn twice(x: [b]) -> [b]:\n    return y\n")
    (folder / "helper.py").write_text("import net\n")
    (folder / "helper2.py").write_text("import nosuchmodule\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "inner.py").write_text("from .. import x\nfrom . import more\nimport net\n")
    (folder / "deep" / "more.py").write_text("")
    (folder / "program.py").write_text(text)
    status, err = refused(capsys, "--modal", "T4", "program.py")
    assert status == 1 and said in err, err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import nosuchmodule\nexcept ImportError:\n    pass\n",
        "def later():\n    import nosuchmodule\n",
        "import os, sys, json, torch, shapescript\n",
        "import numpy as np\nfrom sklearn.datasets import load_digits\n",
        "import shapescript\nx = shapescript.load('three.ss', devices='cpu')\n",
        "import shapescript\nwhich = 'cpu'\nx = shapescript.load('three.ss', devices=which)\n",
        "import helper\n",
    ],
)
def test_a_python_program_that_may_run(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    pytest.importorskip("modal")
    (folder / "helper.ss").write_text(THREE)  # a module of Python of the same name goes before
    (folder / "helper.py").write_text("")
    (folder / "program.py").write_text(text)
    status, err = refused(capsys, "--modal", "T4", "program.py")
    assert status == 2 and err.splitlines()[-1].startswith("error: there is no token"), err


def test_packages_travel_in_their_versions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "program.py").write_text("import hypothesis\nimport numpy\n")
    main(["run", "--modal", "T4", "--dry-run", "program.py"])
    err = capsys.readouterr().err
    assert f"modal: packages: hypothesis=={metadata.version('hypothesis')}\n" in err, "numpy is ShapeScript's own"
    (folder / "requirements.txt").write_text("hypothesis\n")
    main(["run", "--modal", "T4", "--dry-run", "program.py"])
    assert "packages: those of requirements.txt" in capsys.readouterr().err


def test_a_module_outside_the_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "inside").mkdir()
    (folder / "outside_here.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    (folder / "inside" / "train.ss").write_text(
        "devices cuda[0]\n\nimport python outside_here\n\nfn main():\n    outside_here.run()\n"
    )
    status, err = refused(capsys, "--modal", "T4", "inside/train.ss")
    assert status == 1 and "inside/train.ss:3:1: `outside_here` is" in err and "move it into the folder" in err
    assert "outside the program's folder" in err


def test_devices_and_dims_are_for_a_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "program.py").write_text("")
    assert "`shapescript.load` takes both" in one_line(capsys, "--modal", "T4", "--devices", "cpu", "program.py")
