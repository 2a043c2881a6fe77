// The Python module `shapescript._executor`: plans are described in Python, as tuples of whole
// numbers, and run here. The GIL is released during a run, and taken only for an instruction that
// has no kernel.

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor.hpp"
#include "products.hpp"

namespace py = pybind11;

namespace shapescript {
namespace {

Access AccessOf(const py::handle& of) {
  const auto parts = of.cast<py::tuple>();
  return {parts[0].cast<std::int32_t>(), parts[1].cast<Ref>(), parts[2].cast<std::vector<Ref>>()};
}

// What Python fills: a plan, an instruction at a time.
class PlanBuilder {
 public:
  PlanBuilder() : plan_(std::make_shared<Plan>()) {}

  std::int32_t Buffer_(std::int32_t element, std::int32_t place, Ref length) {
    plan_->buffers.push_back({static_cast<Element>(element), static_cast<Place>(place), length});
    return static_cast<std::int32_t>(plan_->buffers.size()) - 1;
  }
  void SetPlace(std::int32_t buffer, std::int32_t place) {
    plan_->buffers.at(buffer).place = static_cast<Place>(place);
  }
  void SetEnds(std::vector<std::int32_t> inputs, std::vector<std::int32_t> outputs,
               std::int32_t call) {
    plan_->inputs = std::move(inputs);
    plan_->outputs = std::move(outputs);
    plan_->call = call;
  }
  void Tiles(std::int32_t node, bool fixed, std::vector<Ref> outer, std::vector<Ref> inner,
             bool whole, const py::list& registers, const py::list& inputs, const py::list& outputs,
             const py::list& numbers, const py::list& ops) {
    Elementwise work{std::move(outer), std::move(inner), whole, {}, {}, {}, {}, {}};
    for (const auto& each : registers) {
      const auto [element, extent] = each.cast<std::pair<std::int32_t, std::int32_t>>();
      work.registers.push_back({static_cast<Element>(element), static_cast<Extent>(extent)});
    }
    for (const auto& each : inputs) {
      const auto parts = each.cast<py::tuple>();
      work.inputs.push_back({parts[0].cast<std::int32_t>(), AccessOf(parts[1])});
    }
    for (const auto& each : outputs) {
      const auto [reg, buffer, staged] = each.cast<std::tuple<std::int32_t, std::int32_t, bool>>();
      work.outputs.push_back({reg, buffer, staged});
    }
    for (const auto& each : numbers) {
      const auto [reg, bits] = each.cast<std::pair<std::int32_t, std::int64_t>>();
      work.numbers.push_back({reg, bits});
    }
    for (const auto& each : ops) {
      auto [kernel, results, operands] = each.cast<
          std::tuple<std::int32_t, std::vector<std::int32_t>, std::vector<std::int32_t>>>();
      work.ops.push_back({kernel, std::move(results), std::move(operands)});
    }
    Put(node, fixed, std::move(work));
  }
  void Multiply(std::int32_t node, bool fixed, std::int32_t element, std::vector<Ref> batch, Ref m,
                Ref n, Ref k, const py::tuple& a, const py::tuple& b, std::int32_t result) {
    Put(node, fixed,
        Product{static_cast<Element>(element), std::move(batch), m, n, k, AccessOf(a), AccessOf(b),
                result});
  }
  void Move_(std::int32_t node, bool fixed, std::vector<Ref> dims, const py::tuple& in,
             const py::tuple& out) {
    Put(node, fixed, Move{std::move(dims), AccessOf(in), AccessOf(out)});
  }
  void Fill_(std::int32_t node, bool fixed, std::int32_t buffer, Ref size, std::int64_t bits) {
    Put(node, fixed, Fill{buffer, size, bits});
  }
  void Iota_(std::int32_t node, bool fixed, std::int32_t buffer) { Put(node, fixed, Iota{buffer}); }
  void Gather_(std::int32_t node, bool fixed, std::vector<Ref> dims, const py::tuple& x,
               const py::tuple& index, Ref step, Ref count, std::int32_t result) {
    Put(node, fixed, Gather{std::move(dims), AccessOf(x), AccessOf(index), step, count, result});
  }
  void Scatter_(std::int32_t node, bool fixed, std::vector<Ref> dims, const py::tuple& x,
                const py::tuple& index, const py::tuple& result, Ref step, Ref count) {
    Put(node, fixed,
        Scatter{std::move(dims), AccessOf(x), AccessOf(index), AccessOf(result), step, count});
  }
  void Random_(std::int32_t node, bool fixed, std::int32_t draw, std::int32_t buffer,
               std::int32_t call, std::uint32_t place, Ref rows, Ref others, Ref bound, Ref first) {
    Put(node, fixed,
        Random{static_cast<Draw>(draw), buffer, call, place, rows, others, bound, first});
  }
  void Check_(std::int32_t node, bool fixed, std::int32_t kind, std::vector<Ref> dims,
              const py::tuple& in, Ref count) {
    Put(node, fixed, Check{static_cast<CheckKind>(kind), std::move(dims), AccessOf(in), count});
  }
  void Call_(std::int32_t node, bool fixed, std::vector<std::int32_t> reads,
             std::vector<std::int32_t> writes) {
    Put(node, fixed, Call{std::move(reads), std::move(writes)});
  }

  void AllReduce_(std::int32_t node, bool fixed, std::int32_t mesh_axis, std::int32_t combine,
                  std::vector<std::int32_t> ins, std::vector<std::int32_t> outs) {
    Put(node, fixed, AllReduce{mesh_axis, combine, std::move(ins), std::move(outs)});
  }
  void HalfReduce(std::int32_t node, bool fixed, std::int32_t mesh_axis, std::int32_t combine,
                  std::vector<std::int32_t> ins, std::vector<std::int32_t> outs,
                  std::int32_t half) {
    Put(node, fixed,
        AllReduce{mesh_axis, combine, std::move(ins), std::move(outs), static_cast<Half>(half)});
  }

  std::shared_ptr<const Plan> plan() const { return plan_; }

 private:
  void Put(std::int32_t node, bool fixed, Work work) {
    plan_->instructions.push_back({node, fixed, std::move(work)});
  }

  std::shared_ptr<Plan> plan_;
};

std::vector<std::byte*> Addresses(const std::vector<std::uintptr_t>& numbers) {
  std::vector<std::byte*> addresses(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    addresses[i] = reinterpret_cast<std::byte*>(numbers[i]);
  return addresses;
}

// The caller's function, called with the GIL; what it raises is its own to keep.
std::function<bool(int)> WithGil(const py::function& call) {
  return [&call](int instruction) {
    const py::gil_scoped_acquire acquired;
    return call(instruction).cast<bool>();
  };
}

// Asks Python whether a run is to end; on the main thread alone is there ever a reason.
std::function<bool()> Asks() {
  return [] {
    const py::gil_scoped_acquire acquired;
    return PyErr_CheckSignals() != 0;
  };
}

class Executor {
 public:
  explicit Executor(int threads) : threads_(threads) {}

  std::unique_ptr<Bound> Bind(const PlanBuilder& builder, std::vector<std::int64_t> sizes,
                              const std::string& isa, const std::vector<py::capsule>& collectives) {
    const KernelTable* kernels = isa.empty() ? &Kernels() : KernelsNamed(isa.c_str());
    if (kernels == nullptr)
      throw std::invalid_argument("this machine hasn't the instructions of `" + isa + "`");
    std::vector<const ShapescriptCollectives*> tables;
    for (const py::capsule& each : collectives) {
      if (each.name() == nullptr || std::string(each.name()) != SHAPESCRIPT_COLLECTIVES_CAPSULE) {
        throw std::invalid_argument("a capsule isn't a table of collectives");
      }
      tables.push_back(each.get_pointer<const ShapescriptCollectives>());
    }
    return std::make_unique<Bound>(builder.plan(), std::move(sizes), *kernels, threads_.count(),
                                   tables);
  }
  int Prepare(Bound& bound, const py::function& call) {
    const std::function<bool(int)> back = WithGil(call);
    const std::function<bool()> ask = Asks();
    Interrupts interrupts(&ask);
    int failed;
    {
      const py::gil_scoped_release released;
      failed = bound.Prepare(threads_, back, interrupts);
    }
    if (interrupts.stopped()) throw py::error_already_set();
    return failed;
  }
  int Run(Bound& bound, const std::vector<std::uintptr_t>& inputs,
          const std::vector<std::uintptr_t>& outputs, std::uint64_t seed, std::int64_t call_number,
          std::uint32_t first_row, const py::function& call) {
    return RunTimed(bound, inputs, outputs, seed, call_number, first_row, call, nullptr);
  }
  py::tuple Profile(Bound& bound, const std::vector<std::uintptr_t>& inputs,
                    const std::vector<std::uintptr_t>& outputs, std::uint64_t seed,
                    std::int64_t call_number, std::uint32_t first_row, const py::function& call) {
    std::vector<Timing> timings;
    const int failed =
        RunTimed(bound, inputs, outputs, seed, call_number, first_row, call, &timings);
    py::list found;
    for (const Timing& timing : timings)
      found.append(py::make_tuple(timing.instruction, timing.begin, timing.end, timing.waited));
    return py::make_tuple(failed, found);
  }
  int threads() const { return threads_.count(); }

 private:
  int RunTimed(Bound& bound, const std::vector<std::uintptr_t>& inputs,
               const std::vector<std::uintptr_t>& outputs, std::uint64_t seed,
               std::int64_t call_number, std::uint32_t first_row, const py::function& call,
               std::vector<Timing>* timings) {
    const std::vector<std::byte*> in = Addresses(inputs), out = Addresses(outputs);
    const std::function<bool(int)> back = WithGil(call);
    const std::function<bool()> ask = Asks();
    Interrupts interrupts(&ask);
    int failed;
    {
      const py::gil_scoped_release released;
      failed =
          bound.Run(in, out, {seed, call_number, first_row}, threads_, back, interrupts, timings);
    }
    if (interrupts.stopped()) throw py::error_already_set();
    return failed;
  }

  Threads threads_;
};

py::dict KernelNumbers() {
  py::dict numbers;
  const KernelTable& table = Kernels();
  for (std::int32_t i = 0; i < table.tile_count; ++i) numbers[table.tiles[i].name] = i;
  return numbers;
}

}  // namespace
}  // namespace shapescript

PYBIND11_MODULE(_executor, module) {
  using namespace shapescript;
  module.doc() = "Runs plans: flat lists of instructions over numbered buffers.";
  py::class_<PlanBuilder>(module, "Plan")
      .def(py::init<>())
      .def("buffer", &PlanBuilder::Buffer_)
      .def("set_place", &PlanBuilder::SetPlace)
      .def("set_ends", &PlanBuilder::SetEnds)
      .def("tiles", &PlanBuilder::Tiles)
      .def("product", &PlanBuilder::Multiply)
      .def("move", &PlanBuilder::Move_)
      .def("fill", &PlanBuilder::Fill_)
      .def("iota", &PlanBuilder::Iota_)
      .def("gather", &PlanBuilder::Gather_)
      .def("scatter", &PlanBuilder::Scatter_)
      .def("random", &PlanBuilder::Random_)
      .def("check", &PlanBuilder::Check_)
      .def("call", &PlanBuilder::Call_)
      .def("all_reduce", &PlanBuilder::AllReduce_)
      .def("half_reduce", &PlanBuilder::HalfReduce);
  py::class_<Bound>(module, "Bound")
      .def("address",
           [](const Bound& bound, std::int32_t buffer) {
             return reinterpret_cast<std::uintptr_t>(bound.address(buffer));
           })
      .def_property_readonly("bytes", &Bound::bytes);
  py::class_<Executor>(module, "Executor")
      .def(py::init<int>())
      .def_property_readonly("threads", &Executor::threads)
      .def("bind", &Executor::Bind, py::arg("plan"), py::arg("sizes"), py::arg("kernels"),
           py::arg("collectives") = std::vector<py::capsule>(),
           "`collectives` are tables of collectives.h, one for each axis of the mesh; the caller "
           "keeps them.")
      .def("prepare", &Executor::Prepare)
      .def("run", &Executor::Run)
      .def("profile", &Executor::Profile);
  module.def("kernel_numbers", &KernelNumbers, "The kernels on tiles, by name.");
  module.def(
      "has_kernels", [](const std::string& name) { return KernelsNamed(name.c_str()) != nullptr; },
      "Whether this machine can run the kernels of an instruction set.");
  module.def(
      "kernel_set", [] { return Kernels().name; }, "The instruction set whose kernels are used.");
  module.def("use_blas_of", &UseBlasOf, "Takes matrix products from a library that is loaded.");
}
