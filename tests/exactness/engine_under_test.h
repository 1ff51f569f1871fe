// Engines as the exactness test sets them up, and the trace of what one gave: tokens and a hash of the logits each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "engine/engine.h"
#include "parallel/grid.h"

namespace baton::exactness {

struct EngineSetup {
  std::string model_path;
  int threads = 1;
  bool allow_onednn = true;
  engine::EngineConfig config;  // max_model_len is lowered to the model's
  parallel::GridSizes sizes;    // of the ranks, all in this process
};

// Ranks with their models and threads, and the engine over them.
struct EngineUnderTest {
  std::unique_ptr<MetricRegistry> metrics;
  std::unique_ptr<engine::Engine> engine;
};
Result<EngineUnderTest> start_engine(const EngineSetup& setup);

struct Trace {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> logits_hashes;  // of each token's logits
  uint64_t seed = 0;                    // the one drawn where the request gave none
  int64_t cached_tokens = 0;
  int64_t external_tokens = 0;
  std::string error;  // empty: it ended well
  std::optional<wire::KvTransferParams> kv_transfer;

  bool same_answer(const Trace& other) const {
    return error.empty() && other.error.empty() && tokens == other.tokens && logits_hashes == other.logits_hashes;
  }
};
using Traces = std::map<std::string, Trace>;  // by request id

// All at once, or each after the one before it.
Traces run_together(engine::Engine& engine, const std::vector<engine::EngineRequest>& requests);
Traces run_one_by_one(engine::Engine& engine, const std::vector<engine::EngineRequest>& requests);

// Mean negative log-likelihood of the prompt's tokens after the first; the request asks for prompt_logprobs.
double mean_prompt_nll(engine::Engine& engine, const engine::EngineRequest& request);

// One 64-bit number for a whole column.
uint64_t combined_hash(const Traces& traces);

}  // namespace baton::exactness
