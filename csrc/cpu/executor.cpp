#include "executor.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <new>

namespace shapescript {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class NothingStep : public Step {
 public:
  bool Run(const Context&) override { return true; }
};

}  // namespace

Memory::Memory(std::size_t bytes)
    : bytes_(bytes),
      data_(bytes == 0 ? nullptr
                       : static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kPage}))) {}

void Memory::Free::operator()(std::byte* data) const {
  ::operator delete(data, std::align_val_t{kPage});
}

std::vector<std::int64_t> Table::operator()(const std::vector<Ref>& refs) const {
  std::vector<std::int64_t> found(refs.size());
  std::transform(refs.begin(), refs.end(), found.begin(), [this](Ref ref) { return (*this)[ref]; });
  return found;
}

std::int64_t Table::product(const std::vector<Ref>& refs) const {
  std::int64_t all = 1;
  for (const Ref ref : refs) all *= (*this)[ref];
  return all;
}

Touched TouchedBy(const Work& work) {
  Touched touched;
  const auto visit = [&](const auto& of) {
    using Of = std::decay_t<decltype(of)>;
    if constexpr (std::is_same_v<Of, Elementwise>) {
      for (const TileInput& input : of.inputs) touched.reads.push_back(input.access.buffer);
      for (const TileOutput& output : of.outputs) touched.writes.push_back(output.buffer);
    } else if constexpr (std::is_same_v<Of, Product>) {
      touched = {{of.a.buffer, of.b.buffer}, {of.result}};
    } else if constexpr (std::is_same_v<Of, Move>) {
      touched = {{of.in.buffer}, {of.out.buffer}};
    } else if constexpr (std::is_same_v<Of, Fill> || std::is_same_v<Of, Iota>) {
      touched = {{}, {of.buffer}};
    } else if constexpr (std::is_same_v<Of, Gather>) {
      touched = {{of.x.buffer, of.index.buffer}, {of.result}};
    } else if constexpr (std::is_same_v<Of, Scatter>) {
      touched = {{of.x.buffer, of.index.buffer}, {of.result.buffer}};
    } else if constexpr (std::is_same_v<Of, Random>) {
      touched = {{of.call}, {of.buffer}};
    } else if constexpr (std::is_same_v<Of, Check>) {
      touched = {{of.in.buffer}, {}};
    } else if constexpr (std::is_same_v<Of, Call>) {
      touched = {of.reads, of.writes};
    } else if constexpr (std::is_same_v<Of, AllReduce>) {
      touched = {of.ins, of.outs};
    }
  };
  std::visit(visit, work);
  return touched;
}

Bound::Bound(std::shared_ptr<const Plan> plan, std::vector<std::int64_t> sizes,
             const KernelTable& kernels, int threads,
             std::span<const ShapescriptCollectives* const> collectives)
    : plan_(std::move(plan)),
      sizes_(std::move(sizes)),
      collectives_(collectives.begin(), collectives.end()),
      own_(plan_->buffers.size()),
      now_(plan_->buffers.size()) {
  const Binding binding{*plan_, Table(sizes_), kernels, threads, collectives};
  for (const Instruction& instruction : plan_->instructions) {
    const Emptiness emptiness = EmptinessOf(instruction.work, binding);
    if (emptiness != Emptiness::kNone) {
      steps_.push_back(emptiness == Emptiness::kNothing ? std::make_unique<NothingStep>()
                                                        : std::unique_ptr<Step>());
      continue;
    }
    steps_.push_back(std::visit(
        [&](const auto& work) -> std::unique_ptr<Step> {
          if constexpr (std::is_same_v<std::decay_t<decltype(work)>, Call>) {
            return nullptr;
          } else {
            return Bind(work, binding);
          }
        },
        instruction.work));
  }
  PlanMemory();
  PlanLoans();
  for (const std::int32_t output : plan_->outputs) {
    std::size_t at = 0;
    for (; at < plan_->instructions.size(); ++at) {
      const std::vector<std::int32_t> writes = TouchedBy(plan_->instructions[at].work).writes;
      if (std::find(writes.begin(), writes.end(), output) != writes.end()) break;
    }
    begun_.push_back(at);
  }
  if (plan_->call >= 0) own_[plan_->call] = reinterpret_cast<std::byte*>(&call_);
}

// Each buffer gets the smallest free place that holds it, from the instruction that first writes it
// to the last that reads it.
void Bound::PlanMemory() {
  const std::size_t count = plan_->buffers.size();
  std::vector<std::int64_t> first(count, -1), last(count, -1);
  for (std::size_t i = 0; i < plan_->instructions.size(); ++i) {
    const Touched touched = TouchedBy(plan_->instructions[i].work);
    for (const auto* list : {&touched.reads, &touched.writes}) {
      for (const std::int32_t buffer : *list) {
        if (first[buffer] < 0) first[buffer] = static_cast<std::int64_t>(i);
        last[buffer] = static_cast<std::int64_t>(i);
      }
    }
  }
  const Table table(sizes_);
  const auto bytes_of = [&](std::size_t buffer) {
    const auto bytes = static_cast<std::size_t>(table[plan_->buffers[buffer].length] *
                                                WidthOf(plan_->buffers[buffer].element));
    // a line more, so that large buffers don't begin at the same place of a page
    return bytes < kPage ? std::max((bytes + kLine - 1) / kLine * kLine, kLine)
                         : (bytes + kLine - 1) / kLine * kLine + kLine;
  };
  std::vector<std::size_t> offset(count, 0);
  std::size_t run_bytes = 0, fixed_bytes = 0;
  std::map<std::size_t, std::size_t> free;  // offset, bytes
  const auto release = [&](std::size_t at, std::size_t bytes) {
    auto place = free.emplace(at, bytes).first;
    const auto next = std::next(place);
    if (next != free.end() && at + bytes == next->first) {
      place->second += next->second;
      free.erase(next);
    }
    if (place != free.begin()) {
      const auto before = std::prev(place);
      if (before->first + before->second == at) {
        before->second += place->second;
        free.erase(place);
      }
    }
  };
  const auto take = [&](std::size_t bytes) {
    auto best = free.end();
    for (auto place = free.begin(); place != free.end(); ++place) {
      if (place->second >= bytes && (best == free.end() || place->second < best->second))
        best = place;
    }
    if (best == free.end()) {
      // the last place grows where it is free
      if (!free.empty() &&
          std::prev(free.end())->first + std::prev(free.end())->second == run_bytes) {
        const auto end = std::prev(free.end());
        const std::size_t at = end->first;
        free.erase(end);
        run_bytes = at + bytes;
        return at;
      }
      run_bytes += bytes;
      return run_bytes - bytes;
    }
    const std::size_t at = best->first, left = best->second - bytes;
    free.erase(best);
    if (left > 0) free.emplace(at + bytes, left);
    return at;
  };
  std::vector<std::vector<std::size_t>> begins(plan_->instructions.size()),
      ends(plan_->instructions.size());
  for (std::size_t buffer = 0; buffer < count; ++buffer) {
    if (first[buffer] < 0) continue;
    if (plan_->buffers[buffer].place == Place::kFixed) {
      offset[buffer] = fixed_bytes;
      fixed_bytes += bytes_of(buffer);
    } else if (plan_->buffers[buffer].place == Place::kRun) {
      begins[first[buffer]].push_back(buffer);
      ends[last[buffer]].push_back(buffer);
    }
  }
  for (std::size_t i = 0; i < plan_->instructions.size(); ++i) {
    for (const std::size_t buffer : begins[i]) offset[buffer] = take(bytes_of(buffer));
    for (const std::size_t buffer : ends[i]) release(offset[buffer], bytes_of(buffer));
  }
  run_ = Memory(run_bytes);
  fixed_ = Memory(fixed_bytes);
  for (std::size_t buffer = 0; buffer < count; ++buffer) {
    if (first[buffer] < 0) continue;
    if (plan_->buffers[buffer].place == Place::kFixed)
      own_[buffer] = fixed_.data() + offset[buffer];
    if (plan_->buffers[buffer].place == Place::kRun) own_[buffer] = run_.data() + offset[buffer];
  }
}

// What a collective takes is made where it takes it from, where nothing else reads it, no caller
// makes it, and no other collective stands between.
void Bound::PlanLoans() {
  const Table table(sizes_);
  std::size_t from = 0;
  for (std::size_t i = 0; i < plan_->instructions.size(); ++i) {
    const auto* work = std::get_if<AllReduce>(&plan_->instructions[i].work);
    if (work == nullptr) {
      // a call may be a collective
      if (std::holds_alternative<Call>(plan_->instructions[i].work)) from = i + 1;
      continue;
    }
    Loan loan{from, collectives_[static_cast<std::size_t>(work->mesh_axis)], work->ins, {}, 0};
    from = i + 1;
    bool may = true;
    for (const std::int32_t buffer : loan.buffers) {
      const Buffer& of = plan_->buffers[static_cast<std::size_t>(buffer)];
      loan.places.push_back(loan.bytes);
      loan.bytes += table[of.length] * WidthOf(of.element);
      may = may && of.place == Place::kRun &&
            std::count(loan.buffers.begin(), loan.buffers.end(), buffer) == 1;
    }
    for (std::size_t at = 0; at < plan_->instructions.size() && may; ++at) {
      if (at == i) continue;
      const Touched touched = TouchedBy(plan_->instructions[at].work);
      for (const auto* list : {&touched.reads, &touched.writes}) {
        for (const std::int32_t buffer : *list) {
          if (std::find(loan.buffers.begin(), loan.buffers.end(), buffer) != loan.buffers.end())
            may = may && at >= loan.from && at < i && steps_[at] != nullptr;
        }
      }
    }
    if (may) loans_.push_back(std::move(loan));
  }
}

void Bound::Lend(std::size_t instruction) {
  for (const Loan& loan : loans_) {
    if (loan.from != instruction) continue;
    auto* memory = static_cast<std::byte*>(loan.table->lend(loan.table->self, loan.bytes));
    if (memory == nullptr) continue;
    for (std::size_t i = 0; i < loan.buffers.size(); ++i)
      now_[static_cast<std::size_t>(loan.buffers[i])] = memory + loan.places[i];
  }
}

// For how long this device has waited for others so far.
std::int64_t Bound::Waited() const {
  std::int64_t all = 0;
  for (const ShapescriptCollectives* each : collectives_) all += each->waited;
  return all;
}

int Bound::Prepare(Threads& threads, const std::function<bool(int)>& call, Interrupts& interrupts) {
  now_ = own_;
  const Context context{now_, Key{}, &threads, &call, &interrupts};
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (!plan_->instructions[i].fixed) continue;
    if (interrupts.Ask()) return -1;
    const bool done = steps_[i] != nullptr ? steps_[i]->Run(context) : call(static_cast<int>(i));
    if (interrupts.stopped()) return -1;
    if (!done) return static_cast<int>(i);
  }
  return -1;
}

// The first instruction that writes over an input: a run is stopped only before it.
std::size_t Bound::LastStop(std::span<std::byte* const> inputs,
                            std::span<std::byte* const> outputs) const {
  std::vector<std::byte*> given(inputs.begin(), inputs.end());
  std::sort(given.begin(), given.end());
  std::size_t last = plan_->instructions.size();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (begun_[i] < last && std::binary_search(given.begin(), given.end(), outputs[i]))
      last = begun_[i];
  }
  return last;
}

int Bound::Run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs,
               const Key& key, Threads& threads, const std::function<bool(int)>& call,
               Interrupts& interrupts, std::vector<Timing>* timings) {
  now_ = own_;
  for (std::size_t i = 0; i < inputs.size(); ++i) now_[plan_->inputs[i]] = inputs[i];
  for (std::size_t i = 0; i < outputs.size(); ++i) now_[plan_->outputs[i]] = outputs[i];
  call_ = key.call;
  const Context context{now_, key, &threads, &call, &interrupts};
  const std::size_t last_stop = LastStop(inputs, outputs);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (!loans_.empty()) Lend(i);
    if (plan_->instructions[i].fixed) continue;
    if (i == last_stop) interrupts.Forbid();
    if (interrupts.Ask()) return -1;
    const std::int64_t begin = timings != nullptr ? Now() : 0;
    const std::int64_t waited = timings != nullptr ? Waited() : 0;
    const bool done = steps_[i] != nullptr ? steps_[i]->Run(context) : call(static_cast<int>(i));
    if (timings != nullptr)
      timings->push_back({static_cast<std::int32_t>(i), begin, Now(), Waited() - waited});
    if (interrupts.stopped()) return -1;
    if (!done) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace shapescript
