"""A cluster's program as the codes that csrc/cuda/tiles.hpp runs.

Takes the arguments of a `tiles` instruction (native/tiles.py), its sizes and strides as numbers; gives `TileCodes`.
Operations along a row (a softmax, a norm) become reductions and operations at each place. What a reduction gives is
known in the next stage only: each stage goes through the row once, and makes again what it needs of the places' values,
unless each lane has one place, whose values it keeps. All results are written in the last stage, because a result may
take the memory of an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shapescript.devices.native.plan import ELEMENTS, Extent, bits_of

ELEMENT_NAMES = {number: name for name, number in ELEMENTS.items()}
FLOATS = ("f32", "f64")
NUMBERS = (*FLOATS, "i64")
INFINITY = float("inf")
GREATEST, LEAST = 2**63 - 1, -(2**63)

PLAIN_REDUCTIONS = {"sum": ("add", 0), "prod": ("multiply", 1), "max": ("maximum", None), "min": ("minimum", None)}
BOOL_REDUCTIONS = {"any": ("or", False), "all": ("and", True)}


def kernel_names(ops: Mapping[str, int]) -> dict[str, int]:
    """The kernels that can stand in a cluster, numbered; `ops` are the module's operations."""
    names = [name for name in ops if "." in name and not name.startswith("cast_")]
    for name in ops:
        if name.startswith("cast_"):
            into, _, of = name.removeprefix("cast_").partition(".")
            names.append(f"cast.{of}.{into}")
    names += [f"where.{of}" for of in (*NUMBERS, "bool")]
    names += [f"{reduction}.{of}" for reduction in (*PLAIN_REDUCTIONS, "argmax", "argmin") for of in NUMBERS]
    names += [f"{reduction}.bool" for reduction in (*BOOL_REDUCTIONS, "sum")]
    rows = ("logsumexp", "softmax", "log_softmax", "layer_norm", "rms_norm")
    names += [f"{row}.{of}" for row in rows for of in FLOATS]
    return {name: number for number, name in enumerate(names)}


class TooLarge(Exception):
    """A program that has no room in the kernel; the text says of what."""


@dataclass(frozen=True)
class Value:
    """Something that a program computes: one at each place, or one for a row. `stage` is the first that can have it."""

    number: int
    full: bool
    stage: int


Operand = Value | int
"""A value, or a number by its place in the table."""


@dataclass(frozen=True)
class Made:
    """How a value is made: an operation's number, and operands; `load` has the input's number as its first."""

    op: int
    operands: tuple[Operand, ...]


@dataclass
class Reduction:
    """Slots that are combined over a row: each begins as a number, takes what a code makes, and is combined."""

    values: tuple[Value, ...]
    begin: tuple[int, ...]
    source: Value
    op: int
    best: int = 0  # not 0: `best`, by this operation


@dataclass
class TileCodes:
    """A program: codes, numbers, and the inputs and outputs in the order of their numbers."""

    codes: list[tuple[int, int, int, int, int]]
    numbers: list[int]
    inputs: list[int]  # by the order of the instruction's inputs
    outputs: list[int]
    by_row: bool


@dataclass
class _Code:
    """A code before its values have slots."""

    op: int
    dst: Value | None = None
    a: Operand | None = None
    b: Operand | None = None
    c: Operand | _Raw | None = None
    raw_a: int = 0
    loop: int = -1
    stage: int = -1


@dataclass
class _Stage:
    """One going through the row: the codes so far, those of the loop, and what each has made."""

    codes: list[_Code]
    row_made: set[int]
    inside: list[_Code]
    fresh: set[int]
    loop: int
    stage: int
    by_row: bool


@dataclass
class Lowering:
    """Makes the codes of one program over rows of so many places. `kept`: each lane has one place at most."""

    ops: Mapping[str, int]
    names: Sequence[str]
    places: int
    kept: bool
    slots: int
    table: list[int] = field(default_factory=list)
    made: dict[int, Made] = field(default_factory=dict)
    reductions: list[Reduction] = field(default_factory=list)
    count: int = 0

    def lower(
        self,
        registers: Sequence[tuple[int, int]],
        inputs: Sequence[int],
        outputs: Sequence[int],
        numbers: Sequence[tuple[int, int]],
        ops: Sequence[tuple[int, Sequence[int], Sequence[int]]],
    ) -> TileCodes:
        """The codes; `inputs` and `outputs` are registers.

        Raises:
            TooLarge: there are more values at once than slots.
        """
        held: dict[int, Operand] = {}
        for number, reg in enumerate(inputs):
            full = Extent(registers[reg][1]) in (Extent.FULL, Extent.COLUMN)
            value = self._value(full, 0)
            self.made[value.number] = Made(self.ops["load"], (number,))
            held[reg] = value
        for reg, bits in numbers:
            held[reg] = self._number(bits)
        for kernel, results, operands in ops:
            name, _, element = self.names[kernel].partition(".")
            given = [held[operand] for operand in operands]
            held[results[0]] = self._operation(name, element, given, Extent(registers[results[0]][1]))
        stored = [held[reg] for reg in outputs]
        by_row = bool(self.reductions) or any(Extent(registers[reg][1]) is not Extent.FULL for reg in outputs)
        places = [Extent(registers[reg][1]) is Extent.FULL for reg in outputs]
        codes = self._codes(stored, places, by_row)
        return TileCodes(self._in_slots(codes), self.table, list(inputs), list(outputs), by_row)

    # --- values

    def _value(self, full: bool, stage: int) -> Value:
        self.count += 1
        return Value(self.count - 1, full, stage)

    def _number(self, bits: int) -> int:
        bits %= 2**64
        if bits not in self.table:
            self.table.append(bits)
        return self.table.index(bits)

    def _constant(self, value: float | int | bool, element: str) -> int:
        bits = bits_of(value, element)
        return self._number(bits % 2**32 if element == "f32" else bits)

    def _each(self, name: str, *operands: Operand) -> Value:
        values = [each for each in operands if isinstance(each, Value)]
        full, stage = any(each.full for each in values), max((each.stage for each in values), default=0)
        value = self._value(full, stage)
        self.made[value.number] = Made(self.ops[name], operands)
        return value

    def _reduced(self, name: str, begin: int, x: Operand) -> Value:
        source = x if isinstance(x, Value) else self._each("copy", x)
        value = self._value(False, source.stage + 1)
        self.reductions.append(Reduction((value,), (begin,), source, self.ops[name]))
        return value

    def _best(self, element: str, greatest: bool, x: Operand) -> Value:
        source = x if isinstance(x, Value) else self._each("copy", x)
        less = self.ops[f"less.{element}"]
        best, place = self._value(False, source.stage + 1), self._value(False, source.stage + 1)
        begin = (self._constant(0, element), self._constant(-1, "i64"))
        sign = less if greatest else -less
        self.reductions.append(Reduction((best, place), begin, source, self.ops["best"], sign))
        return place

    # --- operations

    def _operation(self, name: str, element: str, given: Sequence[Operand], extent: Extent) -> Operand:
        if name == "cast":
            of, _, into = element.partition(".")
            return self._each(f"cast_{into}.{of}", *given)
        if name == "where":
            return self._each("where", *given)
        if name in ("argmax", "argmin"):
            return self._best(element, name == "argmax", given[0])
        if name in BOOL_REDUCTIONS:
            op, start = BOOL_REDUCTIONS[name]
            return self._reduced(f"{op}.bool", self._constant(start, "bool"), given[0])
        if name == "sum" and element == "bool":
            return self._reduced("add.i64", self._constant(0, "i64"), self._each("cast_i64.bool", given[0]))
        if name in PLAIN_REDUCTIONS:
            return self._plain_reduction(name, element, given[0])
        if name == "logsumexp":
            return self._log_sum(element, given[0])[1]
        if name == "softmax":
            return self._softmax(element, given[0])
        if name == "log_softmax":
            most, _, total = self._shifted(element, given[0])
            moved = self._each(f"subtract.{element}", given[0], most)
            return self._each(f"subtract.{element}", moved, self._each(f"log.{element}", total))
        if name in ("layer_norm", "rms_norm"):
            return self._norm(element, given[0], given[1], name == "layer_norm")
        return self._each(f"{name}.{element}", *given)

    def _plain_reduction(self, name: str, element: str, x: Operand) -> Value:
        op, neutral = PLAIN_REDUCTIONS[name]
        start: float = 0 if neutral is None else neutral
        if neutral is None and element == "i64":
            start = LEAST if name == "max" else GREATEST
        elif neutral is None:
            start = -INFINITY if name == "max" else INFINITY
        return self._reduced(f"{op}.{element}", self._constant(start, element), x)

    def _shifted(self, element: str, x: Operand) -> tuple[Value, Value, Value]:
        """The greatest of a row, 0 where it is -inf; e to the power of what is above it; the sum of that."""
        most = self._plain_reduction("max", element, x)
        none = self._each(f"equal.{element}", most, self._constant(-INFINITY, element))
        held = self._each("where", none, self._constant(0, element), most)
        powers = self._each(f"exp.{element}", self._each(f"subtract.{element}", x, held))
        return held, powers, self._plain_reduction("sum", element, powers)

    def _log_sum(self, element: str, x: Operand) -> tuple[Value, Value]:
        most = self._plain_reduction("max", element, x)
        infinite = self._each(f"equal.{element}", self._each(f"abs.{element}", most), self._constant(INFINITY, element))
        held = self._each("where", infinite, self._constant(0, element), most)
        powers = self._each(f"exp.{element}", self._each(f"subtract.{element}", x, held))
        total = self._plain_reduction("sum", element, powers)
        found = self._each(f"add.{element}", self._each(f"log.{element}", total), held)
        return most, self._each("where", infinite, most, found)

    def _softmax(self, element: str, x: Operand) -> Value:
        """Nothing but -inf gives 0."""
        _, powers, total = self._shifted(element, x)
        empty = self._each(f"equal.{element}", total, self._constant(0, element))
        return self._each(f"divide.{element}", powers, self._each("where", empty, self._constant(1, element), total))

    def _norm(self, element: str, x: Operand, eps: Operand, centred: bool) -> Value:
        width = self._constant(self.places, element)
        moved: Operand = x
        if centred:
            mean = self._each(f"divide.{element}", self._plain_reduction("sum", element, x), width)
            moved = self._each(f"subtract.{element}", x, mean)
        squares = self._plain_reduction("sum", element, self._each(f"square.{element}", moved))
        power = self._each(f"divide.{element}", squares, width)
        near = self._each(f"cast_{element}.f64", eps)
        rate = self._each(f"rsqrt.{element}", self._each(f"add.{element}", power, near))
        return self._each(f"multiply.{element}", moved, rate)

    # --- codes

    def _codes(self, stored: Sequence[Operand], full: Sequence[bool], by_row: bool) -> list[_Code]:
        ends = {value.number: reduction for reduction in self.reductions for value in reduction.values}
        used = self._used(stored, ends)
        reductions = [each for each in self.reductions if any(value.number in used for value in each.values)]
        values = [each for each in stored if isinstance(each, Value)]
        last = max([0, *(each.stage for each in values), *(each.values[0].stage for each in reductions)])
        codes: list[_Code] = []
        row_made: set[int] = set(ends)
        kept_made: set[int] = set()
        loops = 0
        for stage in range(last + 1):
            inside: list[_Code] = []
            fresh = kept_made if self.kept else set[int]()

            about = _Stage(codes, row_made, inside, fresh, loops, -1 if self.kept else stage, by_row)
            here = [each for each in reductions if each.values[0].stage == stage + 1]
            for reduction in here:
                for value, number in zip(reduction.values, reduction.begin, strict=True):
                    codes.append(_Code(self.ops["copy"], value, number))
            for reduction in here:
                self._need(reduction.source, about)
                inside.append(self._taken(reduction, loops, -1 if self.kept else stage))
            if stage == last:
                stores = []
                for number, (operand, at_places) in enumerate(zip(stored, full, strict=True)):
                    self._need(operand, about)
                    name = "store" if at_places else "store_row"
                    loop = loops if at_places and by_row else -1
                    where = stage if at_places and by_row and not self.kept else -1
                    stores.append(_Code(self.ops[name], None, None, operand, raw_a=number, loop=loop, stage=where))
                inside += [each for each in stores if each.loop >= 0]
                after = [each for each in stores if each.loop < 0]
            else:
                after = []
            if inside:
                codes.append(_Code(self.ops["loop"], raw_a=len(inside)))
                codes += inside
                loops += 1
            for reduction in here:
                codes.append(self._combined(reduction))
            codes += after
        return codes

    def _need(self, operand: Operand, about: _Stage) -> None:
        """Makes a value, and what it needs, where it isn't there."""
        if not isinstance(operand, Value):
            return
        at_places = operand.full and about.by_row
        there = about.fresh if at_places else about.row_made
        if operand.number in there:
            return
        there.add(operand.number)
        for each in self._operands(operand):
            self._need(each, about)
        if at_places:
            about.inside.append(self._code(operand, about.loop, about.stage))
        else:
            about.codes.append(self._code(operand, -1, -1))

    def _used(self, stored: Sequence[Operand], ends: Mapping[int, Reduction]) -> set[int]:
        """The values that the results need."""
        used: set[int] = set()
        left = [each for each in stored if isinstance(each, Value)]
        while left:
            value = left.pop()
            if value.number in used:
                continue
            used.add(value.number)
            reduction = ends.get(value.number)
            if reduction is not None:
                left += [reduction.source, *reduction.values]
            else:
                left += [each for each in self._operands(value) if isinstance(each, Value)]
        return used

    def _operands(self, value: Value) -> tuple[Operand, ...]:
        made = self.made[value.number]
        return () if made.op == self.ops["load"] else made.operands

    def _code(self, value: Value, loop: int, stage: int) -> _Code:
        made = self.made[value.number]
        if made.op == self.ops["load"]:
            number = made.operands[0]
            assert isinstance(number, int)
            return _Code(made.op, value, raw_a=number, loop=loop, stage=stage)
        a, b, c = (*made.operands, None, None, None)[:3]
        return _Code(made.op, value, a, b, c, loop=loop, stage=stage)

    def _taken(self, reduction: Reduction, loop: int, stage: int) -> _Code:
        first = reduction.values[0]
        if reduction.best:
            return _Code(
                reduction.op, first, reduction.source, reduction.values[1], _Raw(reduction.best), loop=loop, stage=stage
            )
        return _Code(reduction.op, first, first, reduction.source, loop=loop, stage=stage)

    def _combined(self, reduction: Reduction) -> _Code:
        first = reduction.values[0]
        if reduction.best:
            return _Code(self.ops["combine_best"], first, None, reduction.values[1], _Raw(reduction.best))
        return _Code(self.ops["combine"], first, raw_a=reduction.op)

    # --- slots

    def _in_slots(self, codes: Sequence[_Code]) -> list[tuple[int, int, int, int, int]]:
        """The codes with a slot for each value, used again after the value's last use."""
        loop_end: dict[int, int] = {}
        for at, code in enumerate(codes):
            if code.loop >= 0:
                loop_end[code.loop] = at
        first: dict[tuple[int, int], int] = {}
        last: dict[tuple[int, int], int] = {}
        born: dict[tuple[int, int], int] = {}
        for at, code in enumerate(codes):
            for value in self._touched(code):
                key = self._key(value, code)
                if key not in first:
                    first[key], born[key] = at, code.loop
                end = loop_end[code.loop] if code.loop >= 0 and born[key] != code.loop else at
                last[key] = max(last.get(key, 0), end)
        slots: dict[tuple[int, int], int] = {}
        free = list(range(self.slots - 1, -1, -1))
        leaving: dict[int, list[tuple[int, int]]] = {}
        for key, at in last.items():
            leaving.setdefault(at, []).append(key)
        starting: dict[int, list[tuple[int, int]]] = {}
        for key, at in first.items():
            starting.setdefault(at, []).append(key)
        for at in range(len(codes)):
            for key in starting.get(at, ()):
                if not free:
                    raise TooLarge(f"a chain holds more than {self.slots} values at once")
                slots[key] = free.pop()
            free += [slots[key] for key in leaving.get(at, ())]
        return [self._encoded(code, slots) for code in codes]

    def _touched(self, code: _Code) -> list[Value]:
        return [each for each in (code.a, code.b, code.c, code.dst) if isinstance(each, Value)]

    def _key(self, value: Value, code: _Code) -> tuple[int, int]:
        """A value of a place is made anew in each stage."""
        return value.number, code.stage if value.full else -1

    def _encoded(self, code: _Code, slots: Mapping[tuple[int, int], int]) -> tuple[int, int, int, int, int]:
        def place(operand: Operand | _Raw | None) -> int:
            if operand is None:
                return 0
            if isinstance(operand, _Raw):
                return operand.value
            if isinstance(operand, Value):
                return slots[self._key(operand, code)]
            return ~operand

        a = place(code.a) if code.a is not None else code.raw_a
        return code.op, place(code.dst), a, place(code.b), place(code.c)


@dataclass(frozen=True)
class _Raw:
    """A whole number in a code, which is no operand."""

    value: int
