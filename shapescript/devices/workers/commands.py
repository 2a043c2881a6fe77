"""What the controller tells its workers, as bytes.

Gives a class for each command, with `pack` and `unpack`. All workers are told the same; what is a device's own follows
from its number. A command names values by numbers that the controller hands out, and carries the numbers of values
that nobody uses any more. What is told at every step is packed by hand; what is told once is pickled.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from shapescript.devices.random_key import RandomKey

_RUN = struct.Struct("<BIQHHHIHQqq")
_ROWS = struct.Struct("<BIQQQH")
_FETCH = struct.Struct("<BQH")
_SCALAR = struct.Struct("<BQ")
RUN, ROWS, FETCH, SCALAR, PICKLED = range(5)


@dataclass(frozen=True)
class RunPlan:
    """Run a plan on these inputs; its outputs become the values `first`, `first + 1` and so on.

    The values `free` are let go of before, and of the inputs those at the places `given_up` with the run.
    """

    plan: int
    first: int
    inputs: tuple[int, ...]
    counts: Mapping[str, int]
    key: RandomKey
    free: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()

    def pack(self) -> bytes:
        """As bytes."""
        names = "\0".join(self.counts).encode()
        head = _RUN.pack(
            RUN,
            self.plan,
            self.first,
            len(self.inputs),
            len(self.counts),
            len(names),
            len(self.free),
            len(self.given_up),
            self.key.seed % 2**64,
            self.key.call,
            self.key.first_row,
        )
        numbers = (*self.inputs, *self.free, *self.given_up, *self.counts.values())
        return head + struct.pack(f"<{len(numbers)}q", *numbers) + names

    @staticmethod
    def unpack(data: bytes) -> RunPlan:
        """From bytes."""
        _, plan, first, inputs, counts, names, free, given, seed, call, first_row = _RUN.unpack_from(data)
        numbers = struct.unpack_from(f"<{inputs + free + given + counts}q", data, _RUN.size)
        at = len(data) - names
        keys = data[at:].decode().split("\0") if names else []
        values = numbers[inputs + free + given :]
        return RunPlan(
            plan,
            first,
            numbers[:inputs],
            dict(zip(keys, values, strict=True)),
            RandomKey(seed, call, first_row),
            numbers[inputs : inputs + free],
            numbers[inputs + free : inputs + free + given],
        )


@dataclass(frozen=True)
class TakeRows:
    """Gather rows of a dataset's columns; those of column i become the value `first + i`.

    The numbers of the rows lie at `at` of the staging memory; each device takes its part of them.
    """

    dataset: int
    first: int
    at: int
    count: int
    mesh_axis: int

    def pack(self) -> bytes:
        """As bytes."""
        return _ROWS.pack(ROWS, self.dataset, self.first, self.at, self.count, self.mesh_axis)

    @staticmethod
    def unpack(data: bytes) -> TakeRows:
        """From bytes."""
        return TakeRows(*_ROWS.unpack(data)[1:])


@dataclass(frozen=True)
class Fetch:
    """Put what you have of a value at your place of the staging memory; `places` has a place and a size a device."""

    value: int
    places: tuple[tuple[int, int], ...]

    def pack(self) -> bytes:
        """As bytes."""
        flat = [number for place in self.places for number in place]
        return _FETCH.pack(FETCH, self.value, len(self.places)) + struct.pack(f"<{len(flat)}q", *flat)

    @staticmethod
    def unpack(data: bytes) -> Fetch:
        """From bytes."""
        _, value, count = _FETCH.unpack_from(data)
        flat = struct.unpack_from(f"<{2 * count}q", data, _FETCH.size)
        return Fetch(value, tuple(zip(flat[::2], flat[1::2], strict=True)))


@dataclass(frozen=True)
class PutScalar:
    """A scalar that is whole on each device, by the name of its dtype and its bytes: a learning rate of each step."""

    value: int
    dtype: str
    data: bytes

    def pack(self) -> bytes:
        """As bytes."""
        return _SCALAR.pack(SCALAR, self.value) + self.dtype.encode() + b"\0" + self.data

    @staticmethod
    def unpack(data: bytes) -> PutScalar:
        """From bytes."""
        _, value = _SCALAR.unpack_from(data)
        dtype, _, rest = bytes(data[_SCALAR.size :]).partition(b"\0")
        return PutScalar(value, dtype.decode(), rest)


@dataclass(frozen=True)
class Pickled:
    """A command that is told seldom."""

    def pack(self) -> bytes:
        """As bytes."""
        return bytes([PICKLED]) + pickle.dumps(self)

    @staticmethod
    def unpack(data: bytes) -> Command:
        """From bytes."""
        command = pickle.loads(memoryview(data)[1:])
        assert isinstance(command, Pickled)
        return command


@dataclass(frozen=True)
class Put(Pickled):
    """A value, cut as `lie` says: in `inline`, or at a place of the staging memory."""

    value: int
    lie: object
    dtype: str
    at: int
    size: int
    inline: bytes | None


@dataclass(frozen=True)
class LoadPlan(Pickled):
    """A graph, encoded, in the staging memory; and where Python code is found."""

    plan: int
    at: int
    size: int
    path: tuple[str, ...]


@dataclass(frozen=True)
class OpenDataset(Pickled):
    """A dataset whose memory is handed over the socket: for each column its dtype, shape and place."""

    dataset: int
    columns: tuple[tuple[str, tuple[int, ...], int], ...]


@dataclass(frozen=True)
class DropDataset(Pickled):
    """Let go of a dataset."""

    dataset: int


@dataclass(frozen=True)
class Free(Pickled):
    """Let go of values."""

    values: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class Ask(Pickled):
    """Answer a question over the socket: `sent` (by plan), `modules` or `memory`."""

    question: str


Command: TypeAlias = RunPlan | TakeRows | Fetch | PutScalar | Pickled

_UNPACK: Mapping[int, Callable[[bytes], Command]] = {
    RUN: RunPlan.unpack,
    ROWS: TakeRows.unpack,
    FETCH: Fetch.unpack,
    SCALAR: PutScalar.unpack,
    PICKLED: Pickled.unpack,
}


def unpack(data: bytes) -> Command:
    """A command from its bytes."""
    return _UNPACK[data[0]](data)
