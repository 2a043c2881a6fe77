"""Output that waits for values: its order, when a line comes, and what is left after a fault."""

from __future__ import annotations

import io

import pytest
import torch

from shapescript.controller.output import Output
from shapescript.devices.held import Held


class Later(Held):
    """A value that is there when it is told so, or when it is waited for."""

    def __init__(self, number: float) -> None:
        self.number = number
        self.there = False
        self.waited = False
        self.dtype = torch.float32

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def ready(self) -> bool:
        return self.there

    def fetch(self) -> torch.Tensor:
        self.waited = self.waited or not self.there
        self.there = True
        return torch.tensor(self.number)


class Failed(Later):
    def fetch(self) -> torch.Tensor:
        raise RuntimeError("the device is gone")


@pytest.fixture
def output(tmp_path: object) -> Output:
    made = Output("run", str(tmp_path), io.StringIO(), io.StringIO())
    made.waiting.seconds_a_line = 0.0
    return made


def text(output: Output) -> str:
    assert isinstance(output.stream, io.StringIO)
    return output.stream.getvalue()


def test_a_line_waits_for_its_value_and_the_next_for_its_turn(output: Output) -> None:
    loss = Later(0.5)
    output.print("loss", loss)
    output.print("after")
    assert text(output) == ""
    loss.there = True
    output.waiting.settle()
    assert text(output) == "loss 0.5\nafter\n"
    assert not loss.waited


def test_a_line_of_known_values_comes_at_once(output: Output) -> None:
    output.print("epoch", 1)
    assert text(output) == "epoch 1\n"


def test_values_within_tuples_are_waited_for(output: Output) -> None:
    loss = Later(2.0)
    output.print(("loss", loss))
    assert text(output) == ""
    output.close()
    assert text(output) == "(loss, 2.0)\n"
    assert loss.waited


def test_only_so_many_lines_wait(output: Output) -> None:
    output.waiting.seconds_a_line = 1.0
    losses = [Later(float(number)) for number in range(3)]
    for loss in losses:
        output.print(loss)
    assert [loss.waited for loss in losses] == [True, True, False]
    assert text(output) == "0.0\n1.0\n"


def test_a_logged_value_waits_too_and_keeps_its_step(output: Output, tmp_path: object) -> None:
    loss = Later(0.25)
    output.log("loss", loss)
    output.log("loss", 0.5)
    assert output.latest == {}
    output.close()
    rows = (output.folder / "run" / "metrics.csv").read_text().splitlines()
    assert rows == ["step,name,value", "0,loss,0.25", "1,loss,0.5"]


def test_after_a_fault_what_is_ready_is_written_and_the_rest_is_dropped(output: Output) -> None:
    good, bad = Later(1.0), Failed(2.0)
    output.print(good)
    output.print(bad)
    good.there = True
    output.close(complete=False)
    assert text(output) == "1.0\n"


def test_a_fault_is_raised_where_a_line_is_waited_for(output: Output) -> None:
    output.print(Failed(2.0))
    with pytest.raises(RuntimeError, match="the device is gone"):
        output.close()
