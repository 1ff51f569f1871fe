// Continuous batching: which sequences compute which tokens in the next step, and who holds which blocks.
//
// Pure logic on the engine thread: no model, no clock, no connector. schedule() makes a plan, the worker runs it,
// update() takes the results. Several plans may be under way (stages of a pipeline take them one after the other):
// update() then takes them in their order. A sequence with a step under way is neither preempted nor, by the caller,
// removed; it can have more than one where its next tokens are known (chunks of a prompt). vLLM's semantics: one token
// budget, running sequences first and then waiting ones; there are no prefill and decode phases, each sequence catches
// up with its tokens; when blocks run out the last running sequence (by the priority policy: the least important,
// latest) is preempted, to be recomputed; after a preemption nothing new starts in that step.
//
// Waiting sequences go by (priority with that policy, turn, arrival), those that hold fetched KV before all others:
// they could otherwise keep the blocks for which the head of the queue waits. Turns make clients equal (start-time fair
// queueing): a client's next turn is its last one plus what that one costs, but not before the turn that is being
// served. With one client that is the order of arrival. A preempted sequence had an earlier turn, or arrived before all
// that have not run, so it comes back to the front.
//
// Recurrent state exists at one position of a sequence. A prefix is found again where its blocks are cached and a
// snapshot of the state at its end was kept, so chunks end at positions worth keeping (scheduler_state.cc); what a
// sequence does there before it goes on (keep a snapshot, put the state aside for another engine) is a copy that the
// plan asks for at the start of the next step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/scheduler/sequence.h"
#include "engine/scheduler/step_plan.h"
#include "kv/block_manager.h"
#include "kv/state_pool.h"

namespace baton::engine {

struct SchedulerOptions {
  int64_t max_model_len = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t max_num_seqs = 0;
  int64_t long_prefill_token_threshold = 0;  // 0: none
  int64_t max_prompt_logit_rows = 0;         // of a step, over all sequences
  int64_t state_snapshot_interval = 0;       // tokens; 0: none
  bool priority_scheduling = false;
  bool recompute_elsewhere = false;  // sequences that may leave are not preempted, but leave
  std::vector<TokenId> eos_token_ids;
  double test_preempt_probability = 0;
  // Plans that may be under way, one per pipeline stage. With several, generating sequences are dealt out over them,
  // and prompts cut so that every stage has work; into chunks of least_chunk tokens at least, which kernels still do
  // well.
  int depth = 1;
  int64_t least_chunk = 128;
};

// What a step brought one sequence.
struct SequenceUpdate {
  Sequence* sequence = nullptr;     // valid until the next call; owned by `finished` when that is set
  std::vector<SampleResult> taken;  // new tokens, in order
  std::optional<FinishReason> finish;
  std::optional<TokenId> stop_token;
  std::optional<Status> error;
  bool first_token_mismatch = false;
  std::optional<KvSave> save;
  std::unique_ptr<Sequence> finished;
};

class Scheduler {
 public:
  // `states` has no slots where the model keeps no recurrent state.
  Scheduler(SchedulerOptions options, kv::BlockManager& blocks, kv::StatePool& states);

  void add(std::unique_ptr<Sequence> sequence);
  StepPlan schedule();
  std::vector<SequenceUpdate> update(const StepPlan& plan, StepResult result);

  // A load ended: its first valid_tokens tokens are here and verified, and the state if one was asked for. The sequence
  // goes on waiting, to run from there. Tokens without the state are of no use but as a cached prefix.
  void finish_load(SequenceId id, int64_t valid_tokens, bool state_valid);

  // Takes a sequence out. Its blocks are free on return, except a loading one's: those come back still held, for the
  // connector may yet write them.
  struct Removed {
    std::unique_ptr<Sequence> sequence;
    std::vector<BlockId> still_held;
    std::optional<kv::StateSlot> still_held_state;
  };
  Removed remove(SequenceId id);

  Sequence* find(SequenceId id);
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t loading() const { return loading_; }
  size_t clients_known() const { return next_turns_.size(); }
  bool has_sequences() const { return !sequences_.empty(); }
  std::vector<SequenceId> ids() const;  // in order of arrival
  std::optional<SequenceId> first_waiting() const;

  struct Counters {
    int64_t preemptions = 0;
    int64_t recomputed = 0;                       // left in place of being preempted
    int64_t prefix_queries = 0, prefix_hits = 0;  // tokens
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Budget {
    int64_t tokens = 0;
    int64_t prompt_rows = 0;
  };
  enum class Admission : uint8_t { kRuns, kLoads, kNoRoom };
  // What is here of a sequence's beginning.
  struct Prefix {
    std::vector<BlockId> blocks;
    int64_t seen_tokens = 0;                // cached tokens, also those behind the last kept state
    std::optional<kv::StateSlot> snapshot;  // of the tokens of `blocks`
  };
  using WaitingKey = std::tuple<bool, int, int64_t, int64_t>;  // holds no blocks, priority, turn, arrival

  // scheduler.cc
  WaitingKey waiting_key(const Sequence& sequence) const;
  int64_t take_turn(const Sequence& sequence);
  void forget_clients();
  void wait(Sequence& sequence);
  void preempt(Sequence& sequence, StepPlan& plan);
  void preempt_at_random(StepPlan& plan);
  void drop_load(Sequence& sequence, int64_t valid_tokens);
  std::unique_ptr<Sequence> extract(SequenceId id);

  // scheduler_step.cc
  void schedule_running(StepPlan& plan, Budget& budget);
  bool make_room(Sequence& sequence, int64_t token_capacity, StepPlan& plan, Budget& budget);
  Sequence* victim(const Sequence& for_whom) const;
  int64_t sequences_per_plan() const;
  int64_t tokens_per_plan() const;
  void take_back(SequenceId id, StepPlan& plan, Budget& budget);
  int64_t next_chunk(const Sequence& sequence, const Budget& budget) const;
  void add_step(Sequence& sequence, int64_t chunk, StepPlan& plan, Budget& budget);

  // scheduler_admit.cc
  void schedule_waiting(StepPlan& plan, Budget& budget);
  Admission admit(Sequence& sequence, StepPlan& plan, Budget& budget);
  Admission start_load(Sequence& sequence, StepPlan& plan);
  Prefix find_prefix(Sequence& sequence);
  void count_prefix(Sequence& sequence, int64_t hit_tokens);

  // scheduler_state.cc
  bool keeps_state() const { return states_.slot_count() > 0; }
  bool hands_over_state(const Sequence& sequence) const;
  Prefix with_state(Sequence& sequence, std::vector<BlockId> blocks) const;
  int state_slots_needed(const Sequence& sequence) const;
  bool state_fits(const Sequence& sequence) const;
  void begin_state(Sequence& sequence, const Prefix& prefix);
  void release_state(Sequence& sequence);
  int64_t snapshot_interval() const;
  int64_t next_state_cut(const Sequence& sequence) const;
  bool keep_here(const Sequence& sequence) const;
  void add_state(Sequence& sequence, SequenceStep& step);
  void settle_state(Sequence& sequence);

  // scheduler_update.cc
  void take_samples(Sequence& sequence, std::vector<SampleResult> samples, SequenceUpdate& update);
  void check_stop(const Sequence& sequence, TokenId token, SequenceUpdate& update) const;
  void finish(Sequence& sequence, SequenceUpdate& update);

  const SchedulerOptions options_;
  kv::BlockManager& blocks_;
  kv::StatePool& states_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_;  // in order of admission
  std::map<WaitingKey, Sequence*> waiting_;
  std::unordered_map<std::string, int64_t> next_turns_;  // by client; some of those that are here no more
  int64_t turn_served_ = 0;                              // the latest that has started
  int64_t loading_ = 0;
  uint64_t step_number_ = 0;
  int plans_under_way_ = 0;
  uint64_t random_state_ = 0x9e3779b97f4a7c15;
  Counters counters_;
};

}  // namespace baton::engine
