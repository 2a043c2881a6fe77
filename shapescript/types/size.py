"""Sizes of axes in normal form.

Takes numbers and names of atoms; gives `Size`, a sum of monomials with rational coefficients, whose `==` is equality
for every value of the atoms. Doesn't know what an atom stands for: a dim, an axis variable or an `int` parameter.
Dims that are defined by other dims are expanded by whoever makes the size, so an atom is never a definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

Monomial = tuple[tuple[str, int], ...]
"""Atoms with their exponents, in the order of the atoms' names; an exponent may be negative and is never 0."""

MOST_DIVISION_STEPS = 64
ONE = Fraction(1)


class SizeError(Exception):
    """A size that can't be: a division that isn't exact, an unknown atom; `str(error)` says it to the user."""


def _product(left: Monomial, right: Monomial, sign: int = 1) -> Monomial:
    """`left * right`, or `left / right` where `sign` is -1."""
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + sign * power
    return tuple(sorted((atom, power) for atom, power in powers.items() if power))


def _order(term: tuple[Monomial, Fraction]) -> tuple[bool, int, Monomial]:
    """The order in which terms are written: what is added first, then higher degrees."""
    monomial, coefficient = term
    return coefficient < 0, -sum(power for _, power in monomial), monomial


@dataclass(frozen=True)
class Size:
    """A sum of monomials; `terms` is sorted and has no coefficient 0, so that equal sizes are equal data."""

    terms: tuple[tuple[Monomial, Fraction], ...]

    @staticmethod
    def of(number: int | Fraction) -> Size:
        """The size that is this number."""
        return _size({(): Fraction(number)})

    @staticmethod
    def atom(name: str) -> Size:
        """The size that is the value of this atom."""
        return Size(((((name, 1),), ONE),))

    @cached_property
    def atoms(self) -> frozenset[str]:
        """The atoms that it depends on."""
        return frozenset(atom for monomial, _ in self.terms for atom, _ in monomial)

    @cached_property
    def lone_atom(self) -> str | None:
        """The atom whose value it is, where it is one's and nothing else."""
        if len(self.terms) != 1:
            return None
        monomial, coefficient = self.terms[0]
        return monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 and coefficient == 1 else None

    @property
    def constant(self) -> int | None:
        """Its value, where it is a whole number whatever the atoms are."""
        value = self._rational
        return int(value) if value is not None and value.denominator == 1 else None

    @property
    def _rational(self) -> Fraction | None:
        if not self.terms:
            return Fraction(0)
        monomial, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not monomial else None

    def __add__(self, other: Size | int) -> Size:
        total = dict(self.terms)
        for monomial, coefficient in _sized(other).terms:
            total[monomial] = total.get(monomial, Fraction(0)) + coefficient
        return _size(total)

    def __neg__(self) -> Size:
        return Size(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: Size | int) -> Size:
        return self + -_sized(other)

    def __mul__(self, other: Size | int) -> Size:
        total: dict[Monomial, Fraction] = {}
        for left, by in self.terms:
            for right, times in _sized(other).terms:
                monomial = _product(left, right)
                total[monomial] = total.get(monomial, Fraction(0)) + by * times
        return _size(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Size:
        return Size.of(other) - self

    def __truediv__(self, other: Size | int) -> Size:
        """The exact quotient.

        Raises:
            SizeError: the divisor is 0, or the quotient isn't a sum of monomials.
        """
        divisor = _sized(other)
        if not divisor.terms:
            raise SizeError(f"`{self}` can't be divided by 0")
        atoms = sorted(self.atoms | divisor.atoms)

        def leading(term: tuple[Monomial, Fraction]) -> list[int]:
            # Lexicographic by exponents: the order that products keep, so an exact quotient is found term by term.
            return [dict(term[0]).get(atom, 0) for atom in atoms]

        lead, by = max(divisor.terms, key=leading)
        quotient: dict[Monomial, Fraction] = {}
        rest = self
        for _ in range(MOST_DIVISION_STEPS):
            if not rest.terms:
                return _size(quotient)
            monomial, coefficient = max(rest.terms, key=leading)
            part = {_product(monomial, lead, -1): coefficient / by}
            for name, value in part.items():
                quotient[name] = quotient.get(name, Fraction(0)) + value
            rest = rest - _size(part) * divisor
        raise SizeError(f"`{self}` divided by `{divisor}` isn't a size")

    def __rtruediv__(self, other: int) -> Size:
        return Size.of(other) / self

    def __pow__(self, power: int) -> Size:
        """The size times itself; a negative power is the quotient of 1."""
        result = Size.of(1)
        for _ in range(abs(power)):
            result = result * self if power > 0 else result / self
        return result

    def substitute(self, values: Mapping[str, Size]) -> Size:
        """This size with some atoms replaced by sizes.

        Raises:
            SizeError: an atom that it divides by was replaced by something that doesn't divide it.
        """
        if self.atoms.isdisjoint(values):
            return self
        above, below = Size.of(0), Size.of(1)
        for monomial, coefficient in self.terms:
            top, bottom = Size.of(coefficient), Size.of(1)
            for atom, power in monomial:
                factor = values.get(atom) or Size.atom(atom)
                if power > 0:
                    top = top * factor**power
                elif len(factor.terms) == 1:
                    top = top / factor**-power
                else:
                    bottom = bottom * factor**-power
            above, below = above * bottom + top * below, below * bottom
        return above / below

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Its value for these values of the atoms.

        Raises:
            SizeError: an atom has no value, or the result isn't a whole number that is 0 or more.
        """
        if not self.owes and self.atoms <= values.keys():
            return self._whole(values)
        total = Fraction(0)
        for monomial, coefficient in self.terms:
            for atom, power in monomial:
                if atom not in values:
                    raise SizeError(f"`{self}` isn't known: `{atom}` has no value")
                if power < 0 and values[atom] == 0:
                    raise SizeError(f"`{self}` divides by `{atom}`, which is 0")
                coefficient *= Fraction(values[atom]) ** power
            total += coefficient
        if total.denominator != 1 or total < 0:
            known = ", ".join(f"`{atom}` is {values[atom]}" for atom in sorted(self.atoms))
            kind = "a whole number" if total.denominator != 1 else "0 or more"
            raise SizeError(f"`{self}` isn't {kind}{' where ' + known if known else ''}")
        return int(total)

    def _whole(self, values: Mapping[str, int]) -> int:
        """Its value where nothing is divided: in whole numbers alone, torch's symbols for them too."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient.numerator
            for atom, power in monomial:
                product = product * values[atom] ** power
            total = total + product
        if total < 0:
            known = ", ".join(f"`{atom}` is {values[atom]}" for atom in sorted(self.atoms))
            raise SizeError(f"`{self}` isn't 0 or more{' where ' + known if known else ''}")
        return total

    @property
    def owes(self) -> bool:
        """Whether it is a whole number only for some values of its atoms: something is divided."""
        return any(c.denominator != 1 or any(power < 0 for _, power in m) for m, c in self.terms)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in sorted(self.terms, key=_order):
            term = _term(monomial, abs(coefficient))
            if not text:
                text = term if coefficient > 0 else f"0 - {term}"
            else:
                text += f" {'+' if coefficient > 0 else '-'} {term}"
        return text


def _size(terms: Mapping[Monomial, Fraction]) -> Size:
    return Size(tuple(sorted((m, c) for m, c in terms.items() if c)))


def _sized(value: Size | int) -> Size:
    return value if isinstance(value, Size) else Size.of(value)


def _term(monomial: Monomial, coefficient: Fraction) -> str:
    above = [atom for atom, power in monomial for _ in range(power)]
    below = [atom for atom, power in monomial for _ in range(-power)]
    if coefficient.numerator != 1 or not above:
        above.insert(0, str(coefficient.numerator))
    if coefficient.denominator != 1:
        below.insert(0, str(coefficient.denominator))
    return "/".join(["*".join(above), *below])
