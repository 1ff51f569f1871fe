// One step as plain data: what every rank is told to compute. The scheduler makes it, the worker runs it, update()
// takes its result. Nothing in it points into the scheduler, so it can be sent.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/strong_id.h"
#include "engine/sampling/sampler.h"
#include "kv/state_pool.h"
#include "wire/prompt_digest.h"

namespace baton::engine {

// A live request's number: its order of arrival.
using SequenceId = StrongId<struct SequenceTag, int64_t>;

// All bytes of a slot of recurrent state.
struct StateCopy {
  kv::StateSlot from, to;
};

// The rows of one sequence in a step. Row i has position first_position + i.
struct SequenceStep {
  SequenceId sequence;
  std::vector<TokenId> tokens;
  int64_t first_position = 0;                      // tokens in the cache before this step
  std::vector<std::vector<BlockId>> block_tables;  // per KV group; each covers first_position + tokens.size() tokens
  // Recurrent state of the tokens before this step; afterwards of these, too. Absent: the model keeps none.
  std::optional<kv::StateSlot> state_slot;
  // To be made before the step, one after the other.
  std::vector<StateCopy> state_copies;
  // Rows whose next token is wanted, ascending. One today; several when drafts are verified, whose update() then takes
  // a variable number of tokens.
  std::vector<int32_t> sample_rows;
  // Rows whose next token is known and whose log-probabilities are wanted, ascending, with those tokens.
  std::vector<int32_t> prompt_rows;
  std::vector<TokenId> prompt_targets;
  // The sampled token is to be compared with the one a prefill engine sampled.
  bool check_first_token = false;
};

// KV to fetch into a sequence's blocks before it can run.
struct KvLoad {
  SequenceId sequence;
  std::vector<BlockId> blocks;
  int64_t token_count = 0;
  int64_t skip_tokens = 0;                  // leading tokens that are here already: a multiple of the block size
  wire::PromptDigest prompt{};              // of the given tokens: what the KV must be of
  std::optional<kv::StateSlot> state_slot;  // for the recurrent state of all tokens but the last
};

// KV of a finished sequence to keep for another engine. The blocks stay held until they are released by name.
struct KvSave {
  std::vector<BlockId> blocks;
  int64_t token_count = 0;
  TokenId last_token = 0;
  wire::PromptDigest prompt{};              // of the token_count tokens
  std::optional<kv::StateSlot> state_slot;  // recurrent state of all tokens but the last; held as the blocks are
};

struct StepPlan {
  uint64_t number = 0;
  std::vector<SequenceStep> sequences;
  int64_t row_count = 0;
  bool pushes = false;  // KV of its sequences goes to another engine while it is computed
  std::vector<KvLoad> loads;
  std::vector<SequenceId> declined;  // will not fetch what they could have fetched
  std::vector<SequenceId> leaving;   // without a block here: to be taken out before the step and resumed elsewhere
  int64_t preempted = 0;             // those that leave, too
  bool empty() const { return sequences.empty() && loads.empty() && declined.empty(); }
};

// Parallel to StepPlan::sequences.
struct SequenceResult {
  std::vector<SampleResult> samples;  // per sample row
  std::vector<PromptResult> prompts;  // per prompt row
};
struct StepResult {
  std::vector<SequenceResult> sequences;
};

}  // namespace baton::engine
