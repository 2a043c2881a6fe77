// The launches, as C++ sees them. Addresses are whole numbers, and so is the stream; what each
// gives is a cudaError_t, 0 where it was launched. `threads` are those of a block, `blocks` the
// most of a launch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shapescript::cuda {

using Address = std::uintptr_t;

struct Grid {
  std::int64_t threads, blocks;
  Address stream;
};

// How places lie: sizes of the dims, and strides for each of some operands.
struct Walk {
  std::vector<std::int64_t> sizes;
  std::vector<std::vector<std::int64_t>> strides;
};

int LaunchTiles(Address programs, int count, std::int64_t blocks, const Grid& grid);
int LaunchGather(const Walk& walk, Address out, Address x, Address index, std::int64_t step,
                 std::int64_t bound, std::int64_t width, Address record, int node,
                 const Grid& grid);
// Strides of x, index and result; the first `kept` dims are those of the result. `element`: `f32`,
// `f64` or `i64`.
int LaunchScatter(const Walk& walk, int kept, const std::string& element, Address result, Address x,
                  Address index, std::int64_t step, std::int64_t bound, bool in_order,
                  Address record, int node, const Grid& grid);
int LaunchMove(const Walk& walk, Address out, Address x, std::int64_t width, const Grid& grid);
int LaunchRandom(int draw, const std::string& element, Address out, Address seed, Address call,
                 Address first_row, std::uint32_t place, std::int64_t rows, std::int64_t others,
                 std::int64_t bound, const Grid& grid);
int LaunchCheck(const Walk& walk, Address x, int kind, std::int64_t bound, Address record, int node,
                const Grid& grid);
int LaunchTakeRows(Address columns, std::int64_t count, Address order, Address position,
                   Address real, std::int64_t room, std::int64_t most, const Grid& grid);
// `wide`: the bucket is of f64, not of f32.
int LaunchPack(Address bucket, bool wide, Address segments, std::int64_t count, std::int64_t most,
               Address weight, const Grid& grid);
int LaunchUnpack(Address bucket, bool wide, Address segments, std::int64_t count, std::int64_t most,
                 const Grid& grid);
int LaunchFinish(Address record, Address shown, Address steps, Address control, Address scalars,
                 std::int64_t scalar_count, Address shown_scalars, std::int64_t shown_rows,
                 const Grid& grid);

// The operations of tile programs by name, and the limits of a program.
std::vector<std::pair<std::string, int>> TileOps();
std::vector<std::pair<std::string, int>> Limits();
// The number of GPUs and the error of asking, such as 35 (no driver) or 100 (no device).
std::pair<int, int> DeviceCount();
std::string ErrorText(int error);

}  // namespace shapescript::cuda
