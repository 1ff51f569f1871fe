// The requests of the exactness test: mixed lengths, shared beginnings, every kind of sampling. A function of its seed.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace baton::exactness {

struct WorkloadOptions {
  int requests = 200;
  int vocab_size = 0;
  int longest_prompt = 2400;  // some are beyond 1 600 tokens, so that several attention lanes are in use
  int max_tokens = 24;
  uint64_t seed = 1;
};

// A third greedy, a third seeded with filters and penalties, a third unseeded at temperature 1.
std::vector<engine::EngineRequest> make_workload(const WorkloadOptions& options);

}  // namespace baton::exactness
