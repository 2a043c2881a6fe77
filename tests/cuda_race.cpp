// For ThreadSanitizer: the kernels through the shim; prints `right`. With SHAPESCRIPT_PLANT_RACE a
// barrier is missing.

#include <cmath>
#include <cstdio>
#include <vector>

#include "launch.hpp"
#include "tiles.hpp"

using namespace shapescript::cuda;

namespace {

constexpr int kThreads = 16, kRows = 7, kPlaces = 21;
const Grid kGrid{kThreads, 2, 0};

template <class T>
Address At(T* memory) {
  return reinterpret_cast<Address>(memory);
}

// y[row, i] = x[row, i] / sum of the row
bool Tiles(int lanes, int across) {
  std::vector<float> x(kRows * kPlaces), y(x.size(), -1.0f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5 + 1);
  TileInput input{x.data(), 4, {kPlaces, 1}};
  TileOutput output{y.data(), 4};
  const Bits zero = 0;
  const std::vector<TileCode> codes = {
      {kOpCopy, 0, -1, 0, 0},
      {kOpLoop, 0, 2, 0, 0},
      {kOpLoad, 1, 0, 0, 0},
      {kOp_add_f32, 0, 0, 1, 0},
      {kOpCombine, 0, kOp_add_f32, 0, 0},
      {kOpLoop, 0, 3, 0, 0},
      {kOpLoad, 1, 0, 0, 0},
      {kOp_divide_f32, 1, 1, 0, 0},
      {kOpStore, 0, 0, 1, 0},
  };
  TileProgram program{kRows,
                      kPlaces,
                      1,
                      1,
                      {kRows, kPlaces},
                      lanes,
                      across,
                      0,
                      2,
                      &input,
                      &output,
                      &zero,
                      codes.data(),
                      static_cast<std::int64_t>(codes.size())};
  if (LaunchTiles(At(&program), 1, 2, kGrid) != 0) return false;
  for (int row = 0; row < kRows; ++row) {
    float total = 0;
    for (int i = 0; i < kPlaces; ++i) total += x[row * kPlaces + i];
    for (int i = 0; i < kPlaces; ++i) {
      const int at = row * kPlaces + i;
      if (std::fabs(y[at] - x[at] / total) > 1e-6f) return false;
    }
  }
  return true;
}

// What is out of range is recorded once, by whoever comes first.
bool Lookup() {
  const std::vector<std::int64_t> index = {0, 3, -1, 2, 9, 1, 9, 9};
  const std::vector<float> x = {1, 2, 3, 4};
  std::vector<float> out(index.size()), sums(4);
  std::int64_t record[3] = {};
  const auto count = static_cast<std::int64_t>(index.size());
  const Walk walk{{count}, {{0}, {1}}};
  LaunchGather(walk, At(out.data()), At(x.data()), At(index.data()), 1, 4, 4, At(record), 5, kGrid);
  const bool recorded = static_cast<std::int32_t>(record[0]) == 1 && record[0] >> 32 == 5 &&
                        (record[1] == -1 || record[1] == 9) && record[2] == 4;
  const Walk scatter{{count}, {{1}, {1}, {0}}};
  LaunchScatter(scatter, 0, "f32", At(sums.data()), At(out.data()), At(index.data()), 1, 4, false,
                At(record), 6, kGrid);
  return recorded && out[1] == 4 && out[2] == 0 && sums[3] == 4 && sums[1] == 2;
}

}  // namespace

int main() {
  bool right = true;
  for (int lanes : {1, 4, 16}) {
    for (int across : {0, 1}) right = Tiles(lanes, across) && right;
  }
  right = Lookup() && right;
  std::puts(right ? "right" : "wrong");
  return right ? 0 : 1;
}
