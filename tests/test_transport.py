"""The collectives in shared memory, on threads of this process, against torch's own sums and joins."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path

import pytest
import torch

from shapescript.devices.transport import Sent
from shapescript.devices.workers.native import native
from shapescript.devices.workers.segments import Segment
from shapescript.devices.workers.shared_transport import SharedTransport, exchange_bytes, shared_transport
from shapescript.layout.mesh import Mesh, first_of, parts

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(native is None, reason="the package was built without its modules in C++")
DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
]


class Devices:
    """The ends of a mesh's devices, each used by a thread."""

    def __init__(self, mesh: Mesh) -> None:
        assert native is not None
        self.mesh = mesh
        link_memory, exchange = Segment.make("link", native.Link.size), Segment.make("exchange", exchange_bytes(mesh))
        native.Link.lay(link_memory.fileno, mesh.count)
        self.link = native.Link(link_memory.fileno)
        memory = native.Mapping(exchange.fileno)
        self.ends = [shared_transport(device, mesh, self.link, memory, spin=False) for device in range(mesh.count)]
        link_memory.close()
        exchange.close()

    def run(self, work: Callable[[int, SharedTransport], torch.Tensor]) -> list[torch.Tensor]:
        with ThreadPoolExecutor(self.mesh.count) as threads:
            return list(threads.map(work, range(self.mesh.count), self.ends))


def some(count: int, dtype: torch.dtype, device: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(device)
    if dtype.is_floating_point:
        return (torch.randn(count, generator=random) * 3).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -60, 60, (count,), generator=random).to(dtype)


def in_order(tensors: Sequence[torch.Tensor], combine: Callable[..., torch.Tensor]) -> torch.Tensor:
    """The first with the second, then with the third; narrow floats in f32, rounded once."""
    if tensors[0].dtype in (torch.bfloat16, torch.float16):
        return reduce(combine, [each.float() for each in tensors]).to(tensors[0].dtype)
    return reduce(combine, tensors)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_reduce_is_the_sum_in_the_order_of_the_ranks(dtype: torch.dtype) -> None:
    for count in (1, 2, 3, 5):
        devices = Devices(Mesh((count,)))
        for kind, combine in (("sum", torch.add), ("max", torch.maximum), ("min", torch.minimum)):
            for length in (0, 1, 63, 5000):
                given = [some(length, dtype, device) for device in range(count)]
                got = devices.run(lambda device, end: end.all_reduce([given[device]], kind)[0])  # noqa: B023
                wanted = in_order(given, combine)
                assert all(torch.equal(each, wanted) for each in got), (dtype, count, kind, length)
                assert all(torch.equal(given[device], some(length, dtype, device)) for device in range(count))


def test_what_is_longer_than_a_slot_goes_in_pieces() -> None:
    devices = Devices(Mesh((3,)))
    lengths = [3, 2_500_000, 0, 1_100_001]
    given = [[some(length, torch.float32, 10 * device + n) for n, length in enumerate(lengths)] for device in range(3)]
    wanted = [in_order([given[device][n] for device in range(3)], torch.add) for n in range(len(lengths))]
    for _ in range(2):
        got = devices.run(lambda device, end: torch.cat(end.all_reduce(given[device])))
        assert all(torch.equal(each, torch.cat(wanted)) for each in got)
    assert [end.sent for end in devices.ends] == [Sent(2, 2 * sum(lengths), 8 * sum(lengths))] * 3


def test_tensors_of_several_elements_go_as_one_launch() -> None:
    devices = Devices(Mesh((2,)))
    given = [[some(10, torch.float32, device), some(7, torch.int64, device)] for device in range(2)]
    got = devices.run(lambda device, end: torch.cat([each.double() for each in end.all_reduce(given[device])]))
    wanted = torch.cat([(given[0][n] + given[1][n]).double() for n in range(2)])
    assert torch.equal(got[0], wanted) and torch.equal(got[1], wanted)
    assert devices.ends[0].sent == Sent(1, 17, 96)


def test_weights_are_each_device_s_own() -> None:
    devices = Devices(Mesh((3,)))
    weights = [22 / 64, 21 / 64, 21 / 64]
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        given = [some(70_000, dtype, device) for device in range(3)]
        got = devices.run(lambda device, end: end.weighted_all_reduce([given[device]], weights[device])[0])  # noqa: B023
        scaled = [(each.float() * w).to(dtype) if each.element_size() == 2 else each * w
                  for each, w in zip(given, weights, strict=True)]  # fmt: skip
        assert all(torch.equal(each, in_order(scaled, torch.add)) for each in got)
    with pytest.raises(ValueError, match="whole numbers can't be weighted"):
        Devices(Mesh((1,))).ends[0].weighted_all_reduce([torch.ones(3, dtype=torch.int64)], 0.5)


def test_every_narrow_float_is_widened_and_rounded_as_torch_does() -> None:
    """All bit patterns of f16 and bf16, added to another, among them NaN, infinities and subnormal numbers."""
    devices = Devices(Mesh((2,)))
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        every = bits.view(dtype)
        other = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(0))]
        given = [every, other]
        for kind, combine in (("sum", torch.add), ("max", torch.maximum), ("min", torch.minimum)):
            got = devices.run(lambda device, end: end.all_reduce([given[device]], kind)[0])  # noqa: B023
            torch.testing.assert_close(got[0], in_order(given, combine), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("length", [0, 2, 11, 3_000_000])
def test_gather_scatter_and_all_to_all_along_each_dim(length: int) -> None:
    """Uneven parts, empty ones, and parts longer than a slot."""
    count = 3
    devices = Devices(Mesh((count,)))
    widths = parts(length, count)
    whole = some(length * 2, torch.float32, 0).reshape(length, 2)
    for dim in (0, 1):
        turned = whole if dim == 0 else whole.T.contiguous()
        cut = torch.split(turned, widths, dim)
        got = devices.run(lambda device, end: end.all_gather(cut[device], dim, widths))  # noqa: B023
        assert all(torch.equal(each, turned) for each in got)
        given = [turned * (device + 1) for device in range(count)]
        got = devices.run(lambda device, end: end.reduce_scatter(given[device], dim, widths))  # noqa: B023
        total = in_order(given, torch.add)
        for device, each in enumerate(got):
            assert torch.equal(each, total.narrow(dim, first_of(length, count, device), widths[device]))
    columns = parts(2, count)
    rows = torch.split(whole, widths)
    got = devices.run(lambda device, end: end.all_to_all(rows[device], 0, widths, 1, columns))
    assert all(torch.equal(each, own) for each, own in zip(got, torch.split(whole, columns, 1), strict=True))
    back = devices.run(lambda device, end: end.all_to_all(got[device], 1, columns, 0, widths))
    assert all(torch.equal(each, own) for each, own in zip(back, rows, strict=True))


def test_each_axis_of_a_mesh_has_groups_of_its_own() -> None:
    mesh = Mesh((2, 3))
    devices = Devices(mesh)
    given = [torch.tensor([10.0**device]) for device in range(6)]
    down = devices.run(lambda device, end: end.along(0).all_reduce([given[device]])[0])
    across = devices.run(lambda device, end: end.along(1).all_reduce([given[device]])[0])
    for device in range(6):
        row, column = mesh.coordinates(device)
        assert down[device] == sum(10.0 ** mesh.device((each, column)) for each in range(2))
        assert across[device] == sum(10.0 ** mesh.device((row, each)) for each in range(3))
    assert devices.ends[0].sent == Sent(2, 2, 8)


def test_a_device_that_waits_for_another_in_vain_is_let_go() -> None:
    assert native is not None
    devices = Devices(Mesh((2,)))
    caught: list[Exception] = []

    def alone() -> None:
        try:
            devices.ends[0].all_reduce([torch.ones(3)])
        except native.Ended as error:
            caught.append(error)

    thread = threading.Thread(target=alone)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    devices.link.end()
    thread.join(5)
    assert not thread.is_alive() and len(caught) == 1


def test_devices_that_do_different_things_all_stop() -> None:
    def different(device: int, end: SharedTransport) -> torch.Tensor:
        given = [torch.ones(4)] if device == 0 else [torch.ones(2), torch.ones(2)]
        with pytest.raises(RuntimeError, match="the devices are about to combine different values: device"):
            end.all_reduce(given)
        return torch.ones(1)

    Devices(Mesh((2,))).run(different)

    def kinds(device: int, end: SharedTransport) -> torch.Tensor:
        with pytest.raises(RuntimeError, match="isn.t where this one is"):
            end.all_reduce([torch.ones(4)], "sum" if device == 0 else "max")
        return torch.ones(1)

    Devices(Mesh((3,))).run(kinds)


def test_commands_come_in_order_whatever_their_length() -> None:
    """More than fit into the ring, to readers of different speed."""
    assert native is not None
    memory = Segment.make("link", native.Link.size)
    native.Link.lay(memory.fileno, 2)
    link = native.Link(memory.fileno)
    lengths = [(n * 7919) % 50_000 for n in range(400)]
    seen: list[list[tuple[int, int]]] = [[], []]

    def reader(rank: int) -> None:
        for number in range(1, len(lengths) + 1):
            data = link.take(rank)
            seen[rank].append((len(data), data[-1] if data else -1))
            link.finish(rank, number)

    threads = [threading.Thread(target=reader, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for number, length in enumerate(lengths):
        link.post(bytes([number % 256]) * length)
    assert all(link.wait(rank, len(lengths), 10) for rank in range(2))
    for thread in threads:
        thread.join()
    wanted = [(length, number % 256 if length else -1) for number, length in enumerate(lengths)]
    assert seen == [wanted, wanted]
    with pytest.raises(ValueError, match="too long"):
        link.post(b"x" * (native.Link.longest + 1))


def test_no_thread_races_another(tmp_path: Path) -> None:
    """The same code under ThreadSanitizer, which fails at a read that isn't ordered after its write."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    program = tmp_path / "race"
    source = ROOT / "tests" / "transport_race.cpp"
    command = [compiler, "-std=c++20", "-O1", "-g", "-fsanitize=thread", f"-I{ROOT / 'csrc' / 'cpu'}"]
    built = subprocess.run([*command, str(source), "-o", str(program), "-pthread"], capture_output=True, text=True)
    if built.returncode != 0 and "tsan" in built.stderr:
        pytest.skip("the compiler has no ThreadSanitizer")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "right\n", done.stdout + done.stderr[:4000]
