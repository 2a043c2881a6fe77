"""Kernels of csrc/cuda, run on the CPU by the shim: those that no graph of test_cuda_captured.py reaches, and races."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from shimmed_cuda import CUDA, ROOT, compiled, shimmed

from shapescript.random_bits import philox

ELEMENTS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}


def grid() -> object:
    return shimmed().Grid(8, 2, 0)


def table(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int64)


def test_a_bucket_is_packed_times_a_weight_in_memory_and_unpacked() -> None:
    tensors = [
        (torch.randn(n, generator=torch.Generator().manual_seed(n)) * 3).to(dtype)
        for n, dtype in ((1, torch.float32), (300, torch.bfloat16), (77, torch.float16), (5, torch.float32))
    ]
    rows, begin = [], 0
    for each in tensors:
        rows.append([each.data_ptr(), begin, each.numel(), ELEMENTS[each.dtype]])
        begin += each.numel()
    segments, bucket, weight = table(rows), torch.full((begin,), float("nan")), torch.tensor([0.3])
    for value in (0.3, 0.7):  # the launch is the same, the weight in memory another
        weight.fill_(value)
        shimmed().pack(bucket.data_ptr(), False, segments.data_ptr(), len(rows), 300, weight.data_ptr(), grid())
        assert torch.equal(bucket, torch.cat([each.float() for each in tensors]) * weight)
    into = [torch.zeros_like(each) for each in tensors]
    back = table([[each.data_ptr(), *row[1:]] for each, row in zip(into, rows, strict=True)])
    shimmed().unpack(bucket.data_ptr(), False, back.data_ptr(), len(rows), 300, grid())
    for got, given in zip(into, tensors, strict=True):
        assert torch.equal(got, (given.float() * weight).to(given.dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_elements_are_rounded_as_torch_rounds_them(dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    bucket = torch.empty(2**16)
    given = table([[every.data_ptr(), 0, 2**16, ELEMENTS[dtype]]])
    shimmed().pack(bucket.data_ptr(), False, given.data_ptr(), 1, 64, 0, grid())
    assert torch.equal(torch.nan_to_num(bucket), torch.nan_to_num(every.float()))
    assert torch.equal(bucket.isnan(), every.isnan())
    between = torch.cat([bucket[:-1] + (bucket[1:] - bucket[:-1]) * part for part in (0.25, 0.5, 0.75)])
    between = between[between.isfinite()]
    out = torch.empty(len(between), dtype=dtype)
    segments = table([[out.data_ptr(), 0, len(between), ELEMENTS[dtype]]])
    shimmed().unpack(between.data_ptr(), False, segments.data_ptr(), 1, 64, grid())
    assert torch.equal(out, between.to(dtype))


def test_rows_of_a_dataset_by_a_permutation_and_a_position_in_memory() -> None:
    features, labels = torch.arange(40.0).reshape(10, 4), torch.arange(10, dtype=torch.int64)
    order = torch.tensor([7, 2, 9, 0, 4, 1, 3, 8, 6, 5])
    room = 4
    columns = [torch.full((room, 4), -1.0), torch.full((room,), -1)]
    rows = [[features.data_ptr(), columns[0].data_ptr(), 8, 2], [labels.data_ptr(), columns[1].data_ptr(), 8, 1]]
    about, position, count = table(rows), torch.tensor([0]), torch.tensor([room])
    for begin, real in ((0, 4), (4, 4), (8, 2)):
        position.fill_(begin)
        count.fill_(real)
        shimmed().take_rows(
            about.data_ptr(), 2, order.data_ptr(), position.data_ptr(), count.data_ptr(), room, room * 2, grid()
        )
        numbers = order[begin : begin + real]
        assert torch.equal(columns[0][:real], features[numbers]) and torch.equal(columns[1][:real], labels[numbers])
        assert not columns[0][real:].any()


def test_a_lookup_in_nothing_is_recorded_and_reads_nothing() -> None:
    index, out, sums = torch.tensor([2, 0]), torch.full((2,), -1.0), torch.zeros(3)
    x = torch.ones(2)
    walk = shimmed().Walk([2], [[0], [1]])
    record = torch.zeros(3, dtype=torch.int64)
    shimmed().gather(walk, out.data_ptr(), 0, index.data_ptr(), 1, 0, 4, record.data_ptr(), 7, grid())
    assert not out.any() and record[0] == (7 << 32) + 1 and record[2] == 0
    record.zero_()
    walk = shimmed().Walk([2], [[1], [1], [0]])
    for in_order in (True, False):
        arguments = sums.data_ptr(), x.data_ptr(), index.data_ptr(), 1, 0, in_order, record.data_ptr(), 8
        shimmed().scatter(walk, 0, "f32", *arguments, grid())
        assert record[0] == (8 << 32) + 1 and not sums.any()


def test_a_steps_end_shows_scalars_in_turn_and_moves_the_control_block_on() -> None:
    record, shown, done = (torch.zeros(n, dtype=torch.int64) for n in (3, 4, 1))
    control = torch.tensor([9, 4, 0, 10, 3, 3])
    loss, count = torch.tensor(1.5), torch.tensor(7)
    scalars = table([[loss.data_ptr(), 4], [count.data_ptr(), 8]])
    ring = torch.zeros(2, 2, dtype=torch.int64)
    memory = [each.data_ptr() for each in (record, shown, done, control, scalars)]
    for number in range(1, 4):
        loss.fill_(number + 0.5)
        shimmed().finish(*memory, 2, ring.data_ptr(), 2, grid())
        assert shown.tolist() == [0, 0, 0, number]
        assert float(ring[(number - 1) % 2, :1].view(torch.int32).view(torch.float32)[0]) == number + 0.5
    assert control.tolist() == [9, 7, 0, 19, 3, 3] and ring[:, 1].tolist() == [7, 7]
    record.copy_(torch.tensor([(5 << 32) + 1, -3, 8]))
    shimmed().finish(*memory, 2, ring.data_ptr(), 2, grid())
    assert shown.tolist() == [(5 << 32) + 1, -3, 8, 4]


def test_a_bucket_of_f64_and_sums_of_whole_numbers() -> None:
    given = [torch.randn(5, dtype=torch.float64), torch.randn(300, dtype=torch.float64)]
    rows = table([[given[0].data_ptr(), 0, 5, 3], [given[1].data_ptr(), 5, 300, 3]])
    bucket = torch.zeros(305, dtype=torch.float64)
    shimmed().pack(bucket.data_ptr(), True, rows.data_ptr(), 2, 300, 0, grid())
    assert torch.equal(bucket, torch.cat(given))
    index, x = torch.randint(0, 3, (200,)), torch.randint(-(2**40), 2**40, (200,))
    sums, record = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    walk = shimmed().Walk([200], [[1], [1], [0]])
    arguments = sums.data_ptr(), x.data_ptr(), index.data_ptr(), 1, 3, True, record.data_ptr(), 8
    shimmed().scatter(walk, 0, "i64", *arguments, grid())
    assert torch.equal(sums, torch.zeros(3, dtype=torch.int64).index_add(0, index, x))


def test_a_dropout_draws_the_bits_of_the_cpu_by_keys_in_memory() -> None:
    out = torch.empty(6, 5)
    control = torch.tensor([0, 0, 0])
    for seed, call, first in ((7, 1, 0), (-3, 2, 11), (2**62, 2**31, 4)):
        control.copy_(torch.tensor([seed, call, first]))
        at = control.data_ptr()
        shimmed().random(0, "f32", out.data_ptr(), at, at + 8, at + 16, 9, 6, 5, 1, grid())
        bits = philox(seed, call, 9, 6, first, 5)
        assert torch.equal(out.reshape(-1).double(), torch.from_numpy((bits[:, 0] >> 8) / 2.0**24))


def test_what_nvcc_built_has_the_same_operations() -> None:
    cuda = pytest.importorskip("shapescript._cuda", reason="built without nvcc")
    assert cuda.tile_ops() == shimmed().tile_ops()
    assert cuda.limits() == shimmed().limits()
    count, error = cuda.device_count()
    assert count == torch.cuda.device_count() if error == 0 else error in (35, 100)


def run_race(*options: str) -> subprocess.CompletedProcess[str]:
    sources = [ROOT / "tests" / "cuda_race.cpp", CUDA / "launch_tiles.cu", CUDA / "launch.cu"]
    program: Path = compiled("cuda_race", sources, "-fsanitize=thread", "-g", f"-I{CUDA}", *options)
    # ThreadSanitizer needs the addresses that this kernel's randomisation may take from it
    command = ["setarch", "-R", str(program)] if sys.platform == "linux" else [str(program)]
    stopping = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=stopping)


def test_no_thread_races_another() -> None:
    done = run_race()
    assert done.returncode == 0 and done.stdout.strip() == "right", done.stderr[-2000:]


def test_a_missing_barrier_would_be_found() -> None:
    done = run_race("-DSHAPESCRIPT_PLANT_RACE")
    assert done.returncode != 0 and "data race" in done.stderr
