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
