// The kernels on tiles: functions on short runs of values that lie in the cache, by name, once for
// each instruction set. What they compute is the same to the bit on each: no fused multiply-add,
// and sums in lanes of a fixed number. Gives the tables; running them over whole tensors is
// elementwise.cpp's.
#pragma once

#include <cstdint>

namespace shapescript {

enum class Shape : std::int32_t {
  kEach,  // dst[i] from a[i], b[i], c[i]; bit k of `info` says that operand k is one value for all
          // i
  kReduce,  // dst[0] from a[0..n); `info` is 0 at the first part of a row, and dst is combined with
            // later ones
  kRow,     // dst[0..n) from a[0..n), a whole row; b is a number in f64 (the eps of a norm)
  kColumn,  // dst[i] combined with a[i]; `info` is 0 at the first row
  kMany,  // several results: dst is an array of their pointers and a of the operands'; numbers are
          // one for all i
};

using TileFunction = void (*)(std::int64_t n, void* dst, const void* a, const void* b,
                              const void* c, std::int64_t info);

struct TileKernel {
  const char* name;  // the op and the elements of its operands: `add.f32`, `cast.f32.f64`
  Shape shape;
  std::int32_t operands;
  TileFunction function;
};

// A product of small matrices where no library is at hand: c[m, n] = a[m, k] b[k, n], any strides
// of a and b.
struct SmallProduct {
  std::int64_t m, n, k;
  std::int64_t a_row, a_column, b_row, b_column, c_row;
};

struct KernelTable {
  const char* name;
  const TileKernel* tiles;
  std::int32_t tile_count;
  void (*product_f32)(const SmallProduct& sizes, const float* a, const float* b, float* c);
  void (*product_f64)(const SmallProduct& sizes, const double* a, const double* b, double* c);
};

const KernelTable& BaselineKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();

// The widest that this machine has, or the one that the environment variable SHAPESCRIPT_ISA names.
const KernelTable& Kernels();
// By name: `baseline`, `avx2`, `avx512`; null where this machine lacks it.
const KernelTable* KernelsNamed(const char* name);

}  // namespace shapescript
