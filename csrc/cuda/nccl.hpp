// NCCL, found when it is asked for: nothing is linked, so that the module loads where there is no
// GPU. The part of its interface that is used is declared here; nccl_check.cpp compares it with
// nccl.h where that is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace shapescript::nccl {

struct UniqueId {
  char internal[128];
};
using Comm = void*;
using Stream = void*;

enum Result : int { kSuccess = 0, kInProgress = 7 };
enum Element : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
enum Kind : int { kSum = 0, kMax = 2, kMin = 3 };

struct Functions {
  int (*get_version)(int*);
  const char* (*get_error_string)(int);
  const char* (*get_last_error)(Comm);
  int (*get_unique_id)(UniqueId*);
  int (*comm_init_rank)(Comm*, int, UniqueId, int);
  int (*comm_destroy)(Comm);
  int (*comm_abort)(Comm);
  int (*comm_get_async_error)(Comm, int*);
  int (*all_reduce)(const void*, void*, std::size_t, int, int, Comm, Stream);
  int (*broadcast)(const void*, void*, std::size_t, int, int, Comm, Stream);
  int (*reduce)(const void*, void*, std::size_t, int, int, int, Comm, Stream);
  int (*send)(const void*, std::size_t, int, int, Comm, Stream);
  int (*receive)(void*, std::size_t, int, int, Comm, Stream);
  int (*group_start)();
  int (*group_end)();
};

// Loads the library: the file `path` where that isn't empty, or the copy that this process has, or
// libnccl.so.2 of the system. Throws std::runtime_error that names what was looked for.
void Load(const std::string& path);
// The functions of the loaded library; std::logic_error where none was.
const Functions& Loaded();
// Throws std::runtime_error with NCCL's words where a call failed.
void Check(int result, const char* what, Comm comm = nullptr);

}  // namespace shapescript::nccl
