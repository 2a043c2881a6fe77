// Commands from the controller to all workers, through a ring in shared memory.
//
// One writer, and each worker reads every command, in order. A worker says which command it has
// finished, by number, so that the controller can wait for that. Nobody spins: who has nothing to
// do sleeps on a futex. What a command means is its writer's and its readers' business.

#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "transport_shared.hpp"

namespace shapescript {

constexpr std::uint32_t kMostWorkers = 64;
constexpr std::uint64_t kRingBytes = 1 << 20;
constexpr std::uint64_t kLongestCommand = kRingBytes / 4;

struct alignas(64) LinkWorker {
  std::atomic<std::uint64_t> tail;      // bytes of the ring that it has read
  std::atomic<std::uint64_t> finished;  // the number of the last command that it has finished
  Word beats;                           // goes up while the process runs at all
};

struct LinkHeader {
  std::uint32_t workers;
  alignas(64) Word ended;
  alignas(64) std::atomic<std::uint64_t> head;  // bytes of the ring that were written
  Word posted;                                  // goes up at each command; workers sleep on it
  Word sleeping;                                // how many workers sleep
  alignas(64) Word news;  // goes up when a worker has read or finished; the controller sleeps on it
  Word listening;         // how many threads of the controller sleep
  // The first command whose end any of them waits for, or 0 where one waits for room: they aren't
  // woken for less. Who misses its turn for another's sake looks again after a nap.
  std::atomic<std::uint64_t> wanted;
  LinkWorker worker[kMostWorkers];
};

class Link {
 public:
  static constexpr std::size_t Bytes() { return kRingAt + kRingBytes; }

  // Puts an empty ring into a file of `Bytes()` bytes.
  static void Lay(int file, std::uint32_t workers) {
    if (workers == 0 || workers > kMostWorkers)
      throw std::invalid_argument("too many workers, or none");
    const Mapping mapping(file);
    if (mapping.size() < Bytes()) throw std::invalid_argument("the file is too small");
    new (mapping.base()) LinkHeader{};
    reinterpret_cast<LinkHeader*>(mapping.base())->workers = workers;
  }

  explicit Link(int file) : mapping_(file) {
    if (mapping_.size() < Bytes()) throw std::invalid_argument("the file is too small");
    header_ = reinterpret_cast<LinkHeader*>(mapping_.base());
    ring_ = reinterpret_cast<char*>(mapping_.base()) + kRingAt;
  }

  std::uint32_t workers() const { return header_->workers; }
  const Word& ended_word() const { return header_->ended; }
  bool ended() const { return header_->ended.load() != 0; }

  void End() {
    header_->ended.store(1);
    header_->posted.fetch_add(1);
    header_->news.fetch_add(1);
    Wake(header_->posted);
    Wake(header_->news);
  }

  // Whether there is room for a command of this length; sleeps a nap where there isn't.
  bool HasRoom(std::size_t length) {
    if (length > kLongestCommand) throw std::invalid_argument("the command is too long");
    const std::uint32_t seen = header_->news.load();
    if (FreeBytes() >= 2 * RecordBytes(length))
      return true;  // twice: it may have to begin again at the ring's start
    Listen(seen, 0);
    if (ended()) throw Ended();
    return false;
  }

  // Writes a command, for which there is room.
  void Post(std::string_view command) {
    std::uint64_t head = header_->head.load();
    const std::uint64_t bytes = RecordBytes(command.size());
    const std::uint64_t left = kRingBytes - head % kRingBytes;
    if (left < bytes) {
      PutLength(head, kSkip);
      head += left;
    }
    PutLength(head, command.size());
    std::memcpy(ring_ + head % kRingBytes + sizeof(std::uint64_t), command.data(), command.size());
    header_->head.store(head + bytes);
    header_->posted.fetch_add(1);
    if (header_->sleeping.load() != 0) Wake(header_->posted);
  }

  // The next command of a worker, or false after a nap without one.
  bool Take(std::uint32_t rank, std::string& command) {
    LinkWorker& own = header_->worker[rank];
    std::uint64_t tail = own.tail.load();
    const std::uint32_t seen = header_->posted.load();
    if (ended()) throw Ended();
    if (header_->head.load() == tail) {
      header_->sleeping.fetch_add(1);
      if (header_->head.load() == tail) Sleep(header_->posted, seen);
      header_->sleeping.fetch_sub(1);
      if (header_->head.load() == tail) return false;
    }
    std::uint64_t length = GetLength(tail);
    if (length == kSkip) {
      tail += kRingBytes - tail % kRingBytes;
      length = GetLength(tail);
    }
    command.assign(ring_ + tail % kRingBytes + sizeof(std::uint64_t), length);
    own.tail.store(tail + RecordBytes(length));
    Tell(0);
    return true;
  }

  void Finish(std::uint32_t rank, std::uint64_t number) {
    header_->worker[rank].finished.store(number);
    Tell(number);
  }

  std::uint64_t Finished(std::uint32_t rank) const { return header_->worker[rank].finished.load(); }

  // Whether a worker has finished a command; sleeps a nap where it hasn't.
  bool HasFinished(std::uint32_t rank, std::uint64_t number) {
    const std::uint32_t seen = header_->news.load();
    if (Finished(rank) >= number) return true;
    if (ended()) throw Ended();
    Listen(seen, number);
    return Finished(rank) >= number;
  }

  void Beat(std::uint32_t rank) {
    header_->worker[rank].beats.fetch_add(1, std::memory_order_relaxed);
  }
  std::uint32_t Beats(std::uint32_t rank) const { return header_->worker[rank].beats.load(); }

 private:
  static constexpr std::size_t kRingAt = (sizeof(LinkHeader) + 4095) / 4096 * 4096;
  static constexpr std::uint64_t kSkip = UINT64_MAX;

  static std::uint64_t RecordBytes(std::size_t length) {
    return sizeof(std::uint64_t) + (length + 7) / 8 * 8;
  }

  std::uint64_t FreeBytes() const {
    std::uint64_t slowest = UINT64_MAX;
    for (std::uint32_t rank = 0; rank < workers(); ++rank) {
      slowest = std::min(slowest, header_->worker[rank].tail.load());
    }
    return kRingBytes - (header_->head.load() - slowest);
  }

  void PutLength(std::uint64_t at, std::uint64_t length) {
    std::memcpy(ring_ + at % kRingBytes, &length, sizeof length);
  }
  std::uint64_t GetLength(std::uint64_t at) const {
    std::uint64_t length = 0;
    std::memcpy(&length, ring_ + at % kRingBytes, sizeof length);
    return length;
  }

  void Listen(std::uint32_t seen, std::uint64_t number) {
    if (header_->listening.fetch_add(1) == 0 || number < header_->wanted.load()) {
      header_->wanted.store(number);
    }
    Sleep(header_->news, seen);
    header_->listening.fetch_sub(1);
  }
  void Tell(std::uint64_t number) {
    header_->news.fetch_add(1);
    if (header_->listening.load() != 0 && number >= header_->wanted.load()) Wake(header_->news);
  }

  Mapping mapping_;
  LinkHeader* header_ = nullptr;
  char* ring_ = nullptr;
};

}  // namespace shapescript
