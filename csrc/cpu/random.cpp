// Random draws: each number from Philox's words for its own place, as the reference executor makes
// them.

#include <cmath>
#include <numbers>

#include "executor.hpp"
#include "philox.hpp"

namespace shapescript {
namespace {

// From 0 up to 1, of so many bits; up to 32 come from the first word alone.
double Unit(std::uint32_t high, std::uint32_t low, int bits) {
  if (bits <= 32) return static_cast<double>(high >> (32 - bits)) * std::ldexp(1.0, -bits);
  const std::uint64_t both = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<double>(both >> (64 - bits)) * std::ldexp(1.0, -bits);
}

template <class T>
class RandomStep : public Step {
 public:
  RandomStep(const Random& work, const Binding& binding)
      : draw_(work.draw),
        buffer_(work.buffer),
        call_(work.call),
        place_(work.place),
        by_row_(work.rows >= 0),
        rows_(by_row_ ? binding.sizes[work.rows] : 1),
        others_(binding.sizes[work.others]),
        bound_(work.bound >= 0 ? static_cast<std::uint64_t>(
                                     std::max<std::int64_t>(1, binding.sizes[work.bound]))
                               : 1),
        first_(work.first >= 0 ? binding.sizes[work.first] : -1) {}

  bool Run(const Context& context) override {
    T* out = reinterpret_cast<T*>(context.buffers[buffer_]);
    const auto call =
        static_cast<std::uint32_t>(*reinterpret_cast<const std::int64_t*>(context.buffers[call_]));
    const std::uint32_t own =
        first_ >= 0 ? static_cast<std::uint32_t>(first_) : context.key.first_row;
    const std::uint32_t first = by_row_ ? own : 0;
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t i = 0; i < others_; ++i) {
        *out++ = One(Philox(
            {static_cast<std::uint32_t>(i), first + static_cast<std::uint32_t>(row), place_, call},
            context.key.seed));
      }
    }
    return true;
  }

 private:
  T One(const Words& words) const {
    constexpr int kBits = sizeof(T) == 4 ? 24 : 53;
    switch (draw_) {
      case Draw::kUniform:
        return static_cast<T>(Unit(words[0], words[1], kBits));
      case Draw::kNormal: {
        const double radius = std::sqrt(-2.0 * std::log(1.0 - Unit(words[0], words[1], 53)));
        return static_cast<T>(radius *
                              std::cos(2.0 * std::numbers::pi * Unit(words[2], words[3], 53)));
      }
      default: {
        const std::uint64_t both = (static_cast<std::uint64_t>(words[0]) << 32) | words[1];
        return static_cast<T>(both % bound_);
      }
    }
  }

  Draw draw_;
  std::int32_t buffer_, call_;
  std::uint32_t place_;
  bool by_row_;
  std::int64_t rows_, others_;
  std::uint64_t bound_;
  std::int64_t first_;  // -1: the key's
};

}  // namespace

std::unique_ptr<Step> Bind(const Random& work, const Binding& binding) {
  switch (binding.plan.buffers[work.buffer].element) {
    case Element::kF64:
      return std::make_unique<RandomStep<double>>(work, binding);
    case Element::kF32:
      return std::make_unique<RandomStep<float>>(work, binding);
    default:
      return std::make_unique<RandomStep<std::int64_t>>(work, binding);
  }
}

}  // namespace shapescript
