"""The built-in tensor operations by name: what the checker's core asks for a call.

Gives `OPERATIONS` (a call that the core hands over) and `MAKERS` (names that stand before axes: `zeros[n D]`).
"""

from __future__ import annotations

from shapescript.types import (
    check_attention,
    check_convolutions,
    check_elementwise,
    check_index,
    check_joins,
    check_makers,
    check_patterns,
    check_reductions,
)
from shapescript.types.check_makers import MAKERS
from shapescript.types.context import Operation

OPERATIONS: dict[str, Operation] = {
    **check_elementwise.FUNCTIONS,
    **check_patterns.FUNCTIONS,
    **check_index.FUNCTIONS,
    **check_makers.FUNCTIONS,
    **check_joins.FUNCTIONS,
    **check_attention.FUNCTIONS,
    **check_convolutions.FUNCTIONS,
    **check_reductions.FUNCTIONS,
}

__all__ = ["MAKERS", "OPERATIONS"]
