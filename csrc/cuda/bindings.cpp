// The Python module `shapescript._cuda`; the tests compile the same with the shim, as
// `_shimmed_cuda`. Addresses are whole numbers: the Python side holds the memory, and looks at its
// device, element and sizes.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <utility>

#include "launch.hpp"
#include "nccl.hpp"

#ifndef SHAPESCRIPT_MODULE
#define SHAPESCRIPT_MODULE _cuda
#endif

namespace py = pybind11;

namespace shapescript::cuda {
namespace {

void Launched(int error) {
  if (error != 0) throw std::runtime_error("a kernel wasn't launched: " + ErrorText(error));
}

void AddLaunches(py::module_& m) {
  py::class_<Grid>(m, "Grid", py::module_local())
      .def_readonly("threads", &Grid::threads)
      .def_readonly("blocks", &Grid::blocks)
      .def_readonly("stream", &Grid::stream)
      .def(py::init([](std::int64_t threads, std::int64_t blocks, Address stream) {
             return Grid{threads, blocks, stream};
           }),
           py::arg("threads"), py::arg("blocks"), py::arg("stream"));
  py::class_<Walk>(m, "Walk", py::module_local())
      .def(py::init(
               [](std::vector<std::int64_t> sizes, std::vector<std::vector<std::int64_t>> strides) {
                 return Walk{std::move(sizes), std::move(strides)};
               }),
           py::arg("sizes"), py::arg("strides"));
  const auto free = py::call_guard<py::gil_scoped_release>();
  m.def(
      "tiles",
      [](Address programs, int count, std::int64_t blocks, const Grid& grid) {
        Launched(LaunchTiles(programs, count, blocks, grid));
      },
      free);
  m.def(
      "gather",
      [](const Walk& walk, Address out, Address x, Address index, std::int64_t step,
         std::int64_t bound, std::int64_t width, Address record, int node, const Grid& grid) {
        Launched(LaunchGather(walk, out, x, index, step, bound, width, record, node, grid));
      },
      free);
  m.def(
      "scatter",
      [](const Walk& walk, int kept, const std::string& element, Address result, Address x,
         Address index, std::int64_t step, std::int64_t bound, bool in_order, Address record,
         int node, const Grid& grid) {
        Launched(LaunchScatter(walk, kept, element, result, x, index, step, bound, in_order, record,
                               node, grid));
      },
      free);
  m.def(
      "move",
      [](const Walk& walk, Address out, Address x, std::int64_t width, const Grid& grid) {
        Launched(LaunchMove(walk, out, x, width, grid));
      },
      free);
  m.def(
      "random",
      [](int draw, const std::string& element, Address out, Address seed, Address call,
         Address first_row, std::uint32_t place, std::int64_t rows, std::int64_t others,
         std::int64_t bound, const Grid& grid) {
        Launched(LaunchRandom(draw, element, out, seed, call, first_row, place, rows, others, bound,
                              grid));
      },
      free);
  m.def(
      "check",
      [](const Walk& walk, Address x, int kind, std::int64_t bound, Address record, int node,
         const Grid& grid) { Launched(LaunchCheck(walk, x, kind, bound, record, node, grid)); },
      free);
  m.def(
      "take_rows",
      [](Address columns, std::int64_t count, Address order, Address position, Address real,
         std::int64_t room, std::int64_t most, const Grid& grid) {
        Launched(LaunchTakeRows(columns, count, order, position, real, room, most, grid));
      },
      free);
  m.def(
      "pack",
      [](Address bucket, bool wide, Address segments, std::int64_t count, std::int64_t most,
         Address weight, const Grid& grid) {
        Launched(LaunchPack(bucket, wide, segments, count, most, weight, grid));
      },
      free);
  m.def(
      "unpack",
      [](Address bucket, bool wide, Address segments, std::int64_t count, std::int64_t most,
         const Grid& grid) { Launched(LaunchUnpack(bucket, wide, segments, count, most, grid)); },
      free);
  m.def(
      "finish",
      [](Address record, Address shown, Address steps, Address control, Address scalars,
         std::int64_t scalar_count, Address shown_scalars, std::int64_t shown_rows,
         const Grid& grid) {
        Launched(LaunchFinish(record, shown, steps, control, scalars, scalar_count, shown_scalars,
                              shown_rows, grid));
      },
      free);
  m.def("tile_ops", [] {
    py::dict found;
    for (const auto& [name, number] : TileOps()) found[py::str(name)] = number;
    return found;
  });
  m.def("limits", [] {
    py::dict found;
    for (const auto& [name, number] : Limits()) found[py::str(name)] = number;
    return found;
  });
  m.def("device_count", &DeviceCount, free);
}

}  // namespace
}  // namespace shapescript::cuda

namespace shapescript::nccl {
namespace {

using cuda::Address;

template <class T>
T* At(Address address) {
  return reinterpret_cast<T*>(address);
}

// This process's end of a group of GPUs. It is ended by `destroy`, once no graph holds it, or by
// the process's end.
class Communicator {
 public:
  Communicator(const py::bytes& id, int count, int rank) {
    const std::string text = id;
    UniqueId unique{};
    if (text.size() != sizeof unique.internal)
      throw std::invalid_argument("a unique id has 128 bytes");
    text.copy(unique.internal, text.size());
    const py::gil_scoped_release release;
    Check(Loaded().comm_init_rank(&comm_, count, unique, rank), "ncclCommInitRank");
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void AllReduce(Address memory, std::size_t count, int element, int kind, Address stream) {
    Check(Loaded().all_reduce(At<void>(memory), At<void>(memory), count, element, kind, Open(),
                              At<void>(stream)),
          "ncclAllReduce", comm_);
  }
  void Broadcast(Address from, Address into, std::size_t count, int element, int root,
                 Address stream) {
    Check(Loaded().broadcast(At<void>(from), At<void>(into), count, element, root, Open(),
                             At<void>(stream)),
          "ncclBroadcast", comm_);
  }
  void Reduce(Address from, Address into, std::size_t count, int element, int kind, int root,
              Address stream) {
    Check(Loaded().reduce(At<void>(from), At<void>(into), count, element, kind, root, Open(),
                          At<void>(stream)),
          "ncclReduce", comm_);
  }
  void Send(Address from, std::size_t count, int element, int peer, Address stream) {
    Check(Loaded().send(At<void>(from), count, element, peer, Open(), At<void>(stream)), "ncclSend",
          comm_);
  }
  void Receive(Address into, std::size_t count, int element, int peer, Address stream) {
    Check(Loaded().receive(At<void>(into), count, element, peer, Open(), At<void>(stream)),
          "ncclRecv", comm_);
  }
  // Throws what went wrong on the device or with another rank since.
  void CheckAsync() {
    int error = 0;
    Check(Loaded().comm_get_async_error(Open(), &error), "ncclCommGetAsyncError", comm_);
    Check(error, "NCCL", comm_);
  }
  void Destroy() {
    if (comm_ == nullptr) return;
    Check(Loaded().comm_destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
  }
  void Abort() {
    if (comm_ != nullptr) Loaded().comm_abort(std::exchange(comm_, nullptr));
  }

 private:
  Comm Open() const {
    if (comm_ == nullptr) throw std::logic_error("the communicator was destroyed");
    return comm_;
  }
  Comm comm_ = nullptr;
};

void AddNccl(py::module_& m) {
  const auto free = py::call_guard<py::gil_scoped_release>();
  m.def(
      "nccl_load",
      [](const std::string& path) {
        Load(path);
        int version = 0;
        Check(Loaded().get_version(&version), "ncclGetVersion");
        return version;
      },
      py::arg("path") = "");
  m.def("nccl_unique_id", [] {
    UniqueId id{};
    Check(Loaded().get_unique_id(&id), "ncclGetUniqueId");
    return py::bytes(id.internal, sizeof id.internal);
  });
  m.def("nccl_group_start", [] { Check(Loaded().group_start(), "ncclGroupStart"); }, free);
  m.def("nccl_group_end", [] { Check(Loaded().group_end(), "ncclGroupEnd"); }, free);
  py::class_<Communicator>(m, "Communicator", py::module_local())
      .def(py::init<const py::bytes&, int, int>(), py::arg("id"), py::arg("count"), py::arg("rank"))
      .def("all_reduce", &Communicator::AllReduce, free)
      .def("broadcast", &Communicator::Broadcast, free)
      .def("reduce", &Communicator::Reduce, free)
      .def("send", &Communicator::Send, free)
      .def("receive", &Communicator::Receive, free)
      .def("check_async", &Communicator::CheckAsync, free)
      .def("destroy", &Communicator::Destroy, free)
      .def("abort", &Communicator::Abort, free);
}

}  // namespace
}  // namespace shapescript::nccl

PYBIND11_MODULE(SHAPESCRIPT_MODULE, m) {
  m.doc() = "Kernels for NVIDIA GPUs, and NCCL.";
  shapescript::cuda::AddLaunches(m);
  shapescript::nccl::AddNccl(m);
}
