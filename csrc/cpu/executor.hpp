// A plan made ready for some sizes, and its run.
//
// `Bound` has memory for the buffers between the plan's ends, planned once so that buffers that
// don't live at the same time lie in the same place, and a `Step` for each instruction with all
// numbers worked out. A run sets where inputs and outputs are and goes through the steps; it
// allocates nothing. One run of a Bound at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives.h"
#include "interrupts.hpp"
#include "kernels.hpp"
#include "plan.hpp"
#include "threads.hpp"

namespace shapescript {

struct Key {
  std::uint64_t seed = 0;
  std::int64_t call = 0;
  std::uint32_t first_row = 0;
};

// What a step needs of its run.
struct Context {
  std::span<std::byte* const> buffers;  // where each buffer's memory begins
  Key key;
  Threads* threads;
  // Does an instruction that has no kernel; false where it failed.
  const std::function<bool(int instruction)>* call;
  Interrupts* interrupts;
};

// Memory that begins at a cache line.
class Memory {
 public:
  explicit Memory(std::size_t bytes = 0);
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

class Step {
 public:
  virtual ~Step() = default;
  // False where a value can't be, or a call failed.
  virtual bool Run(const Context& context) = 0;
};

// A loop's dims with the strides of one access, those that lie one after another put together.
struct Walk {
  std::vector<std::int64_t> sizes, strides;

  Walk() = default;
  Walk(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides);
  bool contiguous() const { return sizes.empty() || (sizes.size() == 1 && strides[0] == 1); }
  bool single() const;
};

class Table {
 public:
  explicit Table(std::span<const std::int64_t> numbers) : numbers_(numbers) {}
  std::int64_t operator[](Ref ref) const { return numbers_[static_cast<std::size_t>(ref)]; }
  std::vector<std::int64_t> operator()(const std::vector<Ref>& refs) const;
  std::int64_t product(const std::vector<Ref>& refs) const;

 private:
  std::span<const std::int64_t> numbers_;
};

// What making a step needs to know.
struct Binding {
  const Plan& plan;
  Table sizes;
  const KernelTable& kernels;
  int threads;
  std::span<const ShapescriptCollectives* const> collectives;  // by mesh axis
  std::int64_t length(std::int32_t buffer) const { return sizes[plan.buffers[buffer].length]; }
  std::int64_t width(std::int32_t buffer) const { return WidthOf(plan.buffers[buffer].element); }
};

std::unique_ptr<Step> Bind(const Elementwise& work, const Binding& binding);
std::unique_ptr<Step> Bind(const Product& work, const Binding& binding);
std::unique_ptr<Step> Bind(const Move& work, const Binding& binding);
std::unique_ptr<Step> Bind(const Fill& work, const Binding& binding);
std::unique_ptr<Step> Bind(const Iota& work, const Binding& binding);
std::unique_ptr<Step> Bind(const Gather& work, const Binding& binding);
std::unique_ptr<Step> Bind(const Scatter& work, const Binding& binding);
std::unique_ptr<Step> Bind(const Random& work, const Binding& binding);
std::unique_ptr<Step> Bind(const Check& work, const Binding& binding);
std::unique_ptr<Step> Bind(const AllReduce& work, const Binding& binding);

// How an instruction is done for sizes some of which are 0: as always, not at all, or by the caller
// (what is over no places at all is seldom, and has rules of its own).
enum class Emptiness { kNone, kNothing, kCall };
Emptiness EmptinessOf(const Work& work, const Binding& binding);

// The buffers that an instruction reads and writes.
struct Touched {
  std::vector<std::int32_t> reads, writes;
};
Touched TouchedBy(const Work& work);

struct Timing {
  std::int32_t instruction;
  std::int64_t begin, end;  // in nanoseconds of the steady clock
  std::int64_t waited;      // of these, for other devices
};

class Bound {
 public:
  Bound(std::shared_ptr<const Plan> plan, std::vector<std::int64_t> sizes,
        const KernelTable& kernels, int threads,
        std::span<const ShapescriptCollectives* const> collectives = {});

  // Where a buffer of the plan's own lies; null for inputs and outputs.
  std::byte* address(std::int32_t buffer) const { return own_[static_cast<std::size_t>(buffer)]; }
  std::size_t bytes() const { return run_.size() + fixed_.size(); }
  // Does what follows from the sizes alone; gives the instruction that failed, or -1. Where
  // `interrupts` stop it nothing may be run.
  int Prepare(Threads& threads, const std::function<bool(int)>& call, Interrupts& interrupts);
  // Runs the steps; gives the instruction that failed, or -1. Where `interrupts` stop it the
  // outputs are without meaning, and inputs are as they were: once an input is written over it
  // isn't stopped.
  int Run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs, const Key& key,
          Threads& threads, const std::function<bool(int)>& call, Interrupts& interrupts,
          std::vector<Timing>* timings = nullptr);

 private:
  void PlanMemory();
  void PlanLoans();
  void Lend(std::size_t instruction);
  std::int64_t Waited() const;
  std::size_t LastStop(std::span<std::byte* const> inputs,
                       std::span<std::byte* const> outputs) const;

  std::shared_ptr<const Plan> plan_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::unique_ptr<Step>> steps_;  // null for a call
  std::vector<const ShapescriptCollectives*> collectives_;
  std::vector<std::byte*> own_, now_;
  // Buffers that are written where a collective takes them from, from instruction `from` on.
  struct Loan {
    std::size_t from;
    const ShapescriptCollectives* table;
    std::vector<std::int32_t> buffers;
    std::vector<std::int64_t> places;  // in bytes
    std::int64_t bytes;
  };
  std::vector<Loan> loans_;
  std::vector<std::size_t> begun_;  // for each output the instruction that first writes it
  std::int64_t call_ = 0;
  Memory run_, fixed_;
};

}  // namespace shapescript
