"""The module in C++, or None where there is none, or the environment says `SHAPESCRIPT_NATIVE=0`.

Imports no torch: a worker guards itself with it before it does anything else.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["native"]

if TYPE_CHECKING:
    import shapescript._transport as native
else:
    native: ModuleType | None = None
    if os.environ.get("SHAPESCRIPT_NATIVE") != "0":
        try:
            import shapescript._transport as native
        except ImportError:
            native = None
