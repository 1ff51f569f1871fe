#include "transfer/handoff_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/hash.h"
#include "kv/seal_table.h"
#include "tensor/buffer.h"
#include "transfer/pull_connector.h"
#include "transfer/reshard_plan.h"
#include "transfer/reshard_test_support.h"
#include "transport/copy_limits.h"

namespace baton::transfer {
namespace {

using Take = std::function<void(const HandoffLine&)>;
constexpr int64_t kMegabytesMax = 4096;

double seconds_of(const std::function<void()>& body) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  body();
  return seconds_between(begin, clock.now());
}

double best_seconds(int rounds, const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) best = std::min(best, seconds_of(body));
  return best;
}

double gbs(int64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

std::vector<BlockId> first_blocks(int64_t count) {
  std::vector<BlockId> list;
  for (int64_t b = 0; b < count; ++b) list.push_back(BlockId(static_cast<int32_t>(b)));
  return list;
}

// P and D in this process, with a prompt of `tokens` tokens in P's arena.
struct Engines {
  Holdings from, to;
  int64_t tokens;
  transport::SharedArena prefill, decode;
  std::unique_ptr<KvProducer> producer{};
  std::unique_ptr<KvConsumer> consumer{};
  double offer_s = 0;  // the engine's thread in the last offer()

  static Result<std::unique_ptr<Engines>> make(const Holdings& p, const Holdings& d, int64_t tokens, TransportMode mode,
                                               std::string secret) {
    BATON_TRY_ASSIGN(auto prefill, create_kv_arena(p.ranks));
    BATON_TRY_ASSIGN(auto decode, create_kv_arena(d.ranks));
    auto engines = std::make_unique<Engines>(p, d, tokens, std::move(prefill), std::move(decode));
    engines->fill();
    PullConnectorOptions options{
        .ranks = p.ranks, .context_size = p.context_size, .transport = mode, .secret = std::move(secret)};
    options.identity.engine_id = "p";
    BATON_TRY_ASSIGN(engines->producer, make_kv_producer(options, engines->prefill));
    options.ranks = d.ranks;
    options.context_size = d.context_size;
    options.identity.engine_id = "d";
    BATON_TRY_ASSIGN(engines->consumer, make_kv_consumer(options, engines->decode.data()));
    return engines;
  }

  void fill() {
    for (size_t i = 0; i + 8 <= prefill.data().size(); i += 8) {
      const uint64_t value = i * 0x9E3779B97F4A7C15;
      std::memcpy(prefill.data().data() + i, &value, 8);
    }
    std::memset(decode.data().data(), 1, decode.data().size());
  }

  Result<PullResult> pull() {
    std::optional<wire::KvTransferParams> params;
    offer_s = seconds_of([&] { params = producer->offer({"r", first_blocks(from.blocks_for(tokens)), tokens, 0}); });
    // The connection, the mapping and the seal are there when D asks.
    consumer->hold(*params);
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + from.arenas.data_bytes() / 2'000'000));
    consumer->start({"r", *params, first_blocks(to.blocks_for(tokens)), tokens, 0});
    std::vector<PullResult> results;
    while (results.empty()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      results = consumer->poll_completed();
    }
    while (producer->poll_released().empty()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    BATON_TRY(results[0].outcome);
    return results[0];
  }
};

struct BestPull {
  int64_t bytes = 0;
  double seconds = 1e9, offer_s = 1e9;
};
Result<BestPull> best_pull(const Holdings& from, const Holdings& to, int64_t tokens, TransportMode mode, int rounds,
                           std::string secret = "") {
  BATON_TRY_ASSIGN(const auto engines, Engines::make(from, to, tokens, mode, std::move(secret)));
  BestPull best;
  for (int i = 0; i < rounds; ++i) {
    BATON_TRY_ASSIGN(const auto result, engines->pull());
    best.bytes = result.bytes;
    best.seconds = std::min(best.seconds, result.seconds);
    best.offer_s = std::min(best.offer_s, engines->offer_s);
  }
  return best;
}

struct CopyLimits {
  double stream_gbs = 0, tcp_gbs = 0;
};
Result<CopyLimits> machine_lines(const std::string& group, int64_t bytes, int rounds, const Take& take) {
  const auto size = static_cast<size_t>(bytes);
  BATON_TRY_ASSIGN(auto from, tensor::Buffer::allocate(size));
  BATON_TRY_ASSIGN(auto to, transport::SharedArena::create({.data_bytes = bytes, .table_bytes = 0}));
  std::memset(from.data(), 3, size);
  std::memset(to.data().data(), 1, size);
  const auto line = [&](const char* what, double seconds) { take({group, what, bytes, seconds}); };
  line("machine: memcpy", best_seconds(rounds, [&] { std::memcpy(to.data().data(), from.data(), size); }));
  const double stream = best_seconds(rounds, [&] { transport::stream_copy(from.data(), to.data().data(), size); });
  line("machine: non-temporal copy, 16 B stores", stream);
  volatile uint64_t sink = 0;
  line("machine: XXH3-64 of cold memory (library)",
       best_seconds(rounds, [&] { sink = sink + xxh3_64({from.data(), size}); }));
  double tcp = 1e9;
  for (int i = 0; i < rounds; ++i) {
    BATON_TRY_ASSIGN(const double seconds, transport::loopback_tcp_seconds({from.data(), size}));
    tcp = std::min(tcp, seconds);
  }
  line("machine: raw loopback TCP, 1 MB writes", tcp);
  return CopyLimits{gbs(bytes, stream), gbs(bytes, tcp)};
}

Result<double> seal_seconds(const kv::PagedGeometry& geometry, int64_t blocks, int rounds) {
  BATON_TRY_ASSIGN(auto arena, create_kv_arena(std::vector{whole_cache({.blocks = geometry, .block_count = blocks})}));
  std::memset(arena.data().data(), 7, arena.data().size());
  BATON_TRY_ASSIGN(auto table, kv::SealTable::over(arena.table(), geometry, arena.data()));
  return best_seconds(rounds, [&] {
    for (int64_t b = 0; b < blocks; ++b) {
      table.reopen(b);
      table.seal(b, geometry.block_size());
    }
  });
}

Result<void> one_to_one(const char* name, const kv::PagedGeometry& geometry, int64_t megabytes,
                        const HandoffBenchOptions& options, const Take& take) {
  const int64_t blocks = std::max<int64_t>(1, megabytes * 1'000'000 / geometry.block_bytes());
  const int64_t bytes = blocks * geometry.block_bytes();
  const auto group = fmt::format("{}: {} blocks of {} tokens, {} units of {} B each, {:.1f} MB", name, blocks,
                                 geometry.block_size(), geometry.units_per_block(),
                                 geometry.block_bytes() / geometry.units_per_block(), static_cast<double>(bytes) / 1e6);
  CopyLimits limits;
  if (options.machine) {
    BATON_TRY_ASSIGN(limits, machine_lines(group, bytes, options.rounds, take));
  }
  BATON_TRY_ASSIGN(const auto alone, make_holdings({whole_cache({.blocks = geometry, .block_count = blocks})}, 1));
  double offer_s = 0;
  const auto pulls = [&](const char* what, TransportMode mode, std::string secret, double limit) -> Result<void> {
    BATON_TRY_ASSIGN(const auto best,
                     best_pull(alone, alone, blocks * geometry.block_size(), mode, options.rounds, std::move(secret)));
    take({group, what, bytes, best.seconds, limit});
    if (offer_s == 0) offer_s = best.offer_s;
    return {};
  };
  BATON_TRY(pulls("pull over shared memory, verified", TransportMode::kShm, "", limits.stream_gbs));
  BATON_TRY(pulls("pull over loopback TCP, verified", TransportMode::kTcp, "", limits.tcp_gbs));
  BATON_TRY(pulls("the same with a shared secret", TransportMode::kTcp, "secret", limits.tcp_gbs));
  take({group, "offer(), of the engine's thread", 0, offer_s});
  BATON_TRY_ASSIGN(const double seal, seal_seconds(geometry, blocks, options.rounds));
  take({group, "sealing at P, before the pull", bytes, seal});
  return {};
}

// The same KV from one rank to one, and between unequal grids.
struct Topology {
  const char* name;
  testing::GridShape p, d;
};

Result<Holdings> grid_holdings(const testing::ModelShape& model, const testing::GridShape& grid, int64_t tokens) {
  const int64_t blocks = (tokens + grid.block * grid.context_size() - 1) / (grid.block * grid.context_size());
  return make_holdings(testing::ranks_of(model, grid, blocks, 0), grid.context_size());
}

int64_t descriptors(const Holdings& from, const Holdings& to, int64_t tokens) {
  const ReshardPlan plan(std::make_shared<Holdings>(from), std::make_shared<Holdings>(to), 0);
  const std::vector<int32_t> blocks(static_cast<size_t>(from.blocks_for(tokens)));
  const std::vector<uint64_t> generations(blocks.size());
  const auto copies = plan.copies({.token_count = tokens,
                                   .wanted_tokens = tokens,
                                   .from_blocks = blocks,
                                   .generations = generations,
                                   .to_blocks = first_blocks(to.blocks_for(tokens))});
  return std::ssize(copies);
}

struct GridCase {
  const char* name;
  testing::ModelShape model;
  int64_t token_bytes;
  std::vector<Topology> topologies;
};

Result<void> between_grids(const GridCase& grids, int64_t megabytes, int rounds, const Take& take) {
  const int64_t tokens = std::max<int64_t>(1, megabytes * 1'000'000 / grids.token_bytes);
  const auto group = fmt::format("{}: {} tokens of {} B", grids.name, tokens, grids.token_bytes);
  for (const auto& topology : grids.topologies) {
    BATON_TRY_ASSIGN(const auto from, grid_holdings(grids.model, topology.p, tokens));
    BATON_TRY_ASSIGN(const auto to, grid_holdings(grids.model, topology.d, tokens));
    const auto count = descriptors(from, to, tokens);
    for (const auto mode : {TransportMode::kShm, TransportMode::kTcp}) {
      BATON_TRY_ASSIGN(const auto best, best_pull(from, to, tokens, mode, rounds));
      take({group,
            fmt::format("{}, {} descriptors, {}", topology.name, count, mode == TransportMode::kShm ? "shm" : "TCP"),
            best.bytes, best.seconds});
    }
  }
  return {};
}

testing::ModelShape layers_of(int layers, std::vector<kv::CacheEntry> entries) {
  return {.layers = std::vector(static_cast<size_t>(layers), std::move(entries)),
          .stateful = std::vector(static_cast<size_t>(layers), false)};
}

std::vector<GridCase> grid_cases() {
  const auto heads =
      layers_of(32, {{.kind = "keys_values", .dtype = "bf16", .units = 8, .parts = 2, .token_bytes = 256}});
  const auto latents = layers_of(24, {{.kind = "latent", .dtype = "bf16", .token_bytes = 1152},
                                      {.kind = "index_keys", .dtype = "bf16", .token_bytes = 256}});
  return {
      {"8B shape, 8 KV heads",
       heads,
       32 * 8 * 2 * 256,
       {{"one rank -> one rank, blocks of 128", {.block = 128}, {.block = 128}},
        {"tp4 -> tp2, blocks of 128", {.tp = 4, .block = 128}, {.tp = 2, .block = 128}},
        {"tp2 -> tp8, blocks of 128 and 16", {.tp = 2, .block = 128}, {.tp = 8, .block = 16}}}},
      {"K3.1 shape, 24 layers of latents and index keys",
       latents,
       24 * 1408,
       {{"one rank -> one rank, blocks of 768", {.block = 768}, {.block = 768}},
        {"pp4 pcp4 tp4 -> tp16 dcp16", {.pp = 4, .pcp = 4, .tp = 4, .block = 768}, {.tp = 16, .dcp = 16, .block = 768}},
        {"pp4 pcp8 tp1 -> tp8 dcp8", {.pp = 4, .pcp = 8, .block = 768}, {.tp = 8, .dcp = 8, .block = 768}},
        {"tp8 -> tp1, blocks of 128", {.tp = 8, .block = 128}, {.block = 128}},
        {"tp4 -> tp4, blocks of 128 (three local copies)", {.tp = 4, .block = 128}, {.tp = 4, .block = 128}}}}};
}

}  // namespace

Result<void> run_handoff_bench(const HandoffBenchOptions& options, const Take& take) {
  if (options.rounds < 1) return fail(Code::kInvalidArgument, "--rounds is {}; it must be above 0", options.rounds);
  for (const int64_t megabytes : options.megabytes) {
    if (megabytes < 1 || megabytes > kMegabytesMax) {
      return fail(Code::kInvalidArgument, "--megabytes is {}; it must be from 1 to {}", megabytes, kMegabytesMax);
    }
  }
  const auto small = kv::uniform_geometry({.layers = 30, .kv_heads = 3, .head_dim = 64, .block_size = 16});
  const auto large = kv::uniform_geometry({.layers = 32, .kv_heads = 8, .head_dim = 128, .block_size = 128});
  for (const int64_t megabytes : options.megabytes) {
    BATON_TRY(one_to_one("SmolLM2-135M shape", small, megabytes, options, take));
    BATON_TRY(one_to_one("8B shape", large, megabytes, options, take));
    if (!options.grids) continue;
    for (const auto& grids : grid_cases()) BATON_TRY(between_grids(grids, megabytes, options.rounds, take));
  }
  return {};
}

}  // namespace baton::transfer
