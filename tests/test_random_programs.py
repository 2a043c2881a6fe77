"""Random programs agree: natively and by reference, on one device and on three, padded ones and worker processes too.

A longer run by hand: `RANDOM_PROGRAMS=2000 pytest tests/test_random_programs.py`.
"""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from on_virtual_devices import VirtualPlace, Ways
from programs import Program
from random_programs import examples, programs
from several import devices

from shapescript.controller.placing import Place
from shapescript.devices.executors import VARIABLE
from shapescript.layout.mesh import Mesh

EXAMPLES = int(os.environ.get("RANDOM_PROGRAMS", "12"))
ROWS = (7, 2, 1)
Results = list[torch.Tensor]


def results(text: str, place: Place | None = None, ways: Ways | None = None) -> Results:
    """What `step` gives for each batch."""
    program = Program(text, place=place, warned=True)  # chance writes odd programs
    if ways is not None:
        program.domain.specialiser.make_runner = VirtualPlace(ways).runner
    m = program.call("make")
    found: Results = []
    for count in ROWS:
        given = program.call("step", m, examples(count))
        assert isinstance(given, tuple)
        found += [each.fetch() if hasattr(each, "fetch") else each for each in given]
    return found


def compare(text: str, how: str, found: Results, wanted: Results) -> None:
    assert len(found) == len(wanted)
    for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == want.shape, (how, number, text)
        same = torch.allclose(got, want, rtol=1e-9, atol=1e-10, equal_nan=True)
        assert same, f"{how}: result {number} differs by {(got - want).abs().max()}\n{text}"


@settings(
    max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), derandomize="RANDOM_PROGRAMS" not in os.environ
)
@given(text=programs())
def test_random_programs_agree(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "reference")
        wanted = results(text)
    compare(text, "native", results(text), wanted)
    compare(text, "three devices", results(text, ways=Ways(Mesh((3,)))), wanted)
    compare(text, "three padded devices", results(text, ways=Ways(Mesh((3,)), padded=True, room=2)), wanted)
    compare(text, "three workers", results(text, place=devices(3)), wanted)
