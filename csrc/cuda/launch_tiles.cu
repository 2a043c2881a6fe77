// Launches tile programs.

#include "launch.hpp"
#include "tiles.hpp"

namespace shapescript::cuda {

int LaunchTiles(Address programs, int count, std::int64_t blocks, const Grid& grid) {
  return SHAPESCRIPT_LAUNCH(TilesKernel, blocks, grid.threads, grid.stream,
                            reinterpret_cast<const TileProgram*>(programs), count);
}

std::vector<std::pair<std::string, int>> TileOps() {
  std::vector<std::pair<std::string, int>> found = {
      {"load", kOpLoad},   {"store", kOpStore}, {"store_row", kOpStoreRow},
      {"copy", kOpCopy},   {"loop", kOpLoop},   {"combine", kOpCombine},
      {"where", kOpWhere}, {"best", kOpBest},   {"combine_best", kOpCombineBest},
  };
#define SHAPESCRIPT_TILE_OP_ROW(NAME, E, T, R, ...) \
  found.emplace_back(#NAME "." #E, kOp_##NAME##_##E);
  SHAPESCRIPT_TILE_OPS(SHAPESCRIPT_TILE_OP_ROW)
#undef SHAPESCRIPT_TILE_OP_ROW
  return found;
}

std::vector<std::pair<std::string, int>> Limits() {
  return {{"dims", kMostDims},
          {"slots", kMostSlots},
          {"codes", kMostCodes},
          {"threads", kMostThreads},
          {"program_bytes", static_cast<int>(sizeof(TileProgram))},
          {"input_bytes", static_cast<int>(sizeof(TileInput))}};
}

}  // namespace shapescript::cuda
