// Which instructions have nothing to go over, for the sizes of a plan: an empty part of a batch.

#include <algorithm>
#include <type_traits>

#include "executor.hpp"

namespace shapescript {
namespace {

bool IsEmpty(const std::vector<Ref>& dims, const Binding& binding) {
  return std::any_of(dims.begin(), dims.end(), [&](Ref ref) { return binding.sizes[ref] == 0; });
}

// Of what is over no places: a result that has none either is not to be made; any other is.
Emptiness Over(bool empty, const std::vector<std::int32_t>& results, const Binding& binding) {
  if (!empty) return Emptiness::kNone;
  const bool nothing = std::all_of(results.begin(), results.end(), [&](std::int32_t result) {
    return binding.length(result) == 0;
  });
  return nothing ? Emptiness::kNothing : Emptiness::kCall;
}

}  // namespace

Emptiness EmptinessOf(const Work& work, const Binding& binding) {
  const auto visit = [&](const auto& of) {
    using Of = std::decay_t<decltype(of)>;
    if constexpr (std::is_same_v<Of, Elementwise>) {
      std::vector<std::int32_t> results;
      for (const TileOutput& output : of.outputs) results.push_back(output.buffer);
      return Over(IsEmpty(of.outer, binding) || IsEmpty(of.inner, binding), results, binding);
    } else if constexpr (std::is_same_v<Of, Product>) {
      return Over(IsEmpty(of.batch, binding) || IsEmpty({of.m, of.n, of.k}, binding), {of.result},
                  binding);
    } else if constexpr (std::is_same_v<Of, Move> || std::is_same_v<Of, Check>) {
      return IsEmpty(of.dims, binding) ? Emptiness::kNothing : Emptiness::kNone;
    } else if constexpr (std::is_same_v<Of, Fill> || std::is_same_v<Of, Iota> ||
                         std::is_same_v<Of, Random>) {
      return binding.length(of.buffer) == 0 ? Emptiness::kNothing : Emptiness::kNone;
    } else if constexpr (std::is_same_v<Of, Gather> || std::is_same_v<Of, Scatter>) {
      // an index without a place to look at is wrong, and the caller says so
      return IsEmpty(of.dims, binding) || binding.sizes[of.count] == 0 ? Emptiness::kCall
                                                                       : Emptiness::kNone;
    } else {
      return Emptiness::kNone;
    }
  };
  return std::visit(visit, work);
}

}  // namespace shapescript
