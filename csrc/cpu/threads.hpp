// A pool of threads that share one instruction's work. The caller takes part; the others sleep
// between works.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shapescript {

class Threads {
 public:
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls part(i) for i in 0..count(), each on its own thread, and returns when all are done; works
  // of several callers go one after another.
  void Run(const std::function<void(int)>& part);

 private:
  void Serve(int number);

  std::vector<std::thread> workers_;
  std::mutex turn_, mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int)>* part_ = nullptr;
  std::uint64_t round_ = 0;
  int left_ = 0;
  bool stop_ = false;
};

}  // namespace shapescript
