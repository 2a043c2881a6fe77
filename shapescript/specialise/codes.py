"""The error codes of what the evaluator meets, each with a short title; `diagnostics/codes.py` collects them."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E2110": "an assertion that doesn't hold",
    "E2111": "a host value that can't be",
    "E2112": "a decision on a value that is open while a function is compiled",
    "E2113": "a value from Python that isn't what its type says",
    "E2114": "an error in Python code",
    "E2115": "something that can't be differentiated",
    "E2116": "a value that must be known when a function is compiled",
}
