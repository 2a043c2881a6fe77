// Runs a CUDA kernel's body as C++, for tests on a machine without a GPU. One thread of the
// operating system stands for each thread of a block, so that ThreadSanitizer finds a missing
// barrier; blocks run one after another, and so do launches, as on one stream.
#pragma once

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#define __global__ inline
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define SHAPESCRIPT_DEVICE inline
#define SHAPESCRIPT_APART inline

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline thread_local Dim3 threadIdx, blockIdx;
inline Dim3 blockDim, gridDim;

namespace shapescript::shim {
inline std::barrier<>* block_barrier = nullptr;
inline std::mutex one_launch;
constexpr int kInvalidConfiguration = 9;

template <class Body>
int Launch(std::int64_t blocks, std::int64_t threads, Body body) {
  if (blocks < 1 || threads < 1 || threads > 1024) return kInvalidConfiguration;
  const std::lock_guard<std::mutex> lock(one_launch);
  blockDim = {static_cast<unsigned>(threads)};
  gridDim = {static_cast<unsigned>(blocks)};
  std::barrier<> barrier(threads), next(threads);
  block_barrier = &barrier;
  const auto run = [&](unsigned thread) {
    threadIdx = {thread};
    for (unsigned block = 0; block < blocks; ++block) {
      blockIdx = {block};
      body();
      next.arrive_and_wait();
    }
  };
  std::vector<std::thread> others;
  for (unsigned thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  return 0;
}
}  // namespace shapescript::shim

inline void __syncthreads() { shapescript::shim::block_barrier->arrive_and_wait(); }

inline int atomicCAS(int* at, int expected, int wanted) {
  std::atomic_ref<int>(*at).compare_exchange_strong(expected, wanted);
  return expected;
}

namespace shapescript::cuda {
template <class T>
inline void AtomicAdd(T* at, T value) {
  std::atomic_ref<T> place(*at);
  T old = place.load();
  while (!place.compare_exchange_weak(old, old + value)) {
  }
}
// A launch is over before the host looks.
inline void FenceForHost() {}
}  // namespace shapescript::cuda

#define SHAPESCRIPT_LAUNCH(kernel, blocks, threads, stream, ...) \
  ((void)(stream), shapescript::shim::Launch(blocks, threads, [&] { kernel(__VA_ARGS__); }))
