"""The oracle runs on several devices: the values that were computed independently, whatever the number of devices."""

from __future__ import annotations

import pytest
from several import devices
from test_oracles import FOLDER, IN_F64, ORACLES, Oracle, check_end, check_steps, noted

from shapescript.controller.run import run_program
from shapescript.session import Session


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: str(oracle.name))
def test_training_gives_one_devices_values(oracle: Oracle, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(FOLDER / f"{oracle.name}.ss", f"{oracle.name}.ss", f"cpu[{' '.join(map(str, range(count)))}]")
    assert not session.diagnostics
    run_program(session.typed, session.placed.kinds, {}, 0, session.path, devices(count))
    found = noted(capsys.readouterr().out)
    check_steps(oracle, found, IN_F64)
    check_end(oracle, found, IN_F64)
