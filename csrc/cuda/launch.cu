// Launches all kernels but tile programs.

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "kernels.hpp"
#include "launch.hpp"

namespace shapescript::cuda {
namespace {

template <class T>
T* At(Address address) {
  return reinterpret_cast<T*>(address);
}

std::int64_t BlocksFor(std::int64_t places, const Grid& grid) {
  const std::int64_t wanted = (places + grid.threads - 1) / grid.threads;
  return std::max<std::int64_t>(1, std::min(wanted, grid.blocks));
}

Place PlaceOf(const Walk& walk, std::size_t first, std::size_t end) {
  if (end - first > kMostDims) throw std::invalid_argument("a walk along too many dims");
  Place place{};
  place.dims = static_cast<std::int64_t>(end - first);
  place.count = 1;
  for (std::size_t i = first; i < end; ++i) {
    place.sizes[i - first] = walk.sizes[i];
    place.count *= walk.sizes[i];
  }
  return place;
}

Place PlaceOf(const Walk& walk) { return PlaceOf(walk, 0, walk.sizes.size()); }

Reach ReachOf(const Walk& walk, std::size_t operand, std::size_t first, std::size_t end) {
  Reach reach{};
  for (std::size_t i = first; i < end; ++i)
    reach.strides[i - first] = walk.strides.at(operand).at(i);
  return reach;
}

Reach ReachOf(const Walk& walk, std::size_t operand) {
  return ReachOf(walk, operand, 0, walk.sizes.size());
}

template <class T>
int Scatter(const Walk& walk, int kept, Address result, Address x, Address index, std::int64_t step,
            std::int64_t bound, bool in_order, Address record, int node, const Grid& grid) {
  const auto k = static_cast<std::size_t>(kept), end = walk.sizes.size();
  // sums of whole numbers are the same in any order; a result without places has wrong indices only
  if (std::is_integral_v<T> || !in_order || bound == 0) {
    const Place all = PlaceOf(walk);
    if (all.count == 0) return 0;
    return SHAPESCRIPT_LAUNCH(ScatterManyKernel<T>, BlocksFor(all.count, grid), grid.threads,
                              grid.stream, all, At<T>(result), ReachOf(walk, 2), At<const T>(x),
                              ReachOf(walk, 0), At<const std::int64_t>(index), ReachOf(walk, 1),
                              step, bound, At<ErrorRecord>(record), node);
  }
  const Place place = PlaceOf(walk, 0, k), summed = PlaceOf(walk, k, end);
  if (place.count == 0) return 0;
  return SHAPESCRIPT_LAUNCH(
      ScatterKernel<T>, BlocksFor(place.count * bound, grid), grid.threads, grid.stream, place,
      ReachOf(walk, 0, 0, k), ReachOf(walk, 1, 0, k), ReachOf(walk, 2, 0, k), summed,
      ReachOf(walk, 0, k, end), ReachOf(walk, 1, k, end), At<T>(result), At<const T>(x),
      At<const std::int64_t>(index), step, bound, At<ErrorRecord>(record), node);
}

template <class T>
int Random(int draw, Address out, Address seed, Address call, Address first_row,
           std::uint32_t place, std::int64_t rows, std::int64_t others, std::int64_t bound,
           const Grid& grid) {
  if (rows * others == 0) return 0;
  return SHAPESCRIPT_LAUNCH(
      RandomKernel<T>, BlocksFor(rows * others, grid), grid.threads, grid.stream, draw, At<T>(out),
      At<const std::int64_t>(seed), At<const std::int64_t>(call), At<const std::int64_t>(first_row),
      place, rows, others, static_cast<std::uint64_t>(std::max<std::int64_t>(1, bound)));
}

}  // namespace

int LaunchGather(const Walk& walk, Address out, Address x, Address index, std::int64_t step,
                 std::int64_t bound, std::int64_t width, Address record, int node,
                 const Grid& grid) {
  const Place place = PlaceOf(walk);
  if (place.count == 0) return 0;
  return SHAPESCRIPT_LAUNCH(GatherKernel, BlocksFor(place.count, grid), grid.threads, grid.stream,
                            place, At<void>(out), At<const void>(x), ReachOf(walk, 0),
                            At<const std::int64_t>(index), ReachOf(walk, 1), step, bound, width,
                            At<ErrorRecord>(record), node);
}

int LaunchScatter(const Walk& walk, int kept, const std::string& element, Address result, Address x,
                  Address index, std::int64_t step, std::int64_t bound, bool in_order,
                  Address record, int node, const Grid& grid) {
  if (element == "f32") {
    return Scatter<float>(walk, kept, result, x, index, step, bound, in_order, record, node, grid);
  }
  if (element == "f64") {
    return Scatter<double>(walk, kept, result, x, index, step, bound, in_order, record, node, grid);
  }
  if (element == "i64") {
    return Scatter<std::int64_t>(walk, kept, result, x, index, step, bound, true, record, node,
                                 grid);
  }
  throw std::invalid_argument("no scatter of " + element);
}

int LaunchMove(const Walk& walk, Address out, Address x, std::int64_t width, const Grid& grid) {
  const Place place = PlaceOf(walk);
  if (place.count == 0) return 0;
  return SHAPESCRIPT_LAUNCH(MoveKernel, BlocksFor(place.count, grid), grid.threads, grid.stream,
                            place, At<void>(out), ReachOf(walk, 1), At<const void>(x),
                            ReachOf(walk, 0), width);
}

int LaunchRandom(int draw, const std::string& element, Address out, Address seed, Address call,
                 Address first_row, std::uint32_t place, std::int64_t rows, std::int64_t others,
                 std::int64_t bound, const Grid& grid) {
  if (element == "f32")
    return Random<float>(draw, out, seed, call, first_row, place, rows, others, bound, grid);
  if (element == "f64")
    return Random<double>(draw, out, seed, call, first_row, place, rows, others, bound, grid);
  if (element == "i64") {
    return Random<std::int64_t>(draw, out, seed, call, first_row, place, rows, others, bound, grid);
  }
  throw std::invalid_argument("no draw of " + element);
}

int LaunchCheck(const Walk& walk, Address x, int kind, std::int64_t bound, Address record, int node,
                const Grid& grid) {
  const Place place = PlaceOf(walk);
  if (place.count == 0) return 0;
  return SHAPESCRIPT_LAUNCH(CheckKernel, BlocksFor(place.count, grid), grid.threads, grid.stream,
                            place, At<const void>(x), ReachOf(walk, 0), kind, bound,
                            At<ErrorRecord>(record), node);
}

int LaunchTakeRows(Address columns, std::int64_t count, Address order, Address position,
                   Address real, std::int64_t room, std::int64_t most, const Grid& grid) {
  if (count == 0) return 0;
  return SHAPESCRIPT_LAUNCH(TakeRowsKernel, BlocksFor(most, grid), grid.threads, grid.stream,
                            At<const Column>(columns), count, At<const std::int64_t>(order),
                            At<const std::int64_t>(position), At<const std::int64_t>(real), room);
}

int LaunchPack(Address bucket, bool wide, Address segments, std::int64_t count, std::int64_t most,
               Address weight, const Grid& grid) {
  if (count == 0) return 0;
  const auto launch = [&]<class T>(T* into) {
    return SHAPESCRIPT_LAUNCH(PackKernel<T>, BlocksFor(most, grid), grid.threads, grid.stream, into,
                              At<const Segment>(segments), count, At<const float>(weight));
  };
  return wide ? launch(At<double>(bucket)) : launch(At<float>(bucket));
}

int LaunchUnpack(Address bucket, bool wide, Address segments, std::int64_t count, std::int64_t most,
                 const Grid& grid) {
  if (count == 0) return 0;
  const auto launch = [&]<class T>(const T* from) {
    return SHAPESCRIPT_LAUNCH(UnpackKernel<T>, BlocksFor(most, grid), grid.threads, grid.stream,
                              from, At<const Segment>(segments), count);
  };
  return wide ? launch(At<const double>(bucket)) : launch(At<const float>(bucket));
}

int LaunchFinish(Address record, Address shown, Address steps, Address control, Address scalars,
                 std::int64_t scalar_count, Address shown_scalars, std::int64_t shown_rows,
                 const Grid& grid) {
  return SHAPESCRIPT_LAUNCH(FinishKernel, 1, 1, grid.stream, At<const ErrorRecord>(record),
                            At<Shown>(shown), At<std::int64_t>(steps), At<Control>(control),
                            At<const Scalar>(scalars), scalar_count, At<Bits>(shown_scalars),
                            shown_rows);
}

#if defined(__CUDACC__)
std::pair<int, int> DeviceCount() {
  int count = 0;
  const int error = static_cast<int>(cudaGetDeviceCount(&count));
  return {error == 0 ? count : 0, error};
}
std::string ErrorText(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }
#else
std::pair<int, int> DeviceCount() { return {0, 100}; }
std::string ErrorText(int error) { return "error " + std::to_string(error); }
#endif

}  // namespace shapescript::cuda
