// The Python module `shapescript._transport`: what workers and their controller say to each other
// in shared memory. Knows no torch: tensors come as addresses, which the Python side has checked.
// The GIL is released while waiting.

#include <poll.h>
#include <pthread.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <signal.h>

#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "transport_group.hpp"

namespace py = pybind11;

namespace shapescript {
namespace {

using Addresses = std::vector<std::uintptr_t>;
using Lengths = std::vector<std::int64_t>;

// Calls `step` without the GIL until it is true; between calls Python's signal handlers run, so
// Ctrl-C is heard.
template <class Step>
bool Until(const Step& step, double seconds) {
  timespec start{};
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (;;) {
    {
      const py::gil_scoped_release released;
      if (step()) return true;
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (seconds >= 0) {
      timespec now{};
      clock_gettime(CLOCK_MONOTONIC, &now);
      if (now.tv_sec - start.tv_sec + 1e-9 * (now.tv_nsec - start.tv_nsec) >= seconds) return false;
    }
  }
}

// A thread of a worker that does nothing but say that the process runs, and end it when the
// controller has gone. It takes no lock and no GIL, so a long operation doesn't stop it, and a
// stopped process does.
void Guard(const std::shared_ptr<Link>& link, std::uint32_t rank, int lifeline, int parent) {
#if defined(__linux__)
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (getppid() != parent) _exit(1);  // it went before the line above
  std::thread([link, rank, lifeline] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    for (;;) {
      pollfd line{lifeline, POLLIN, 0};
      if (poll(&line, 1, 100) > 0) _exit(1);
      link->Beat(rank);
    }
  }).detach();
}

void CheckLengths(const Group& group, const Lengths& lengths) {
  if (lengths.size() != group.count())
    throw std::invalid_argument("a length for each device is asked for");
  for (const std::int64_t length : lengths) {
    if (length < 0) throw std::invalid_argument("a length is negative");
  }
}

std::vector<void*> Pointers(const Addresses& addresses) {
  std::vector<void*> pointers;
  for (const std::uintptr_t address : addresses)
    pointers.push_back(reinterpret_cast<void*>(address));
  return pointers;
}

void AllReduce(Group& group, const Addresses& ins, const Addresses& outs, const Lengths& lengths,
               int element, int kind, double weight) {
  if (ins.size() != lengths.size() || outs.size() != lengths.size()) {
    throw std::invalid_argument("a length for each buffer is asked for");
  }
  const std::vector<void*> from = Pointers(ins);
  const std::vector<void*> to = Pointers(outs);
  const py::gil_scoped_release released;
  WithElement(element, [&]<class T>(T) {
    group.AllReduce<T>(from, to, lengths, static_cast<ShapescriptCombine>(kind), weight);
  });
}

void AllGather(Group& group, std::uintptr_t in, std::uintptr_t out, const Lengths& bytes) {
  CheckLengths(group, bytes);
  const py::gil_scoped_release released;
  group.AllGather(reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out), bytes);
}

void ReduceScatter(Group& group, std::uintptr_t in, std::uintptr_t out, const Lengths& lengths,
                   int element, int kind) {
  CheckLengths(group, lengths);
  const py::gil_scoped_release released;
  WithElement(element, [&]<class T>(T) {
    group.ReduceScatter<T>(reinterpret_cast<const T*>(in), reinterpret_cast<T*>(out), lengths,
                           static_cast<ShapescriptCombine>(kind));
  });
}

void AllToAll(Group& group, std::uintptr_t in, const Lengths& gives, std::uintptr_t out,
              const Lengths& takes, std::int64_t longest) {
  CheckLengths(group, gives);
  CheckLengths(group, takes);
  const py::gil_scoped_release released;
  group.AllToAll(reinterpret_cast<const std::byte*>(in), gives, reinterpret_cast<std::byte*>(out),
                 takes, longest);
}

}  // namespace
}  // namespace shapescript

PYBIND11_MODULE(_transport, module) {
  using namespace shapescript;  // NOLINT
  module.doc() = "What workers and their controller say to each other in shared memory.";
  py::register_exception<Ended>(module, "Ended");

  py::class_<Link, std::shared_ptr<Link>>(module, "Link")
      .def(py::init<int>(), py::arg("file"))
      .def_static("lay", &Link::Lay, py::arg("file"), py::arg("workers"))
      .def_property_readonly_static("size", [](const py::object&) { return Link::Bytes(); })
      .def_property_readonly_static("longest", [](const py::object&) { return kLongestCommand; })
      .def_property_readonly("ended", &Link::ended)
      .def("end", &Link::End)
      .def(
          "post",
          [](Link& link, const py::bytes& command) {
            const std::string_view text = command;
            Until([&] { return link.HasRoom(text.size()); }, -1);
            link.Post(text);
          },
          py::arg("command"))
      .def(
          "take",
          [](Link& link, std::uint32_t rank) {
            std::string command;
            Until([&] { return link.Take(rank, command); }, -1);
            return py::bytes(command);
          },
          py::arg("rank"))
      .def("finish", &Link::Finish, py::arg("rank"), py::arg("number"))
      .def("finished", &Link::Finished, py::arg("rank"))
      .def(
          "wait",
          [](Link& link, std::uint32_t rank, std::uint64_t number, double seconds) {
            return Until([&] { return link.HasFinished(rank, number); }, seconds);
          },
          py::arg("rank"), py::arg("number"), py::arg("seconds") = -1.0)
      .def("beats", &Link::Beats, py::arg("rank"));

  py::class_<Mapping, std::shared_ptr<Mapping>>(module, "Mapping")
      .def(py::init<int>(), py::arg("file"));

  py::class_<Group, std::shared_ptr<Group>>(module, "Group")
      .def(py::init<std::shared_ptr<Link>, std::shared_ptr<Mapping>, std::size_t, std::uint32_t,
                    std::uint32_t, bool>(),
           py::arg("link"), py::arg("memory"), py::arg("at"), py::arg("rank"), py::arg("count"),
           py::arg("spin"))
      .def_static("bytes", &Group::Bytes, py::arg("count"))
      .def_property_readonly("rank", &Group::rank)
      .def_property_readonly("count", &Group::count)
      .def("meet", &Group::Meet, py::call_guard<py::gil_scoped_release>())
      .def("all_reduce", &AllReduce, py::arg("ins"), py::arg("outs"), py::arg("lengths"),
           py::arg("element"), py::arg("kind"), py::arg("weight") = 1.0)
      .def("all_gather", &AllGather, py::arg("in_"), py::arg("out"), py::arg("bytes"))
      .def("reduce_scatter", &ReduceScatter, py::arg("in_"), py::arg("out"), py::arg("lengths"),
           py::arg("element"), py::arg("kind"))
      .def("all_to_all", &AllToAll, py::arg("in_"), py::arg("gives"), py::arg("out"),
           py::arg("takes"), py::arg("longest"))
      .def("explain", &Group::Explain, "Raises what made a function of the table fail.")
      .def(
          "capsule",
          [](Group& group) { return py::capsule(group.table(), SHAPESCRIPT_COLLECTIVES_CAPSULE); },
          "The table of collectives.h; it is good while the group lives.");

  module.def("guard", &Guard, py::arg("link"), py::arg("rank"), py::arg("lifeline"),
             py::arg("parent"), "Ends this process with its parent, and beats.");
}
