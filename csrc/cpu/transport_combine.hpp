// Values of several devices made one: sum, max and min, in the order of the ranks, so that a run
// repeats bit for bit. bf16 and f16 are added in f32 and rounded once. A NaN of any device is the
// result's, as in torch.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "collectives.h"

namespace shapescript {

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float Widened(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

inline float Widened(F16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1fU;
  const std::uint32_t fraction = x.bits & 0x3ffU;
  if (exponent == 0) {  // a subnormal number is its fraction in units of 2^-24, exact in f32
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign ? -value : value;
  }
  const std::uint32_t high = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | (high << 23) | (fraction << 13));
}

template <class T>
T Widened(T x) {
  return x;
}

inline void Narrow(float value, float& out) { out = value; }

inline void Narrow(float value, Bf16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    out.bits = static_cast<std::uint16_t>((bits >> 16) | 0x40U);
    return;
  }
  out.bits = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline void Narrow(float value, F16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const float size = std::fabs(value);
  if (std::isnan(value)) {
    out.bits = static_cast<std::uint16_t>(sign | 0x7e00U);
  } else if (size >= 65520.0F) {  // halfway to the next after the largest, and beyond
    out.bits = static_cast<std::uint16_t>(sign | 0x7c00U);
  } else if (size < 0x1p-14F) {  // subnormal: adding 2^-1 leaves the fraction in units of 2^-24,
                                 // rounded to even
    const auto shifted =
        std::bit_cast<std::uint32_t>(size + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    out.bits = static_cast<std::uint16_t>(sign | shifted);
  } else {
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
    out.bits = static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
  }
}

template <class T>
  requires std::is_arithmetic_v<T>
void Narrow(T value, T& out) {
  out = value;
}

template <class T>
using Wide = decltype(Widened(T{}));

template <ShapescriptCombine kind, class W>
W Combined(W a, W b) {
  if constexpr (kind == SHAPESCRIPT_SUM) {
    if constexpr (std::is_integral_v<W>) {  // wraps around, as in torch
      using U = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  } else {
    if constexpr (std::is_floating_point_v<W>) {
      if (a != a) return a;
      if (b != b) return b;
    }
    return (kind == SHAPESCRIPT_MAX ? a < b : b < a) ? b : a;
  }
}

// out[i] = parts[0][i], then parts[1][i] and so on; `parts` gives the values of a device by its
// rank.
template <ShapescriptCombine kind, class T, class Parts>
void CombineAs(T* out, const Parts& parts, std::uint32_t count, std::size_t length) {
  constexpr std::size_t kBlock = 1024;
  Wide<T> sums[kBlock];
  for (std::size_t begin = 0; begin < length; begin += kBlock) {
    const std::size_t size = std::min(kBlock, length - begin);
    const T* first = parts(0) + begin;
    for (std::size_t i = 0; i < size; ++i) sums[i] = Widened(first[i]);
    for (std::uint32_t rank = 1; rank < count; ++rank) {
      const T* next = parts(rank) + begin;
      for (std::size_t i = 0; i < size; ++i) sums[i] = Combined<kind>(sums[i], Widened(next[i]));
    }
    for (std::size_t i = 0; i < size; ++i) Narrow(sums[i], out[begin + i]);
  }
}

template <class T, class Parts>
void Combine(ShapescriptCombine kind, T* out, const Parts& parts, std::uint32_t count,
             std::size_t length) {
  switch (kind) {
    case SHAPESCRIPT_SUM:
      return CombineAs<SHAPESCRIPT_SUM>(out, parts, count, length);
    case SHAPESCRIPT_MAX:
      return CombineAs<SHAPESCRIPT_MAX>(out, parts, count, length);
    case SHAPESCRIPT_MIN:
      return CombineAs<SHAPESCRIPT_MIN>(out, parts, count, length);
  }
  throw std::invalid_argument("no such way to combine values");
}

// out[i] = in[i] * weight, for the elements that have fractions.
template <class T>
void Scale(T* out, const T* in, std::size_t length, double weight) {
  if constexpr (std::is_integral_v<T>) {
    throw std::invalid_argument("whole numbers can't be weighted");
  } else {
    for (std::size_t i = 0; i < length; ++i) {
      Narrow(static_cast<Wide<T>>(Widened(in[i]) * static_cast<Wide<T>>(weight)), out[i]);
    }
  }
}

// Calls `use` with a value of the type that an element is in C++.
template <class Use>
void WithElement(std::int32_t element, const Use& use) {
  switch (element) {
    case SHAPESCRIPT_F32:
      return use(float{});
    case SHAPESCRIPT_F64:
      return use(double{});
    case SHAPESCRIPT_I64:
      return use(std::int64_t{});
    case SHAPESCRIPT_I32:
      return use(std::int32_t{});
    case SHAPESCRIPT_BF16:
      return use(Bf16{});
    case SHAPESCRIPT_F16:
      return use(F16{});
    case SHAPESCRIPT_I16:
      return use(std::int16_t{});
    case SHAPESCRIPT_I8:
      return use(std::int8_t{});
    case SHAPESCRIPT_U8:
      return use(std::uint8_t{});
    default:
      throw std::invalid_argument("no such element");
  }
}

}  // namespace shapescript
