// What a kernel's body stands on: CUDA where nvcc compiles it, and on the CPU, for the tests, a
// shim that has a thread of the operating system for each thread of CUDA.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define SHAPESCRIPT_DEVICE __device__ __forceinline__
#define SHAPESCRIPT_APART static __device__ __noinline__
#define SHAPESCRIPT_LAUNCH(kernel, blocks, threads, stream, ...)                          \
  (kernel<<<dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), 0, \
            reinterpret_cast<cudaStream_t>(stream)>>>(__VA_ARGS__),                       \
   static_cast<int>(cudaGetLastError()))

namespace shapescript::cuda {
// Memory that the host may read while kernels run: what is before is seen before.
SHAPESCRIPT_DEVICE void FenceForHost() { __threadfence_system(); }
template <class T>
SHAPESCRIPT_DEVICE void AtomicAdd(T* at, T value) {
  atomicAdd(at, value);
}
// whole numbers wrap, so their sums are those of numbers without a sign
SHAPESCRIPT_DEVICE void AtomicAdd(std::int64_t* at, std::int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}
}  // namespace shapescript::cuda

#else

#include "shim.hpp"

#endif
