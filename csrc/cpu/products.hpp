// Matrix products by a BLAS that is in the process already; nothing is linked.
#pragma once

#include <string>

namespace shapescript {

// Finds sgemm_ and dgemm_ in a library that is loaded, such as torch's libtorch_cpu. False where
// they aren't there; products are then made by kernels of our own.
bool UseBlasOf(const std::string& library);

}  // namespace shapescript
