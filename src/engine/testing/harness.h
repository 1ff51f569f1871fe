// Runs requests through an engine over the fake model and gathers what comes back.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/metrics.h"
#include "engine/make_engine.h"
#include "engine/testing/connector_twin.h"
#include "engine/testing/fake_model.h"

namespace baton::engine::testing {

// All of a request's outputs as one.
struct Gathered {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> hashes;
  std::vector<GeneratedToken> details;
  RequestOutput first, last;
  int outputs = 0;
  bool finished = false;
};

class Harness {
 public:
  struct Options {
    EngineConfig config;
    FakeModelOptions model;
    // In place of the fake model.
    std::function<std::unique_ptr<models::Model>(ComputePool&)> make_model;
    // A grid of ranks, of the fake model or of what make_rank gives.
    std::optional<RankSetOptions> grid;
    RankSet::MakeModel make_rank;
    parallel::Mesh* members = nullptr;
    parallel::Mesh* replicas = nullptr;
    int threads = 1;
    std::shared_ptr<TwinLink> link;
    TwinSide side = TwinSide::kNone;
  };
  explicit Harness(Options options);
  ~Harness();

  Engine& engine() { return *engine_; }
  MetricRegistry& metrics() { return metrics_; }
  Result<void> submit(EngineRequest request);
  // Submits and waits.
  Gathered run(EngineRequest request);
  // All at once; in the order given.
  std::vector<Gathered> run_all(std::vector<EngineRequest> requests);
  // Waits at most ten seconds. A request that does not end fails the test.
  Gathered wait(const std::string& id);
  // Until a first token is there.
  void wait_first_token(const std::string& id);
  // Until no request is live and no block is held; false after ten seconds.
  bool all_free();

  // A configuration with a small cache, made of blocks of 4.
  static EngineConfig small_config();
  // Room for this many blocks.
  static int64_t bytes_for_blocks(const EngineConfig& config, const FakeModelOptions& model, int64_t blocks);

 private:
  void take(RequestOutput&& output);

  std::unique_ptr<Engine> build(Options& options);

  MetricRegistry metrics_;
  ComputePool pool_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Gathered> gathered_;
  std::unique_ptr<Engine> engine_;
};

// A request of these tokens; greedy, 8 new tokens.
EngineRequest make_request(std::string id, std::vector<TokenId> prompt);
std::vector<TokenId> random_prompt(uint64_t seed, int length, int vocab_size = 97);

}  // namespace baton::engine::testing
