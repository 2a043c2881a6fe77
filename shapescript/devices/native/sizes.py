"""The numbers of a plan: sizes, strides and offsets in one table, worked out anew for the counts of a run.

Gives `SizeTable`: a size gets a number (`ref`) when a plan is made, and `numbers` gives the values for some counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from shapescript.ir.graph import Node
from shapescript.types.size import Size, SizeError


class UnfitSize(Exception):
    """A size that can't be for the counts of a run; `node` is the operation that asks for it."""

    def __init__(self, node: Node | None, error: SizeError) -> None:
        super().__init__(str(error))
        self.node = node


class SizeTable:
    """Sizes by number."""

    def __init__(self, static: Mapping[str, int]) -> None:
        self.static = static
        self._refs: dict[Size, int] = {}
        self._nodes: list[Node | None] = []

    def ref(self, size: Size | int, node: Node | None = None) -> int:
        """The number of a size; `node` is who is blamed where it can't be."""
        if isinstance(size, int):
            size = Size.of(size)
        found = self._refs.get(size)
        if found is None:
            found = self._refs[size] = len(self._nodes)
            self._nodes.append(node)
        return found

    def numbers(self, counts: Mapping[str, int]) -> list[int]:
        """The value of each.

        Raises:
            UnfitSize: one isn't a whole number, or an atom has no value.
        """
        known = {**self.static, **counts}
        found = []
        for size, node in zip(self._refs, self._nodes, strict=True):
            try:
                found.append(value_of(size, known))
            except SizeError as error:
                raise UnfitSize(node, error) from error
        return found


def value_of(size: Size, known: Mapping[str, int]) -> int:
    """The value of a size, which may be negative.

    Raises:
        SizeError: it isn't a whole number, or an atom has no value.
    """
    total: int | Fraction = 0
    for monomial, coefficient in size.terms:
        product: int | Fraction = coefficient.numerator if coefficient.denominator == 1 else coefficient
        for atom, power in monomial:
            if power < 0 or atom not in known:
                return size.evaluate(known)
            product *= known[atom] ** power
        total += product
    if isinstance(total, Fraction):
        return size.evaluate(known)
    return total
