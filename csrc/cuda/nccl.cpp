// Finds NCCL and its functions.

#include "nccl.hpp"

#include <dlfcn.h>

#include <optional>
#include <stdexcept>

namespace shapescript::nccl {
namespace {

std::optional<Functions> loaded;

template <class Function>
void Find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("this NCCL has no ") + name);
}

void* Open(const std::string& path) {
  if (!path.empty()) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw std::runtime_error("NCCL `" + path + "` doesn't load: " + dlerror());
    return library;
  }
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("NCCL isn't found: ") + dlerror() +
                             "; SHAPESCRIPT_NCCL may name its file");
  }
  return library;
}

}  // namespace

void Load(const std::string& path) {
  if (loaded) return;
  void* library = Open(path);
  Functions found{};
  Find(library, found.get_version, "ncclGetVersion");
  Find(library, found.get_error_string, "ncclGetErrorString");
  Find(library, found.get_last_error, "ncclGetLastError");
  Find(library, found.get_unique_id, "ncclGetUniqueId");
  Find(library, found.comm_init_rank, "ncclCommInitRank");
  Find(library, found.comm_destroy, "ncclCommDestroy");
  Find(library, found.comm_abort, "ncclCommAbort");
  Find(library, found.comm_get_async_error, "ncclCommGetAsyncError");
  Find(library, found.all_reduce, "ncclAllReduce");
  Find(library, found.broadcast, "ncclBroadcast");
  Find(library, found.reduce, "ncclReduce");
  Find(library, found.send, "ncclSend");
  Find(library, found.receive, "ncclRecv");
  Find(library, found.group_start, "ncclGroupStart");
  Find(library, found.group_end, "ncclGroupEnd");
  loaded = found;
}

const Functions& Loaded() {
  if (!loaded) throw std::logic_error("NCCL wasn't loaded");
  return *loaded;
}

void Check(int result, const char* what, Comm comm) {
  if (result == kSuccess || result == kInProgress) return;
  std::string text = std::string(what) + ": " + Loaded().get_error_string(result);
  const char* more = Loaded().get_last_error(comm);
  if (more != nullptr && *more != '\0') text += std::string(" (") + more + ")";
  throw std::runtime_error(text);
}

}  // namespace shapescript::nccl
