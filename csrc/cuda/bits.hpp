// Values as bits, and places as coordinates: what all kernels share. A value in 64 bits is an f32
// in the lower 32, or a bool in the lowest 8.
#pragma once

#include <cstdint>

#include "platform.hpp"

namespace shapescript::cuda {

constexpr int kMostDims = 8;

using Bits = std::uint64_t;
using Byte = std::uint8_t;

template <class T>
SHAPESCRIPT_DEVICE T ValueOf(Bits bits);
template <class T>
SHAPESCRIPT_DEVICE Bits BitsOf(T value);

template <>
SHAPESCRIPT_DEVICE float ValueOf<float>(Bits bits) {
  union {
    std::uint32_t word;
    float value;
  } both = {static_cast<std::uint32_t>(bits)};
  return both.value;
}
template <>
SHAPESCRIPT_DEVICE double ValueOf<double>(Bits bits) {
  union {
    Bits word;
    double value;
  } both = {bits};
  return both.value;
}
template <>
SHAPESCRIPT_DEVICE std::int64_t ValueOf<std::int64_t>(Bits bits) {
  return static_cast<std::int64_t>(bits);
}
template <>
SHAPESCRIPT_DEVICE Byte ValueOf<Byte>(Bits bits) {
  return static_cast<Byte>(bits & 0xff);
}
template <>
SHAPESCRIPT_DEVICE Bits BitsOf<float>(float value) {
  union {
    float value;
    std::uint32_t word;
  } both = {value};
  return both.word;
}
template <>
SHAPESCRIPT_DEVICE Bits BitsOf<double>(double value) {
  union {
    double value;
    Bits word;
  } both = {value};
  return both.word;
}
template <>
SHAPESCRIPT_DEVICE Bits BitsOf<std::int64_t>(std::int64_t value) {
  return static_cast<Bits>(value);
}
template <>
SHAPESCRIPT_DEVICE Bits BitsOf<Byte>(Byte value) {
  return value;
}

SHAPESCRIPT_DEVICE Bits LoadBits(const void* memory, std::int64_t at, std::int64_t width) {
  switch (width) {
    case 8:
      return static_cast<const std::uint64_t*>(memory)[at];
    case 4:
      return static_cast<const std::uint32_t*>(memory)[at];
    case 2:
      return static_cast<const std::uint16_t*>(memory)[at];
    default:
      return static_cast<const std::uint8_t*>(memory)[at];
  }
}

SHAPESCRIPT_DEVICE void StoreBits(void* memory, std::int64_t at, std::int64_t width, Bits bits) {
  switch (width) {
    case 8:
      static_cast<std::uint64_t*>(memory)[at] = bits;
      return;
    case 4:
      static_cast<std::uint32_t*>(memory)[at] = static_cast<std::uint32_t>(bits);
      return;
    case 2:
      static_cast<std::uint16_t*>(memory)[at] = static_cast<std::uint16_t>(bits);
      return;
    default:
      static_cast<std::uint8_t*>(memory)[at] = static_cast<std::uint8_t>(bits);
  }
}

// The coordinates of a place along some dims; 32 bits where they do, because divisions take the
// time.
SHAPESCRIPT_DEVICE void Coordinates(std::int64_t place, const std::int64_t* sizes, int dims,
                                    std::int64_t* into) {
  if (dims == 1) {
    into[0] = place;
    return;
  }
  if (place < (std::int64_t(1) << 31)) {
    auto rest = static_cast<std::uint32_t>(place);
    for (int i = dims - 1; i >= 0; --i) {
      // a longer dim holds every place that 32 bits can name
      const auto size = sizes[i] >> 32 ? 0xffffffffu : static_cast<std::uint32_t>(sizes[i]);
      into[i] = rest % size;
      rest /= size;
    }
    return;
  }
  for (int i = dims - 1; i >= 0; --i) {
    into[i] = place % sizes[i];
    place /= sizes[i];
  }
}

}  // namespace shapescript::cuda
