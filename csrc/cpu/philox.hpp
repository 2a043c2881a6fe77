// Philox 4x32-10, the counter-based generator of Salmon and others (SC 2011): four words of
// random bits from a counter of four words and a key of two. No state, so any element of any draw
// can be made alone, in any order, on any device.
#pragma once

#include <array>
#include <cstdint>

// also compiled by nvcc, for a GPU's own draws
#if defined(__CUDACC__)
#define SHAPESCRIPT_ANYWHERE __host__ __device__
#else
#define SHAPESCRIPT_ANYWHERE
#endif

namespace shapescript {

using Words = std::array<std::uint32_t, 4>;

SHAPESCRIPT_ANYWHERE inline Words Philox(Words counter, std::uint64_t key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;

  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

}  // namespace shapescript
