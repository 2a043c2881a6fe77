// The collectives of one group of devices, in shared memory: each device copies its values in,
// combines the slice that is its own, and copies the result out. Every device of the group calls
// the same functions in the same order.
//
// Memory of a group: a meeting point, with what each device is about to do; two slots for each
// device, used in turn; one place for results. A value longer than a slot goes in pieces. A slot
// that was written before one meeting is read before the next, so with two in turn one meeting is
// enough for what needs no common result. Where devices turn out to do different things, all of
// them stop: `Mismatch`. Nobody spins unless every worker has a core of its own.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives.h"
#include "transport_combine.hpp"
#include "transport_link.hpp"
#include "transport_shared.hpp"

namespace shapescript {

struct Meeting {
  alignas(64) Word arrived;
  alignas(64) Word epoch;  // goes up when all have arrived; those who wait sleep on it
  Word sleeping;
  // A number for what a device is about to do, kind, element and lengths, for each of its two
  // slots.
  alignas(64) std::atomic<std::uint64_t> doing[2][kMostWorkers];
};

// The devices of a group don't call the same functions in the same order.
struct Mismatch : std::runtime_error {
  explicit Mismatch(std::uint32_t other)
      : std::runtime_error("the devices are about to combine different values: device " +
                           std::to_string(other) + " of the group isn't where this one is") {}
};

class Group {
 public:
  // Bytes of a device's slot; a multiple of every element's size and of a cache line.
  static constexpr std::size_t kSlot = 4 << 20;
  // Up to here every device combines all values itself, which saves a meeting.
  static constexpr std::size_t kSmall = 16 << 10;

  static constexpr std::size_t Bytes(std::uint32_t count) {
    return kMeetingBytes + kSlot * (2 * count + 1);
  }

  // `at` is where the group's memory begins, which is full of zeros at first.
  Group(std::shared_ptr<Link> link, std::shared_ptr<Mapping> memory, std::size_t at,
        std::uint32_t rank, std::uint32_t count, bool spin)
      : link_(std::move(link)),
        memory_(std::move(memory)),
        rank_(rank),
        count_(count),
        spins_(spin ? kSpins : 0) {
    if (count > kMostWorkers) throw std::invalid_argument("too many devices");
    if (rank >= count || at % 4096 != 0 || at + Bytes(count) > memory_->size()) {
      throw std::invalid_argument("the group doesn't fit into the memory");
    }
    meeting_ = reinterpret_cast<Meeting*>(memory_->base() + at);
    slots_ = memory_->base() + at + kMeetingBytes;
    result_ = slots_ + kSlot * 2 * count;
    table_ = ShapescriptCollectives{this,
                                    static_cast<std::int32_t>(rank),
                                    static_cast<std::int32_t>(count),
                                    &Group::TableReduce,
                                    &Group::TableGather,
                                    &Group::TableScatter,
                                    &Group::TableReduceParts,
                                    &Group::TableGatherParts,
                                    &Group::TableLend,
                                    0};
  }

  std::uint32_t rank() const { return rank_; }
  std::uint32_t count() const { return count_; }
  ShapescriptCollectives* table() { return &table_; }

  // Returns when every device of the group has come here.
  void Meet() {
    if (count_ == 1) return;
    const std::uint32_t epoch = meeting_->epoch.load();
    if (meeting_->arrived.fetch_add(1) + 1 == count_) {
      meeting_->arrived.store(0);
      meeting_->epoch.store(epoch + 1);
      if (meeting_->sleeping.load() != 0) Wake(meeting_->epoch);
      return;
    }
    const std::int64_t since = Now();
    Await(epoch);
    table_.waited += Now() - since;
  }

  // Throws what made a function of the table fail.
  void Explain() const {
    if (link_->ended()) throw Ended();
    if (mismatch_ >= 0) throw Mismatch(static_cast<std::uint32_t>(mismatch_));
    throw std::invalid_argument("no such element, or no such way to combine");
  }

  // Combines the ins[i] of all devices, of lengths[i] values, into outs[i], which may be the same
  // memory. Each device's values are multiplied by its `weight` first.
  template <class T>
  void AllReduce(std::span<void* const> ins, std::span<void* const> outs,
                 std::span<const std::int64_t> lengths, ShapescriptCombine kind,
                 double weight = 1.0) {
    std::int64_t total = 0;
    for (const std::int64_t length : lengths) total += length;
    const std::uint64_t doing = Doing(kReduces, kind * 64 + sizeof(T), lengths);
    const std::int64_t most = kSlot / sizeof(T);
    Pieces<T> in(ins, lengths);
    Pieces<T> out(outs, lengths);
    for (std::int64_t begin = 0; begin < total; begin += most) {
      const std::int64_t size = std::min(most, total - begin);
      T* own = NextSlot<T>(doing);
      in.ForEach(size, [&](T* values, std::int64_t at, std::int64_t length) {
        if (weight == 1.0) {
          if (values != own + at) std::memcpy(own + at, values, length * sizeof(T));
        } else {
          Scale(own + at, values, length, weight);
        }
      });
      MeetAlike(doing);
      if (size * sizeof(T) <= kSmall) {
        out.ForEach(size, [&](T* values, std::int64_t at, std::int64_t length) {
          Combine(
              kind, values, [&](std::uint32_t rank) { return Slot<T>(rank) + at; }, count_, length);
        });
        continue;
      }
      T* result = reinterpret_cast<T*>(result_);
      const std::int64_t slice = (size + count_ - 1) / count_;
      const std::int64_t wide = (slice + 63) / 64 * 64;  // no two devices write into one cache line
      const std::int64_t first = std::min(size, wide * rank_);
      const std::int64_t last = std::min(size, first + wide);
      Combine(
          kind, result + first, [&](std::uint32_t rank) { return Slot<T>(rank) + first; }, count_,
          last - first);
      Meet();
      out.ForEach(size, [&](T* values, std::int64_t at, std::int64_t length) {
        std::memcpy(values, result + at, length * sizeof(T));
      });
    }
  }

  // `out` becomes the parts of all devices one after another; device i's has bytes[i] bytes.
  void AllGather(const std::byte* in, std::byte* out, std::span<const std::int64_t> bytes) {
    const std::int64_t longest = *std::max_element(bytes.begin(), bytes.end());
    const std::int64_t most = kSlot;
    const std::uint64_t doing = Doing(kGathers, 0, bytes);
    for (std::int64_t begin = 0; begin < longest; begin += most) {
      Copy(NextSlot<std::byte>(doing), in + begin, std::min(most, bytes[rank_] - begin));
      MeetAlike(doing);
      std::byte* to = out + begin;
      for (std::uint32_t rank = 0; rank < count_; ++rank) {
        Copy(to, Slot<std::byte>(rank), std::min(most, bytes[rank] - begin));
        to += bytes[rank];
      }
    }
  }

  // `in` has the parts of all devices one after another, device i's of lengths[i] values; `out`
  // becomes the own part, combined.
  template <class T>
  void ReduceScatter(const T* in, T* out, std::span<const std::int64_t> lengths,
                     ShapescriptCombine kind) {
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    const std::int64_t most = SharePerDevice() / sizeof(T);
    const std::uint64_t doing = Doing(kScatters, kind * 64 + sizeof(T), lengths);
    for (std::int64_t begin = 0; begin < longest; begin += most) {
      T* own = NextSlot<T>(doing);
      const T* from = in + begin;
      for (std::uint32_t rank = 0; rank < count_; ++rank) {
        Copy(own + rank * most, from, std::min(most, lengths[rank] - begin));
        from += lengths[rank];
      }
      MeetAlike(doing);
      const std::int64_t size = std::min(most, lengths[rank_] - begin);
      if (size > 0) {
        const std::int64_t at = rank_ * most;
        Combine(
            kind, out + begin, [&](std::uint32_t rank) { return Slot<T>(rank) + at; }, count_,
            size);
      }
    }
  }

  // outs[i] becomes the own part of the ins[i] of all devices, of lengths[i] values, combined.
  template <class T>
  void ReduceParts(std::span<void* const> ins, std::span<void* const> outs,
                   std::span<const std::int64_t> lengths, ShapescriptCombine kind) {
    std::int64_t total = 0;
    for (const std::int64_t length : lengths) total += length;
    const std::uint64_t doing = Doing(kReducesParts, kind * 64 + sizeof(T), lengths);
    const std::int64_t most = kSlot / sizeof(T);
    Pieces<T> in(ins, lengths);
    for (std::int64_t begin = 0; begin < total; begin += most) {
      const std::int64_t end = std::min(total, begin + most);
      T* own = NextSlot<T>(doing);
      in.ForEach(end - begin, [&](T* values, std::int64_t at, std::int64_t length) {
        if (values != own + at) std::memcpy(own + at, values, length * sizeof(T));
      });
      MeetAlike(doing);
      std::int64_t before = 0;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::int64_t part = before + FirstOf(lengths[i], rank_);
        const std::int64_t first = std::max(begin, part);
        const std::int64_t last = std::min(end, part + PartOf(lengths[i], rank_));
        before += lengths[i];
        if (first >= last) continue;
        Combine(
            kind, static_cast<T*>(outs[i]) + (first - part),
            [&](std::uint32_t rank) { return Slot<T>(rank) + (first - begin); }, count_,
            last - first);
      }
    }
  }

  // outs[i], of lengths[i] values, becomes the parts ins[i] of all devices.
  template <class T>
  void GatherParts(std::span<void* const> ins, std::span<void* const> outs,
                   std::span<const std::int64_t> lengths) {
    // the first device has the longest parts
    std::int64_t longest = 0;
    for (const std::int64_t length : lengths) longest += PartOf(length, 0);
    const std::uint64_t doing = Doing(kGathersParts, sizeof(T), lengths);
    const std::int64_t most = kSlot / sizeof(T);
    // calls use(buffer, place within its part, place within the piece, length) for a device's parts
    const auto each = [&](std::uint32_t rank, std::int64_t begin, const auto& use) {
      std::int64_t part = 0;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::int64_t first = std::max(begin, part);
        const std::int64_t last = std::min(begin + most, part + PartOf(lengths[i], rank));
        if (first < last) use(i, first - part, first - begin, last - first);
        part += PartOf(lengths[i], rank);
      }
    };
    for (std::int64_t begin = 0; begin < longest; begin += most) {
      T* own = NextSlot<T>(doing);
      each(rank_, begin, [&](std::size_t i, std::int64_t at, std::int64_t to, std::int64_t length) {
        const T* values = static_cast<const T*>(ins[i]) + at;
        if (values != own + to) Copy(own + to, values, length);
      });
      MeetAlike(doing);
      for (std::uint32_t rank = 0; rank < count_; ++rank) {
        each(rank, begin,
             [&](std::size_t i, std::int64_t at, std::int64_t from, std::int64_t length) {
               Copy(static_cast<T*>(outs[i]) + FirstOf(lengths[i], rank) + at, Slot<T>(rank) + from,
                    length);
             });
      }
    }
  }

  // `in` has what goes to each device one after another, gives[i] bytes to device i; `out` becomes
  // what comes from each, takes[i] bytes from device i. `longest` is the largest number of bytes
  // between any two devices.
  void AllToAll(const std::byte* in, std::span<const std::int64_t> gives, std::byte* out,
                std::span<const std::int64_t> takes, std::int64_t longest) {
    const std::int64_t most = SharePerDevice();
    const std::uint64_t doing = Doing(kExchanges, 0, {&longest, 1});
    for (std::int64_t begin = 0; begin < longest; begin += most) {
      std::byte* own = NextSlot<std::byte>(doing);
      const std::byte* from = in + begin;
      for (std::uint32_t rank = 0; rank < count_; ++rank) {
        Copy(own + rank * most, from, std::min(most, gives[rank] - begin));
        from += gives[rank];
      }
      MeetAlike(doing);
      std::byte* to = out + begin;
      for (std::uint32_t rank = 0; rank < count_; ++rank) {
        Copy(to, Slot<std::byte>(rank) + rank_ * most, std::min(most, takes[rank] - begin));
        to += takes[rank];
      }
    }
  }

 private:
  static constexpr std::size_t kMeetingBytes = 4096;
  static constexpr int kSpins = 4000;
  static_assert(sizeof(Meeting) <= kMeetingBytes);

  // Some buffers as one row of values, gone through piece by piece.
  template <class T>
  class Pieces {
   public:
    Pieces(std::span<void* const> buffers, std::span<const std::int64_t> lengths)
        : buffers_(buffers), lengths_(lengths) {}

    // Calls use(values, place within the piece, length) for each buffer's part of the next `size`
    // values.
    template <class Use>
    void ForEach(std::int64_t size, const Use& use) {
      for (std::int64_t at = 0; at < size;) {
        const std::int64_t length = std::min(size - at, lengths_[buffer_] - within_);
        if (length > 0) use(static_cast<T*>(buffers_[buffer_]) + within_, at, length);
        at += length;
        within_ += length;
        if (within_ == lengths_[buffer_]) {
          ++buffer_;
          within_ = 0;
        }
      }
    }

   private:
    std::span<void* const> buffers_;
    std::span<const std::int64_t> lengths_;
    std::size_t buffer_ = 0;
    std::int64_t within_ = 0;
  };

  // In nanoseconds of the steady clock.
  static std::int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  // Returns when the epoch is over, which the last device that comes ends.
  void Await(std::uint32_t epoch) {
    for (int i = 0; i < spins_; ++i) {
      if (meeting_->epoch.load() != epoch) return;
      Pause();
    }
    while (meeting_->epoch.load() == epoch) {
      if (link_->ended()) throw Ended();
      meeting_->sleeping.fetch_add(1);
      if (meeting_->epoch.load() == epoch) Sleep(meeting_->epoch, epoch);
      meeting_->sleeping.fetch_sub(1);
    }
  }

  template <class T>
  static void Copy(T* to, const T* from, std::int64_t length) {
    if (length > 0) std::memcpy(to, from, length * sizeof(T));
  }

  // Bytes of a slot for each device, where a slot holds something for each.
  std::int64_t SharePerDevice() const {
    return static_cast<std::int64_t>(kSlot / count_ / 64 * 64);
  }

  // How many of `length` values are a device's part, and where that begins.
  std::int64_t PartOf(std::int64_t length, std::uint32_t rank) const {
    return length / count_ + (rank < length % count_ ? 1 : 0);
  }
  std::int64_t FirstOf(std::int64_t length, std::uint32_t rank) const {
    return length / count_ * rank + std::min<std::int64_t>(rank, length % count_);
  }

  enum Kind : std::uint64_t {
    kReduces = 1,
    kGathers,
    kScatters,
    kExchanges,
    kReducesParts,
    kGathersParts
  };

  // A number that says what is done, which is the same on all devices if they do the same (FNV-1a).
  static std::uint64_t Doing(Kind kind, std::uint64_t how, std::span<const std::int64_t> lengths) {
    std::uint64_t number = 0xcbf29ce484222325U;
    const auto add = [&](std::uint64_t more) { number = (number ^ more) * 0x100000001b3U; };
    add(kind);
    add(how);
    for (const std::int64_t length : lengths) add(static_cast<std::uint64_t>(length));
    return number;
  }

  // The own slot whose turn it is; says what the device is about to do.
  template <class T>
  T* NextSlot(std::uint64_t doing) {
    turn_ ^= 1U;
    meeting_->doing[turn_][rank_].store(doing, std::memory_order_relaxed);
    return Slot<T>(rank_);
  }

  // Meets, and sees to it that all devices do the same.
  void MeetAlike(std::uint64_t doing) {
    Meet();
    for (std::uint32_t rank = 0; rank < count_; ++rank) {
      if (meeting_->doing[turn_][rank].load(std::memory_order_relaxed) == doing) continue;
      mismatch_ = static_cast<std::int32_t>(rank);
      throw Mismatch(rank);
    }
  }

  template <class T>
  T* Slot(std::uint32_t rank) const {
    return reinterpret_cast<T*>(slots_ + kSlot * (2 * rank + turn_));
  }

  template <class Call>
  static std::int32_t Status(const Call& call) {
    try {
      call();
      return 0;
    } catch (const Ended&) {
      return 1;
    } catch (const std::exception&) {  // an element or a way to combine that doesn't exist
      return 2;
    }
  }
  static std::int32_t TableReduce(void* self, void* const* ins, void* const* outs,
                                  const std::int64_t* lengths, std::int32_t count,
                                  std::int32_t element, std::int32_t combine) {
    return Status([&] {
      const auto size = static_cast<std::size_t>(count);
      WithElement(element, [&]<class T>(T) {
        static_cast<Group*>(self)->AllReduce<T>({ins, size}, {outs, size}, {lengths, size},
                                                static_cast<ShapescriptCombine>(combine));
      });
    });
  }
  static void* TableLend(void* self, std::int64_t bytes) {
    const Group* group = static_cast<Group*>(self);
    if (bytes > static_cast<std::int64_t>(kSlot)) return nullptr;
    return group->slots_ + kSlot * (2 * group->rank_ + (group->turn_ ^ 1U));
  }
  static std::int32_t TableReduceParts(void* self, void* const* ins, void* const* outs,
                                       const std::int64_t* lengths, std::int32_t count,
                                       std::int32_t element, std::int32_t combine) {
    return Status([&] {
      const auto size = static_cast<std::size_t>(count);
      WithElement(element, [&]<class T>(T) {
        static_cast<Group*>(self)->ReduceParts<T>({ins, size}, {outs, size}, {lengths, size},
                                                  static_cast<ShapescriptCombine>(combine));
      });
    });
  }
  static std::int32_t TableGatherParts(void* self, void* const* ins, void* const* outs,
                                       const std::int64_t* lengths, std::int32_t count,
                                       std::int32_t element) {
    return Status([&] {
      const auto size = static_cast<std::size_t>(count);
      WithElement(element, [&]<class T>(T) {
        static_cast<Group*>(self)->GatherParts<T>({ins, size}, {outs, size}, {lengths, size});
      });
    });
  }
  static std::int32_t TableGather(void* self, const void* in, void* out,
                                  const std::int64_t* bytes) {
    return Status([&] {
      Group* group = static_cast<Group*>(self);
      group->AllGather(static_cast<const std::byte*>(in), static_cast<std::byte*>(out),
                       {bytes, group->count_});
    });
  }
  static std::int32_t TableScatter(void* self, const void* in, void* out,
                                   const std::int64_t* lengths, std::int32_t element) {
    return Status([&] {
      Group* group = static_cast<Group*>(self);
      WithElement(element, [&]<class T>(T) {
        group->ReduceScatter<T>(static_cast<const T*>(in), static_cast<T*>(out),
                                {lengths, group->count_}, SHAPESCRIPT_SUM);
      });
    });
  }

  std::shared_ptr<Link> link_;
  std::shared_ptr<Mapping> memory_;
  std::uint32_t rank_;
  std::uint32_t count_;
  int spins_;
  std::uint32_t turn_ = 0;
  std::int32_t mismatch_ = -1;  // the device that did something else
  Meeting* meeting_ = nullptr;
  std::byte* slots_ = nullptr;
  std::byte* result_ = nullptr;
  ShapescriptCollectives table_{};
};

}  // namespace shapescript
