// What an exchange costs: small parts among 2, 4, 8 processes, large ones between two, over shared memory and over TCP
// of the loopback; beside a copy of as many bytes in one process.
//
// Args: bytes a part; processes; 1 for shared memory, 0 for TCP; microseconds of spinning before a wait blocks.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>

#include "base/log.h"
#include "parallel/process_test_support.h"

namespace baton::parallel {
namespace {

RendezvousOptions member(int port, int size, int rank, bool shm, int64_t spin_us) {
  auto options = loopback_group(port, size, rank);
  options.allow_shm = shm;
  options.mesh.spin = std::chrono::microseconds(spin_us);
  return options;
}

// Exchanges `part` with all until the group ends.
void serve(const RendezvousOptions& options, size_t part_bytes) {
  auto mesh = meet(options);
  if (!mesh) return;
  const std::vector<std::byte> part(part_bytes, std::byte{1});
  std::vector<Mesh::Bytes> to(static_cast<size_t>(options.size), part);
  to[static_cast<size_t>(options.rank)] = {};
  std::vector<MessageBytes> from;
  while ((*mesh)->exchange(to, from)) {
  }
}

void exchange(benchmark::State& state) {
  set_log_level(LogLevel::kError);
  const auto part_bytes = static_cast<size_t>(state.range(0));
  const int size = static_cast<int>(state.range(1)), port = free_port();
  const bool shm = state.range(2) != 0;
  std::vector<std::unique_ptr<MemberProcess>> others;
  for (int rank = 1; rank < size; ++rank) {
    others.push_back(std::make_unique<MemberProcess>(
        [&](const MemberProcess::Say&) { serve(member(port, size, rank, shm, state.range(3)), part_bytes); }));
  }
  auto mesh = meet(member(port, size, 0, shm, state.range(3)));
  if (!mesh) return state.SkipWithError(mesh.error().to_string().c_str());
  const std::vector<std::byte> part(part_bytes, std::byte{1});
  std::vector<Mesh::Bytes> to(static_cast<size_t>(size), part);
  to[0] = {};
  std::vector<MessageBytes> from;
  for (auto _ : state) {
    if (const auto done = (*mesh)->exchange(to, from); !done) {
      return state.SkipWithError(done.error().to_string().c_str());
    }
  }
  // What this process sends to the others.
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(part_bytes) * (size - 1));
}
BENCHMARK(exchange)
    ->ArgNames({"bytes", "processes", "shm", "spin_us"})
    ->ArgsProduct({{4096}, {2, 4, 8}, {1, 0}, {0}})
    ->Args({4096, 2, 1, 50})
    ->ArgsProduct({{16 << 20}, {2}, {1, 0}, {0}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void message_there_and_back(benchmark::State& state) {
  set_log_level(LogLevel::kError);
  const auto bytes = static_cast<size_t>(state.range(0));
  const bool shm = state.range(1) != 0;
  const int port = free_port();
  MemberProcess other([&](const MemberProcess::Say&) {
    auto mesh = meet(member(port, 2, 1, shm, 0));
    while (mesh) {
      auto message = (*mesh)->receive(0, 1);
      if (!message || !(*mesh)->send(0, 1, message->span())) return;
    }
  });
  auto mesh = meet(member(port, 2, 0, shm, 0));
  if (!mesh) return state.SkipWithError(mesh.error().to_string().c_str());
  const std::vector<std::byte> message(bytes, std::byte{1});
  for (auto _ : state) {
    if (!(*mesh)->send(1, 1, message) || !(*mesh)->receive(1, 1)) return state.SkipWithError("the group broke");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * bytes));
}
BENCHMARK(message_there_and_back)
    ->ArgNames({"bytes", "shm"})
    ->ArgsProduct({{256, 1 << 20, 16 << 20}, {1, 0}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void copy_in_one_process(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(copy_in_one_process)->ArgName("bytes")->Arg(4096)->Arg(16 << 20)->UseRealTime();

}  // namespace
}  // namespace baton::parallel
