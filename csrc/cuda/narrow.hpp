// f16 and bf16 as f32 and back, by their bits: the same on a GPU and in the shim, rounded to
// nearest, ties to even.
#pragma once

#include "bits.hpp"

namespace shapescript::cuda {

SHAPESCRIPT_DEVICE std::uint32_t WordOf(float x) { return static_cast<std::uint32_t>(BitsOf(x)); }
SHAPESCRIPT_DEVICE float FloatOf(std::uint32_t word) { return ValueOf<float>(word); }

SHAPESCRIPT_DEVICE float FromBf16(std::uint16_t x) {
  return FloatOf(static_cast<std::uint32_t>(x) << 16);
}
SHAPESCRIPT_DEVICE std::uint16_t ToBf16(float x) {
  const std::uint32_t word = WordOf(x);
  if (x != x) return static_cast<std::uint16_t>((word >> 16) | 0x40);
  return static_cast<std::uint16_t>((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

SHAPESCRIPT_DEVICE float FromF16(std::uint16_t x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000) << 16;
  const std::uint32_t exponent = (x >> 10) & 31, fraction = x & 0x3ff;
  if (exponent == 31) return FloatOf(sign | 0x7f800000 | (fraction << 13));
  if (exponent != 0) return FloatOf(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float small = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
  return sign != 0 ? -small : small;
}
SHAPESCRIPT_DEVICE std::uint16_t ToF16(float x) {
  const std::uint32_t word = WordOf(x), sign = (word >> 16) & 0x8000, size = word & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (size >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size < 0x38800000) {  // below 2^-14: the sum with 2^-1 leaves the bits that f16 has
    const float held = FloatOf(size) + 0.5f;
    return static_cast<std::uint16_t>(sign | (WordOf(held) - 0x3f000000));
  }
  const std::uint32_t rounded = size + 0xfff + ((size >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

}  // namespace shapescript::cuda
