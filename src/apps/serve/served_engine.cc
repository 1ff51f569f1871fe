#include "apps/serve/served_engine.h"

#include <mutex>
#include <thread>
#include <utility>

#include "apps/serve/load_progress.h"
#include "apps/serve/stop_on_signal.h"
#include "base/log.h"
#include "engine/data_parallel_engine.h"
#include "engine/make_engine.h"
#include "engine/ranks/member.h"
#include "models/model.h"
#include "parallel/memory/memory_mesh.h"
#include "parallel/rendezvous.h"

namespace baton::apps {
namespace {

Duration step_timeout(const TopologySetup& topology) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(topology.step_timeout_s));
}

// One bar over the ranks that load.
class RankProgress {
 public:
  explicit RankProgress(int ranks) : done_(static_cast<size_t>(ranks)), total_(done_) {}
  void show(int rank, int64_t done, int64_t total) {
    std::lock_guard lock(mutex_);
    done_[static_cast<size_t>(rank)] = done;
    total_[static_cast<size_t>(rank)] = total;
    int64_t all_done = 0, all_total = 0;
    for (const auto bytes : done_) all_done += bytes;
    for (const auto bytes : total_) all_total += bytes > 0 ? bytes : total;  // not begun: about as much as this one
    progress_.show(all_done, all_total);
  }
  void finish() { progress_.finish(); }

 private:
  std::mutex mutex_;
  std::vector<int64_t> done_, total_;
  LoadProgress progress_;
};

std::function<void(int)> pinning(const RankThreads& threads, int first_rank) {
  if (threads.cores.empty()) return {};
  return [cores = threads.cores, first_rank](int rank) {
    const auto pinned = parallel::pin_this_thread(cores[static_cast<size_t>(first_rank + rank)]);
    if (!pinned) log_warning("rank={} can't be pinned: {}", rank, pinned.error().message());
  };
}

// Replica `local` of this process.
Result<std::unique_ptr<engine::RankSet>> load_replica(const EngineSources& sources, int local,
                                                      models::ReplicaExchange* exchange) {
  const auto& setup = sources.setup;
  const auto& topology = setup.topology;
  const int ranks = topology.stages_here() * topology.ranks_per_stage();
  RankProgress progress(ranks);
  engine::RankSetOptions options{.sizes = grid_sizes(topology),
                                 .dp_rank = topology.dp_rank + local,
                                 .stages = {topology.first_stage(), topology.first_stage() + topology.stages_here()},
                                 .layer_partition = topology.layer_partition,
                                 .replicas = exchange,
                                 .threads_per_rank = sources.threads.per_rank,
                                 .spin_us = sources.threads.spin_us,
                                 .loaders = sources.threads.loaders,
                                 .enter = pinning(sources.threads, local * ranks)};
  auto loaded = engine::RankSet::load(std::move(options), [&](const models::RankSetup& rank, ComputePool& pool) {
    const int here = rank.place.replica_rank() - topology.first_stage() * topology.ranks_per_stage();
    return models::load_model(
        setup.model_path,
        {.isa = setup.isa,
         .allow_onednn = setup.allow_onednn,
         .max_positions = setup.engine.max_model_len,
         .quantization = setup.quantization,
         .rank = rank,
         .progress = [&, here](int64_t done, int64_t total) { progress.show(here, done, total); }},
        pool);
  });
  if (loaded) progress.finish();
  return loaded;
}

parallel::MeshOptions mesh_options(const EngineSources& sources) {
  return {.deadline = step_timeout(sources.setup.topology), .spin = std::chrono::microseconds(sources.threads.spin_us)};
}

Result<std::unique_ptr<parallel::Mesh>> meet_members(const EngineSources& sources) {
  const auto& topology = sources.setup.topology;
  log_info("meeting nnodes={} node_rank={} at={}:{}", topology.nnodes, topology.node_rank, topology.master_addr,
           topology.master_port);
  return parallel::meet({.address = topology.master_addr,
                         .port = topology.master_port,
                         .size = topology.nnodes,
                         .rank = topology.node_rank,
                         .listen_host = topology.own_address,
                         .group = "pipeline",
                         .fingerprint = sources.fingerprint,
                         .secret = topology.secret,
                         .mesh = mesh_options(sources)});
}

// A mesh for each replica of this process: in memory where all are here.
Result<std::vector<std::unique_ptr<parallel::Mesh>>> meet_replicas(const EngineSources& sources) {
  const auto& topology = sources.setup.topology;
  std::vector<std::unique_ptr<parallel::Mesh>> meshes;
  if (!topology.replicas_meet()) {
    for (auto& mesh : parallel::make_memory_meshes(topology.dp_size_local, mesh_options(sources))) {
      meshes.push_back(std::move(mesh));
    }
    return meshes;
  }
  log_info("meeting dp_size={} dp_rank={} at={}:{}", topology.dp_size, topology.dp_rank, topology.dp_address,
           topology.dp_rpc_port);
  std::vector<Result<std::unique_ptr<parallel::Mesh>>> met(static_cast<size_t>(topology.dp_size_local));
  std::vector<std::thread> threads;
  for (int local = 0; local < topology.dp_size_local; ++local) {
    threads.emplace_back([&, local] {
      met[static_cast<size_t>(local)] = parallel::meet({.address = topology.dp_address,
                                                        .port = topology.dp_rpc_port,
                                                        .size = topology.dp_size,
                                                        .rank = topology.dp_rank + local,
                                                        .listen_host = topology.own_address,
                                                        .group = "data-parallel",
                                                        .fingerprint = sources.fingerprint,
                                                        .secret = topology.secret,
                                                        .mesh = mesh_options(sources)});
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& mesh : met) {
    if (!mesh) return fail(mesh.error());
    meshes.push_back(*std::move(mesh));
  }
  return meshes;
}

constexpr auto kStopPatience = std::chrono::seconds(5);

Result<void> check_combination(const TopologySetup& topology) {
  if (topology.nnodes > 1 && topology.dp_size_local > 1) {
    return fail(Code::kUnimplemented,
                "{} data-parallel replicas in a process that holds a part of the stages (--nnodes {}): start each "
                "replica apart, with --data-parallel-rank",
                topology.dp_size_local, topology.nnodes);
  }
  if (topology.nnodes > 1 && topology.dp_size > 1 && topology.expert_parallel) {
    return fail(Code::kUnimplemented,
                "--enable-expert-parallel over {} replicas whose stages lie on {} nodes: leave it out (each replica "
                "then holds all experts), or put all stages of a replica on one node",
                topology.dp_size, topology.nnodes);
  }
  return {};
}

Result<std::unique_ptr<engine::Engine>> make_replica(const EngineSources& sources, ServedEngine& served, int local) {
  const auto& topology = sources.setup.topology;
  const int dp_rank = topology.dp_rank + local;
  BATON_TRY_ASSIGN(auto config, config_of_replica(sources.setup.engine, topology, dp_rank));
  engine::EngineDependencies dependencies;
  models::ReplicaExchange* exchange = nullptr;
  if (!served.replicas.empty()) {
    auto& mesh = *served.replicas[static_cast<size_t>(local)];
    exchange = served.exchanges.emplace_back(std::make_unique<engine::MeshExchange>(mesh)).get();
    dependencies.replicas = &mesh;
  }
  BATON_TRY_ASSIGN(auto ranks, load_replica(sources, local, exchange));
  dependencies.members = served.members.get();
  dependencies.metrics = &sources.metrics;
  if (topology.dp_size_local > 1) {
    served.registries.push_back(sources.metrics.with_labels({{"engine", std::to_string(dp_rank)}}));
    dependencies.metrics = served.registries.back().get();
  }
  if (sources.make_kv_host) dependencies.make_kv_host = sources.make_kv_host(config, *dependencies.metrics);
  return engine::make_engine(std::move(config), std::move(ranks), std::move(dependencies));
}

// No request is taken before all replicas are there: a step needs every one of them.
Result<void> wait_for_replicas(ServedEngine& served, const engine::EngineConfig& config) {
  const auto word = fmt::format("--max-num-batched-tokens {}", config.max_num_batched_tokens);
  for (auto& mesh : served.replicas) BATON_TRY(engine::send_ready(*mesh, word));
  for (auto& mesh : served.replicas) {
    BATON_TRY_ASSIGN(const auto words, engine::await_ready(*mesh, word));
    for (size_t other = 0; other < words.size(); ++other) {
      if (words[other] == word) continue;
      return fail(Code::kMismatch, "replicas that share experts are set up differently: rank {} has {}, rank {} has {}",
                  mesh->rank(), word, other, words[other]);
    }
  }
  return {};
}

}  // namespace

std::optional<Status> left_by_others(const ServedEngine& served) {
  std::vector<const parallel::Mesh*> meshes{served.members.get()};
  for (const auto& mesh : served.replicas) meshes.push_back(mesh.get());
  std::optional<Status> why;
  for (const auto* mesh : meshes) {
    auto failure = mesh != nullptr ? mesh->failure() : std::nullopt;
    if (!failure) continue;
    if (failure->code() == Code::kCancelled) return std::nullopt;  // a replica here has left first
    why = std::move(failure);
  }
  return why;
}

Result<ServedEngine> make_served_engine(const EngineSources& sources) {
  const auto& topology = sources.setup.topology;
  BATON_TRY(check_combination(topology));
  ServedEngine served;
  if (topology.nnodes > 1) {
    BATON_TRY_ASSIGN(served.members, meet_members(sources));
  }
  if (topology.expert_parallel && topology.dp_size > 1) {
    BATON_TRY_ASSIGN(served.replicas, meet_replicas(sources));
  }
  std::vector<std::unique_ptr<engine::Engine>> engines;
  for (int local = 0; local < topology.dp_size_local; ++local) {
    BATON_TRY_ASSIGN(auto engine, make_replica(sources, served, local));
    engines.push_back(std::move(engine));
  }
  if (topology.replicas_meet()) BATON_TRY(wait_for_replicas(served, engines.front()->config()));
  if (engines.size() == 1) {
    served.engine = std::move(engines.front());
  } else {
    served.engine = std::make_unique<engine::DataParallelEngine>(std::move(engines), topology.dp_rank);
  }
  return served;
}

Result<void> run_headless(const EngineSources& sources) {
  const auto& topology = sources.setup.topology;
  BATON_TRY(check_combination(topology));
  BATON_TRY_ASSIGN(const auto members, meet_members(sources));
  auto ranks = load_replica(sources, 0, nullptr);
  if (!ranks) {
    members->leave(ranks.error().message());
    return fail(ranks.error());
  }
  BATON_TRY_ASSIGN(auto config, config_of_replica(sources.setup.engine, topology, topology.dp_rank));
  const auto make_host = sources.make_kv_host ? sources.make_kv_host(config, sources.metrics) : engine::MakeKvHost();
  // As long as the leading process may take to stop, too.
  const StopOnSignal stop(*members, sources.setup.shutdown_timeout + kStopPatience);
  auto ended = engine::run_member(std::move(config), *std::move(ranks), *members, make_host);
  // What ends after a signal because the group does ends in order; so does what leaves it.
  if (!ended && !(stop.asked() && members->failure())) return ended;
  log_info("stopped");
  return {};
}

}  // namespace baton::apps
