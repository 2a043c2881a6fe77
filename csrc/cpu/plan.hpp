// A plan: a flat list of instructions over numbered buffers. All sizes, strides and offsets are
// numbers of a table
// (`Ref`), which is filled anew for each count of a batch; so one plan serves every batch. Strides
// count values. Gives the data alone; bind.cpp makes a plan ready for some sizes, and executor.cpp
// runs it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace shapescript {

enum class Element : std::int32_t { kF64, kF32, kF16, kBf16, kI64, kI32, kI16, kI8, kU8, kBool };

inline std::int64_t WidthOf(Element element) {
  switch (element) {
    case Element::kF64:
    case Element::kI64:
      return 8;
    case Element::kF32:
    case Element::kI32:
      return 4;
    case Element::kF16:
    case Element::kBf16:
    case Element::kI16:
      return 2;
    default:
      return 1;
  }
}

using Ref = std::int32_t;

// Where a buffer's memory is: the caller's (inputs and outputs), the plan's for one run (used again
// and again within it), or the plan's for as long as the sizes stay (what follows from the sizes
// alone).
enum class Place : std::int32_t { kInput, kOutput, kRun, kFixed };

struct Buffer {
  Element element;
  Place place;
  Ref length;  // in values
};

// How a loop reads or writes a buffer: a stride for each dim of the loop, 0 where the buffer lacks
// it.
struct Access {
  std::int32_t buffer = -1;
  Ref offset = 0;
  std::vector<Ref> strides;
};

// What a register of a tile's program holds: a value at each place, one for each row, for each
// column, or one alone.
enum class Extent : std::int32_t { kFull, kRow, kColumn, kOne };

struct Register {
  Element element;
  Extent extent;
};

struct TileOp {
  std::int32_t kernel;
  std::vector<std::int32_t> results, operands;
};

struct TileInput {
  std::int32_t reg;
  Access access;
};

struct TileOutput {
  std::int32_t reg;
  std::int32_t buffer;
  bool staged;  // written after all else, because the memory may be an input's
};

struct TileNumber {
  std::int32_t reg;
  std::int64_t bits;
};

// A program over tiles of a space of outer and inner dims. `whole`: a tile has whole rows, because
// a row's reduction is used again within the program.
struct Elementwise {
  std::vector<Ref> outer, inner;
  bool whole;
  std::vector<Register> registers;
  std::vector<TileInput> inputs;
  std::vector<TileOutput> outputs;
  std::vector<TileNumber> numbers;
  std::vector<TileOp> ops;
};

// result[batch.., m, n] = sum over k of a b; the strides of a are those of batch, m, k, of b those
// of batch, k, n.
struct Product {
  Element element;
  std::vector<Ref> batch;
  Ref m, n, k;
  Access a, b;
  std::int32_t result;
};

// out = in over the dims.
struct Move {
  std::vector<Ref> dims;
  Access in, out;
};

// Every value of a buffer; `size` is the value where it isn't -1.
struct Fill {
  std::int32_t buffer;
  Ref size;
  std::int64_t bits;
};

struct Iota {
  std::int32_t buffer;
};

// result[dims] = x[.. index ..]; `step` is x's stride along the axis that is looked up in, of
// `count` places.
struct Gather {
  std::vector<Ref> dims;
  Access x, index;
  Ref step, count;
  std::int32_t result;
};

// result, first all 0, at [.. index ..] += x[dims].
struct Scatter {
  std::vector<Ref> dims;
  Access x, index, result;
  Ref step, count;
};

enum class Draw : std::int32_t { kUniform, kNormal, kInteger };

// rows x others numbers drawn at `place`; `rows` is -1 without a batch axis. `first` is the number
// of the first row in the whole value; without one (-1) it is the key's.
struct Random {
  Draw draw;
  std::int32_t buffer;
  std::int32_t call;  // the buffer of the key
  std::uint32_t place;
  Ref rows, others, bound;
  Ref first = -1;
};

enum class CheckKind : std::int32_t { kRange, kFinite };

// Whether whole numbers lie in 0..count, or floats are finite.
struct Check {
  CheckKind kind;
  std::vector<Ref> dims;
  Access in;
  Ref count;
};

// An operation that has no kernel: the caller's function does it, on the buffers' memory.
struct Call {
  std::vector<std::int32_t> reads, writes;
};

// How much of an all-reduce is done: all of it, or one of the halves of collectives.h, between
// which each device works on its part alone.
enum class Half : std::int32_t { kBoth, kReduce, kGather };

// Values combined over the devices of a mesh axis, as one launch; outs[i] becomes the combined
// ins[i], or what a half makes of it.
struct AllReduce {
  std::int32_t mesh_axis;
  std::int32_t combine;  // as collectives.h numbers it
  std::vector<std::int32_t> ins, outs;
  Half half = Half::kBoth;
};

using Work = std::variant<Elementwise, Product, Move, Fill, Iota, Gather, Scatter, Random, Check,
                          Call, AllReduce>;

struct Instruction {
  std::int32_t node;  // of the graph, for errors and profiles
  bool fixed;         // follows from the sizes alone, and is done once for them
  Work work;
};

struct Plan {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::vector<std::int32_t> inputs, outputs;  // the buffers, in the caller's order
  std::int32_t call = -1;  // the buffer of the key's call, an input of the plan's own
};

}  // namespace shapescript
