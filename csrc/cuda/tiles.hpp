// Runs fused chains of operations: programs over a space of rows and places, one pass over memory
// for all of it.
//
// A program is a list of codes on slots. Codes outside of a loop are done once for each row by all
// of its lanes, those of a loop at each place of the row; a reduction is an operation on a slot
// within a loop, and a combination of the lanes' slots after it. Several programs that don't need
// one another are one launch, such as the steps of all parameters. Everything lies in device
// memory, numbers that change from run to run too, so that a captured launch serves them all.
#pragma once

#include "tile_ops.hpp"

#if defined(__CUDACC__)
#pragma nv_diag_suppress 549  // a program writes its slots before it reads them
#endif

namespace shapescript::cuda {

constexpr int kMostSlots = 64;
constexpr int kMostCodes = 512;    // that are held in shared memory
constexpr int kMostThreads = 256;  // of a block

// An operand that is negative is a number: -1 the first.
struct TileCode {
  std::int32_t op, dst, a, b, c;
};

struct TileInput {
  const void* memory;
  std::int64_t width;  // bytes of a value
  std::int64_t strides[kMostDims];
};

struct TileOutput {
  void* memory;
  std::int64_t width;
};

struct TileProgram {
  std::int64_t rows, places;
  std::int32_t outer, inner;  // dims of the rows, and of the places
  std::int64_t sizes[kMostDims];
  std::int32_t lanes,
      across;  // threads of a row; `across`: neighbouring threads have neighbouring rows
  std::int32_t first_block, blocks;
  const TileInput* inputs;
  const TileOutput* outputs;
  const Bits* numbers;
  const TileCode* codes;
  std::int64_t code_count;
};

// Whether p is better than q: greater, or less where `op` is negative; what isn't a number is the
// best, and of equals the first place is.
SHAPESCRIPT_APART bool IsBetter(std::int32_t op, Bits p, std::int64_t p_at, Bits q,
                                std::int64_t q_at) {
  const bool greatest = op > 0;
  const std::int32_t less = greatest ? op : -op;
  const bool p_nan = Evaluate(less - kOp_less_f32 + kOp_equal_f32, p, p) == 0;
  const bool q_nan = Evaluate(less - kOp_less_f32 + kOp_equal_f32, q, q) == 0;
  if (p_nan || q_nan) return p_nan && (!q_nan || p_at < q_at);
  if (Evaluate(less, greatest ? q : p, greatest ? p : q) != 0) return true;
  return Evaluate(less - kOp_less_f32 + kOp_equal_f32, p, q) != 0 && p_at < q_at;
}

// A block's threads work on some rows of one program.
__global__ void __launch_bounds__(kMostThreads)
    TilesKernel(const TileProgram* programs, int count) {
  __shared__ TileCode held[kMostCodes];
  __shared__ Bits brought[kMostThreads];
  __shared__ std::int64_t brought_at[kMostThreads];

  int number = 0;  // the last program that begins at this block or before
  for (int end = count; end - number > 1;) {
    const int middle = number + (end - number) / 2;
    if (programs[middle].first_block <= static_cast<int>(blockIdx.x)) {
      number = middle;
    } else {
      end = middle;
    }
  }
  const TileProgram& program = programs[number];
  const TileInput* inputs = program.inputs;
  const Bits* numbers = program.numbers;
  const std::int64_t codes = program.code_count;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const TileCode* code = program.codes;
  if (codes <= kMostCodes) {
    for (std::int64_t i = thread; i < codes; i += threads) held[i] = code[i];
    code = held;
  }
  __syncthreads();

  const int lanes = program.lanes, rows_at_once = threads / lanes;
  const int row_of_block = program.across ? thread % rows_at_once : thread / lanes;
  const int lane = program.across ? thread / rows_at_once : thread % lanes;
  const int step = program.across ? rows_at_once : 1;  // from a lane's thread to the next one's

  Bits slots[kMostSlots];
  std::int64_t at[kMostDims];
  for (int i = 0; i < kMostDims; ++i) at[i] = 0;
  const auto value = [&](std::int32_t operand) {
    return operand < 0 ? numbers[~operand] : slots[operand];
  };
  const std::int64_t stride = static_cast<std::int64_t>(program.blocks) * rows_at_once;
  for (std::int64_t first =
           (static_cast<std::int64_t>(blockIdx.x) - program.first_block) * rows_at_once;
       first < program.rows; first += stride) {
    const std::int64_t row = first + row_of_block;
    const bool real = row < program.rows;
    if (real) Coordinates(row, program.sizes, program.outer, at);
    for (int i = program.outer; i < program.outer + program.inner; ++i) at[i] = 0;

    const auto perform = [&](const TileCode& one, std::int64_t place) {
      switch (one.op) {
        case kOpLoad: {
          const TileInput& input = inputs[one.a];
          std::int64_t offset = 0;
          for (int i = 0; i < program.outer + program.inner; ++i)
            offset += at[i] * input.strides[i];
          slots[one.dst] = LoadBits(input.memory, offset, input.width);
          break;
        }
        case kOpStore: {
          const TileOutput& output = program.outputs[one.a];
          StoreBits(output.memory, row * program.places + place, output.width, value(one.b));
          break;
        }
        case kOpStoreRow: {
          const TileOutput& output = program.outputs[one.a];
          if (lane == 0) StoreBits(output.memory, row, output.width, value(one.b));
          break;
        }
        case kOpCopy:
          slots[one.dst] = value(one.a);
          break;
        case kOpWhere:
          slots[one.dst] = (value(one.a) & 0xff) != 0 ? value(one.b) : value(one.c);
          break;
        case kOpBest: {
          const Bits x = value(one.a);
          const auto best_at = static_cast<std::int64_t>(slots[one.b]);
          if (best_at < 0 || IsBetter(one.c, x, place, slots[one.dst], best_at)) {
            slots[one.dst] = x;
            slots[one.b] = static_cast<Bits>(place);
          }
          break;
        }
        default:
          slots[one.dst] = Evaluate(one.op, value(one.a), value(one.b));
      }
    };

    for (std::int64_t pc = 0; pc < codes; ++pc) {
      const TileCode one = code[pc];
      if (one.op == kOpLoop) {
        for (std::int64_t place = lane; real && place < program.places; place += lanes) {
          Coordinates(place, program.sizes + program.outer, program.inner, at + program.outer);
          for (std::int64_t i = pc + 1; i <= pc + one.a; ++i) perform(code[i], place);
        }
        pc += one.a;
      } else if (one.op == kOpCombine || one.op == kOpCombineBest) {
        const bool best = one.op == kOpCombineBest;
        brought[thread] = slots[one.dst];
        if (best) brought_at[thread] = static_cast<std::int64_t>(slots[one.b]);
#ifndef SHAPESCRIPT_PLANT_RACE
        __syncthreads();
#endif
        for (int half = lanes / 2; half > 0; half /= 2) {
          if (lane < half) {
            const int other = thread + half * step;
            if (!best) {
              brought[thread] = Evaluate(one.a, brought[thread], brought[other]);
            } else if (brought_at[other] >= 0 &&
                       (brought_at[thread] < 0 || IsBetter(one.c, brought[other], brought_at[other],
                                                           brought[thread], brought_at[thread]))) {
              brought[thread] = brought[other];
              brought_at[thread] = brought_at[other];
            }
          }
          __syncthreads();
        }
        const int leader = thread - lane * step;
        slots[one.dst] = brought[leader];
        if (best) slots[one.b] = static_cast<Bits>(brought_at[leader]);
        __syncthreads();
      } else if (real) {
        perform(one, 0);
      }
    }
  }
}

}  // namespace shapescript::cuda
