#include "products.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "executor.hpp"

namespace shapescript {
namespace {

template <class T>
using Gemm = void (*)(const char* trans_a, const char* trans_b, const int* m, const int* n,
                      const int* k, const T* alpha, const T* a, const int* lda, const T* b,
                      const int* ldb, const T* beta, T* c, const int* ldc);
using SetThreads = int (*)(int count);

struct Blas {
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;
  SetThreads set_threads = nullptr;  // of the calling thread
};
Blas g_blas;

constexpr std::int64_t kParallel = 1 << 22;  // multiplications from which threads share a product

template <class T>
Gemm<T> Library() {
  if constexpr (sizeof(T) == 4) {
    return g_blas.sgemm;
  } else {
    return g_blas.dgemm;
  }
}

// One product of matrices by the library. It counts columns first, so that c is found as the
// product of b and a.
template <class T>
void Multiply(const KernelTable& kernels, const SmallProduct& p, const T* a, const T* b, T* c) {
  const Gemm<T> gemm = Library<T>();
  const bool a_rows = p.a_column == 1 || p.k == 1, b_rows = p.b_column == 1 || p.n == 1;
  if (gemm == nullptr) {
    if constexpr (sizeof(T) == 4) {
      kernels.product_f32(p, a, b, c);
    } else {
      kernels.product_f64(p, a, b, c);
    }
    return;
  }
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  // where one row or column stands alone its stride says nothing, but the library wants one that
  // could be
  const int lda = static_cast<int>(std::max(a_rows ? p.a_row : p.a_column, a_rows ? p.k : p.m));
  const int ldb = static_cast<int>(std::max(b_rows ? p.b_row : p.b_column, b_rows ? p.n : p.k));
  const int ldc = static_cast<int>(std::max(p.c_row, p.n));
  const T one = 1, zero = 0;
  gemm(b_rows ? "N" : "T", a_rows ? "N" : "T", &n, &m, &k, &one, b, &ldb, a, &lda, &zero, c, &ldc);
}

template <class T>
class ProductStep : public Step {
 public:
  ProductStep(const Product& work, const Binding& binding)
      : kernels_(binding.kernels),
        a_(work.a.buffer),
        b_(work.b.buffer),
        result_(work.result),
        a_offset_(binding.sizes[work.a.offset]),
        b_offset_(binding.sizes[work.b.offset]),
        batch_(binding.sizes(work.batch)) {
    const std::vector<std::int64_t> a = binding.sizes(work.a.strides),
                                    b = binding.sizes(work.b.strides);
    const std::size_t rank = batch_.size();
    a_batch_.assign(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(rank));
    b_batch_.assign(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(rank));
    for (const std::int64_t size : batch_) count_ *= size;
    p_ = {binding.sizes[work.m], binding.sizes[work.n],
          binding.sizes[work.k], a[rank],
          a[rank + 1],           b[rank],
          b[rank + 1],           binding.sizes[work.n]};
    if (count_ * p_.m * p_.n * p_.k >= kParallel) parts_ = binding.threads;
  }

  bool Run(const Context& context) override {
    const T* a = reinterpret_cast<const T*>(context.buffers[a_]) + a_offset_;
    const T* b = reinterpret_cast<const T*>(context.buffers[b_]) + b_offset_;
    T* c = reinterpret_cast<T*>(context.buffers[result_]);
    if (parts_ == 1) {
      Part(a, b, c, 0, 1);
    } else {
      context.threads->Run([&](int part) {
        if (part < parts_) Part(a, b, c, part, parts_);
      });
    }
    return true;
  }

 private:
  // A share of the matrices, or of the longer side of the only one.
  void Part(const T* a, const T* b, T* c, int part, int parts) const {
    const int before = g_blas.set_threads != nullptr ? g_blas.set_threads(1) : 0;
    if (count_ >= parts) {
      for (std::int64_t i = count_ * part / parts; i < count_ * (part + 1) / parts; ++i) {
        std::int64_t rest = i, at_a = 0, at_b = 0;
        for (std::size_t d = batch_.size(); d-- > 0;) {
          at_a += rest % batch_[d] * a_batch_[d];
          at_b += rest % batch_[d] * b_batch_[d];
          rest /= batch_[d];
        }
        Multiply(kernels_, p_, a + at_a, b + at_b, c + i * p_.m * p_.n);
      }
    } else {
      for (std::int64_t i = 0; i < count_; ++i) {
        std::int64_t rest = i, at_a = 0, at_b = 0;
        for (std::size_t d = batch_.size(); d-- > 0;) {
          at_a += rest % batch_[d] * a_batch_[d];
          at_b += rest % batch_[d] * b_batch_[d];
          rest /= batch_[d];
        }
        SmallProduct p = p_;
        std::int64_t at_c = i * p_.m * p_.n;
        if (p_.m >= p_.n) {
          const auto [first, last] = Share(p_.m, part, parts);
          p.m = last - first;
          at_a += first * p_.a_row;
          at_c += first * p_.n;
        } else {
          const auto [first, last] = Share(p_.n, part, parts);
          p.n = last - first;
          at_b += first * p_.b_column;
          at_c += first;
        }
        if (p.m > 0 && p.n > 0) Multiply(kernels_, p, a + at_a, b + at_b, c + at_c);
      }
    }
    if (g_blas.set_threads != nullptr) g_blas.set_threads(before);
  }

  // In whole blocks of sixteen, but for the last.
  static std::pair<std::int64_t, std::int64_t> Share(std::int64_t size, int part, int parts) {
    const std::int64_t blocks = (size + 15) / 16;
    return {std::min(size, blocks * part / parts * 16),
            std::min(size, blocks * (part + 1) / parts * 16)};
  }

  const KernelTable& kernels_;
  std::int32_t a_, b_, result_;
  std::int64_t a_offset_, b_offset_;
  std::vector<std::int64_t> batch_, a_batch_, b_batch_;
  std::int64_t count_ = 1;
  SmallProduct p_{};
  int parts_ = 1;
};

}  // namespace

bool UseBlasOf(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  g_blas.sgemm = reinterpret_cast<Gemm<float>>(dlsym(handle, "sgemm_"));
  g_blas.dgemm = reinterpret_cast<Gemm<double>>(dlsym(handle, "dgemm_"));
  g_blas.set_threads = reinterpret_cast<SetThreads>(dlsym(handle, "MKL_Set_Num_Threads_Local"));
  if (g_blas.sgemm == nullptr || g_blas.dgemm == nullptr) g_blas = {};
  return g_blas.sgemm != nullptr;
}

std::unique_ptr<Step> Bind(const Product& work, const Binding& binding) {
  if (work.element == Element::kF64) return std::make_unique<ProductStep<double>>(work, binding);
  return std::make_unique<ProductStep<float>>(work, binding);
}

}  // namespace shapescript
