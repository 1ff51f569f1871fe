// Load on an engine in process, and the rates it gave.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "parallel/grid.h"

namespace baton::bench {

struct EngineSetup {
  std::string model_path;
  int threads = 1;              // of each rank
  parallel::GridSizes sizes{};  // dp: so many engines side by side, requests in turn
  int max_num_batched_tokens = 2048;
};

// Idle threads of it sleep: several may exist while one is measured.
Result<std::unique_ptr<engine::Engine>> start_engine(const EngineSetup& setup);

struct Rates {
  double prefill = 0;  // prompt tokens per second, until the last request has its first token
  double decode = 0;   // tokens per second while all requests are running
};

// `requests` at once, greedy, each of `prompt` random tokens and `output` new ones.
Rates measure(engine::Engine& engine, int requests, int prompt, int output, uint64_t seed);

}  // namespace baton::bench
