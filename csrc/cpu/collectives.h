// What an executor in C++ calls to take part in a collective: a table of functions, handed over as
// a capsule. A transport of any kind fills it; every device of the group calls the same functions
// in the same order.

#pragma once

#include <cstdint>

extern "C" {

enum ShapescriptElement : int32_t {
  SHAPESCRIPT_F32 = 0,
  SHAPESCRIPT_F64 = 1,
  SHAPESCRIPT_I64 = 2,
  SHAPESCRIPT_I32 = 3,
  SHAPESCRIPT_BF16 = 4,
  SHAPESCRIPT_F16 = 5,
  SHAPESCRIPT_I16 = 6,
  SHAPESCRIPT_I8 = 7,
  SHAPESCRIPT_U8 = 8  // and bool
};
enum ShapescriptCombine : int32_t { SHAPESCRIPT_SUM = 0, SHAPESCRIPT_MAX = 1, SHAPESCRIPT_MIN = 2 };

// Each function gives 0, or another number where the group was ended by a fault; the caller then
// returns at once.
struct ShapescriptCollectives {
  void* self;
  int32_t rank;
  int32_t count;
  // Combines `ins[i]`, of `lengths[i]` values, over the devices in the order of the ranks, into
  // `outs[i]`, which may be the same memory; one launch.
  int32_t (*all_reduce)(void* self, void* const* ins, void* const* outs, const int64_t* lengths,
                        int32_t buffer_count, int32_t element, int32_t combine);
  // `out` is the parts of all devices one after another: device i's has `bytes[i]` bytes.
  int32_t (*all_gather)(void* self, const void* in, void* out, const int64_t* bytes);
  // `in` has the parts of all devices one after another, device i's of `lengths[i]` values; `out`
  // is the own part's sum.
  int32_t (*reduce_scatter)(void* self, const void* in, void* out, const int64_t* lengths,
                            int32_t element);
  // The two halves of an all-reduce. Each value is cut flat, as `parts` of layout/mesh.py does: the
  // first devices have one more where it doesn't go up. `lengths` are those of the whole values.
  // Of the first half, `outs[i]` becomes the own part of `ins[i]`, combined over the devices; of
  // the second, `outs[i]` becomes the whole of the parts `ins[i]` of all devices. One launch each.
  int32_t (*reduce_parts)(void* self, void* const* ins, void* const* outs, const int64_t* lengths,
                          int32_t buffer_count, int32_t element, int32_t combine);
  int32_t (*gather_parts)(void* self, void* const* ins, void* const* outs, const int64_t* lengths,
                          int32_t buffer_count, int32_t element);
  // Where the next collective of this device takes its values from: who lays them there, `ins` one
  // after another, has no copy made of them. It may be written to from the end of the collective
  // before. Null where so many bytes don't fit.
  void* (*lend)(void* self, int64_t bytes);
  // For how many nanoseconds this device has waited for others so far; for profiles.
  int64_t waited;
};

// The name of the capsule whose pointer is a ShapescriptCollectives*.
#define SHAPESCRIPT_COLLECTIVES_CAPSULE "shapescript.collectives"
}
