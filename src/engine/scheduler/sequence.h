// One live request as the scheduler sees it. Engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling/sampling_state.h"
#include "engine/scheduler/step_plan.h"
#include "kv/block_manager.h"
#include "kv/state_pool.h"

namespace baton::engine {

enum class SequenceStage : uint8_t {
  kWaiting,  // may hold blocks already: KV that was fetched
  kLoading,  // vLLM's WAITING_FOR_REMOTE_KVS: holds blocks that a connector fills
  kRunning,
};

// How a sequence's KV may come from another engine.
struct RemotePrefill {
  int64_t token_count = 0;  // tokens the other engine says it has; 0: it does not say
  std::optional<TokenId> last_token;
};

// Recurrent state of a sequence, where the model keeps any.
struct SequenceState {
  std::optional<kv::StateSlot> slot;          // of the first `computed` tokens; held while blocks are
  std::optional<kv::StateSlot> handoff;       // for another engine, reserved from the start
  bool handoff_made = false;                  // it has the state of all given tokens but the last
  int64_t seen_before = 0;                    // tokens of a prefix that others had, too, but whose state was not kept
  std::optional<kv::StateSlot> restore_from;  // pinned until the step that copies it has run
  struct Snapshot {
    kv::StateSlot slot;
    kv::BlockHash prefix;
  };
  std::optional<Snapshot> snapshot;  // made in the step at hand
};

struct Sequence {
  SequenceId id;
  int priority = 0;
  std::string client;           // those of one client wait behind each other
  int64_t turn = 0;             // set by the scheduler
  std::vector<TokenId> tokens;  // prompt, then outputs generated elsewhere before, then those generated here
  int64_t prompt_count = 0;
  int64_t given_count = 0;  // prompt and resumed outputs
  SamplingState sampling;
  kv::SequenceBlocks blocks;
  SequenceState state;

  SequenceStage stage = SequenceStage::kWaiting;
  int64_t computed = 0;  // leading tokens whose KV is in the blocks
  // Steps that have been planned and not updated, and their tokens, which follow the computed ones.
  int steps_under_way = 0;
  int64_t tokens_under_way = 0;
  bool ran_before = false;
  bool may_leave = false;  // someone brings it back

  bool pushes = false;                          // its KV goes to another engine while it is computed
  int64_t pushed_tokens = 0;                    // leading tokens whose KV has been given to the connector
  uint64_t push_id = 0;                         // what the connector knows it by, once it was given something
  bool remote_decode = false;                   // keep the prompt's KV for another engine at the end
  std::optional<RemotePrefill> remote_prefill;  // until decided
  std::optional<TokenId> expected_first_token;  // what the prefill engine sampled
  int64_t cached_tokens = 0;
  int64_t external_tokens = 0;

  int64_t next_prompt_target = 1;  // the next prompt token whose log-probability is to be had
  std::vector<PromptResult> prompt_results;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  // Where the next step begins.
  int64_t planned() const { return computed + tokens_under_way; }
  int64_t new_tokens() const { return size() - given_count; }
  int64_t output_count() const { return size() - prompt_count; }
  // Whole-prompt logits are needed: nothing may be taken from a cache.
  bool needs_prompt_logits() const {
    return sampling.params().prompt_logprobs.has_value() && next_prompt_target < prompt_count;
  }
};

}  // namespace baton::engine
