// Compares nccl.hpp with NCCL's own header, where the build finds that.

#if __has_include(<nccl.h>)

#include <nccl.h>

#include <type_traits>

#include "nccl.hpp"

namespace shapescript::nccl {

static_assert(NCCL_MAJOR == 2);
static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));
static_assert(int(ncclSuccess) == kSuccess && int(ncclInProgress) == kInProgress);
static_assert(int(ncclInt8) == kInt8 && int(ncclUint8) == kUint8 && int(ncclInt32) == kInt32);
static_assert(int(ncclInt64) == kInt64 && int(ncclFloat16) == kFloat16 &&
              int(ncclFloat32) == kFloat32);
static_assert(int(ncclFloat64) == kFloat64 && int(ncclBfloat16) == kBfloat16);
static_assert(int(ncclSum) == kSum && int(ncclMax) == kMax && int(ncclMin) == kMin);
static_assert(std::is_same_v<decltype(&ncclAllReduce),
                             ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                              ncclRedOp_t, ncclComm_t, cudaStream_t)>);

}  // namespace shapescript::nccl

#endif
