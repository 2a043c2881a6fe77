// Which kernels this machine can run.

#include "kernels.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace shapescript {

#if defined(__x86_64__) && !defined(SHAPESCRIPT_BASELINE_ONLY)
const KernelTable* KernelsNamed(const char* name) {
  if (std::strcmp(name, "baseline") == 0) return &BaselineKernels();
  if (std::strcmp(name, "avx2") == 0)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &Avx2Kernels()
                                                                           : nullptr;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (std::strcmp(name, "avx512") == 0) return wide ? &Avx512Kernels() : nullptr;
  return nullptr;
}
#else
const KernelTable* KernelsNamed(const char* name) {
  return std::strcmp(name, "baseline") == 0 ? &BaselineKernels() : nullptr;
}
#endif

const KernelTable& Kernels() {
  static const KernelTable* const chosen = [] {
    const char* wanted = std::getenv("SHAPESCRIPT_ISA");
    if (wanted != nullptr) {
      const KernelTable* found = KernelsNamed(wanted);
      if (found != nullptr) return found;
    }
    for (const char* name : {"avx512", "avx2"}) {
      const KernelTable* found = KernelsNamed(name);
      if (found != nullptr) return found;
    }
    return &BaselineKernels();
  }();
  return *chosen;
}

}  // namespace shapescript
