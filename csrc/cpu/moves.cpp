// What moves values: copies between any strides, fills, lookups and their converse, and the checks
// of values.

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "executor.hpp"

namespace shapescript {
namespace {

// Goes through a loop's dims with several accesses; those that lie one after another in all of them
// are one dim.
template <int kAccesses>
class Nest {
 public:
  Nest(const std::vector<std::int64_t>& sizes,
       const std::array<std::vector<std::int64_t>, kAccesses>& strides) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 1) continue;
      bool joined = !sizes_.empty();
      for (int k = 0; k < kAccesses && joined; ++k)
        joined = strides_.back()[k] == strides[k][i] * sizes[i];
      if (!joined) {
        sizes_.push_back(1);
        strides_.emplace_back();
      }
      sizes_.back() *= sizes[i];
      for (int k = 0; k < kAccesses; ++k) strides_.back()[k] = strides[k][i];
    }
    if (sizes_.empty()) {
      sizes_.push_back(1);
      strides_.push_back({});
    }
  }

  std::int64_t inner() const { return sizes_.back(); }
  std::int64_t stride(int access) const { return strides_.back()[access]; }

  // Calls body(places) for each run of the innermost dim.
  template <class F>
  void Each(F body) const {
    const int outer = static_cast<int>(sizes_.size()) - 1;
    std::vector<std::int64_t> at(sizes_.size(), 0);
    std::array<std::int64_t, kAccesses> places{};
    for (;;) {
      body(places);
      int i = outer - 1;
      for (; i >= 0; --i) {
        for (int k = 0; k < kAccesses; ++k) places[k] += strides_[i][k];
        if (++at[i] < sizes_[i]) break;
        for (int k = 0; k < kAccesses; ++k) places[k] -= strides_[i][k] * sizes_[i];
        at[i] = 0;
      }
      if (i < 0) return;
    }
  }

 private:
  std::vector<std::int64_t> sizes_;
  std::vector<std::array<std::int64_t, kAccesses>> strides_;
};

template <class T>
T* Values(const Context& context, std::int32_t buffer, std::int64_t offset = 0) {
  return reinterpret_cast<T*>(context.buffers[buffer]) + offset;
}

template <class T>
class MoveStep : public Step {
 public:
  MoveStep(const Move& work, const Binding& binding)
      : in_(work.in.buffer),
        out_(work.out.buffer),
        in_offset_(binding.sizes[work.in.offset]),
        out_offset_(binding.sizes[work.out.offset]),
        nest_(binding.sizes(work.dims),
              {binding.sizes(work.in.strides), binding.sizes(work.out.strides)}) {}

  bool Run(const Context& context) override {
    const T* in = Values<T>(context, in_, in_offset_);
    T* out = Values<T>(context, out_, out_offset_);
    const std::int64_t n = nest_.inner(), from = nest_.stride(0), to = nest_.stride(1);
    nest_.Each([&](const std::array<std::int64_t, 2>& at) {
      const T* x = in + at[0];
      T* y = out + at[1];
      if (from == 1 && to == 1) {
        std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(T));
      } else {
        for (std::int64_t i = 0; i < n; ++i) y[i * to] = x[i * from];
      }
    });
    return true;
  }

 private:
  std::int32_t in_, out_;
  std::int64_t in_offset_, out_offset_;
  Nest<2> nest_;
};

class FillStep : public Step {
 public:
  FillStep(const Fill& work, const Binding& binding)
      : buffer_(work.buffer),
        length_(binding.length(work.buffer)),
        width_(binding.width(work.buffer)),
        bits_(work.bits) {
    if (work.size < 0) return;
    const std::int64_t size = binding.sizes[work.size];
    switch (binding.plan.buffers[work.buffer].element) {
      case Element::kF64: {
        const auto value = static_cast<double>(size);
        std::memcpy(&bits_, &value, sizeof value);
        break;
      }
      case Element::kF32: {
        const auto value = static_cast<float>(size);
        std::memcpy(&bits_, &value, sizeof value);
        break;
      }
      default:
        bits_ = size;
    }
  }

  bool Run(const Context& context) override {
    switch (width_) {
      case 8:
        std::fill_n(Values<std::uint64_t>(context, buffer_), length_,
                    static_cast<std::uint64_t>(bits_));
        break;
      case 4:
        std::fill_n(Values<std::uint32_t>(context, buffer_), length_,
                    static_cast<std::uint32_t>(bits_));
        break;
      case 2:
        std::fill_n(Values<std::uint16_t>(context, buffer_), length_,
                    static_cast<std::uint16_t>(bits_));
        break;
      default:
        std::fill_n(Values<std::uint8_t>(context, buffer_), length_,
                    static_cast<std::uint8_t>(bits_));
    }
    return true;
  }

 private:
  std::int32_t buffer_;
  std::int64_t length_, width_, bits_;
};

template <class T>
class IotaStep : public Step {
 public:
  IotaStep(const Iota& work, const Binding& binding)
      : buffer_(work.buffer), length_(binding.length(work.buffer)) {}

  bool Run(const Context& context) override {
    T* out = Values<T>(context, buffer_);
    for (std::int64_t i = 0; i < length_; ++i) out[i] = static_cast<T>(i);
    return true;
  }

 private:
  std::int32_t buffer_;
  std::int64_t length_;
};

std::vector<std::int64_t> RowMajor(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  return strides;
}

// Whether all that a nest reads lies in 0..count.
bool InRange(const std::int64_t* index, const Nest<1>& nest, std::int64_t count) {
  std::int64_t low = 0, high = 0;
  nest.Each([&](const std::array<std::int64_t, 1>& at) {
    const std::int64_t* x = index + at[0];
    const std::int64_t n = nest.stride(0) == 0 ? 1 : nest.inner();
    for (std::int64_t i = 0; i < n; ++i) {
      low = std::min(low, x[i * nest.stride(0)]);
      high = std::max(high, x[i * nest.stride(0)]);
    }
  });
  return low >= 0 && high < count;
}

template <class T>
class GatherStep : public Step {
 public:
  GatherStep(const Gather& work, const Binding& binding)
      : x_(work.x.buffer),
        index_(work.index.buffer),
        result_(work.result),
        x_offset_(binding.sizes[work.x.offset]),
        index_offset_(binding.sizes[work.index.offset]),
        step_(binding.sizes[work.step]),
        count_(binding.sizes[work.count]),
        nest_(binding.sizes(work.dims),
              {binding.sizes(work.x.strides), binding.sizes(work.index.strides),
               RowMajor(binding.sizes(work.dims))}),
        looked_up_(binding.sizes(work.dims), {binding.sizes(work.index.strides)}) {}

  bool Run(const Context& context) override {
    const std::int64_t* index = Values<std::int64_t>(context, index_, index_offset_);
    if (!InRange(index, looked_up_, count_)) return false;
    const T* x = Values<T>(context, x_, x_offset_);
    T* out = Values<T>(context, result_);
    const std::int64_t n = nest_.inner(), from = nest_.stride(0), by = nest_.stride(1),
                       to = nest_.stride(2);
    nest_.Each([&](const std::array<std::int64_t, 3>& at) {
      const std::int64_t* places = index + at[1];
      T* y = out + at[2];
      if (by == 0) {
        const T* row = x + at[0] + places[0] * step_;
        if (from == 1 && to == 1) {
          std::memcpy(y, row, static_cast<std::size_t>(n) * sizeof(T));
        } else {
          for (std::int64_t i = 0; i < n; ++i) y[i * to] = row[i * from];
        }
      } else {
        for (std::int64_t i = 0; i < n; ++i)
          y[i * to] = x[at[0] + i * from + places[i * by] * step_];
      }
    });
    return true;
  }

 private:
  std::int32_t x_, index_, result_;
  std::int64_t x_offset_, index_offset_, step_, count_;
  Nest<3> nest_;
  Nest<1> looked_up_;
};

template <class T>
class ScatterStep : public Step {
 public:
  ScatterStep(const Scatter& work, const Binding& binding)
      : x_(work.x.buffer),
        index_(work.index.buffer),
        result_(work.result.buffer),
        x_offset_(binding.sizes[work.x.offset]),
        index_offset_(binding.sizes[work.index.offset]),
        step_(binding.sizes[work.step]),
        count_(binding.sizes[work.count]),
        length_(binding.length(work.result.buffer)),
        nest_(binding.sizes(work.dims),
              {binding.sizes(work.x.strides), binding.sizes(work.index.strides),
               binding.sizes(work.result.strides)}),
        looked_up_(binding.sizes(work.dims), {binding.sizes(work.index.strides)}) {}

  bool Run(const Context& context) override {
    const std::int64_t* index = Values<std::int64_t>(context, index_, index_offset_);
    if (!InRange(index, looked_up_, count_)) return false;
    const T* x = Values<T>(context, x_, x_offset_);
    T* out = Values<T>(context, result_);
    std::fill_n(out, length_, T{0});
    const std::int64_t n = nest_.inner(), from = nest_.stride(0), by = nest_.stride(1),
                       to = nest_.stride(2);
    nest_.Each([&](const std::array<std::int64_t, 3>& at) {
      const T* values = x + at[0];
      const std::int64_t* places = index + at[1];
      for (std::int64_t i = 0; i < n; ++i)
        out[at[2] + i * to + places[i * by] * step_] += values[i * from];
    });
    return true;
  }

 private:
  std::int32_t x_, index_, result_;
  std::int64_t x_offset_, index_offset_, step_, count_, length_;
  Nest<3> nest_;
  Nest<1> looked_up_;
};

class RangeStep : public Step {
 public:
  RangeStep(const Check& work, const Binding& binding)
      : in_(work.in.buffer),
        offset_(binding.sizes[work.in.offset]),
        count_(binding.sizes[work.count]),
        nest_(binding.sizes(work.dims), {binding.sizes(work.in.strides)}) {}

  bool Run(const Context& context) override {
    return InRange(Values<std::int64_t>(context, in_, offset_), nest_, count_);
  }

 private:
  std::int32_t in_;
  std::int64_t offset_, count_;
  Nest<1> nest_;
};

template <class T>
class FiniteStep : public Step {
 public:
  FiniteStep(const Check& work, const Binding& binding)
      : in_(work.in.buffer),
        offset_(binding.sizes[work.in.offset]),
        nest_(binding.sizes(work.dims), {binding.sizes(work.in.strides)}) {}

  bool Run(const Context& context) override {
    const T* in = Values<T>(context, in_, offset_);
    bool finite = true;
    const std::int64_t n = nest_.inner(), stride = nest_.stride(0);
    nest_.Each([&](const std::array<std::int64_t, 1>& at) {
      const T* x = in + at[0];
      // x - x is 0 for what is finite, and nan for the rest: sixteen sums, so that the loop becomes
      // vector code
      T lanes[16] = {};
      std::int64_t i = 0;
      if (stride == 1) {
        for (; i + 16 <= n; i += 16) {
          for (int j = 0; j < 16; ++j) lanes[j] += x[i + j] - x[i + j];
        }
      }
      for (; i < n; ++i) lanes[0] += x[i * stride] - x[i * stride];
      for (int j = 0; j < 16; ++j) finite = finite && lanes[j] == T{0};
    });
    return finite;
  }

 private:
  std::int32_t in_;
  std::int64_t offset_;
  Nest<1> nest_;
};

template <template <class> class S, class W>
std::unique_ptr<Step> OfWidth(std::int64_t width, const W& work, const Binding& binding) {
  switch (width) {
    case 8:
      return std::make_unique<S<std::uint64_t>>(work, binding);
    case 4:
      return std::make_unique<S<std::uint32_t>>(work, binding);
    case 2:
      return std::make_unique<S<std::uint16_t>>(work, binding);
    default:
      return std::make_unique<S<std::uint8_t>>(work, binding);
  }
}

template <template <class> class S, class W>
std::unique_ptr<Step> OfNumber(Element element, const W& work, const Binding& binding) {
  switch (element) {
    case Element::kF64:
      return std::make_unique<S<double>>(work, binding);
    case Element::kF32:
      return std::make_unique<S<float>>(work, binding);
    case Element::kI64:
      return std::make_unique<S<std::int64_t>>(work, binding);
    default:
      throw std::invalid_argument("the executor has no kernel of this element");
  }
}

}  // namespace

std::unique_ptr<Step> Bind(const Move& work, const Binding& binding) {
  return OfWidth<MoveStep>(binding.width(work.out.buffer), work, binding);
}

std::unique_ptr<Step> Bind(const Fill& work, const Binding& binding) {
  return std::make_unique<FillStep>(work, binding);
}

std::unique_ptr<Step> Bind(const Iota& work, const Binding& binding) {
  return OfNumber<IotaStep>(binding.plan.buffers[work.buffer].element, work, binding);
}

std::unique_ptr<Step> Bind(const Gather& work, const Binding& binding) {
  return OfWidth<GatherStep>(binding.width(work.result), work, binding);
}

std::unique_ptr<Step> Bind(const Scatter& work, const Binding& binding) {
  return OfNumber<ScatterStep>(binding.plan.buffers[work.result.buffer].element, work, binding);
}

std::unique_ptr<Step> Bind(const Check& work, const Binding& binding) {
  if (work.kind == CheckKind::kRange) return std::make_unique<RangeStep>(work, binding);
  if (binding.plan.buffers[work.in.buffer].element == Element::kF64) {
    return std::make_unique<FiniteStep<double>>(work, binding);
  }
  return std::make_unique<FiniteStep<float>>(work, binding);
}

}  // namespace shapescript
