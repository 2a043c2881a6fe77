"""The error codes of what is met while a program runs; `diagnostics/codes.py` collects them."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E2101": "a value that can't be, met while running",
    "E2102": "a size that can't be, met while running",
    "E2103": "the device's memory is full",
}
