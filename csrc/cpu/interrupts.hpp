// Whether a run is to end before its time: Ctrl-C. The caller of a run says how to ask for that;
// asking is dear (it takes the GIL), so it is done some times a second, by the caller's thread
// alone. The other threads look at what it found.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

namespace shapescript {

class Interrupts {
 public:
  // Without `ask` a run always goes to its end.
  explicit Interrupts(const std::function<bool()>* ask = nullptr)
      : ask_(ask), last_(Clock::now()) {}

  // For the caller's thread: asks where the last time is long ago.
  bool Ask() {
    if (ask_ == nullptr || stopped()) return stopped();
    const Clock::time_point now = Clock::now();
    if (now - last_ < kPause) return false;
    const bool stop = (*ask_)();
    last_ = Clock::now();
    stopped_.store(stop, std::memory_order_relaxed);
    return stop;
  }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  // From here on the run goes to its end.
  void Forbid() { ask_ = nullptr; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{50};

  const std::function<bool()>* ask_;
  Clock::time_point last_;
  std::atomic<bool> stopped_{false};
};

}  // namespace shapescript
