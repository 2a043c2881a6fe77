// The kernels besides tiles.hpp: lookups, draws, checks, rows of a dataset, the bucket of a
// reduction, a step's end.
//
// What changes from step to step is read from device memory, so that one captured launch serves
// every step. A wrong value is written into a record, the first one wins, and the step goes on with
// a value that can be; the host reads the record when it next looks, and the context stays whole.
#pragma once

#include "../cpu/philox.hpp"
#include "narrow.hpp"

namespace shapescript::cuda {

struct Place {
  std::int64_t dims;
  std::int64_t sizes[kMostDims];
  std::int64_t count;  // of all places
};

// A stride for each dim of a place.
struct Reach {
  std::int64_t strides[kMostDims];
};

struct ErrorRecord {
  std::int32_t set, node;
  std::int64_t value, bound;
};

SHAPESCRIPT_DEVICE std::int64_t FirstPlace() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
SHAPESCRIPT_DEVICE std::int64_t AllThreads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

SHAPESCRIPT_DEVICE std::int64_t OffsetOf(const std::int64_t* at, std::int64_t dims,
                                         const Reach& reach) {
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < dims; ++i) offset += at[i] * reach.strides[i];
  return offset;
}

SHAPESCRIPT_DEVICE void Record(ErrorRecord* record, std::int32_t node, std::int64_t value,
                               std::int64_t bound) {
  if (atomicCAS(&record->set, 0, 1) != 0) return;
  record->node = node;
  record->value = value;
  record->bound = bound;
}

// --- lookups
// ------------------------------------------------------------------------------------------------------

// out[p] = x[.. index[p] ..]: `step` is x's stride along the axis that is looked up in, which has
// `bound` places.
__global__ void GatherKernel(Place place, void* out, const void* x, Reach x_reach,
                             const std::int64_t* index, Reach index_reach, std::int64_t step,
                             std::int64_t bound, std::int64_t width, ErrorRecord* record,
                             std::int32_t node) {
  std::int64_t at[kMostDims];
  for (std::int64_t p = FirstPlace(); p < place.count; p += AllThreads()) {
    Coordinates(p, place.sizes, static_cast<int>(place.dims), at);
    const std::int64_t looked = index[OffsetOf(at, place.dims, index_reach)];
    if (looked < 0 || looked >= bound) {
      Record(record, node, looked, bound);
      StoreBits(out, p, width, 0);  // of an empty x nothing can be read
      continue;
    }
    StoreBits(out, p, width, LoadBits(x, OffsetOf(at, place.dims, x_reach) + looked * step, width));
  }
}

// result[.. index[p] ..] += x[p]. The dims of `kept` are those along which the result goes too;
// along the others, `summed`, everything that falls into a place is added in order, so that a run
// repeats bit for bit: a thread for each place of the result goes through the index.
template <class T>
__global__ void ScatterKernel(Place kept, Reach kept_x, Reach kept_index, Reach kept_result,
                              Place summed, Reach summed_x, Reach summed_index, T* result,
                              const T* x, const std::int64_t* index, std::int64_t step,
                              std::int64_t bound, ErrorRecord* record, std::int32_t node) {
  std::int64_t at[kMostDims], along[kMostDims];
  for (std::int64_t p = FirstPlace(); p < kept.count * bound; p += AllThreads()) {
    const std::int64_t wanted = p / kept.count;
    Coordinates(p % kept.count, kept.sizes, static_cast<int>(kept.dims), at);
    const std::int64_t x_first = OffsetOf(at, kept.dims, kept_x);
    const std::int64_t index_first = OffsetOf(at, kept.dims, kept_index);
    T total = T(0);
    for (std::int64_t q = 0; q < summed.count; ++q) {
      Coordinates(q, summed.sizes, static_cast<int>(summed.dims), along);
      const std::int64_t looked = index[index_first + OffsetOf(along, summed.dims, summed_index)];
      if (looked == wanted) total += x[x_first + OffsetOf(along, summed.dims, summed_x)];
      if (wanted == 0 && (looked < 0 || looked >= bound)) Record(record, node, looked, bound);
    }
    result[OffsetOf(at, kept.dims, kept_result) + wanted * step] = total;
  }
}

// The same for many places, by atomic additions into a result that is 0: what falls into one place
// is added in any order, and the last bits of floats may differ between runs.
template <class T>
__global__ void ScatterManyKernel(Place place, T* result, Reach result_reach, const T* x,
                                  Reach x_reach, const std::int64_t* index, Reach index_reach,
                                  std::int64_t step, std::int64_t bound, ErrorRecord* record,
                                  std::int32_t node) {
  std::int64_t at[kMostDims];
  for (std::int64_t p = FirstPlace(); p < place.count; p += AllThreads()) {
    Coordinates(p, place.sizes, static_cast<int>(place.dims), at);
    const std::int64_t looked = index[OffsetOf(at, place.dims, index_reach)];
    if (looked < 0 || looked >= bound) {
      Record(record, node, looked, bound);
      continue;
    }
    AtomicAdd(result + OffsetOf(at, place.dims, result_reach) + looked * step,
              x[OffsetOf(at, place.dims, x_reach)]);
  }
}

// --- moves
// --------------------------------------------------------------------------------------------------------

__global__ void MoveKernel(Place place, void* out, Reach out_reach, const void* x, Reach x_reach,
                           std::int64_t width) {
  std::int64_t at[kMostDims];
  for (std::int64_t p = FirstPlace(); p < place.count; p += AllThreads()) {
    Coordinates(p, place.sizes, static_cast<int>(place.dims), at);
    StoreBits(out, OffsetOf(at, place.dims, out_reach), width,
              LoadBits(x, OffsetOf(at, place.dims, x_reach), width));
  }
}

// --- draws
// --------------------------------------------------------------------------------------------------------

enum Draw : std::int32_t { kUniform, kNormal, kInteger };

SHAPESCRIPT_DEVICE double Unit(std::uint32_t high, std::uint32_t low, int bits) {
  if (bits <= 32)
    return static_cast<double>(high >> (32 - bits)) / static_cast<double>(std::uint64_t(1) << bits);
  const std::uint64_t both = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<double>(both >> (64 - bits)) / static_cast<double>(std::uint64_t(1) << bits);
}

template <class T>
SHAPESCRIPT_DEVICE T Drawn(std::int32_t draw, const Words& words, std::uint64_t bound) {
  constexpr int kBits = sizeof(T) == 4 ? 24 : 53;
  switch (draw) {
    case kUniform:
      return static_cast<T>(Unit(words[0], words[1], kBits));
    case kNormal: {
      const double radius = ::sqrt(-2.0 * ::log(1.0 - Unit(words[0], words[1], 53)));
      return static_cast<T>(radius *
                            ::cos(6.283185307179586476925286766559 * Unit(words[2], words[3], 53)));
    }
    default:
      return static_cast<T>(((static_cast<std::uint64_t>(words[0]) << 32) | words[1]) % bound);
  }
}

// rows x others numbers as random_bits.py numbers them; the seed, the call and the first row are
// read on the device.
template <class T>
__global__ void RandomKernel(std::int32_t draw, T* out, const std::int64_t* seed,
                             const std::int64_t* call, const std::int64_t* first_row,
                             std::uint32_t place, std::int64_t rows, std::int64_t others,
                             std::uint64_t bound) {
  const auto key = static_cast<std::uint64_t>(*seed);
  const auto run = static_cast<std::uint32_t>(*call);
  const auto first = first_row == nullptr ? 0 : static_cast<std::uint32_t>(*first_row);
  for (std::int64_t p = FirstPlace(); p < rows * others; p += AllThreads()) {
    const auto row = first + static_cast<std::uint32_t>(p / others);
    out[p] = Drawn<T>(draw, Philox({static_cast<std::uint32_t>(p % others), row, place, run}, key),
                      bound);
  }
}

// --- checks
// -------------------------------------------------------------------------------------------------------

enum CheckKind : std::int32_t { kRange, kFiniteF32, kFiniteF64 };

__global__ void CheckKernel(Place place, const void* x, Reach reach, std::int32_t kind,
                            std::int64_t bound, ErrorRecord* record, std::int32_t node) {
  std::int64_t at[kMostDims];
  for (std::int64_t p = FirstPlace(); p < place.count; p += AllThreads()) {
    Coordinates(p, place.sizes, static_cast<int>(place.dims), at);
    const std::int64_t offset = OffsetOf(at, place.dims, reach);
    if (kind == kRange) {
      const std::int64_t found = static_cast<const std::int64_t*>(x)[offset];
      if (found < 0 || found >= bound) Record(record, node, found, bound);
    } else {
      const double found = kind == kFiniteF32
                               ? static_cast<double>(static_cast<const float*>(x)[offset])
                               : static_cast<const double*>(x)[offset];
      if (found - found != 0.0) Record(record, node, 0, 0);
    }
  }
}

// --- rows of a dataset
// --------------------------------------------------------------------------------------------

struct Column {
  const void* from;
  void* into;
  std::int64_t unit, units;  // a row is so many units of 1, 2, 4 or 8 bytes
};

// Row i of a batch is the dataset's row order[*position + i]; rows from *count on are no rows, and
// become 0.
__global__ void TakeRowsKernel(const Column* columns, std::int64_t column_count,
                               const std::int64_t* order, const std::int64_t* position,
                               const std::int64_t* count, std::int64_t room) {
  for (std::int64_t c = 0; c < column_count; ++c) {
    const Column column = columns[c];
    for (std::int64_t p = FirstPlace(); p < room * column.units; p += AllThreads()) {
      const std::int64_t row = p / column.units, unit = p % column.units;
      const bool real = row < *count;
      const Bits bits =
          real ? LoadBits(column.from, order[*position + row] * column.units + unit, column.unit)
               : Bits(0);
      StoreBits(column.into, p, column.unit, bits);
    }
  }
}

// --- the bucket of a reduction
// ------------------------------------------------------------------------------------

enum Narrow : std::int64_t { kF32, kF16, kBf16, kF64 };

struct Segment {
  void* memory;
  std::int64_t offset, count;
  std::int64_t element;  // Narrow
};

template <class T>
SHAPESCRIPT_DEVICE T LoadFloat(const void* memory, std::int64_t at, std::int64_t element) {
  if (element == kF32) return static_cast<const float*>(memory)[at];
  if (element == kF64) return static_cast<T>(static_cast<const double*>(memory)[at]);
  const std::uint16_t bits = static_cast<const std::uint16_t*>(memory)[at];
  return element == kF16 ? FromF16(bits) : FromBf16(bits);
}

// bucket[offset + i] = memory[i] * *weight, in the bucket's element; no weight is 1.
template <class T>
__global__ void PackKernel(T* bucket, const Segment* segments, std::int64_t count,
                           const float* weight) {
  const T times = weight == nullptr ? T(1) : T(*weight);
  for (std::int64_t s = 0; s < count; ++s) {
    const Segment segment = segments[s];
    for (std::int64_t i = FirstPlace(); i < segment.count; i += AllThreads())
      bucket[segment.offset + i] = LoadFloat<T>(segment.memory, i, segment.element) * times;
  }
}

// memory[i] = bucket[offset + i], rounded once.
template <class T>
__global__ void UnpackKernel(const T* bucket, const Segment* segments, std::int64_t count) {
  for (std::int64_t s = 0; s < count; ++s) {
    const Segment segment = segments[s];
    for (std::int64_t i = FirstPlace(); i < segment.count; i += AllThreads()) {
      const T x = bucket[segment.offset + i];
      if (segment.element == kF32) {
        static_cast<float*>(segment.memory)[i] = static_cast<float>(x);
      } else if (segment.element == kF64) {
        static_cast<double*>(segment.memory)[i] = static_cast<double>(x);
      } else {
        const float narrow = static_cast<float>(x);
        static_cast<std::uint16_t*>(segment.memory)[i] =
            segment.element == kF16 ? ToF16(narrow) : ToBf16(narrow);
      }
    }
  }
}

// --- a step's end
// -------------------------------------------------------------------------------------------------

// What the host may read at any time: the first wrong value, how many steps are finished, and the
// scalars of the last few, a row for each.
struct Shown {
  ErrorRecord wrong;
  std::int64_t finished;
};

struct Scalar {
  const void* memory;
  std::int64_t width;
};

// The places of a control block that a step's end moves on: the next call, and the next rows of a
// dataset, `stride` further.
struct Control {
  std::int64_t seed, call, first_row, position, rows, stride;
};

// Counts a finished step, shows the first wrong value that was met and the step's scalars, and
// moves the control block on, so that a step like the last one needs nothing of the host. Whoever
// sees the count sees what was shown before it.
__global__ void FinishKernel(const ErrorRecord* record, Shown* shown, std::int64_t* steps,
                             Control* control, const Scalar* scalars, std::int64_t scalar_count,
                             Bits* shown_scalars, std::int64_t shown_rows) {
  if (FirstPlace() != 0) return;
  if (record->set != 0 && shown->wrong.set == 0) {
    shown->wrong.node = record->node;
    shown->wrong.value = record->value;
    shown->wrong.bound = record->bound;
    FenceForHost();
    shown->wrong.set = 1;
  }
  const std::int64_t done = *steps;
  for (std::int64_t i = 0; i < scalar_count; ++i) {
    shown_scalars[done % shown_rows * scalar_count + i] =
        LoadBits(scalars[i].memory, 0, scalars[i].width);
  }
  control->call += 1;
  control->position += control->stride;
  *steps = done + 1;
  FenceForHost();
  *static_cast<volatile std::int64_t*>(&shown->finished) = done + 1;
}

}  // namespace shapescript::cuda
