"""Chains of kernels that have one kernel of their own.

Takes a tile's program and the registers that are needed outside; gives its operations with Adam's step, the gradient of
gelu and that of a softmax as one each, so that each is one pass over registers of the processor too, with the same
operations in the same order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from shapescript.devices.native.plan import ELEMENTS, Extent, bits_of
from shapescript.devices.native.program import Op, Program


def with_larger_kernels(program: Program, wanted: AbstractSet[int], kernels: Mapping[str, int]) -> list[Op]:
    """The operations of a program, those of a larger kernel replaced by it."""
    for element in ("f32", "f64"):
        for chain in (_Adam, _GeluGradient, _SoftmaxGradient):
            if f"{chain.name}.{element}" in kernels:
                chain(program, wanted, element).replace()
    return program.ops


class _NoMatch(Exception):
    """The chain is another one."""


class _Chain(ABC):
    """A chain that ends with an operation `end`."""

    name: str
    end: str

    def __init__(self, program: Program, wanted: AbstractSet[int], element: str) -> None:
        self.program, self.wanted, self.element = program, wanted, element

    def replace(self) -> None:
        """Replaces each chain that is found, from the last on."""
        number = len(self.program.ops) - 1
        while number >= 0:
            if number < len(self.program.ops) and self.program.ops[number].kernel == f"{self.end}.{self.element}":
                self._begin(self.program.ops[number])
                try:
                    self._match(self.program.ops[number])
                except _NoMatch:
                    pass
            number -= 1

    def _begin(self, last: Op) -> None:
        self.made = {op.results[0]: op for op in self.program.ops if len(op.results) == 1}
        self.uses: dict[int, int] = {}
        for op in self.program.ops:
            for reg in op.operands:
                self.uses[reg] = self.uses.get(reg, 0) + 1
        self.inside: list[Op] = [last]

    @abstractmethod
    def _match(self, last: Op) -> None:
        """Replaces the chain that ends so.

        Raises:
            _NoMatch: it is another one.
        """

    def _put(self, last: Op, results: tuple[int, ...], operands: tuple[int, ...]) -> None:
        """Puts the one operation for those inside, of which nothing but the results may be used elsewhere."""
        made = {reg for op in self.inside for reg in op.results}
        if any(reg in made for reg in operands):
            raise _NoMatch
        for op in self.inside:
            (result,) = op.results
            outside = self.uses.get(result, 0) - sum(each.operands.count(result) for each in self.inside)
            if result not in results and (outside or result in self.wanted):
                raise _NoMatch
        # the one operation stands where the last one stood: nothing may use a result before
        ops = self.program.ops
        before = [op for op in ops[: ops.index(last)] if op not in self.inside]
        if any(result in op.operands for op in before for result in results):
            raise _NoMatch
        one = Op(f"{self.name}.{self.element}", results, operands)
        self.program.ops = [one if op is last else op for op in ops if op is last or op not in self.inside]

    def _is_full(self, reg: int) -> bool:
        return self.program.registers[reg] == (ELEMENTS[self.element], int(Extent.FULL))

    def _is_number(self, reg: int) -> bool:
        return self.program.registers[reg] == (ELEMENTS[self.element], int(Extent.ONE))

    def _op(self, reg: int, name: str) -> Op:
        op = self.made.get(reg)
        if op is None or op.kernel != f"{name}.{self.element}":
            raise _NoMatch
        if op not in self.inside:
            self.inside.append(op)
        return op

    def _with_number(self, op: Op) -> tuple[int, int]:
        full, number = op.operands
        if not self._is_number(number):
            raise _NoMatch
        return full, number

    def _by(self, op: Op, value: float) -> int:
        """The operand of an operation whose other one is this number."""
        full, number = self._with_number(op)
        if self.program.known.get(("number", self.element, bits_of(value, self.element))) != number:
            raise _NoMatch
        return full


class _GeluGradient(_Chain):
    """Finds `dy * ((erf(x * sqrt(1/2)) + 1) * 0.5 + x * (exp(x * x * -0.5) * c))`, as `ops` has it."""

    name, end = "gelu_gradient", "multiply"

    def _match(self, last: Op) -> None:
        dy, slope = last.operands
        share, rise = self._op(slope, "add").operands
        error = self._by(self._op(self._by(self._op(share, "multiply"), 0.5), "add"), 1.0)
        x = self._by(self._op(self._op(error, "erf").operands[0], "multiply"), math.sqrt(0.5))
        same, density = self._op(rise, "multiply").operands
        power = self._op(self._by(self._op(density, "multiply"), 1 / math.sqrt(2 * math.pi)), "exp").operands[0]
        squared = self._op(self._by(self._op(power, "multiply"), -0.5), "square").operands[0]
        if not same == squared == x or not self._is_full(x) or not self._is_full(dy):
            raise _NoMatch
        self._put(last, last.results, (x, dy))


class _SoftmaxGradient(_Chain):
    """Finds `y * (dy - sum(y * dy))` along rows, and this times a number."""

    name, end = "softmax_gradient", "multiply"

    def _match(self, last: Op) -> None:
        inner, scale = last, None
        if self._is_number(last.operands[1]):
            inner, scale = self._op(last.operands[0], "multiply"), last.operands[1]
        y, centred = inner.operands
        dy, mean = self._op(centred, "subtract").operands
        product = self._op(self._op(mean, "sum").operands[0], "multiply")
        if sorted(product.operands) != sorted((y, dy)) or not self._is_full(y) or not self._is_full(dy):
            raise _NoMatch
        self._put(last, last.results, (y, dy, self.program.number(1.0, self.element) if scale is None else scale))


class _Adam(_Chain):
    """Finds `w * keep - m / (sqrt(v) / root + eps) * step` with its two moments."""

    name, end = "adam", "subtract"

    def _match(self, last: Op) -> None:
        kept, moved = last.operands
        weight, keep = self._kept_weight(kept)
        ratio, step = self._scaled(moved)
        division = self._op(ratio, "divide")
        first, below = division.operands
        divided, eps = self._with_number(self._op(below, "add"))
        root_of, root = self._with_number(self._op(divided, "divide"))
        (second,) = self._op(root_of, "sqrt").operands
        old_first, gradient, keep1, take1 = self._mixed(first)
        old_second, squared, keep2, take2 = self._mixed(second)
        square = self._op(squared, "square")
        if square.operands != (gradient,):
            raise _NoMatch
        operands = (gradient, weight, old_first, old_second, keep1, take1, keep2, take2, root, eps, step, keep)
        if any(not self._is_full(reg) for reg in operands[:4]):
            raise _NoMatch
        self._put(last, (first, second, last.results[0]), operands)

    def _scaled(self, reg: int) -> tuple[int, int]:
        return self._with_number(self._op(reg, "multiply"))

    def _kept_weight(self, reg: int) -> tuple[int, int]:
        """The weight and what is kept of it: all, where nothing decays."""
        op = self.made.get(reg)
        if op is not None and op.kernel == f"multiply.{self.element}" and self._is_number(op.operands[1]):
            return self._scaled(reg)
        return reg, self.program.number(1.0, self.element)

    def _mixed(self, reg: int) -> tuple[int, int, int, int]:
        """Of `old * keep + new * take`, the four."""
        left, right = self._op(reg, "add").operands
        old, keep = self._scaled(left)
        new, take = self._scaled(right)
        return old, new, keep, take
