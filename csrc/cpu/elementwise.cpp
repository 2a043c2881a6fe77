// Runs a program of tile kernels over a space. A tile is a run of places in the order of memory:
// whole rows, as many as fit into the first cache, or a part of one long row. Values between
// kernels stay in registers of a tile's size.

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "executor.hpp"

namespace shapescript {
namespace {

constexpr std::int64_t kTile = 1024;         // values of a tile, where a row isn't longer
constexpr std::int64_t kParallel = 1 << 16;  // places of a space from which threads share it
constexpr std::int64_t kLook = 32;           // tiles after which a stop is looked for
constexpr std::size_t kLine = 64;
constexpr std::size_t kMostOperands = 16, kMostResults = 4;

// Copies `count` values of `width` bytes, the `start`th of the walk and on, side by side.
template <class T>
void Collect(const Walk& walk, const std::byte* from, std::int64_t start, std::int64_t count,
             std::byte* into) {
  T* out = reinterpret_cast<T*>(into);
  const T* in = reinterpret_cast<const T*>(from);
  const int rank = static_cast<int>(walk.sizes.size());
  if (rank == 0) {
    std::fill(out, out + count, in[0]);
    return;
  }
  std::int64_t at[16], rest = start, place = 0;
  for (int i = rank - 1; i >= 0; --i) {
    at[i] = rest % walk.sizes[i];
    rest /= walk.sizes[i];
    place += at[i] * walk.strides[i];
  }
  const std::int64_t size = walk.sizes[rank - 1], stride = walk.strides[rank - 1];
  while (count > 0) {
    const std::int64_t run = std::min(size - at[rank - 1], count);
    const T* source = in + place;
    if (stride == 1) {
      std::memcpy(out, source, static_cast<std::size_t>(run) * sizeof(T));
    } else if (stride == 0) {
      std::fill(out, out + run, source[0]);
    } else {
      for (std::int64_t i = 0; i < run; ++i) out[i] = source[i * stride];
    }
    out += run;
    count -= run;
    place -= at[rank - 1] * stride;
    at[rank - 1] = 0;
    for (int i = rank - 2; i >= 0; --i) {
      place += walk.strides[i];
      if (++at[i] < walk.sizes[i]) break;
      place -= at[i] * walk.strides[i];
      at[i] = 0;
    }
  }
}

void CollectBytes(const Walk& walk, const std::byte* from, std::int64_t start, std::int64_t count,
                  std::byte* into, std::int64_t width) {
  switch (width) {
    case 8:
      return Collect<std::uint64_t>(walk, from, start, count, into);
    case 4:
      return Collect<std::uint32_t>(walk, from, start, count, into);
    case 2:
      return Collect<std::uint16_t>(walk, from, start, count, into);
    default:
      return Collect<std::uint8_t>(walk, from, start, count, into);
  }
}

struct Tile {
  std::int64_t first_row, rows, first_column, columns;
};

class ElementwiseStep : public Step {
 public:
  ElementwiseStep(const Elementwise& work, const Binding& binding);
  bool Run(const Context& context) override;

 private:
  struct Input {
    std::int32_t reg, buffer;
    std::int64_t offset;  // in bytes
    Walk walk;
    bool direct;
  };
  struct Op {
    TileFunction function;
    Shape shape;
    std::vector<std::int32_t> results, operands;
  };

  void PlanRegisters(const Elementwise& work);
  std::int64_t Places(std::int32_t reg, const Tile& tile) const;
  std::int64_t Start(Extent extent, const Tile& tile) const;
  void RunTiles(const Context& context, std::int64_t first, std::int64_t last,
                std::byte* scratch) const;
  void RunTile(const Context& context, const Tile& tile, std::byte** at, std::byte* scratch) const;
  void Perform(const Op& op, const Tile& tile, std::byte* const* at) const;

  std::int64_t rows_, columns_;
  std::int64_t tile_rows_, tile_columns_, tiles_;
  bool shared_ = true;  // threads may share the tiles
  std::vector<Register> registers_;
  std::vector<std::int64_t> width_, slot_;
  std::vector<Input> inputs_;
  std::vector<TileOutput> outputs_;
  std::vector<TileNumber> numbers_;
  std::vector<Op> ops_;
  std::size_t scratch_bytes_ = 0;
  std::vector<Memory> scratch_;  // one for each thread
};

ElementwiseStep::ElementwiseStep(const Elementwise& work, const Binding& binding)
    : registers_(work.registers), outputs_(work.outputs), numbers_(work.numbers) {
  rows_ = binding.sizes.product(work.outer);
  columns_ = binding.sizes.product(work.inner);
  const std::vector<std::int64_t> outer = binding.sizes(work.outer),
                                  inner = binding.sizes(work.inner);
  for (const TileOp& op : work.ops) {
    const TileKernel& kernel = binding.kernels.tiles[op.kernel];
    if (static_cast<std::size_t>(kernel.operands) != op.operands.size() ||
        op.operands.size() > kMostOperands || op.results.size() > kMostResults) {
      throw std::invalid_argument(std::string("wrong registers of the kernel ") + kernel.name);
    }
    ops_.push_back({kernel.function, kernel.shape, op.results, op.operands});
  }
  bool by_rows = work.whole;
  for (const Register& reg : registers_)
    by_rows = by_rows || reg.extent == Extent::kRow || reg.extent == Extent::kColumn;
  for (const TileInput& input : work.inputs) {
    const Extent extent = registers_[input.reg].extent;
    std::vector<std::int64_t> sizes, strides;
    const std::vector<std::int64_t> all = binding.sizes(input.access.strides);
    if (extent == Extent::kFull || extent == Extent::kRow) {
      sizes.insert(sizes.end(), outer.begin(), outer.end());
      strides.insert(strides.end(), all.begin(), all.begin() + outer.size());
    }
    if (extent == Extent::kFull || extent == Extent::kColumn) {
      sizes.insert(sizes.end(), inner.begin(), inner.end());
      strides.insert(strides.end(), all.begin() + outer.size(), all.end());
    }
    Walk walk(std::move(sizes), std::move(strides));
    const bool direct = walk.contiguous();
    const std::int64_t offset =
        binding.sizes[input.access.offset] * binding.width(input.access.buffer);
    inputs_.push_back({input.reg, input.access.buffer, offset, std::move(walk), direct});
  }
  bool columns_kept = false, across = false;
  for (const Op& op : ops_) {
    columns_kept = columns_kept || op.shape == Shape::kColumn;
    across = across || op.shape == Shape::kReduce;
  }
  if (!by_rows) {
    columns_ *= rows_;
    rows_ = 1;
  }
  tile_columns_ = work.whole ? columns_ : std::min(columns_, kTile);
  tile_rows_ =
      tile_columns_ < columns_
          ? 1
          : std::clamp<std::int64_t>(kTile / std::max<std::int64_t>(1, columns_), 1, rows_);
  const std::int64_t parts = (columns_ + tile_columns_ - 1) / tile_columns_;
  tiles_ = (rows_ + tile_rows_ - 1) / tile_rows_ * parts;
  // a column's sum meets all rows, and a long row's all its parts, one after another
  shared_ = !columns_kept && !(across && parts > 1);
  PlanRegisters(work);
  const bool parallel = shared_ && tiles_ > 1 && rows_ * columns_ >= kParallel;
  for (int i = 0; i < (parallel ? binding.threads : 1); ++i) scratch_.emplace_back(scratch_bytes_);
}

void ElementwiseStep::PlanRegisters(const Elementwise& work) {
  const std::size_t count = registers_.size();
  std::vector<int> last(count, -1);
  std::vector<bool> elsewhere(count, false);
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    for (const std::int32_t reg : ops_[i].operands) last[reg] = static_cast<int>(i);
  }
  for (const TileNumber& number : work.numbers) elsewhere[number.reg] = true;
  for (const Input& input : inputs_) elsewhere[input.reg] = input.direct;
  for (const TileOutput& output : work.outputs) {
    elsewhere[output.reg] = elsewhere[output.reg] || !output.staged;
    last[output.reg] = static_cast<int>(ops_.size());
  }
  slot_.assign(count, -1);
  width_.resize(count);
  struct Slot {
    std::int64_t bytes, width, offset;
  };
  std::vector<Slot> free;
  const auto bytes_of = [&](std::size_t reg) -> std::int64_t {
    std::int64_t places = 1;
    switch (registers_[reg].extent) {
      case Extent::kFull:
        places = tile_rows_ * tile_columns_;
        break;
      case Extent::kRow:
        places = tile_rows_;
        break;
      case Extent::kColumn:
        places = tile_columns_;
        break;
      case Extent::kOne:
        break;
    }
    // a line more, so that slots don't lie at the same place of their pages
    return (places * width_[reg] + 2 * static_cast<std::int64_t>(kLine) - 1) /
           static_cast<std::int64_t>(kLine) * static_cast<std::int64_t>(kLine);
  };
  const auto take = [&](std::size_t reg) {
    const std::int64_t bytes = bytes_of(reg);
    for (auto place = free.begin(); place != free.end(); ++place) {
      // of one width too: a result may lie where an operand lay only place by place
      if (place->bytes == bytes && place->width == width_[reg]) {
        slot_[reg] = place->offset;
        free.erase(place);
        return;
      }
    }
    slot_[reg] = static_cast<std::int64_t>(scratch_bytes_);
    scratch_bytes_ += static_cast<std::size_t>(bytes);
  };
  for (std::size_t reg = 0; reg < count; ++reg) width_[reg] = WidthOf(registers_[reg].element);
  for (const Input& input : inputs_) {
    if (!input.direct) take(static_cast<std::size_t>(input.reg));
  }
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    // what ends at this op may be written over by it, but for reductions and rows, which read an
    // operand twice
    const auto release = [&] {
      for (const std::int32_t operand : ops_[i].operands) {
        const auto reg = static_cast<std::size_t>(operand);
        if (last[reg] == static_cast<int>(i) && slot_[reg] >= 0 &&
            registers_[reg].extent == Extent::kFull) {
          free.push_back({bytes_of(reg), width_[reg], slot_[reg]});
          last[reg] = -2;
        }
      }
    };
    if (ops_[i].shape == Shape::kEach) release();
    for (const std::int32_t result : ops_[i].results) {
      const auto reg = static_cast<std::size_t>(result);
      if (!elsewhere[reg] && slot_[reg] < 0) take(reg);
    }
    release();
  }
}

std::int64_t ElementwiseStep::Places(std::int32_t reg, const Tile& tile) const {
  switch (registers_[reg].extent) {
    case Extent::kFull:
      return tile.rows * tile.columns;
    case Extent::kRow:
      return tile.rows;
    case Extent::kColumn:
      return tile.columns;
    default:
      return 1;
  }
}

std::int64_t ElementwiseStep::Start(Extent extent, const Tile& tile) const {
  switch (extent) {
    case Extent::kFull:
      return tile.first_row * columns_ + tile.first_column;
    case Extent::kRow:
      return tile.first_row;
    case Extent::kColumn:
      return tile.first_column;
    default:
      return 0;
  }
}

bool ElementwiseStep::Run(const Context& context) {
  const int parts = static_cast<int>(scratch_.size());
  if (parts == 1) {
    RunTiles(context, 0, tiles_, scratch_[0].data());
    return true;
  }
  context.threads->Run([&](int part) {
    if (part < parts)
      RunTiles(context, tiles_ * part / parts, tiles_ * (part + 1) / parts, scratch_[part].data());
  });
  return true;
}

void ElementwiseStep::RunTiles(const Context& context, std::int64_t first, std::int64_t last,
                               std::byte* scratch) const {
  std::vector<std::byte*> at(registers_.size());
  for (std::size_t reg = 0; reg < registers_.size(); ++reg) {
    if (slot_[reg] >= 0) at[reg] = scratch + slot_[reg];
  }
  for (const TileNumber& number : numbers_) {
    at[number.reg] = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&number.bits));
  }
  const std::int64_t parts = (columns_ + tile_columns_ - 1) / tile_columns_;
  const bool asks = first == 0;  // the caller's thread has the first tiles
  for (std::int64_t i = first; i < last; ++i) {
    if (i % kLook == 0 && (asks ? context.interrupts->Ask() : context.interrupts->stopped()))
      return;
    Tile tile;
    tile.first_row = i / parts * tile_rows_;
    tile.rows = std::min(tile_rows_, rows_ - tile.first_row);
    tile.first_column = i % parts * tile_columns_;
    tile.columns = std::min(tile_columns_, columns_ - tile.first_column);
    RunTile(context, tile, at.data(), scratch);
  }
}

void ElementwiseStep::RunTile(const Context& context, const Tile& tile, std::byte** at,
                              std::byte* scratch) const {
  for (const TileOutput& output : outputs_) {
    if (output.staged) continue;
    const std::int64_t start = Start(registers_[output.reg].extent, tile);
    at[output.reg] = context.buffers[output.buffer] + start * width_[output.reg];
  }
  for (const Input& input : inputs_) {
    const std::int64_t start = Start(registers_[input.reg].extent, tile);
    std::byte* from = context.buffers[input.buffer] + input.offset;
    if (input.direct) {
      at[input.reg] = from + start * width_[input.reg];
    } else {
      CollectBytes(input.walk, from, start, Places(input.reg, tile), scratch + slot_[input.reg],
                   width_[input.reg]);
    }
  }
  for (const Op& op : ops_) Perform(op, tile, at);
  for (const TileOutput& output : outputs_) {
    if (!output.staged) continue;
    const std::int64_t start = Start(registers_[output.reg].extent, tile);
    std::memcpy(context.buffers[output.buffer] + start * width_[output.reg], at[output.reg],
                static_cast<std::size_t>(Places(output.reg, tile) * width_[output.reg]));
  }
}

void ElementwiseStep::Perform(const Op& op, const Tile& tile, std::byte* const* at) const {
  const void* operands[kMostOperands] = {};
  const std::size_t count = op.operands.size();
  if (op.shape == Shape::kMany) {
    void* results[kMostResults];
    for (std::size_t k = 0; k < op.results.size(); ++k) results[k] = at[op.results[k]];
    for (std::size_t k = 0; k < count; ++k) operands[k] = at[op.operands[k]];
    op.function(Places(op.results[0], tile), results, operands, nullptr, nullptr, 0);
    return;
  }
  const std::int32_t to = op.results[0];
  std::int64_t step[kMostOperands] = {};  // in bytes from one row to the next
  std::int64_t single = 0;
  bool by_row = op.shape == Shape::kReduce || op.shape == Shape::kRow || op.shape == Shape::kColumn;
  const Extent result = registers_[to].extent;
  for (std::size_t k = 0; k < count; ++k) {
    const std::int32_t reg = op.operands[k];
    operands[k] = at[reg];
    switch (registers_[reg].extent) {
      case Extent::kFull:
        step[k] = tile.columns * width_[reg];
        break;
      case Extent::kRow:
        step[k] = width_[reg];
        if (result == Extent::kFull) {
          by_row = true;
          single |= std::int64_t{1} << k;
        }
        break;
      case Extent::kColumn:
        if (result == Extent::kFull) by_row = true;
        break;
      case Extent::kOne:
        single |= std::int64_t{1} << k;
        break;
    }
  }
  std::byte* out = at[to];
  if (!by_row) {
    op.function(Places(to, tile), out, operands[0], operands[1], operands[2], single);
    return;
  }
  const std::int64_t width = width_[to];
  const std::int64_t out_step = result == Extent::kFull  ? tile.columns * width
                                : result == Extent::kRow ? width
                                                         : 0;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    std::int64_t info = single;
    if (op.shape == Shape::kReduce) info = tile.first_column > 0;
    if (op.shape == Shape::kColumn) info = tile.first_row + row > 0;
    op.function(tile.columns, out + row * out_step, operands[0], operands[1], operands[2], info);
    for (std::size_t k = 0; k < count; ++k)
      operands[k] = static_cast<const std::byte*>(operands[k]) + step[k];
  }
}

}  // namespace

Walk::Walk(std::vector<std::int64_t> all_sizes, std::vector<std::int64_t> all_strides) {
  for (std::size_t i = 0; i < all_sizes.size(); ++i) {
    if (all_sizes[i] == 1) continue;
    if (!sizes.empty() && strides.back() == all_strides[i] * all_sizes[i]) {
      sizes.back() *= all_sizes[i];
      strides.back() = all_strides[i];
    } else {
      sizes.push_back(all_sizes[i]);
      strides.push_back(all_strides[i]);
    }
  }
  if (sizes.size() > 16)
    throw std::invalid_argument("a value has more than 16 axes that can't be put together");
}

bool Walk::single() const {
  return std::all_of(strides.begin(), strides.end(),
                     [](std::int64_t stride) { return stride == 0; });
}

std::unique_ptr<Step> Bind(const Elementwise& work, const Binding& binding) {
  return std::make_unique<ElementwiseStep>(work, binding);
}

}  // namespace shapescript
