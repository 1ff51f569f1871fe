// A step on its way to the other processes of an engine. They are of the same build and have met under one fingerprint;
// still, what is read is checked against what this process holds, so that no byte of it can lead outside the cache.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/ranks/rank_step.h"

namespace baton::engine {

// What a step must keep to.
struct StepLimits {
  int64_t max_rows = 0;
  int64_t max_logit_rows = 0;
  int64_t blocks = 0, slots = 0;
  int64_t block_tokens = 0;  // of a block number
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
};

std::vector<std::byte> encode_step(const RankStep& step);
// Into `step`, linked. kDataLoss says what is out of bounds; `step` is then empty.
Result<void> decode_step(std::span<const std::byte> bytes, const StepLimits& limits, RankStep& step);

}  // namespace baton::engine
