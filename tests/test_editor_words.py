"""What an editor says of built-ins: every one has a signature and a sentence."""

from __future__ import annotations

from shapescript.editor.find_names import TYPE_NAMES
from shapescript.editor.vocabulary import ROWS, TYPES, describe
from shapescript.types.check_expressions import BUILTIN_NAMES


def test_every_built_in_is_described() -> None:
    missing = [name for name in BUILTIN_NAMES if describe(name) is None]
    assert not missing, missing
    assert all(row.signature.split("(")[0].split("[")[0] and row.doc.endswith(".") for row in ROWS.values())


def test_every_type_is_described() -> None:
    assert set(TYPES) == set(TYPE_NAMES)
