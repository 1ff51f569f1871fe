// How many KV blocks and slots of recurrent state an engine gets: from the memory budget of its process, bounded by
// what its requests could ever use. Pure.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/engine.h"

namespace baton::engine {

struct KvBudgetInput {
  int64_t kv_cache_bytes = 0;     // of blocks; asked for; 0: from memory_utilization
  int64_t state_cache_bytes = 0;  // of slots; asked for; 0: chosen here
  double memory_utilization = 0.9;
  int64_t available_bytes = 0;  // memory this process may still use, its weights being loaded
  int64_t weight_bytes = 0;
  int64_t scratch_bytes = 0;  // logits and other step memory still to come
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  int64_t block_tokens = 0;
  int64_t block_bytes = 0;  // of a block, on all ranks of this process
  int64_t slot_bytes = 0;   // the same of a slot of recurrent state; 0: the model keeps none
};

struct KvCounts {
  int64_t blocks = 0;
  int64_t slots = 0;
};

// Without kv_cache_bytes no more than this, or a quarter of the available memory where that is more: an engine started
// without thought must leave room for its neighbours (a prefill and a decode engine on one machine).
inline constexpr int64_t kDefaultKvBytesMax = int64_t{4} << 30;
// One for a sequence that runs, one for what it hands over.
inline constexpr int64_t kSlotsMin = 2;

// kFailedPrecondition when one request of max_model_len tokens does not fit; the message has the figures and the flags.
Result<KvCounts> kv_counts(const KvBudgetInput& input);

}  // namespace baton::engine
