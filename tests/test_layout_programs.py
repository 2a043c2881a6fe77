"""Whole programs on virtual devices train as on one: split, padded, sharded, on meshes, in f64.

Each step's results and, at the end, each parameter are compared. Batches are of 7, 2 and 1 examples, so that parts
are uneven and some empty; in the padded graphs what isn't a real row is nan, or far out of any range.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from layout_programs import TEXTS, Text, gone_through
from on_virtual_devices import VirtualPlace, Ways
from programs import Program

from shapescript.layout.mesh import Mesh

ROWS = (7, 2, 1)
BY_NAME = {text.name: text for text in TEXTS}


def trained(text: Text, ways: Ways | None) -> tuple[list[torch.Tensor], VirtualPlace | None]:
    program = Program(text.program)
    place = VirtualPlace(ways) if ways is not None else None
    if place is not None:
        program.domain.specialiser.make_runner = place.runner
    return gone_through(program, text, ROWS), place


@cache
def on_one(name: str) -> list[torch.Tensor]:
    found, _ = trained(BY_NAME[name], None)
    assert all(torch.isfinite(x).all() for x in found), "the reference itself isn't finite"
    return found


def compare(name: str, ways: Ways) -> VirtualPlace:
    found, place = trained(BY_NAME[name], ways)
    for number, (got, wanted) in enumerate(zip(found, on_one(name), strict=True)):
        assert got.shape == wanted.shape
        assert torch.allclose(got, wanted, rtol=1e-9, atol=1e-10), (number, (got - wanted).abs().max())
    assert place is not None
    return place


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_data_parallel(name: str, n: int) -> None:
    compare(name, Ways(Mesh((n,))))


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("n", [1, 3])
def test_padded(name: str, n: int) -> None:
    compare(name, Ways(Mesh((n,)), padded=True, room=3))


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("n", [2, 3])
def test_sharded(name: str, n: int) -> None:
    compare(name, Ways(Mesh((n,)), shard=True))


@pytest.mark.parametrize(("name", "splits"), [(text.name, splits) for text in TEXTS for splits in text.splits])
def test_split(name: str, splits: tuple[str, ...]) -> None:
    compare(name, Ways(Mesh((2,)), splits))
    compare(name, Ways(Mesh((2, 3)), splits, shard=True, padded=True, room=1))
    compare(name, Ways(Mesh((3, 2)), splits))
