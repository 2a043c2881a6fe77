"""The operations of the language: the registry, and a family a file. Importing this fills `REGISTRY`."""

from shapescript.ops import along, elementwise, index, losses, make, move, product, reduce
from shapescript.ops.registry import REGISTRY, Op, RuleError

__all__ = [
    "REGISTRY",
    "Op",
    "RuleError",
    "along",
    "elementwise",
    "index",
    "losses",
    "make",
    "move",
    "product",
    "reduce",
]
