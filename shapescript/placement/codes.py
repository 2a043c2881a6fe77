"""The error codes of placement, each with a short title; `diagnostics/codes.py` collects them."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E1801": "a choice by a tensor's value in a device function",
    "E1803": "`value_and_grad`, `grad` or `update` in a controller function",
    "E1804": "what is differentiated prints or calls Python",
    "E1805": "too long a loop in what is differentiated",
    "E1901": "Python on a value that is split across the devices",
    "E1902": "an operation that can't be split exactly",
}
