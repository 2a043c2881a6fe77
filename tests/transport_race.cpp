// For ThreadSanitizer: three devices, as threads, take commands and combine values; prints `right`.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "transport_group.hpp"

using namespace shapescript;

namespace {

constexpr std::uint32_t kDevices = 3;
constexpr int kRounds = 24;

int Memory(std::size_t size) {
  char name[] = "/tmp/transport_raceXXXXXX";
  const int file = mkstemp(name);
  if (file < 0 || unlink(name) != 0 || ftruncate(file, static_cast<off_t>(size)) != 0) std::abort();
  return file;
}

bool Work(const std::shared_ptr<Link>& link, const std::shared_ptr<Mapping>& exchange,
          std::uint32_t rank) {
  Group group(link, exchange, 0, rank, kDevices, rank == 0);
  std::string command;
  for (int round = 1; round <= kRounds; ++round) {
    while (!link->Take(rank, command)) {
    }
    const std::size_t length = std::stoul(command);
    std::vector<float> values(length, static_cast<float>(rank + 1));
    std::vector<void*> buffers{values.data()};
    std::vector<std::int64_t> lengths{static_cast<std::int64_t>(length)};
    group.AllReduce<float>(buffers, buffers, lengths, SHAPESCRIPT_SUM);
    for (const float value : values) {
      if (value != 6) return false;
    }
    std::vector<std::int64_t> shares(kDevices, static_cast<std::int64_t>(length / kDevices));
    std::vector<float> part(length / kDevices);
    group.ReduceScatter<float>(values.data(), part.data(), shares, SHAPESCRIPT_MAX);
    std::vector<float> whole(part.size() * kDevices);
    std::vector<std::int64_t> bytes(kDevices, static_cast<std::int64_t>(part.size() * 4));
    group.AllGather(reinterpret_cast<std::byte*>(part.data()),
                    reinterpret_cast<std::byte*>(whole.data()), bytes);
    for (const float value : whole) {
      if (value != 6) return false;
    }
    const std::int64_t parts[2] = {static_cast<std::int64_t>(length), 2};
    std::vector<float> both(length, static_cast<float>(rank + 1)), few(2, 1.0F);
    std::vector<float> mine(length / kDevices + 1), own(1);
    std::vector<void*> wholes{both.data(), few.data()}, halves{mine.data(), own.data()};
    group.ReduceParts<float>(wholes, halves, parts, SHAPESCRIPT_SUM);
    for (float& value : mine) value += 1;
    for (float& value : own) value += 1;
    group.GatherParts<float>(halves, wholes, parts);
    for (const float value : both) {
      if (value != 7) return false;
    }
    if (few[0] != 4 || few[1] != 4) return false;
    link->Finish(rank, round);
  }
  return true;
}

}  // namespace

int main() {
  const int ring = Memory(Link::Bytes());
  // one mapping for all, or the sanitizer wouldn't know that it is the same memory
  const auto exchange = std::make_shared<Mapping>(Memory(Group::Bytes(kDevices)));
  Link::Lay(ring, kDevices);
  const auto link = std::make_shared<Link>(ring);
  bool right[kDevices] = {};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kDevices; ++rank) {
    threads.emplace_back([&, rank] { right[rank] = Work(link, exchange, rank); });
  }
  for (int round = 1; round <= kRounds; ++round) {
    const std::string command = std::to_string(round % 2 ? 30 * round : 900 * round);
    while (!link->HasRoom(command.size())) {
    }
    link->Post(command);
  }
  for (std::uint32_t rank = 0; rank < kDevices; ++rank) {
    while (!link->HasFinished(rank, kRounds)) {
    }
  }
  for (std::thread& thread : threads) thread.join();
  const bool all = right[0] && right[1] && right[2];
  std::printf("%s\n", all ? "right" : "wrong");
  return all ? 0 : 1;
}
