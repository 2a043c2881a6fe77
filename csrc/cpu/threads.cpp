#include "threads.hpp"

namespace shapescript {

Threads::Threads(int count) {
  for (int number = 1; number < count; ++number)
    workers_.emplace_back([this, number] { Serve(number); });
}

Threads::~Threads() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Threads::Run(const std::function<void(int)>& part) {
  if (workers_.empty()) {
    part(0);
    return;
  }
  const std::lock_guard<std::mutex> turn(turn_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    part_ = &part;
    left_ = static_cast<int>(workers_.size());
    ++round_;
  }
  begin_.notify_all();
  part(0);
  std::unique_lock<std::mutex> lock(mutex_);
  end_.wait(lock, [this] { return left_ == 0; });
}

void Threads::Serve(int number) {
  std::uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    begin_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    const std::function<void(int)>& part = *part_;
    lock.unlock();
    part(number);
    lock.lock();
    if (--left_ == 0) end_.notify_one();
  }
}

}  // namespace shapescript
