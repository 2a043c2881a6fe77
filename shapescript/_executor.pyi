"""The module written in C++ (`csrc/cpu/bindings.cpp`); it is missing where there was no compiler.

A size is a number of the table that `bind` is given. An access is a buffer, its offset, and a stride for each dim.
"""

from collections.abc import Callable, Sequence

Access = tuple[int, int, Sequence[int]]

class Plan:
    def __init__(self) -> None: ...
    def buffer(self, element: int, place: int, length: int) -> int: ...
    def set_place(self, buffer: int, place: int) -> None: ...
    def set_ends(self, inputs: Sequence[int], outputs: Sequence[int], call: int) -> None: ...
    def tiles(
        self,
        node: int,
        fixed: bool,
        outer: Sequence[int],
        inner: Sequence[int],
        whole: bool,
        registers: Sequence[tuple[int, int]],
        inputs: Sequence[tuple[int, Access]],
        outputs: Sequence[tuple[int, int, bool]],
        numbers: Sequence[tuple[int, int]],
        ops: Sequence[Sequence[int]],
    ) -> None: ...
    def product(
        self,
        node: int,
        fixed: bool,
        element: int,
        batch: Sequence[int],
        m: int,
        n: int,
        k: int,
        a: Access,
        b: Access,
        result: int,
    ) -> None: ...
    def move(self, node: int, fixed: bool, dims: Sequence[int], source: Access, into: Access) -> None: ...
    def fill(self, node: int, fixed: bool, buffer: int, size: int, bits: int) -> None: ...
    def iota(self, node: int, fixed: bool, buffer: int) -> None: ...
    def gather(
        self,
        node: int,
        fixed: bool,
        dims: Sequence[int],
        x: Access,
        index: Access,
        step: int,
        count: int,
        result: int,
    ) -> None: ...
    def scatter(
        self,
        node: int,
        fixed: bool,
        dims: Sequence[int],
        x: Access,
        index: Access,
        result: Access,
        step: int,
        count: int,
    ) -> None: ...
    def random(
        self,
        node: int,
        fixed: bool,
        draw: int,
        buffer: int,
        call: int,
        place: int,
        rows: int,
        others: int,
        bound: int,
        first: int,
    ) -> None: ...
    def check(self, node: int, fixed: bool, kind: int, dims: Sequence[int], source: Access, count: int) -> None: ...
    def call(self, node: int, fixed: bool, reads: Sequence[int], writes: Sequence[int]) -> None: ...
    def all_reduce(
        self, node: int, fixed: bool, mesh_axis: int, combine: int, ins: Sequence[int], outs: Sequence[int]
    ) -> None: ...
    def half_reduce(
        self, node: int, fixed: bool, mesh_axis: int, combine: int, ins: Sequence[int], outs: Sequence[int], half: int
    ) -> None: ...

class Bound:
    def address(self, buffer: int) -> int: ...
    @property
    def bytes(self) -> int: ...

Call = Callable[[int], bool]

class Executor:
    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...
    def bind(self, plan: Plan, sizes: Sequence[int], kernels: str, collectives: Sequence[object] = ()) -> Bound: ...
    def prepare(self, bound: Bound, call: Call) -> int: ...
    def run(
        self,
        bound: Bound,
        inputs: Sequence[int],
        outputs: Sequence[int],
        seed: int,
        call_number: int,
        first_row: int,
        call: Call,
    ) -> int: ...
    def profile(
        self,
        bound: Bound,
        inputs: Sequence[int],
        outputs: Sequence[int],
        seed: int,
        call_number: int,
        first_row: int,
        call: Call,
    ) -> tuple[int, list[tuple[int, int, int, int]]]: ...

def kernel_numbers() -> dict[str, int]: ...
def kernel_set() -> str: ...
def has_kernels(name: str) -> bool: ...
def use_blas_of(library: str) -> bool: ...
