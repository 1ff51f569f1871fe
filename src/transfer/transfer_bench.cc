// The hand-off report: what a pull moves per second beside what this machine can do at all, in one run.
//
//   transfer_bench [megabytes of KV, default 64 and 256]
//
// Every line is the best of several rounds. A pull starts when P has sealed its blocks, as it has by the time a proxy
// has carried the params to D, and ends when D has verified every unit; sealing has a line of its own.
#include <arpa/inet.h>
#include <emmintrin.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "kv/seal_table.h"
#include "tensor/buffer.h"
#include "tensor/cpu.h"
#include "transfer/pull_connector.h"
#include "transfer/reshard_plan.h"
#include "transfer/reshard_test_support.h"

namespace baton::transfer {
namespace {

using SteadyTime = std::chrono::steady_clock;
constexpr int kRounds = 5;

double best_seconds(const std::function<void()>& round, int rounds = kRounds) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto began = SteadyTime::now();
    round();
    best = std::min(best, std::chrono::duration<double>(SteadyTime::now() - began).count());
  }
  return best;
}

void report(const std::string& what, int64_t bytes, double seconds, double limit_gbs = 0) {
  const double gbs = static_cast<double>(bytes) / seconds / 1e9;
  fmt::print("  {:<46} {:>10.1f} MB {:>9.2f} ms {:>7.2f} GB/s", what, static_cast<double>(bytes) / 1e6, seconds * 1e3,
             gbs);
  if (limit_gbs > 0) fmt::print("   {:>4.0f} % of the limit above", gbs / limit_gbs * 100);
  fmt::print("\n");
}

void stream_copy(const std::byte* from, std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) {
    for (size_t lane = 0; lane < 64; lane += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + lane),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + lane)));
    }
  }
  _mm_sfence();
}

// Raw loopback TCP: a thread sends, this one receives into a 1 MB buffer. Bytes per second times seconds.
double raw_tcp_seconds(int64_t bytes, std::span<const std::byte> source) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  BATON_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  BATON_CHECK(listen(listener, 1) == 0);
  socklen_t size = sizeof(address);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread sender([&] {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    BATON_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    for (int64_t at = 0; at < bytes;) {
      const auto step = static_cast<size_t>(std::min<int64_t>(1 << 20, bytes - at));
      const ssize_t sent = send(fd, source.data() + at, step, MSG_NOSIGNAL);
      BATON_CHECK(sent > 0);
      at += sent;
    }
    close(fd);
  });
  const int fd = accept(listener, nullptr, nullptr);
  std::vector<std::byte> buffer(1 << 20);
  const auto began = SteadyTime::now();
  int64_t got = 0;
  for (ssize_t n; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;) got += n;
  const double seconds = std::chrono::duration<double>(SteadyTime::now() - began).count();
  sender.join();
  close(fd);
  close(listener);
  BATON_CHECK(got == bytes);
  return seconds;
}

using Ranks = std::vector<kv::RankCache>;

struct Engines {
  Holdings from, to;
  int64_t tokens;
  transport::SharedArena prefill, decode;
  std::unique_ptr<KvProducer> producer;
  std::unique_ptr<KvConsumer> consumer;

  Engines(const Holdings& p, const Holdings& d, int64_t token_count, TransportMode mode, std::string secret = "")
      : from(p), to(d), tokens(token_count), prefill(*create_kv_arena(from.ranks)), decode(*create_kv_arena(to.ranks)) {
    for (size_t i = 0; i + 8 <= prefill.data().size(); i += 8) {
      const uint64_t value = i * 0x9E3779B97F4A7C15;
      std::memcpy(prefill.data().data() + i, &value, 8);
    }
    std::memset(decode.data().data(), 1, decode.data().size());
    PullConnectorOptions options{
        .ranks = from.ranks, .context_size = from.context_size, .transport = mode, .secret = std::move(secret)};
    options.identity.engine_id = "p";
    producer = std::move(*make_kv_producer(options, prefill));
    options.ranks = to.ranks;
    options.context_size = to.context_size;
    options.identity.engine_id = "d";
    consumer = std::move(*make_kv_consumer(options, decode.data()));
  }

  static std::vector<BlockId> ids(int64_t count) {
    std::vector<BlockId> list;
    for (int64_t b = 0; b < count; ++b) list.push_back(BlockId(static_cast<int32_t>(b)));
    return list;
  }

  PullResult pull() {
    const auto offered_at = SteadyTime::now();
    const auto params = producer->offer({"r", ids(from.blocks_for(tokens)), tokens, 0});
    offer_us = std::chrono::duration<double, std::micro>(SteadyTime::now() - offered_at).count();
    // The connection, the mapping and the seal are there when D asks.
    consumer->hold(params);
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + from.arenas.data_bytes() / 2'000'000));
    consumer->start({"r", params, ids(to.blocks_for(tokens)), tokens, 0});
    std::vector<PullResult> results;
    while (results.empty()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      results = consumer->poll_completed();
    }
    while (producer->poll_released().empty()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    BATON_CHECK(results[0].outcome.has_value(), "{}", results[0].outcome.error().to_string());
    return results[0];
  }
  double offer_us = 0;
};

void run(const char* name, const kv::PagedGeometry& geometry, int64_t megabytes) {
  const int64_t blocks = std::max<int64_t>(1, megabytes * 1'000'000 / geometry.block_bytes());
  const int64_t bytes = blocks * geometry.block_bytes();
  fmt::print("\n{}: {} blocks of {} tokens, {} units of {} B each, {:.1f} MB\n", name, blocks, geometry.block_size(),
             geometry.units_per_block(), geometry.block_bytes() / geometry.units_per_block(),
             static_cast<double>(bytes) / 1e6);

  double nt_gbs = 0, tcp_gbs = 0;
  {
    auto from = *tensor::Buffer::allocate(static_cast<size_t>(bytes));
    auto to = *transport::SharedArena::create({.data_bytes = bytes, .table_bytes = 0});
    std::memset(from.data(), 3, from.size());
    std::memset(to.data().data(), 1, to.data().size());
    report("machine: memcpy", bytes, best_seconds([&] { std::memcpy(to.data().data(), from.data(), from.size()); }));
    const double nt = best_seconds([&] { stream_copy(from.data(), to.data().data(), from.size()); });
    nt_gbs = static_cast<double>(bytes) / nt / 1e9;
    report("machine: non-temporal copy, 16 B stores", bytes, nt);
    uint64_t sink = 0;
    report("machine: XXH3-64 of cold memory (library)", bytes,
           best_seconds([&] { sink += xxh3_64({from.data(), from.size()}); }));
    double tcp = 1e9;
    for (int i = 0; i < kRounds; ++i) tcp = std::min(tcp, raw_tcp_seconds(bytes, {from.data(), from.size()}));
    tcp_gbs = static_cast<double>(bytes) / tcp / 1e9;
    report("machine: raw loopback TCP, 1 MB writes", bytes, tcp);
    if (sink == 1) fmt::print(" ");
  }
  const auto pulls = [&](const char* what, TransportMode mode, std::string secret, double limit) {
    const auto alone = *make_holdings({whole_cache({.blocks = geometry, .block_count = blocks})}, 1);
    Engines engines(alone, alone, blocks * geometry.block_size(), mode, std::move(secret));
    double offer_us = 1e9;
    double seconds = 1e9;
    for (int i = 0; i < kRounds; ++i) {
      seconds = std::min(seconds, engines.pull().seconds);
      offer_us = std::min(offer_us, engines.offer_us);
    }
    report(what, bytes, seconds, limit);
    return offer_us;
  };
  const double offer_us = pulls("pull over shared memory, verified", TransportMode::kShm, "", nt_gbs);
  pulls("pull over loopback TCP, verified", TransportMode::kTcp, "", tcp_gbs);
  pulls("the same with a shared secret", TransportMode::kTcp, "secret", tcp_gbs);
  fmt::print("  {:<46} {:>10.1f} us of the engine's thread\n", "offer()", offer_us);

  auto arena = *create_kv_arena(Ranks{whole_cache({.blocks = geometry, .block_count = blocks})});
  std::memset(arena.data().data(), 7, arena.data().size());
  auto table = *kv::SealTable::over(arena.table(), geometry, arena.data());
  const double seal = best_seconds([&] {
    for (int64_t b = 0; b < blocks; ++b) {
      table.reopen(b);
      table.seal(b, geometry.block_size());
    }
  });
  report("sealing at P, before the pull", bytes, seal);
}

// The same KV from one rank to one, and between unequal grids.
struct Topology {
  const char* name;
  testing::GridShape p, d;
};

Holdings grid_holdings(const testing::ModelShape& model, const testing::GridShape& grid, int64_t tokens) {
  const int64_t blocks = (tokens + grid.block * grid.context_size() - 1) / (grid.block * grid.context_size());
  return *make_holdings(testing::ranks_of(model, grid, blocks, 0), grid.context_size());
}

int64_t descriptors(const Holdings& from, const Holdings& to, int64_t tokens) {
  const ReshardPlan plan(std::make_shared<Holdings>(from), std::make_shared<Holdings>(to), 0);
  const std::vector<int32_t> blocks(static_cast<size_t>(from.blocks_for(tokens)));
  const std::vector<uint64_t> generations(blocks.size());
  const auto copies = plan.copies({.token_count = tokens,
                                   .wanted_tokens = tokens,
                                   .from_blocks = blocks,
                                   .generations = generations,
                                   .to_blocks = Engines::ids(to.blocks_for(tokens))});
  return std::ssize(copies);
}

void run_topologies(const char* name, const testing::ModelShape& model, int64_t token_bytes,
                    const std::vector<Topology>& topologies, int64_t megabytes) {
  const int64_t tokens = std::max<int64_t>(1, megabytes * 1'000'000 / token_bytes);
  fmt::print("\n{}: {} tokens of {} B\n", name, tokens, token_bytes);
  for (const auto& topology : topologies) {
    const auto from = grid_holdings(model, topology.p, tokens), to = grid_holdings(model, topology.d, tokens);
    fmt::print("  {}: {} descriptors\n", topology.name, descriptors(from, to, tokens));
    for (const auto mode : {TransportMode::kShm, TransportMode::kTcp}) {
      Engines engines(from, to, tokens, mode);
      PullResult best{.seconds = 1e9};
      for (int i = 0; i < kRounds; ++i) {
        const auto result = engines.pull();
        if (result.seconds < best.seconds) best = result;
      }
      report(mode == TransportMode::kShm ? "  over shared memory, verified" : "  over loopback TCP, verified",
             best.bytes, best.seconds);
    }
  }
}

testing::ModelShape layers_of(int layers, std::vector<kv::CacheEntry> entries) {
  return {.layers = std::vector(static_cast<size_t>(layers), std::move(entries)),
          .stateful = std::vector(static_cast<size_t>(layers), false)};
}

void run_reshard(int64_t megabytes) {
  const auto gqa =
      layers_of(32, {{.kind = "keys_values", .dtype = "bf16", .units = 8, .parts = 2, .token_bytes = 256}});
  run_topologies("8B shape, 8 KV heads", gqa, 32 * 8 * 2 * 256,
                 {{"one rank -> one rank, blocks of 128", {.block = 128}, {.block = 128}},
                  {"tp4 -> tp2, blocks of 128", {.tp = 4, .block = 128}, {.tp = 2, .block = 128}},
                  {"tp2 -> tp8, blocks of 128 and 16", {.tp = 2, .block = 128}, {.tp = 8, .block = 16}}},
                 megabytes);
  const auto latents = layers_of(24, {{.kind = "latent", .dtype = "bf16", .token_bytes = 1152},
                                      {.kind = "index_keys", .dtype = "bf16", .token_bytes = 256}});
  run_topologies(
      "K3.1 shape, 24 layers of latents and index keys", latents, 24 * 1408,
      {{"one rank -> one rank, blocks of 768", {.block = 768}, {.block = 768}},
       {"pp4 pcp4 tp4 -> tp16 dcp16", {.pp = 4, .pcp = 4, .tp = 4, .block = 768}, {.tp = 16, .dcp = 16, .block = 768}},
       {"pp4 pcp8 tp1 -> tp8 dcp8", {.pp = 4, .pcp = 8, .block = 768}, {.tp = 8, .dcp = 8, .block = 768}},
       {"tp8 -> tp1, blocks of 128", {.tp = 8, .block = 128}, {.block = 128}},
       {"tp4 -> tp4, blocks of 128 (three local copies)", {.tp = 4, .block = 128}, {.tp = 4, .block = 128}}},
      megabytes);
}

}  // namespace
}  // namespace baton::transfer

int main(int argc, char** argv) {
  using namespace baton;
  set_log_level(LogLevel::kError);
  const auto smol = kv::uniform_geometry({.layers = 30, .kv_heads = 3, .head_dim = 64, .block_size = 16});
  const auto large = kv::uniform_geometry({.layers = 32, .kv_heads = 8, .head_dim = 128, .block_size = 128});
  fmt::print("instruction set: {}, usable cores: {}\n", tensor::isa_name(tensor::detect_isa()), tensor::usable_cores());
  const auto sizes = argc > 1 ? std::vector<int64_t>{std::max(1, std::atoi(argv[1]))} : std::vector<int64_t>{64, 256};
  for (const int64_t megabytes : sizes) {
    transfer::run("SmolLM2-135M shape", smol, megabytes);
    transfer::run("8B shape", large, megabytes);
    transfer::run_reshard(megabytes);
  }
  return 0;
}
