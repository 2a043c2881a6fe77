// Memory that processes share, and waiting in it: a mapped file, and a word on which threads sleep.
// Leaves to others what lies in the memory, and who ends a group of processes.

#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <system_error>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

namespace shapescript {

// The group was ended by a fault: whoever waits stops waiting, and whoever would wait doesn't
// begin.
struct Ended : std::runtime_error {
  Ended() : std::runtime_error("the group of workers was ended") {}
};

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

// How long a sleeper sleeps before it looks around again, whether it was woken or not.
constexpr long kNapNanoseconds = 50'000'000;

// Sleeps while `word` is `seen`: until it is woken, a signal comes or a nap is over. May return for
// no reason.
inline void Sleep(Word& word, std::uint32_t seen) {
#if defined(__linux__)
  const timespec nap{0, kNapNanoseconds};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &nap, nullptr, 0);
#else
  const timespec nap{0, 50'000};
  if (word.load() == seen) nanosleep(&nap, nullptr);
#endif
}

// Wakes all who sleep on `word`.
inline void Wake(Word& word) {
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr,
          nullptr, 0);
#else
  (void)word;
#endif
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A file mapped whole into memory, for reading and writing. The file descriptor stays the caller's.
class Mapping {
 public:
  explicit Mapping(int file) {
    struct stat status{};
    if (fstat(file, &status) != 0) throw std::system_error(errno, std::generic_category(), "fstat");
    size_ = static_cast<std::size_t>(status.st_size);
    int flags = MAP_SHARED;
#if defined(__linux__)
    flags |= MAP_NORESERVE;  // most of it is never touched
#endif
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, file, 0);
    if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    base_ = static_cast<std::byte*>(at);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(base_, size_); }

  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace shapescript
