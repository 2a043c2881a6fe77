"""What `import shapescript` offers to Python is there."""

from __future__ import annotations

import pytest

import shapescript


@pytest.mark.parametrize("name", shapescript.FROM_SESSION)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(shapescript, name) is not None
    assert name in dir(shapescript)


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute `nothing`"):
        _ = shapescript.nothing
