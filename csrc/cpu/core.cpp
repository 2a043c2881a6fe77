// The Python module `shapescript._core`: what the CPU does faster without Python or torch.
// Holds no state, so that any number of threads may call it at once; the GIL is released meanwhile.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>

#include "philox.hpp"

namespace py = pybind11;

namespace shapescript {
namespace {

using Bits = py::array_t<std::uint32_t, py::array::c_style>;

// Fills bits[row, i, :] with the words of the counter (first_index + i, first_row + row, place,
// call). The caller has checked that the counters fit in 32 bits.
void FillPhilox(Bits& bits, std::uint64_t key, std::uint32_t first_index, std::uint32_t first_row,
                std::uint32_t place, std::uint32_t call) {
  if (bits.ndim() != 3 || bits.shape(2) != 4) {
    throw std::invalid_argument("bits must be of shape [rows, others, 4]");
  }
  const py::ssize_t rows = bits.shape(0);
  const py::ssize_t others = bits.shape(1);
  std::uint32_t* out = bits.mutable_data();  // throws when the array is read-only

  const py::gil_scoped_release released;
  for (py::ssize_t row = 0; row < rows; ++row) {
    const std::uint32_t row_word = first_row + static_cast<std::uint32_t>(row);
    for (py::ssize_t i = 0; i < others; ++i) {
      const std::uint32_t index_word = first_index + static_cast<std::uint32_t>(i);
      for (const std::uint32_t word : Philox({index_word, row_word, place, call}, key)) {
        *out++ = word;
      }
    }
  }
}

}  // namespace
}  // namespace shapescript

PYBIND11_MODULE(_core, module) {
  module.doc() = "Parts of ShapeScript in C++.";
  // noconvert: a copy would be filled in place of the caller's array
  module.def(
      "fill_philox", &shapescript::FillPhilox, py::arg("bits").noconvert(), py::arg("key"),
      py::arg("first_index"), py::arg("first_row"), py::arg("place"), py::arg("call"),
      "Fills bits[row, i] with Philox 4x32-10 of (first_index+i, first_row+row, place, call).");
}
